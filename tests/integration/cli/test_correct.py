"""`plan correct`: undo a decision, or add to a plan, and go on."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.integration.cli.project import Project

STEPS = """\
  - {name: bump, tool: edit_file, args: {path: version.txt, find: "1", replace: "2"}}
  - {name: note, run: 'echo "guided by: $HOLDFAST_GUIDANCE" > note.txt'}
"""
REVERT = ("--mode", "revert", "--guidance", "x", "--yes")


@pytest.fixture
def ran(project: Project) -> Project:
    project.json("plan", "execute", str(project.plan(STEPS)))
    return project


def decision_of(project: Project, step_index: int) -> str:
    found = [each for each in project.json("plan", "status")["decisions"] if each["step_index"] == step_index]
    return str(found[0]["decision_id"])


def new_steps(project: Project) -> str:
    file = project.folder / "new.yaml"
    file.write_text("steps: [{name: another note, run: echo other > other.txt}]")
    return str(file)


def test_a_reverted_decision_is_done_again_with_the_guidance(ran: Project) -> None:
    arguments = ["plan", "correct", "--yes", "--mode", "revert", "--guidance", "be kind", decision_of(ran, 1)]
    data = ran.json(*arguments, in_process=False)
    assert (data["state"], data["attempt"]) == ("complete", 2)
    assert (ran.sandbox() / "note.txt").read_text() == "guided by: be kind\n"
    decisions = ran.json("plan", "status")["decisions"]
    assert ("user_intervention", "be kind") in [(each["type"], each["chosen"]) for each in decisions]
    assert "be kind" in ran.call("plan", "status").stdout


def test_new_steps_take_the_place_of_the_old_ones(ran: Project) -> None:
    shown = ran.run(
        "plan", "correct", "-y", "--mode", "revert", "--guidance", "x", "--with", new_steps(ran), decision_of(ran, 1)
    )
    assert "[2/2] another note" in shown.stdout
    assert sorted(each.name for each in ran.sandbox().iterdir() if each.name.endswith(".txt")) == [
        "other.txt",
        "version.txt",
    ]


def test_appended_steps_undo_nothing(ran: Project) -> None:
    data = ran.json(
        "plan", "correct", "-y", "--mode", "append", "--guidance", "x", "--with", new_steps(ran), decision_of(ran, 1)
    )
    assert [each["name"] for each in data["steps"]] == ["bump", "note", "another note"]
    assert {"note.txt", "other.txt"} <= {each.name for each in ran.sandbox().iterdir()}


@pytest.mark.parametrize("mode", ["revert", "append"])
def test_a_dry_run_tells_what_would_happen_and_changes_nothing(ran: Project, mode: str) -> None:
    before = ran.files(), ran.json("plan", "status"), ran.checkpoints()
    arguments = ["plan", "correct", "--dry-run", "--mode", mode, "--guidance", "x", "--with", new_steps(ran)]
    data = ran.json(*arguments, decision_of(ran, 0))
    shown = ran.run(*arguments, decision_of(ran, 0)).stdout
    assert data["dry_run"] is True
    undone = ["app: note.txt", "app: version.txt"] if mode == "revert" else []
    assert data["files"] == undone
    assert [each["name"] for each in data["steps"]][-1] == "another note"
    assert all(f"  {file.replace(': ', '/')}\n" in shown for file in undone)
    assert "Nothing was changed." in shown
    command = shown.splitlines()[-1].removeprefix("do it  holdfast ")
    assert shlex.split(command) == [each for each in [*arguments, decision_of(ran, 0)] if each != "--dry-run"]
    assert (ran.files(), ran.json("plan", "status"), ran.checkpoints()) == before


def test_the_decision_of_a_failed_step_can_be_corrected_after_it_was_rolled_back(project: Project) -> None:
    steps = "  - {name: wrong, run: 'echo w > wrong.txt; false'}\n"
    failed = project.json("plan", "execute", str(project.plan(steps)), exit_code=1)
    decision = failed["failed_step"]["decision_id"]
    assert (
        "rolled back already"
        in project.run("plan", "correct", "--dry-run", "--mode", "revert", "--guidance", "x", decision).stdout
    )
    data = project.json(
        "plan", "correct", "-y", "--mode", "revert", "--guidance", "x", "--with", new_steps(project), decision
    )
    assert data["state"] == "complete"
    assert not (project.sandbox() / "wrong.txt").exists()


def test_appending_needs_steps(ran: Project) -> None:
    for extra in ([], ["--dry-run"]):
        refused = ran.run("plan", "correct", *extra, "--mode", "append", "--guidance", "x", decision_of(ran, 1))
        assert refused.exit_code == 2
        assert "--with FILE" in refused.stderr


@pytest.mark.parametrize("mode", ["revert", "append"])
def test_without_a_terminal_a_correction_needs_a_yes(ran: Project, mode: str) -> None:
    before = ran.files()
    arguments = ["plan", "correct", "--mode", mode, "--guidance", "x", "--with", new_steps(ran)]
    refused = ran.run(*arguments, decision_of(ran, 1))
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert ran.files() == before


def test_a_no_changes_nothing(ran: Project) -> None:
    before = ran.files(), ran.json("plan", "status")
    decision = decision_of(ran, 1)
    declined = ran.on_terminal("plan", "correct", "--mode", "revert", "--guidance", "x", decision, answer="n\n")
    assert declined.exit_code == 4
    assert "1 decision superseded, 1 file restored or removed" in declined.stdout
    assert (ran.files(), ran.json("plan", "status")) == before


def test_appending_asks_as_well(ran: Project) -> None:
    before = ran.files(), ran.json("plan", "status")
    arguments = [
        "plan",
        "correct",
        "--mode",
        "append",
        "--guidance",
        "x",
        "--with",
        new_steps(ran),
        decision_of(ran, 1),
    ]
    declined = ran.on_terminal(*arguments, answer="n\n", columns=200)
    assert declined.exit_code == 4
    assert "Undo nothing, and add 1 step at the end: another note. Continue?" in declined.stdout
    assert (ran.files(), ran.json("plan", "status")) == before
    assert ran.on_terminal(*arguments, answer="y\n").exit_code == 0
    assert (ran.sandbox() / "other.txt").exists()


def test_effects_that_stay_are_listed_before_and_after(project: Project) -> None:
    steps = "  - {name: send, run: 'echo sent >> log', side_effects: true}\n  - {name: more, run: echo m > more}\n"
    project.json("plan", "execute", str(project.plan(steps)))
    decision = decision_of(project, 0)
    arguments = ["plan", "correct", "--mode", "revert", "--guidance", "x"]
    planned = project.json(*arguments, "--dry-run", decision)
    effects = planned["impact"]["side_effects_not_undone"]
    assert [(each["step"], each["step_index"]) for each in effects] == [("send", 0)]
    assert effects[0].keys() >= {"step", "step_index", "run_id"}
    assert "  not undone: step 1 (send)" in project.call(*arguments, "--dry-run", decision).stdout
    asked = project.on_terminal(*arguments, decision, answer="n\n", columns=300).stdout
    assert "Not undone: step 1 (send)." in asked
    done = project.json(*arguments, "--yes", decision)
    assert (done["state"], done["impact"]["side_effects_not_undone"]) == ("complete", effects)
    again = project.json("plan", "tree")["decisions"][0]["children"][1]["decision_id"]
    said = project.call(*arguments, "--yes", again).stdout
    assert said.startswith("not undone: step 1 (send)\n")


def test_a_correction_over_an_applied_subplan_is_refused_whole(project: Project) -> None:
    steps = """\
  - name: parts
    subplans: [{name: part, steps: [{name: p, run: echo p > part}]}]
  - {name: more, run: echo m > more}
"""
    project.json("plan", "execute", str(project.plan(steps)))
    with project.opened() as holdfast:
        subplan = holdfast.store.plans.below(holdfast.find_plan("latest").plan_id)[0]
    project.json("plan", "apply", "--yes", subplan.plan_id)
    before = project.files(), project.json("plan", "status"), project.checkpoints()
    for extra in ("--dry-run", "--yes"):
        arguments = ["plan", "correct", extra, "--mode", "revert", "--guidance", "x", decision_of(project, 0)]
        refused = project.json(*arguments, exit_code=4)["error"]
        assert refused["type"] == "StateError"
        assert subplan.plan_id in refused["message"]
    assert (project.files(), project.json("plan", "status"), project.checkpoints()) == before
    # A rollback of the parent does not reach the real files, and says so.
    target = project.checkpoints()[0]["checkpoint_id"]
    assert "part: its result stays in the real files" in project.call("plan", "rollback", "-y", "latest", target).stdout
    assert (project.app / "part").read_text() == "p\n"


def test_subplans_that_would_be_undone_are_named(project: Project) -> None:
    steps = "  - {name: parts, subplans: [{name: part, steps: [{name: p, run: echo p > part}]}]}\n"
    project.json("plan", "execute", str(project.plan(steps)))
    arguments = ["plan", "correct", "--mode", "revert", "--guidance", "x", decision_of(project, 0)]
    assert [each["name"] for each in project.json(*arguments, "--dry-run")["subplans_invalidated"]] == ["part"]
    assert "subplan part" in project.call(*arguments, "--dry-run").stdout
    assert "1 subplan invalidated" in project.on_terminal(*arguments, answer="n\n", columns=300).stdout


def test_what_refuses_the_decision_of_a_subplan_names_one_that_can_be_corrected(project: Project) -> None:
    steps = "  - {name: parts, subplans: [{name: part, steps: [{name: p, run: echo p > part}]}]}\n"
    project.json("plan", "execute", str(project.plan(steps)))
    root, first = project.json("plan", "status")["plan_id"], project.checkpoints()[0]["checkpoint_id"]
    with project.opened() as holdfast:
        subplan = holdfast.store.plans.below(root)[0]
        inside = holdfast.store.decisions.of(subplan.plan_id)[-1].decision_id
    refused = project.json("plan", "correct", *REVERT, inside, exit_code=4)["error"]
    named = re.findall("`holdfast (.*)`", refused["hint"])[0].split()
    assert project.call(*named, "--dry-run").exit_code == 0
    project.json("plan", "rollback", "--yes", "latest", first)
    assert (
        f"`holdfast plan tree {root}`" in project.json("plan", "correct", *REVERT, inside, exit_code=4)["error"]["hint"]
    )
    refused = project.json("plan", "apply", "--yes", subplan.plan_id, exit_code=4)["error"]
    assert "plan execute" not in refused["hint"]
    for command in re.findall("`holdfast ([^`]*)`", refused["hint"]):
        assert project.call(*command.split()).exit_code == 0


@pytest.mark.parametrize("policy", ["auto_create_on: []", "on_failure: rollback_to_start", "on_failure: keep"])
def test_a_failed_step_offers_a_correction_only_where_it_is_not_refused(project: Project, policy: str) -> None:
    steps = "  - {name: one, run: echo 1 > one}\n  - {name: two, run: 'echo 2 > two; exit 1'}\n"
    file = project.plan(steps, header=f"policy: {{{policy}}}\n")
    failed = project.json("plan", "execute", str(file), exit_code=1)
    offered = any("plan correct" in command for command in failed["next_commands"])
    tried = project.call("plan", "correct", "--dry-run", *REVERT, failed["failed_step"]["decision_id"])
    assert offered == (tried.exit_code == 0)
    assert offered == (policy == "on_failure: keep")


def test_the_decision_that_a_plan_begins_with_has_nothing_before_it(ran: Project) -> None:
    root = ran.json("plan", "tree")["decisions"][0]["decision_id"]
    refused = ran.json("plan", "correct", *REVERT, root, exit_code=4)["error"]
    assert "nothing comes before it" in refused["message"]
    for command in re.findall("`holdfast ([^`]*)`", refused["hint"]):
        assert ran.call(*command.split()).exit_code == 0


def test_mistakes_in_the_new_steps_are_named(ran: Project) -> None:
    file = Path(ran.folder / "wrong.yaml")
    file.write_text("steps: [{nam: x}]")
    ended = ran.run(
        "plan", "correct", "-y", "--mode", "revert", "--guidance", "x", "--with", str(file), decision_of(ran, 1),
        "--format", "json",
    )  # fmt: skip
    assert ended.exit_code == 2
    assert json.loads(ended.stdout)["data"]["error"]["type"] == "PlanFileError"
