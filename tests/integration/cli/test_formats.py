"""How commands speak: envelopes, errors, colours, widths, and readers that go away."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from holdfast.cli import main
from holdfast.cli.output import Reply
from tests.integration.cli.project import ENVELOPE, Project

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NOISY = """\
  - {name: noisy, run: 'printf "\\033[31mred\\033[0m \\a\\rover\\n"; printf "bad \\377\\n"; false'}
"""


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["plan", "status", "--no-such-option"], "plan status"),
        (["plan", "create"], "plan create"),
        (["plan", "statsu"], "plan"),
        (["plan"], "plan"),
        (["nothing"], ""),
        ([], ""),
        (["plan", "list", "--limit", "0"], "plan list"),
        (["plan", "list", "--limit", str(10**20)], "plan list"),
        (["plan", "list", "--project", "/no/such/folder"], "plan list"),
        (["plan", "correct", "--mode", "revert", "--guidance", " ", "X"], "plan correct"),
    ],
)
@pytest.mark.parametrize("chosen", ["json", "yaml"])
def test_wrong_usage_is_an_envelope_too(project: Project, arguments: list[str], command: str, chosen: str) -> None:
    for ended in (project.call(*arguments, "--format", chosen), project.call(*arguments, f"--format={chosen}")):
        parsed = json.loads(ended.stdout) if chosen == "json" else yaml.safe_load(ended.stdout)
        assert parsed.keys() == ENVELOPE
        assert (ended.exit_code, parsed["exit_code"], parsed["status"]) == (2, 2, "error")
        assert parsed["command"] == command
        assert parsed["data"]["error"]["type"] == "UsageError"
        assert ended.stderr == ""


def test_an_error_goes_to_standard_error_with_a_hint(project: Project) -> None:
    ended = project.call("plan", "status", "01NOSUCHPLAN")
    assert (ended.exit_code, ended.stdout) == (3, "")
    assert ended.stderr.splitlines() == [
        "error: There is no plan '01NOSUCHPLAN'.",
        "hint: See them with `holdfast plan list`.",
    ]


def test_the_same_error_in_an_envelope(project: Project) -> None:
    error = project.json("plan", "status", "01NOSUCHPLAN", exit_code=3)["error"]
    assert error == {
        "type": "NotFoundError",
        "message": "There is no plan '01NOSUCHPLAN'.",
        "hint": "See them with `holdfast plan list`.",
    }


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (["plan", "status"], 3),
        (["plan", "status", "--config", "step.timeout=never"], 9),
        (["plan", "status", "--config", "nonsense"], 2),
        (["plan", "execute", "missing.yaml"], 2),
        (["plan", "apply", "-y", "01X"], 3),
        (["plan", "diff", "01X"], 3),
        (["plan", "correct", "-y", "--mode", "revert", "--guidance", "x", "01X"], 3),
        (["checkpoint", "show", "cp_x"], 3),
        (["config", "get", "no.such.key"], 9),
    ],
)
def test_every_refusal_has_its_exit_code_and_no_traceback(
    project: Project, arguments: list[str], exit_code: int
) -> None:
    ended = project.call(*arguments)
    assert (ended.exit_code, ended.stdout) == (exit_code, "")
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr


def test_the_options_of_all_commands_are_taken_before_and_after_the_command(project: Project) -> None:
    project.json("plan", "create", str(project.plan(NOISY)))
    for arguments in (
        ["--format", "json", "plan", "status"],
        ["plan", "--format", "json", "status"],
        ["plan", "status", "--format", "json"],
        ["--format", "plain", "plan", "status", "--format", "json"],
    ):
        assert project.call(*arguments).data["name"] == "a test plan"


def test_home_project_and_config_are_taken_from_the_command_line(project: Project, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    home = str(tmp_path / "second-home")
    file = str(project.plan(NOISY))
    created = project.run(
        "plan", "create", file, "--home", home, "--project", str(other),
        "--config", "sandbox.checkpoint.max-checkpoints-per-plan=7", "--format", "json",
    )  # fmt: skip
    assert created.exit_code == 0
    assert not project.home.exists()
    seen = project.call("plan", "status", "--home", home, "--project", str(other), "--format", "json").data
    assert seen["policy"]["max_checkpoints"] == 7


def test_plain_text_has_no_control_characters_whatever_a_step_prints(project: Project) -> None:
    executed = project.run("plan", "execute", str(project.plan(NOISY)))
    status = project.call("plan", "status")
    for text in (executed.stdout, status.stdout):
        assert "  | over" in text
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_json_is_valid_utf8_whatever_files_are_called(project: Project) -> None:
    steps = '  - {run: \'touch "$(printf "caf\\\\351.txt")" "$(printf "two\\\\nlines")"\'}\n'
    project.json("plan", "execute", str(project.plan(steps)))
    assert {each["file"] for each in project.json("plan", "diff", "latest")["files"]} == {
        "app/caf\\xe9.txt",
        "app/two\nlines",
    }
    assert project.call("plan", "diff", "latest", "--name-only").stdout == "app/caf\\xe9.txt\napp/two\\nlines\n"


def test_an_encoding_without_our_characters_is_no_reason_to_fail(project: Project) -> None:
    steps = "  - {name: grüße, run: 'seq 99; false'}\n"
    environment = {**project.environment, "PYTHONIOENCODING": "ascii"}
    started = project.start("plan", "execute", str(project.plan(steps)), env=environment)
    assert "gr\\xfc\\xdfe" in started.communicate()[0]
    assert started.returncode == 1


def test_a_terminal_gets_colour_unless_it_is_not_wanted(project: Project) -> None:
    project.json("plan", "create", str(project.plan(NOISY)))
    assert COLOUR.search(project.on_terminal("plan", "status").stdout)
    assert not COLOUR.search(project.on_terminal("plan", "status", variables={"NO_COLOR": "1"}).stdout)
    assert not COLOUR.search(project.on_terminal("plan", "status", "--format", "plain").stdout)
    assert not COLOUR.search(project.call("plan", "status", "--format", "rich").stdout)


def test_a_dumb_terminal_gets_no_status_line(project: Project) -> None:
    steps = "  - {name: talks, run: echo halfway}\n"
    shown = project.on_terminal("plan", "execute", str(project.plan(steps)), variables={"TERM": "dumb"})
    assert shown.exit_code == 0
    assert "\x1b" not in shown.stdout
    assert "[1/1] talks  ok" in shown.stdout


@pytest.mark.parametrize("columns", [60, 200])
def test_tables_fit_the_terminal(project: Project, columns: int) -> None:
    steps = "  - {name: a step with a name that is quite a bit longer than anybody would expect, run: 'true'}\n"
    project.json("plan", "execute", str(project.plan(steps)))
    for arguments in (["plan", "list"], ["plan", "status"], ["checkpoint", "list"]):
        shown = COLOUR.sub("", project.on_terminal(*arguments, columns=columns).stdout).splitlines()
        tables = [line for line in shown if "holdfast " not in line and str(project.folder) not in line]
        assert max(map(len, tables)) <= columns


def test_a_terminal_shows_what_a_running_step_prints(project: Project) -> None:
    steps = "  - {name: talks, run: 'echo halfway; sleep 0.5; echo there'}\n"
    shown = project.on_terminal("plan", "execute", str(project.plan(steps)))
    assert shown.exit_code == 0
    assert "talks  halfway" in shown.stdout
    assert "\x1b[?25h" in shown.stdout


def test_a_reader_that_goes_away_does_not_stop_a_plan(project: Project) -> None:
    steps = "".join(f"  - {{name: step {number}, run: echo {number} > {number}}}\n" for number in range(3))
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", "plan", "execute", str(project.plan(steps))],
        cwd=project.folder,
        env=project.environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert project.json("plan", "status")["state"] == "complete"


def test_a_reader_that_goes_away_before_an_envelope_sees_no_traceback(project: Project) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "plan", "list", "--format", "json"],
        cwd=project.folder, env=project.environment, stdout=writing, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(writing)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")


def test_a_folder_that_is_gone_is_an_error_without_a_traceback(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = project.folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main.run(["plan", "list", "--home", str(project.home)]) == 6
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: The current folder is gone.\nhint: Change to a folder that exists, with `cd`")


def test_what_nobody_thought_of_is_told_in_a_sentence(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main.cli, "imported", lambda _name: broken)
    ended = project.call("doctor")
    assert ended.exit_code == 6
    assert "ZeroDivisionError" in ended.stderr
    assert "HOLDFAST_DEBUG=1" in ended.stderr
    assert "Traceback" not in ended.stderr
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    assert "Traceback" in project.call("doctor").stderr


@click.command()
def broken() -> Reply:
    raise ZeroDivisionError("division by zero")


def test_the_version_and_the_help_are_printed(project: Project) -> None:
    assert re.fullmatch(r"holdfast \S.*\n", project.call("--version").stdout)
    shown = project.call("--help")
    assert shown.exit_code == 0
    assert all(name in shown.stdout for name in ("plan", "checkpoint", "config", "doctor", "demo"))
    listed = [line.split()[0] for line in project.call("plan", "-h").stdout.split("Commands:")[1].splitlines() if line]
    assert listed[:2] == ["create", "execute"]


def test_no_command_at_all_shows_the_help_as_wrong_usage(project: Project) -> None:
    ended = project.run()
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("Usage: holdfast")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(["chekpoint"], "checkpoint"), (["plan", "exekute"], "execute"), (["plan", "list", "--al"], "--all")],
)
def test_a_slip_of_the_finger_is_answered_with_what_was_meant(
    project: Project, arguments: list[str], meant: str
) -> None:
    assert f"{meant}" in project.call(*arguments).stderr


def test_shells_can_complete_the_commands(project: Project) -> None:
    variables = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": "holdfast ch", "COMP_CWORD": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", "from holdfast.cli.main import main; main([])"],
        env={**project.environment, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stdout == "plain,checkpoint\n"


def test_a_text_that_is_no_plan_and_no_file_is_not_found_however_long(project: Project) -> None:
    assert project.call("plan", "execute", "x" * 5000).exit_code == 3


def test_an_empty_argument_is_wrong_and_never_the_current_folder_or_left_out(project: Project) -> None:
    assert project.call("plan", "execute", str(project.plan("  - {run: 'true'}\n"))).exit_code == 0
    before = {path.name for path in project.folder.iterdir()}
    for words, exit_code in (
        (["--home", "", "plan", "list"], 2),
        (["plan", "create", ""], 2),
        (["plan", "execute", ""], 3),
        (["plan", "diff", "latest", "", ""], 3),
        (["plan", "rollback", "--yes", "latest", ""], 3),
        (["plan", "correct", "--yes", "--mode", "append", "--guidance", "x", "--with", "", "latest"], 2),
    ):
        assert project.run(*words).exit_code == exit_code, words
    assert {path.name for path in project.folder.iterdir()} == before
