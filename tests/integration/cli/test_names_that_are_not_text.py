"""Names and words that are not UTF-8: whatever they reach, it is recorded, shown and used again as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.cli.project import Project
from tests.support.crashes import killed_at

NAME = os.fsdecode(b"b\xffd")
SHOWN = "b\\xffd"
WRITES = r"""
  - {name: one, run: "echo 1 > \"$(printf 'b\\377d')\"", compensate: "true"}
  - {name: two, run: "echo 2 > \"$(printf 'b\\377d')\""}
"""


@pytest.fixture
def ran(project: Project) -> Project:
    project.json("plan", "execute", str(project.plan(WRITES)))
    return project


def reasons(project: Project) -> list[str]:
    """Why the checkpoints were taken, as a program is told."""
    ids = [each["checkpoint_id"] for each in project.checkpoints()]
    return [project.json("checkpoint", "show", each)["reason"] for each in ids]


def test_a_file_of_such_a_name_is_restored_alone(ran: Project) -> None:
    before = ran.checkpoint_before(1)
    ended = ran.run("plan", "rollback", "-y", "--only", NAME, "latest", before)
    assert ended.exit_code == 0, ended
    assert SHOWN in ended.stdout
    assert (ran.sandbox() / NAME).read_text() == "1\n"
    assert reasons(ran)[-1] == f"app:{SHOWN} restored from {before}"
    for command in ("plan status", "plan log", "checkpoint list", "plan diff", "doctor"):
        assert ran.run(*command.split()).exit_code == 0, command
    ran.json("plan", "execute", "latest")
    ran.json("plan", "apply", "--yes", "latest")
    assert (ran.app / NAME).read_text() == "1\n"


def test_a_restore_of_such_a_name_that_was_cut_short_is_finished(ran: Project) -> None:
    before = ran.checkpoint_before(1)

    def restore() -> None:
        ran.call("plan", "rollback", "--yes", "--only", NAME, "latest", before)

    assert killed_at(1, restore, touching=".staging-")
    assert ran.call("plan", "rollback", "--yes", "--dry-run", "latest", before).exit_code != 0
    ran.json("plan", "execute", "latest")
    assert (ran.sandbox() / NAME).read_text() == "1\n"
    assert f"app:{SHOWN} restored from {before}" in reasons(ran)


def test_a_program_gets_such_a_word_and_its_work_can_be_applied(project: Project) -> None:
    script = 'echo work > done.txt; mv done.txt "$1"'
    ended = project.run("run", "--", "sh", "-c", script, "sh", NAME, cwd=project.app)
    assert ended.exit_code == 0, ended
    assert SHOWN in ended.stderr
    for command in ("plan status", "plan tree", "plan log", "checkpoint list"):
        assert project.run(*command.split(), "--format", "json", cwd=project.app).exit_code == 0, command
    shown = project.on_terminal("--project", str(project.app), "plan", "status")
    assert shown.exit_code == 0, shown
    assert SHOWN in shown.stdout
    assert project.run("plan", "apply", "--yes", "latest", cwd=project.app).exit_code == 0
    assert (project.app / NAME).read_text() == "work\n"


def test_a_label_and_a_guidance_may_be_such_words(ran: Project) -> None:
    assert ran.run("checkpoint", "create", "--label", NAME, "latest").exit_code == 0
    assert ran.run("plan", "rollback", "--yes", "latest", NAME).exit_code == 0
    (ran.folder / "more.yaml").write_text("steps:\n  - {name: more, run: 'echo \"$HOLDFAST_GUIDANCE\" > guided'}\n")
    decision = next(each["decision_id"] for each in ran.json("plan", "status")["steps"] if each["decision_id"])
    options = ("--mode", "revert", "--guidance", NAME, "--with", str(ran.folder / "more.yaml"))
    corrected = ran.run("plan", "correct", "--yes", *options, decision)
    assert corrected.exit_code == 0, corrected
    assert (ran.sandbox() / "guided").read_bytes() == os.fsencode(NAME) + b"\n"
    ran.json("plan", "tree", "latest", in_process=False)


def test_a_file_of_settings_cannot_hold_one_and_the_environment_can(project: Project) -> None:
    (project.app / ".gitignore").write_bytes(b"*d\n")
    (project.app / NAME).write_text("ignored\n")
    ended = project.run("config", "set", "--scope", "project", "sandbox.include-ignored", NAME)
    assert ended.exit_code == 9
    assert SHOWN in ended.stderr
    assert "HOLDFAST_SANDBOX_INCLUDE_IGNORED" in ended.stderr
    assert not (project.folder / ".holdfast.toml").exists()
    project.run("run", "--", "true", cwd=project.app, variables={"HOLDFAST_SANDBOX_INCLUDE_IGNORED": NAME})
    sandbox = Path(project.json("--project", str(project.app), "plan", "status")["resources"][0]["sandbox_path"])
    assert (sandbox / NAME).read_text() == "ignored\n"


def test_a_name_of_two_lines_stays_on_one_in_what_is_refused(project: Project) -> None:
    (project.app / "two\nlines").write_text("mine\n")
    project.json(
        "plan", "execute", str(project.plan("  - {name: one, run: 'for f in t*; do echo 1 > \"$f\"; done'}\n"))
    )
    refused = project.run("plan", "rollback", "--yes", "--only", "app:nope", "latest", project.checkpoint_before(0))
    assert refused.exit_code == 3
    assert "two\\nlines" in refused.stderr
    (project.app / "two\nlines").write_text("meanwhile\n")
    refused = project.run("plan", "apply", "--yes", "latest")
    assert refused.exit_code == 5
    assert "  app: two\\nlines\n" in refused.stderr


def test_a_home_may_have_such_a_name(project: Project) -> None:
    project.home = project.folder / NAME
    plan = project.plan("  - {name: one, run: 'echo 2 > version.txt'}\n  - {name: two, run: 'echo 3 > version.txt'}\n")
    assert project.run("plan", "execute", str(plan)).exit_code == 0
    assert project.run("plan", "rollback", "--yes", "latest", project.checkpoint_before(1)).exit_code == 0
    assert project.run("plan", "execute", "latest").exit_code == 0
    for command in ("plan apply --yes", "plan unapply --yes", "checkpoint list", "doctor", "plan delete --yes"):
        ended = project.run(*command.split(), *(["latest"] if command != "doctor" else []))
        assert ended.exit_code == 0, ended
    assert (project.app / "version.txt").read_text() == "1\n"


def test_what_was_cut_short_from_such_a_home_is_refused_elsewhere_and_put_right_there(project: Project) -> None:
    elsewhere = project.home
    project.home = project.folder / NAME
    plan = project.plan("  - {name: one, run: 'for n in 1 2 3 4; do echo $n > $n; done', resource: data}\n")
    assert project.run("plan", "execute", str(plan)).exit_code == 0
    assert killed_at(3, lambda: project.call("plan", "apply", "--yes", "latest"), touching=".holdfast-")
    refused = project.run("plan", "execute", str(plan), variables={"HOLDFAST_HOME": str(elsewhere)})
    assert refused.exit_code == 4, refused
    assert SHOWN in refused.stderr
    assert project.run("plan", "apply", "--yes", "latest").exit_code == 0
    assert (project.data / "4").read_text() == "4\n"


def test_a_branch_that_a_step_named_is_shown_without_what_a_terminal_would_obey(project: Project) -> None:
    writes = r"""
  - {name: one, run: "printf 'ref: refs/heads/\\033[2J' > \"$(git rev-parse --git-dir)/HEAD\""}
"""
    project.json("plan", "execute", str(project.plan(writes)))
    last = project.checkpoints()[-1]["checkpoint_id"]
    assert "\\x1b[2J at no commit yet" in project.run("checkpoint", "show", last).stdout
