"""Standard input, output and error that are full, closed, or without a reader."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess

import pytest

from holdfast.cli.output import PlainScreen
from holdfast.cli.streams import Outputs
from tests.integration.cli.project import Project


@pytest.fixture
def ran(project: Project) -> Project:
    assert project.call("plan", "execute", str(project.plan("  - {run: echo 2 > version.txt}\n"))).exit_code == 0
    return project


@pytest.mark.parametrize(
    "arguments",
    ["--help", "--version", "plan list", "plan list --format json", "plan list --format yaml", "plan diff --patch"],
)
def test_output_that_cannot_be_written_is_an_error_that_is_said(ran: Project, arguments: str) -> None:
    ended = ran.shell(f"holdfast {arguments} > /dev/full")
    assert ended.exit_code == 6
    assert ended.stderr.startswith("error: Standard output could not be written")
    assert "No space left on device" in ended.stderr
    assert "has done its work" not in ended.stderr


def test_what_was_done_stays_done_if_the_output_cannot_be_written_and_that_is_said(ran: Project) -> None:
    ended = ran.shell("holdfast plan apply --yes latest > /dev/full")
    assert ended.exit_code == 6
    assert "The command has done its work" in ended.stderr
    assert (ran.app / "version.txt").read_text() == "2\n"
    assert ran.json("plan", "status")["state"] == "applied"


def test_an_error_keeps_its_own_exit_code_if_the_output_cannot_be_written(ran: Project) -> None:
    ended = ran.shell("holdfast plan status nix --format json > /dev/full")
    assert ended.exit_code == 3
    assert "could not be written" in ended.stderr


def test_output_and_errors_that_both_cannot_be_written_still_end_with_an_error(ran: Project) -> None:
    assert ran.shell("holdfast plan list > /dev/full 2>&1").exit_code == 6


def test_a_reader_that_has_seen_enough_is_no_error(ran: Project) -> None:
    shown = ran.shell("(holdfast plan schema --format json; echo $? > code) | true")
    assert (shown.exit_code, (ran.folder / "code").read_text(), shown.stderr) == (0, "0\n", "")


def test_output_to_a_pipe_that_does_not_block_waits_for_its_reader_and_is_whole(ran: Project) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, select.PIPE_BUF)
    with ran.start("plan", "schema", "--format", "json", stdout=writer, stderr=None) as process:
        os.close(writer)
        with open(reader, "rb") as stream:
            shown = stream.read()
    assert process.returncode == 0
    assert json.loads(shown)["command"] == "plan schema"


@pytest.mark.parametrize(
    ("form", "closed", "is_said"),
    [
        ("plain", ">&-", True),
        ("plain", "2>&-", False),
        ("rich", "<&- >&-", True),
        ("rich", "<&- >&- 2>&-", False),
        ("json", ">&-", False),
        ("json", "2>&- <&-", True),
        ("yaml", "<&- >&- 2>&-", False),
    ],
)
def test_a_closed_stream_changes_no_exit_code_and_hides_no_other_stream(
    project: Project, form: str, closed: str, is_said: bool
) -> None:
    ended = project.shell(f"holdfast plan status nix --format {form} {closed}")
    assert ended.exit_code == 3
    said = ended.stdout + ended.stderr
    assert ("There is no plan 'nix'" in said) == is_said
    assert "bug" not in said


def test_with_all_streams_closed_a_plan_runs_and_nothing_is_printed_into_a_database(project: Project) -> None:
    plan = project.plan("  - {run: 'echo printed; echo as error >&2; cat; echo 2 > version.txt'}\n")
    for form in ("plain", "json"):
        assert project.shell(f"holdfast plan execute {plan} --format {form} <&- >&- 2>&-").exit_code == 0
    program = "sh -c 'echo out; cat; exit 7'"
    assert project.shell(f"holdfast run --resource app -- {program} <&- >&- 2>&-").exit_code == 7
    assert project.call("doctor").exit_code == 0
    assert len(project.json("plan", "list", "--all")["plans"]) == 3


@pytest.mark.parametrize("named", ["-", "/dev/stdin"])
def test_a_plan_comes_from_standard_input_and_from_a_file_that_it_is_redirected_from(
    project: Project, named: str
) -> None:
    project.plan("  - {run: echo 2 > version.txt}\n")
    for redirection in ("cat plan.yaml | {}", "{} < plan.yaml"):
        ended = project.shell(redirection.format(f"holdfast plan execute {named}"))
        assert ended.exit_code == 0, ended
        assert "Complete. 1 file: 1 changed" in ended.stdout


def test_steps_for_a_correction_come_from_standard_input(ran: Project) -> None:
    decision = next(
        each["decision_id"] for each in ran.json("checkpoint", "list")["checkpoints"] if each["decision_id"]
    )
    words = ["plan", "correct", "--yes", "--mode", "revert", "--guidance", "other", "--with", "-", decision]
    with ran.start(*words, stdin=subprocess.PIPE) as process:
        told = process.communicate("steps: [{run: echo 3 > version.txt}]")
    assert process.returncode == 0, told
    assert ran.json("plan", "apply", "--yes", "latest")
    assert (ran.app / "version.txt").read_text() == "3\n"


def test_what_is_only_shown_ends_as_soon_as_its_reader_has_gone() -> None:
    read_end, write_end = os.pipe()
    with open(write_end, "w") as stream:
        checked = Outputs().checked(stream, write_end)
        screen, printed = PlainScreen(checked), 0
        with screen.paged(with_pager=True):
            for printed in range(10):
                screen.line(str(printed))
                if printed == 3:
                    os.close(read_end)
        assert printed == 4
        screen.line("what a command has done is told to the end, whether or not it is read")
