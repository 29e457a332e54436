"""From any moment of a plan: its files become the result, or another program goes on with them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.project import Project, wait_until
from tests.integration.cli.resting import resting, settled
from tests.integration.cli.test_run_is_remembered import data_of, of_app, on_terminal

DELETES = "echo one > first; rest; rm version.txt; echo two > second; rest; echo three > third"


@pytest.fixture
def went_wrong(project: Project) -> str:
    """A checkpoint of a program at work, before it removed a file; it went on after that, and has ended."""
    with resting(project) as beginning:
        ended = of_app(project, "run", "--settle", "100ms", "--", "sh", "-c", beginning + DELETES)
    assert ended.exit_code == 0
    return settled(project)[0]


def in_sandbox(project: Project) -> dict[str, str]:
    [resource] = data_of(project, "plan", "status")["resources"]
    found = Path(resource["sandbox_path"])
    return {path.name: path.read_text() for path in found.iterdir() if path.is_file()}


def end(project: Project) -> str:
    return str(data_of(project, "plan", "status")["last_checkpoint_id"])


BEFORE = {"version.txt": "1\n", "first": "one\n"}
AFTER = {"first": "one\n", "second": "two\n", "third": "three\n"}


# Keeping


def test_a_moment_is_kept_and_applied_and_nothing_is_run(project: Project, went_wrong: str) -> None:
    kept = data_of(project, "plan", "keep", "--yes", went_wrong)
    assert (kept["post_rollback_state"]["state"], kept["dry_run"]) == ("complete", False)
    assert in_sandbox(project) == BEFORE
    status = data_of(project, "plan", "status")
    assert (status["state"], status["error"], status["steps"]) == ("complete", None, [])
    assert status["decisions"][-1]["type"] == "user_intervention"
    assert status["decisions"][-1]["chosen"] == "keep: +1 file: first"
    applied = data_of(project, "plan", "apply", "--yes", "latest")
    assert [each["file"] for each in applied["changes"]] == ["first"]
    assert (project.app / "version.txt").exists()
    assert project.git("log", "-1", "--format=%B").count("\n\n\n") == 0


def test_keeping_is_undone_by_a_rollback_and_can_be_repeated(project: Project, went_wrong: str) -> None:
    last = end(project)
    left = data_of(project, "plan", "keep", "--yes", "latest", went_wrong)["left_checkpoint_id"]
    assert left == last
    data_of(project, "plan", "rollback", "--yes", "latest", left)
    assert in_sandbox(project) == AFTER
    status = data_of(project, "plan", "execute", "latest")
    assert (status["state"], status["last_completed_step"]) == ("complete", 0)
    data_of(project, "plan", "keep", "--yes", "latest", went_wrong)
    assert in_sandbox(project) == BEFORE
    kept = end(project)
    # A rollback to the moment that was kept finds it complete but for the end of the plan.
    data_of(project, "plan", "rollback", "--yes", "latest", left)
    data_of(project, "plan", "rollback", "--yes", "latest", kept)
    ended = of_app(project, "plan", "execute", "latest")
    assert ended.exit_code == 0, ended
    assert "Complete. 1 file: 1 added" in ended.stdout
    assert in_sandbox(project) == BEFORE


def test_the_dry_run_shows_the_same_and_changes_nothing(project: Project, went_wrong: str) -> None:
    files, moments = project.files(), data_of(project, "checkpoint", "list")
    expected = data_of(project, "plan", "keep", "--dry-run", "latest", went_wrong)
    assert (project.files(), data_of(project, "checkpoint", "list")) == (files, moments)
    done = data_of(project, "plan", "keep", "--yes", "latest", went_wrong)
    for key in ("changes_reverted", "impact", "post_rollback_state", "rollback_summary"):
        assert expected[key] == done[key]
    shown = of_app(project, "plan", "keep", "--dry-run", went_wrong).stdout
    assert "Nothing was changed." in shown
    assert f"holdfast plan keep {done['plan_id']} {went_wrong}" in shown


def test_it_is_asked_first(project: Project, went_wrong: str) -> None:
    refused = of_app(project, "plan", "keep", went_wrong)
    assert (refused.exit_code, "Add --yes" in refused.stderr) == (2, True)
    no = on_terminal(project, "plan", "keep", went_wrong, answers=[("[y/N]", "n")])
    said = " ".join(no.shown.split())
    assert f"Make {went_wrong} (+1 file: first) the result: 3 files will be" in said
    assert "Nothing is run. Keep it? [y/N]" in said
    assert (no.exit_code, in_sandbox(project)) == (4, AFTER)
    assert on_terminal(project, "plan", "keep", went_wrong, answers=[("[y/N]", "y")]).exit_code == 0
    assert in_sandbox(project) == BEFORE


def test_of_a_plan_file_the_steps_that_would_follow_are_dropped_and_validations_are_not_run(project: Project) -> None:
    steps = "  - {name: one, run: echo 1 > one}\n  - {name: two, run: echo 2 > two}\n  - {name: three, run: 'false'}\n"
    file = project.plan(steps, header="validate: ['false']\n")
    project.json("plan", "execute", str(file), exit_code=1)
    after_one = next(
        each["checkpoint_id"]
        for each in project.checkpoints()
        if each["step_index"] == 0 and "on_tool_write_complete" in each["triggers"]
    )
    ended = project.call("plan", "keep", "--yes", after_one)
    assert "Nothing was run, not even the 1 validation of the plan." in ended.stdout
    status = project.json("plan", "status")
    assert [each["name"] for each in status["steps"]] == ["one"]
    assert (status["state"], status["decisions"][-1]["alternatives"]) == ("complete", ["two", "three"])
    project.json("plan", "apply", "--yes", "latest")
    assert ((project.app / "one").exists(), (project.app / "two").exists()) == (True, False)
    refused = project.call("plan", "keep", "--yes", after_one)
    assert (refused.exit_code, "is applied" in refused.stderr) == (4, True)


def test_a_policy_without_rollback_refuses_to_keep(project: Project) -> None:
    project.json(
        "plan", "execute", str(project.plan("  - run: echo 1 > f\n", header="policy: {rollback_enabled: false}\n"))
    )
    refused = project.call("plan", "keep", "--yes", project.checkpoint_before(0))
    assert (refused.exit_code, "rollback_enabled: false" in refused.stderr) == (4, True)


def test_wrong_arguments_of_keep_are_refused(project: Project, went_wrong: str) -> None:
    assert of_app(project, "plan", "keep", "--yes").exit_code == 2
    assert of_app(project, "plan", "keep", "--yes", "latest", went_wrong, "more").exit_code == 2
    assert of_app(project, "plan", "keep", "--yes", "latest", "cp_00000000").exit_code == 3


# Going on with another program


def test_another_program_goes_on_with_what_is_there(project: Project, went_wrong: str) -> None:
    went_on = data_of(project, "run", "--in", "latest", "--", "sh", "-c", "cat second > copy; exit 5", exit_code=5)
    assert (went_on["state"], went_on["program_exit_code"]) == ("complete", 5)
    assert in_sandbox(project) == {**AFTER, "copy": "two\n"}
    status = data_of(project, "plan", "status")
    assert [each["state"] for each in status["steps"]] == ["succeeded", "succeeded"]
    assert status["decisions"][-2]["chosen"].startswith("go on with: sh -c 'cat second")
    data_of(project, "plan", "apply", "--yes", "latest")
    assert (project.app / "copy").read_text() == "two\n"


def test_another_program_goes_on_from_an_earlier_moment(project: Project, went_wrong: str) -> None:
    refused = of_app(project, "run", "--in", "latest", "--at", went_wrong, "--", "true")
    assert (refused.exit_code, "Add --yes" in refused.stderr) == (2, True)
    words = ("run", "--yes", "--in", "latest", "--at", went_wrong, "--", "sh", "-c", "ls; echo new > new")
    ended = of_app(project, *words)
    assert (ended.exit_code, ended.stdout) == (0, "first\nsrc\nversion.txt\n")
    assert "; 3 files restored or removed\n" in ended.stderr
    assert in_sandbox(project) == {**BEFORE, "new": "new\n"}
    assert [each["name"] for each in data_of(project, "plan", "status")["steps"]] == ["sh -c 'ls; echo new > new'"]
    # What was there before is in its checkpoints.
    data_of(project, "plan", "keep", "--yes", "latest", settled(project)[1])
    assert in_sandbox(project) == {"first": "one\n", "second": "two\n"}


def test_it_is_asked_before_it_goes_back(project: Project, went_wrong: str) -> None:
    words = ("run", "--in", "latest", "--at", went_wrong, "--", "sh", "-c", "test -t 0 && echo yes > terminal")
    no = on_terminal(project, *words, answers=[("[y/N]", "n")])
    said = " ".join(no.shown.split())
    assert "Roll back to " in said
    assert "Roll back, and start sh -c" in said
    assert (no.exit_code, in_sandbox(project)) == (4, AFTER)
    assert on_terminal(project, *words, answers=[("[y/N]", "y")]).exit_code == 0
    assert in_sandbox(project) == {**BEFORE, "terminal": "yes\n"}


def test_checkpoints_are_taken_as_before_while_it_goes_on(project: Project) -> None:
    of_app(project, "run", "--settle", "100ms", "--", "true")
    with resting(project) as beginning:
        writes = beginning + "echo 1 > f; rest; echo 2 > f"
        assert of_app(project, "run", "--in", "latest", "--", "sh", "-c", writes).exit_code == 0
    assert len(settled(project)) == 1


def test_the_same_program_gets_what_it_was_given_and_another_only_what_is_said(project: Project) -> None:
    outside = project.folder / "outside"
    outside.mkdir()
    shows = ("sh", "-c", 'echo "$MY_KEY" > ../outside/seen')
    variables = {"MY_KEY": "mine"}
    given = ("--pass-env", "MY_KEY", "--allow-write", str(outside))
    assert of_app(project, "run", *given, "--", *shows, **variables).exit_code == 0
    assert of_app(project, "run", "--in", "latest", "--", *shows, **variables).exit_code == 0
    assert (outside / "seen").read_text() == "mine\n"
    refused = of_app(project, "run", "--in", "latest", "--", *shows)
    assert (refused.exit_code, "The variable MY_KEY is not set now" in refused.stderr) == (4, True)
    assert of_app(project, "run", "--in", "latest", *given[2:], "--", *shows).exit_code == 0
    assert (outside / "seen").read_text() == "\n"
    assert of_app(project, "run", "--in", "latest", *given, "--", *shows, **variables).exit_code == 0
    other = of_app(project, "run", "--in", "latest", "--", "env", *shows, **variables)
    assert other.exit_code != 0
    assert "../outside/seen" in other.stderr


def test_a_program_that_exists_only_in_the_sandbox_goes_on(project: Project) -> None:
    of_app(project, "run", "--", "sh", "-c", "printf '#!/bin/sh\\nexit 7\\n' > made.sh; chmod +x made.sh")
    assert of_app(project, "run", "--in", "latest", "--", "./made.sh").exit_code == 7
    moments = data_of(project, "checkpoint", "list")
    assert of_app(project, "run", "--in", "latest", "--", "./other.sh").exit_code == 127
    assert data_of(project, "checkpoint", "list") == moments


def test_a_plan_of_a_file_that_failed_goes_on_with_a_program(project: Project) -> None:
    steps = "  - {name: one, run: echo 1 > one}\n  - {name: two, run: 'false'}\n  - {name: three, run: 'false'}\n"
    project.json("plan", "execute", str(project.plan(steps, header="validate: ['test -e fixed']\n")), exit_code=1)
    words = ("--format", "json", "run", "--in", "latest", "--", "sh", "-c", "ls")
    failed = project.run(*words)
    assert failed.exit_code == 1, failed
    assert failed.data["failed_step"]["name"] == "test -e fixed"
    ended = project.run("--format", "json", "run", "--in", "latest", "--", "sh", "-c", "echo 1 > fixed")
    assert ended.exit_code == 0, ended
    assert ended.data["state"] == "complete"
    assert [each["name"] for each in project.json("plan", "status")["steps"]] == [
        "one",
        "sh -c ls",
        "sh -c 'echo 1 > fixed'",
    ]


def test_what_going_back_changes_besides_files_is_said(project: Project) -> None:
    makes_socket = "import os, socket; os.remove('version.txt'); socket.socket(socket.AF_UNIX).bind('version.txt')"
    steps = f'  - {{name: book it, run: echo 1 > f, side_effects: true}}\n  - run: python3 -c "{makes_socket}"\n'
    project.json("plan", "execute", str(project.plan(steps)))
    start = project.checkpoints()[0]["checkpoint_id"]
    ended = project.run("run", "--yes", "--in", "latest", "--at", start, "--", "cat", "version.txt")
    assert (ended.exit_code, ended.stdout) == (0, "1\n")
    assert "not undone: step 1 (book it)\n" in ended.stderr
    assert "set aside  " in ended.stderr


def test_what_cannot_go_on_is_refused(project: Project, went_wrong: str) -> None:
    for options in (("--resource", "."), ("--include", "x"), ("--exclude", "x"), ("--name", "x")):
        refused = of_app(project, "run", *options, "--in", "latest", "--", "true")
        assert (refused.exit_code, "is for a new plan" in refused.stderr) == (2, True)
    refused = of_app(project, "run", "--at", went_wrong, "--", "true")
    assert (refused.exit_code, "needs --in" in refused.stderr) == (2, True)
    moments = data_of(project, "checkpoint", "list")
    assert of_app(project, "run", "--yes", "--in", "latest", "--at", "cp_00000000", "--", "true").exit_code == 3
    assert data_of(project, "checkpoint", "list") == moments
    data_of(project, "plan", "apply", "--yes", "latest")
    for at in ((), ("--yes", "--at", went_wrong)):
        refused = of_app(project, "run", *at, "--in", "latest", "--", "true")
        assert refused.exit_code == 4
        assert "is applied" in refused.stderr
        assert "holdfast plan unapply" in refused.stderr


def test_a_plan_that_never_ran_and_one_that_runs_are_refused(project: Project) -> None:
    project.json("plan", "create", str(project.plan("  - run: sleep 60\n")))
    refused = project.call("run", "--in", "latest", "--", "true")
    assert (refused.exit_code, "has no sandboxes yet" in refused.stderr) == (4, True)
    process = project.start("run", "--", "sh", "-c", "touch running; sleep 60", cwd=project.app)
    wait_until(lambda: any(project.home.glob("sandboxes/*/app/running")))
    for words in (("run", "--in", "latest", "--", "true"), ("plan", "keep", "--yes", "latest", "start")):
        assert of_app(project, *words).exit_code in (3, 5)
    assert of_app(project, "run", "--in", "latest", "--", "true").exit_code == 5
    process.terminate()
    process.communicate(timeout=60)


def test_a_plan_in_conflict_is_refused(project: Project) -> None:
    steps = (
        "  - parallel: 2\n    subplans:\n"
        "    - {name: a, steps: [{run: echo a > version.txt}]}\n"
        "    - {name: b, steps: [{run: echo b > version.txt}]}\n"
    )
    project.json("plan", "execute", str(project.plan(steps)), exit_code=5)
    refused = project.call("run", "--in", "latest", "--", "true")
    assert (refused.exit_code, "until its conflicts are resolved" in refused.stderr) == (4, True)


# After a kill


@pytest.fixture
def killed(project: Project) -> Project:
    """A program wrote a file, of which there is a checkpoint, and another one; then Holdfast was killed."""
    with resting(project) as beginning:
        script = beginning + "echo 1 > first; rest; echo 2 > last; sleep 60"
        words = ("run", "--settle", "100ms", "--", "sh", "-c", script)
        process = project.start(*words, cwd=project.app, stdout=subprocess.DEVNULL, stderr=None)
        wait_until(lambda: any(project.home.glob("sandboxes/*/app/last")))
    process.kill()
    process.wait()
    return project


def test_the_ways_on_are_named(killed: Project) -> None:
    plan_id = data_of(killed, "plan", "status")["plan_id"]
    for words in (("plan", "status"), ("plan", "resume", "--dry-run", "latest")):
        shown = of_app(killed, *words).stdout
        assert f"holdfast plan keep {plan_id} CHECKPOINT" in shown
        assert f"holdfast run --in {plan_id} -- COMMAND" in shown
    refused = of_app(killed, "plan", "rollback", "--yes", "--only", ".", "latest", settled(killed)[0])
    assert f"holdfast plan keep {plan_id} CHECKPOINT" in refused.stderr
    left = of_app(killed, "plan", "rollback", "--yes", "latest", settled(killed)[0])
    assert f"go on with  holdfast run --in {plan_id} -- COMMAND" in left.stdout
    assert f"keep this   holdfast plan keep {plan_id} cp_" in left.stdout
    applying = of_app(killed, "plan", "apply", "--yes", "latest")
    assert (applying.exit_code, f"holdfast plan keep {plan_id} CHECKPOINT" in applying.stderr) == (4, True)


def test_another_program_goes_on_with_the_work_of_one_that_was_killed(killed: Project) -> None:
    ended = of_app(killed, "run", "--in", "latest", "--", "sh", "-c", "cat first last")
    assert (ended.exit_code, ended.stdout) == (0, "1\n2\n")
    status: Any = data_of(killed, "plan", "status")
    assert (status["state"], len(status["steps"])) == ("complete", 1)
    data_of(killed, "plan", "apply", "--yes", "latest")
    assert [(killed.app / name).read_text() for name in ("first", "last")] == ["1\n", "2\n"]


def test_a_moment_of_one_that_was_killed_is_kept_also_if_its_work_was_half_done(killed: Project) -> None:
    data_of(killed, "plan", "keep", "--yes", "latest", settled(killed)[0])
    assert set(in_sandbox(killed)) == {"version.txt", "first"}
    assert data_of(killed, "plan", "status")["state"] == "complete"
    left = data_of(killed, "plan", "rollback", "--yes", "latest", settled(killed)[0])["left_checkpoint_id"]
    half_done = next(
        each["checkpoint_id"]
        for each in data_of(killed, "checkpoint", "list")["checkpoints"]
        if each["triggers"] == ["before_rollback"]
    )
    assert left != half_done
    data_of(killed, "plan", "keep", "--yes", "latest", half_done)
    assert set(in_sandbox(killed)) == {"version.txt", "first", "last"}
    data_of(killed, "plan", "apply", "--yes", "latest")
    assert (killed.app / "last").read_text() == "2\n"
