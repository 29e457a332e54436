"""What the message of a failure says about checkpoints is true, whatever triggers are switched on."""

from __future__ import annotations

import json
import re
from itertools import chain, combinations

import pytest

from holdfast.model import CheckpointGroup, Trigger
from tests.integration.cli.project import Project

AROUND_A_FAILURE = ["before_step", "on_tool_write_complete", "on_decision", "on_error"]
FAILED = "echo broken > version.txt; exit 1"
KEPT = re.compile(r"^kept +(cp_\w+) +the files when it failed$", re.MULTILINE)
NOT_KEPT = "Not kept: no checkpoint contains the files as they were when it failed; they are still in the sandboxes."


def combinations_of(names: list[str]) -> list[list[str]]:
    return [list(each) for each in chain.from_iterable(combinations(names, size) for size in range(len(names) + 1))]


def content_at(project: Project, checkpoint: str) -> bytes:
    with project.opened() as opened:
        view = opened.checkpoint(checkpoint, "latest")
        reader = opened.service.manager.reader
        state = reader.state(opened.store.get(CheckpointGroup, view.group.group_id).states["app"])
        entry = reader.find(state, b"version.txt")
        assert entry is not None
        return b"".join(reader.content(entry))


def commands_in(text: str) -> list[list[str]]:
    return [line.partition("holdfast ")[2].split() for line in text.splitlines() if "  holdfast " in line]


@pytest.mark.unmeasured
@pytest.mark.parametrize("failing", ["step", "step that keeps", "validation"])
def test_the_checkpoint_that_a_failure_names_holds_the_failed_files(project: Project, failing: str) -> None:
    steps = "  - {name: work, run: echo work > version.txt}\n"
    for triggers in combinations_of(AROUND_A_FAILURE):
        on_failure = "rollback" if failing == "step" else "keep"
        header = f"policy: {{on_failure: {on_failure}, auto_create_on: {json.dumps(triggers)}}}\n"
        if failing == "validation":
            plan = project.plan(steps, header=f"{header}validate: ['{FAILED}']\n")
        else:
            plan = project.plan(f"{steps}  - {{name: bad, run: '{FAILED}'}}\n", header=header)
        said = project.call("plan", "execute", str(plan)).stdout
        kept = KEPT.search(said)
        version = (project.sandbox() / "version.txt").read_text()
        if Trigger.ON_ERROR in triggers or (Trigger.ON_DECISION in triggers and on_failure == "keep"):
            assert kept is not None, triggers
        if kept is not None:
            assert content_at(project, kept[1]) == b"broken\n", triggers
        else:
            assert version == "broken\n", triggers
            assert NOT_KEPT in said, triggers
            [keeping] = [each for each in commands_in(said) if each[:2] == ["checkpoint", "create"]]
            made = project.json(*keeping)["checkpoint_id"]
            assert content_at(project, made) == b"broken\n", triggers


def test_the_checkpoint_of_a_failed_validation_is_one_of_on_error_and_brings_its_files_back(project: Project) -> None:
    header = f"policy: {{auto_create_on: [on_error]}}\nvalidate: ['{FAILED}']\n"
    plan = project.plan("  - {name: work, run: echo work > version.txt}\n", header=header)
    failed = project.json("plan", "execute", str(plan), exit_code=1)
    assert [each["triggers"] for each in project.checkpoints()[2:]] == [["on_error"]]
    kept = next(each for each in project.checkpoints() if each["checkpoint_id"] == failed["failure_checkpoint_id"])
    assert (kept["triggers"], kept["step"]) == (["on_error"], None)
    (project.sandbox() / "version.txt").write_text("by hand\n")
    project.json("plan", "rollback", "--yes", "latest", failed["failure_checkpoint_id"])
    assert (project.sandbox() / "version.txt").read_text() == "broken\n"


def test_a_failed_validation_fires_once_for_its_verdict_and_its_failure(project: Project) -> None:
    header = "validate: ['test -e version.txt', 'exit 1', 'echo never']\n"
    project.call("plan", "execute", str(project.plan("  - {run: echo work > version.txt}\n", header=header)))
    verdicts = [each["triggers"] for each in project.checkpoints() if each["step"] is None][2:]
    assert verdicts == [["on_decision"], ["on_error", "on_decision"]]
    assert "when the validation `exit 1` failed" in project.call("checkpoint", "list").stdout


def test_what_a_plan_says_of_the_state_before_a_rollback_that_on_error_did_not_keep(project: Project) -> None:
    plan = project.plan(f"  - {{name: bad, run: '{FAILED}'}}\n", header="policy: {auto_create_on: [on_tool_write]}\n")
    failed = project.json("plan", "execute", str(plan), exit_code=1)
    kept = next(each for each in project.checkpoints() if each["checkpoint_id"] == failed["failure_checkpoint_id"])
    assert kept["triggers"] == ["before_rollback"]
    assert content_at(project, kept["checkpoint_id"]) == b"broken\n"


def test_a_failed_subplan_fires_after_subplan_at_the_moment_its_step_fails(project: Project) -> None:
    divided = f"""
  - name: divide
    subplans:
      - {{name: left, steps: [{{run: echo left > left.txt}}]}}
      - {{name: right, steps: [{{run: '{FAILED}'}}]}}
"""
    for triggers, fired in (
        (["after_subplan"], [["after_subplan"], ["after_subplan"]]),
        (["after_subplan", "on_error"], [["after_subplan"], ["on_error", "after_subplan"]]),
        (["on_error"], [["on_error"]]),
    ):
        header = f"policy: {{on_failure: keep, auto_create_on: {json.dumps(triggers)}}}\n"
        failed = project.json("plan", "execute", str(project.plan(divided, header=header)), exit_code=1)
        listed = [each for each in project.checkpoints() if each["step"] == "divide"]
        assert [each["triggers"] for each in listed] == fired
        assert failed["failure_checkpoint_id"] == listed[-1]["checkpoint_id"]
