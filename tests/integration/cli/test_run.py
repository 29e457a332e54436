"""`holdfast run`: any program in a sandbox, with checkpoints while it works."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.project import Ended, Project, wait_until

EDITS = "echo one > f; sleep 1.5; echo two >> f; sleep 1.5; rm f version.txt"


def run(project: Project, *arguments: str, variables: dict[str, str] | None = None, cwd: Path | None = None) -> Ended:
    return project.run("run", *arguments, variables=variables or {}, cwd=cwd or project.app)


def in_app(project: Project, *arguments: str) -> Any:
    ended = project.run(*arguments, "--format", "json", cwd=project.app)
    assert ended.exit_code == 0, ended
    return ended.data


def test_a_program_that_edits_waits_edits_and_deletes_can_be_taken_back_point_by_point(project: Project) -> None:
    ended = run(project, "--settle", "300ms", "--", "sh", "-c", EDITS)
    assert ended.exit_code == 0, ended
    assert (project.app / "version.txt").read_text() == "1\n"
    plan = in_app(project, "plan", "status")
    sandbox = Path(plan["resources"][0]["sandbox_path"])
    moments = {
        tuple(each["triggers"]): each["checkpoint_id"] for each in in_app(project, "checkpoint", "list")["checkpoints"]
    }
    settled = [
        each["checkpoint_id"]
        for each in in_app(project, "checkpoint", "list")["checkpoints"]
        if each["triggers"] == ["settled"]
    ]
    assert len(settled) == 2
    expected = {
        settled[0]: {"f": "one\n", "version.txt": "1\n"},
        settled[1]: {"f": "one\ntwo\n", "version.txt": "1\n"},
        moments["on_tool_write_complete",]: {},
    }
    for checkpoint, files in expected.items():
        in_app(project, "plan", "rollback", "--yes", "latest", checkpoint)
        found = {path.name: path.read_text() for path in sandbox.iterdir() if path.is_file()}
        assert found == files


def test_its_exit_code_is_the_programs_and_its_output_goes_where_it_would_have_gone(project: Project) -> None:
    ended = run(project, "--", "sh", "-c", "echo out; echo wrong >&2; exit 3")
    assert ended.exit_code == 3
    assert "out\n" in ended.stdout
    assert ended.stderr == "wrong\n"
    assert "sh ended with exit code 3." in ended.stdout


def test_a_program_ended_by_a_signal_ends_as_shells_say_it(project: Project) -> None:
    assert run(project, "--", "sh", "-c", "kill -TERM $$").exit_code == 128 + signal.SIGTERM


def test_a_program_that_does_not_exist_is_said_and_nothing_changes(project: Project) -> None:
    ended = run(project, "--", "no-such-program")
    assert ended.exit_code == 127
    assert "no-such-program cannot be started" in ended.stdout


def test_afterwards_it_shows_the_difference_and_the_commands_that_go_on(project: Project) -> None:
    ended = run(project, "--", "sh", "-c", "echo 2 > version.txt; echo new > new.txt; exit 1")
    plan_id = in_app(project, "plan", "status")["plan_id"]
    for line in (
        "M  version.txt",
        "A  new.txt",
        f"holdfast plan diff --patch {plan_id}",
        f"holdfast plan apply {plan_id}",
        f"holdfast plan delete {plan_id}",
    ):
        assert line in ended.stdout
    applied = project.run("plan", "apply", "--yes", "latest", cwd=project.app)
    assert applied.exit_code == 0, applied
    assert (project.app / "new.txt").read_text() == "new\n"


def test_it_starts_in_the_sandboxes_copy_of_the_folder_one_is_in(project: Project) -> None:
    ended = run(project, "--", "sh", "-c", "ls; pwd", cwd=project.app / "src")
    assert "main.py" in ended.stdout
    assert "/sandboxes/" in ended.stdout


def test_resources_can_be_named(project: Project) -> None:
    ended = run(project, "--resource", str(project.data), "--resource", str(project.app), "--", "sh", "-c", "ls")
    assert ended.exit_code == 0, ended
    assert [each["name"] for each in in_app(project, "plan", "status")["resources"]] == ["data", "app"]


def test_its_input_is_handed_through(project: Project) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "--", "cat"],
        cwd=project.app,
        env=project.environment,
        input="said to it\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "said to it\n" in ended.stdout


def test_variables_and_places_are_allowed_by_name(project: Project) -> None:
    outside = project.folder / "outside"
    outside.mkdir()
    ended = run(
        project,
        *("--pass-env", "MY_KEY", "--allow-write", str(outside)),
        *("--", "sh", "-c", f'echo "$MY_KEY,$OTHER_KEY" > {outside}/seen'),
        variables={"MY_KEY": "mine", "OTHER_KEY": "not mine"},
    )
    assert ended.exit_code == 0, ended
    assert (outside / "seen").read_text() == "mine,\n"


def test_an_envelope_has_standard_output_for_itself(project: Project) -> None:
    ended = run(project, "--format", "json", "--", "sh", "-c", "echo out; echo 2 > version.txt; exit 4")
    assert (ended.exit_code, ended.data["program_exit_code"]) == (4, 4)
    assert [each["file"] for each in ended.data["changes"]] == ["version.txt"]
    assert ended.stderr == "out\n"


def test_wrong_arguments_are_refused(project: Project) -> None:
    assert run(project, "--settle", "soon", "--", "true").exit_code == 2
    assert run(project).exit_code == 2
    assert run(project, "--resource", "nowhere", "--", "true").exit_code == 2


def test_the_home_of_holdfast_is_no_resource(project: Project) -> None:
    ended = run(project, "--resource", str(project.folder), "--", "true")
    assert ended.exit_code == 6
    assert "holds Holdfast's own home" in ended.stderr


def test_a_program_can_be_cancelled_from_elsewhere_and_its_work_stays(project: Project) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "--settle", "100ms", "--", "sh", "-c", "echo 1 > f; sleep 60"],
        cwd=project.app,
        env=project.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )

    def is_kept() -> bool:
        listed = project.run("checkpoint", "list", "--format", "json", cwd=project.app)
        return listed.exit_code == 0 and any(each["triggers"] == ["settled"] for each in listed.data["checkpoints"])

    wait_until(is_kept)
    in_app(project, "plan", "cancel", "latest")
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "holdfast plan status" in shown
    assert "keep its work  holdfast plan resume --skip" in shown
    assert (Path(in_app(project, "plan", "status")["resources"][0]["sandbox_path"]) / "f").read_text() == "1\n"


def test_stopping_it_while_its_sandbox_is_made_says_that_it_never_began(project: Project) -> None:
    tools, real = project.folder / "tools", shutil.which("git")
    tools.mkdir()
    # Git is used for the last part of making a sandbox; this one sends a Ctrl-C then.
    script = f'#!/bin/sh\ncase "$*" in *update-index*) kill -INT $PPID;; esac\nexec {real} "$@"\n'
    (tools / "git").write_text(script)
    (tools / "git").chmod(0o700)
    variables = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    ended = run(project, "--", "sh", "-c", "echo 1 > f", variables=variables)
    assert (ended.exit_code, "error" in ended.stderr) == (130, False)
    assert "Stopped before it began." in ended.stdout
    assert f"holdfast plan delete {in_app(project, 'plan', 'status')['plan_id']}" in ended.stdout
    ended = run(project, "--format", "json", "--", "true", variables=variables)
    assert (ended.exit_code, ended.data["state"], ended.data["program_exit_code"]) == (130, "cancelled", None)


@pytest.fixture
def killed(project: Project) -> Project:
    """A program wrote a file, of which there is a checkpoint, and another one; then Holdfast was killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "--settle", "100ms", "--", "sh", "-c", LEAVES_WORK],
        cwd=project.app,
        env=project.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    wait_until(lambda: any(project.home.glob("sandboxes/*/app/last")))
    process.kill()
    process.wait()
    return project


LEAVES_WORK = "echo 1 > first; sleep 1; echo 2 > last; sleep 60"


def test_the_work_of_a_program_whose_holdfast_was_killed_can_be_kept_and_applied(killed: Project) -> None:
    plan_id = in_app(killed, "plan", "status")["plan_id"]
    keep = f"holdfast plan resume --skip {plan_id}"
    assert keep in killed.run("plan", "status", cwd=killed.app).stdout
    assert f"keep its work  {keep}" in killed.run("plan", "resume", "--dry-run", "latest", cwd=killed.app).stdout
    told = killed.run("plan", "resume", "--dry-run", "--skip", "latest", cwd=killed.app).stdout
    assert f"skips    {in_app(killed, 'plan', 'status')['name']}" in told
    assert "goes on  all steps are done; the result is checked again" in told
    assert "goes back" not in told
    data = in_app(killed, "plan", "resume", "--skip", "latest")
    assert data["state"] == "complete"
    in_app(killed, "plan", "apply", "--yes", "latest")
    assert [(killed.app / name).read_text() for name in ("first", "last")] == ["1\n", "2\n"]


def test_of_a_program_whose_holdfast_was_killed_any_moment_can_be_kept(killed: Project) -> None:
    listed = in_app(killed, "checkpoint", "list")["checkpoints"]
    moment = next(each["checkpoint_id"] for each in listed if each["triggers"] == ["settled"])
    only = ("plan", "rollback", "--yes", "--only", ".", "latest", moment)
    refused = killed.run(*only, cwd=killed.app)
    assert refused.exit_code == 4
    assert "holdfast plan resume --skip" in refused.stderr
    in_app(killed, "plan", "resume", "--skip", "latest")
    in_app(killed, *only)
    in_app(killed, "plan", "execute", "latest")
    in_app(killed, "plan", "apply", "--yes", "latest")
    assert (killed.app / "first").read_text() == "1\n"
    assert not (killed.app / "last").exists()


def test_interactive_programs_have_a_terminal_with_keys_and_a_size(project: Project) -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(project.app)
        question = "test -t 0 && test -t 1 && echo a terminal; printf 'name? '; read name; echo hello $name"
        words = [sys.executable, "-m", "holdfast", "run", "--", "sh", "-c", question]
        os.execvpe(words[0], words, project.environment)
    shown, answered, deadline = b"", False, time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                data = os.read(terminal, 4096)
            except OSError:
                break
            shown += data
            if not data:
                break
        if b"name? " in shown and not answered:
            os.write(terminal, b"world\r")
            answered = True
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"a terminal\r\n" in shown
    assert b"hello world\r\n" in shown
