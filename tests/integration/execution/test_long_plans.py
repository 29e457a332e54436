"""What a step asks of the records does not depend on how many came before it."""

from __future__ import annotations

import io
from itertools import pairwise
from statistics import mean, median
from typing import Any

import pytest
from benchmarks.command_counts import CommandCounts

from holdfast.cli.output import PlainScreen
from holdfast.cli.screen.progress import Progress
from holdfast.events import Event, Listener, StepStarted
from tests.support.statements import Counts, counted_statements
from tests.support.workshop import Workshop

_STEPS = 200


def _writes(number: int) -> list[dict[str, Any]]:
    return [
        {"tool": "write_file", "resource": "data", "args": {"path": f"f{each % 9}", "content": str(each)}}
        for each in range(number)
    ]


def _counts_of_steps(workshop: Workshop, kept: int, *, is_shown: bool) -> list[Counts]:
    """What each step of a long plan asks."""
    opened = workshop.open()
    plan = opened.create_plan(workshop.plan_file(*_writes(_STEPS), policy={"max_checkpoints": kept}))
    shown: Listener = Progress(PlainScreen(io.StringIO()), opened, plan) if is_shown else lambda _: None
    with counted_statements() as counts:
        begun: list[Counts] = []

        def listen(event: Event) -> None:
            shown(event)
            if isinstance(event, StepStarted):
                begun.append(counts.now())

        assert opened.execute(plan.plan_id, listener=listen).succeeded
        begun.append(counts.now())
    return [after.since(before) for before, after in pairwise(begun)]


@pytest.mark.unmeasured
@pytest.mark.parametrize("is_shown", [True, False], ids=["shown", "not shown"])
@pytest.mark.parametrize("kept", [10, 10_000])
def test_a_step_asks_no_more_of_the_records_than_an_early_one(workshop: Workshop, kept: int, is_shown: bool) -> None:
    steps = _counts_of_steps(workshop, kept, is_shown=is_shown)
    early, late = steps[20:40], steps[-30:-10]
    # Not the largest: now and then the lease is renewed meanwhile.
    assert median(each.statements for each in late) == median(each.statements for each in early)
    assert median(each.rows for each in late) == median(each.rows for each in early)
    assert median(each.work for each in late) < 1.2 * median(each.work for each in early)


_MOST_FOR_A_PRUNING = 8
"""What is needed, the groups that follow, and what is deleted; all else is known from earlier steps."""


@pytest.mark.unmeasured
def test_a_step_that_prunes_asks_little_more_of_records_and_content(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = CommandCounts()
    counts.start(monkeypatch.setattr)
    opened = workshop.open()
    plan = opened.create_plan(workshop.plan_file(*_writes(100), policy={"max_checkpoints": 80}))
    begun: list[int] = []

    def listen(event: Event) -> None:
        if isinstance(event, StepStarted):
            begun.append(counts.counts["statements"])

    assert opened.execute(plan.plan_id, listener=listen).succeeded
    steps = [after - before for before, after in pairwise(begun)]
    assert median(steps[-30:]) <= median(steps[10:30]) + 2 * _MOST_FOR_A_PRUNING  # a step takes two groups
    assert mean(steps[-30:]) <= median(steps[10:30]) + 2 * (_MOST_FOR_A_PRUNING + 2)  # with what is read ahead
