"""The history of a long run: all of its last moments are kept, fewer further back, and what was dropped is said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast import ExecutionResult, Holdfast, Outfit
from holdfast.events import CheckpointTaken, Event
from holdfast.model import CheckpointGroup, Moment, Plan
from tests.integration.cli.project import Project

LIMIT = 10
WORK = """
for number in $(seq %d); do
  echo $number > work.txt
  while ! test -e "$1/$number"; do sleep 0.01; done
done
"""
"""After each write the program rests until its checkpoint has been taken."""


@pytest.fixture
def holdfast(tmp_path: Path) -> Iterator[Holdfast]:
    (tmp_path / "data").mkdir()
    overrides = {"sandbox.checkpoint.max-checkpoints-per-plan": str(LIMIT)}
    with Holdfast.open(tmp_path, home=tmp_path / "home", environment=os.environ, overrides=overrides) as holdfast:
        yield holdfast


def ran(holdfast: Holdfast, writes: int) -> tuple[ExecutionResult, list[CheckpointGroup]]:
    """What became of a program that rests after each write, and all groups that there were."""
    signals = holdfast.project_root / "taken"
    signals.mkdir()
    groups: list[CheckpointGroup] = []

    def listen(event: Event) -> None:
        if isinstance(event, CheckpointTaken):
            groups.append(event.group)
            if Moment.SETTLED in event.group.triggers:
                (signals / str(sum(Moment.SETTLED in each.triggers for each in groups))).touch()

    data = holdfast.project_root / "data"
    plan = holdfast.create_program_plan(["sh", "-c", WORK % writes, "sh", str(signals)], resources=[data], folder=data)
    outfit = Outfit(settle_seconds=0.05)
    return holdfast.execute(plan.plan_id, listener=listen, outfit=outfit), groups


def numbers(holdfast: Holdfast, plan: Plan) -> list[int]:
    return [each.sequence for each in holdfast.store.groups.of(plan.plan_id)]


def test_of_a_long_run_the_last_moments_are_left_and_some_of_the_others_and_the_result_says_how_many_went(
    holdfast: Holdfast,
) -> None:
    result, groups = ran(holdfast, 40)
    left = numbers(holdfast, result.plan)

    assert result.succeeded
    assert holdfast.count_checkpoints(result.plan.plan_id) == LIMIT
    assert result.pruned == sum(1 for _ in groups) - LIMIT
    last = groups[-1].sequence
    assert left[0] == 1
    assert left[-LIMIT // 2 :] == list(range(last - LIMIT // 2 + 1, last + 1))
    assert max(after - before for before, after in pairwise(left)) < last * 2 // 3
    assert [each.parent_group_id for each in holdfast.store.groups.of(result.plan.plan_id)[1:]] == [
        each.group_id for each in holdfast.store.groups.of(result.plan.plan_id)[:-1]
    ]
    # A moment in the middle can still be gone back to.
    middle = next(each for each in groups if each.sequence == left[2])
    holdfast.rollback(result.plan.plan_id, middle.group_id)
    found = Path(result.plan.resources[0].sandbox_path, "work.txt").read_text()
    assert found == f"{sum(Moment.SETTLED in each.triggers for each in groups if each.sequence <= middle.sequence)}\n"


def test_a_labelled_moment_and_a_damaged_one_stay(holdfast: Holdfast) -> None:
    result, _ = ran(holdfast, 5)
    plan = result.plan
    labelled = holdfast.create_checkpoint(plan.plan_id, "good").group.sequence
    damaged = holdfast.create_checkpoint(plan.plan_id).group
    holdfast.store.execute("UPDATE checkpoint_group SET reason = 'x' WHERE group_id = ?", damaged.group_id)
    for _ in range(40):
        holdfast.create_checkpoint(plan.plan_id)
    left = [place[1] for place in holdfast.store.groups.places(plan.plan_id)]

    assert {1, labelled, damaged.sequence} <= set(left)
    assert holdfast.count_checkpoints(plan.plan_id) == LIMIT
    assert result.pruned == 0


def test_the_summary_says_what_was_dropped_in_one_line(project: Project) -> None:
    limit = "--config", "sandbox.checkpoint.max-checkpoints-per-plan=6"
    steps = "".join(f"  - run: echo {number} > n\n" for number in range(10))
    said = project.call("execute", str(project.plan(steps)), *limit).stdout
    # Two resources at the beginning, and two groups of one checkpoint for each step.
    assert "\nPruned, the oldest first: 17 checkpoints; at most 6 are kept.\n" in said
    again = project.json("execute", "latest")
    assert again["pruned_checkpoints"] == 0

    ran = project.run("run", *limit, "--resource", "data", "--", "touch", "made")
    assert "to roll back to" in ran.stderr
    assert "Thinned out" not in ran.stderr
    fewest = "--config", "sandbox.checkpoint.max-checkpoints-per-plan=2"
    ran = project.run("run", *fewest, "--resource", "data", "--", "touch", "made")
    assert "2 checkpoints to roll back to\nThinned out in between: 2 checkpoints; at most 2 are kept.\n" in ran.stderr
