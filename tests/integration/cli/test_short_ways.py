"""Commands called by a shorter name, and by one that is wrong."""

from __future__ import annotations

import pytest

from tests.integration.cli.project import Project
from tests.integration.cli.test_completion_and_pager import completed

STEPS = "  - {name: one, run: echo 1 > one}\n"


def test_the_commands_of_a_plan_work_without_the_word_plan(project: Project) -> None:
    created = project.json("create", str(project.plan(STEPS)))
    project.run("execute", created["plan_id"])

    assert project.json("status")["state"] == "complete"
    assert [each["plan_id"] for each in project.json("list")["plans"]] == [created["plan_id"]]
    assert [each["path"] for each in project.json("diff")["files"]] == ["one"]
    assert project.json("apply", "--yes", "latest")["files_changed"] == 1
    assert (project.app / "one").read_text() == "1\n"
    project.json("unapply", "--yes", "latest")
    assert not (project.app / "one").exists()


def test_it_is_the_same_command_also_for_a_program_that_reads_the_answer(project: Project) -> None:
    project.json("create", str(project.plan(STEPS)))
    short = project.call("status", "--format", "json")
    long = project.call("plan", "status", "--format", "json")

    assert (short.envelope["command"], short.data) == ("plan status", long.data)
    assert "Usage: holdfast plan status " in project.call("status", "--help").stdout
    assert "See `holdfast plan status --help`." in project.call("status", "--nonsense").stderr


def test_a_command_of_its_own_keeps_its_name(project: Project) -> None:
    project.json("create", str(project.plan(STEPS)))
    assert project.call("log", "--format", "json").envelope["command"] == "log"


def test_the_shell_completes_short_names_too(project: Project) -> None:
    assert completed(project, "holdfast una") == ["unapply"]
    assert completed(project, "holdfast lo") == ["log"]
    assert completed(project, "holdfast status lat") == ["latest"]
    assert completed(project, "holdfast plam xyz") == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("plna status", "`holdfast plan status`"),
        ("plna --format plain status", "`holdfast plan`"),
        ("plna statsu --all", "`holdfast plan status`"),
        ("plna xyz", "`holdfast plan`"),
        ("chekpoint", "`holdfast checkpoint`"),
        ("checkpoints", "`holdfast checkpoint`"),
        ("checkpoints lst", "`holdfast checkpoint list`"),
        ("plan statsu", "`holdfast plan status`"),
        ("statsu", "`holdfast status`"),
        ("plan run", "`holdfast run`"),
        ("checkpoint log", "`holdfast log`"),
        ("checkpoint rollback", "`holdfast plan rollback`"),
        ("plan verfiy", "`holdfast checkpoint verify`"),
        ("config delete", "`holdfast plan delete` or `holdfast checkpoint delete`"),
    ],
)
def test_a_wrong_command_names_the_right_one_wherever_it_is(project: Project, typed: str, meant: str) -> None:
    ended = project.call(*typed.split())

    assert ended.exit_code == 2
    assert f"Did you mean {meant}?\n" in ended.stderr


def test_nothing_is_guessed_if_nothing_is_close(project: Project) -> None:
    ended = project.call("xyz")
    assert (ended.exit_code, "Did you mean" in ended.stderr) == (2, False)


def test_the_guess_is_in_the_answer_for_programs_too(project: Project) -> None:
    said = project.json("plan", "statsu", exit_code=2)["error"]["message"]
    assert said == "No such command 'statsu'. Did you mean `holdfast plan status`?"
