"""Whatever a verb previews, checks and verifies, it looks at each tree once with all its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from benchmarks.command_counts import CommandCounts

from holdfast.app import Holdfast
from holdfast.model import Plan
from tests.support.workshop import Workshop, run

_TREES = 2
_CHANGE = "echo 2 > version.txt; mkdir new; echo 1 > new/file"
_VERBS: Mapping[str, tuple[Callable[[Holdfast, Plan, str], object], int, int, int]] = {
    # What is done, and at most how many scans, git processes and SQL statements that takes.
    "rollback": (lambda opened, plan, first: opened.rollback(plan.plan_id, first), _TREES, 0, 140),
    "rollback --dry-run": (lambda opened, plan, first: opened.rollback_preview(plan.plan_id, first), _TREES, 0, 60),
    "checkpoint create": (lambda opened, plan, _: opened.create_checkpoint(plan.plan_id), _TREES, 0, 65),
    "plan diff": (lambda opened, plan, _: opened.diff(plan.plan_id), _TREES, 1, 25),
    "apply": (lambda opened, plan, _: opened.apply(plan.plan_id), _TREES, 9, 125),
    "apply --dry-run": (lambda opened, plan, _: opened.apply_preview(plan.plan_id), _TREES, 4, 32),
    "checkpoint list": (lambda opened, plan, _: opened.checkpoints(plan.plan_id), 0, 0, 12),
}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> CommandCounts:
    counts = CommandCounts()
    counts.start(monkeypatch.setattr)
    return counts


@pytest.mark.parametrize("verb", _VERBS)
def test_a_verb_looks_at_each_tree_once_and_asks_little(workshop: Workshop, counts: CommandCounts, verb: str) -> None:
    do, scans, git, statements = _VERBS[verb]
    opened = workshop.open()
    plan = opened.execute(workshop.create(run(_CHANGE)).plan_id).plan
    first = opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
    opened = workshop.open()
    before = counts.counts.copy()
    do(opened, plan, first)
    assert counts.counts["scans"] - before["scans"] == scans
    assert counts.counts["git"] - before["git"] <= git
    assert counts.counts["statements"] - before["statements"] <= statements


def test_an_execution_looks_at_each_new_sandbox_when_it_begins_and_when_it_ends(
    workshop: Workshop, counts: CommandCounts
) -> None:
    plan = workshop.create(run("echo 2 > version.txt"), run("echo 3 > version.txt"))
    before = counts.counts["scans"]
    workshop.open().execute(plan.plan_id)
    assert counts.counts["scans"] - before == 2 * _TREES
