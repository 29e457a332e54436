"""What a step asks of the records does not depend on how many came before it."""

from __future__ import annotations

import io
from itertools import pairwise
from statistics import median

import pytest

from holdfast.cli.output import PlainScreen
from holdfast.cli.screen.progress import Progress
from holdfast.events import Event, Listener, StepStarted
from tests.support.statements import Counts, counted_statements
from tests.support.workshop import Workshop

_STEPS = 200


def _counts_of_steps(workshop: Workshop, kept: int, *, is_shown: bool) -> list[Counts]:
    """What each step of a long plan asks."""
    steps = [
        {"tool": "write_file", "resource": "data", "args": {"path": f"f{number % 9}", "content": str(number)}}
        for number in range(_STEPS)
    ]
    opened = workshop.open()
    plan = opened.create_plan(workshop.plan_file(*steps, policy={"max_checkpoints": kept}))
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
