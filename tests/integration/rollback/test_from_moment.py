"""A kill while a moment becomes the result, or while a program goes on from one: the next command goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Declined, HoldfastError, RollbackPreview
from holdfast.checkpoints.rollback import Rollback
from holdfast.model import Plan, PlanState
from tests.support.crashes import count_of_changes, killed_at
from tests.support.workshop import Workshop, files

AT_MOMENT = {"version.txt": "1\n", "one": "1\n"}
AT_END = {"one": "1\n", "two": "2\n"}
TRIED = 12
"""At so many moments, spread over the whole command, it is killed."""


@pytest.fixture
def plan(workshop: Workshop) -> Plan:
    """Of two programs: the first made a file, and the second another one after it removed one."""
    opened = workshop.open(sandbox__checkpoint__max_checkpoints_per_plan="500")
    made = opened.create_program_plan(["sh", "-c", "echo 1 > one"], resources=[workshop.app], folder=workshop.app)
    opened.execute(made.plan_id)
    opened.going_on.with_program(made.plan_id, ["sh", "-c", "rm version.txt; echo 2 > two"], folder=workshop.app)
    opened.execute(made.plan_id)
    found = opened.find_plan(made.plan_id)
    workshop.close()
    assert files(sandbox(workshop, found)) == AT_END
    return found


def sandbox(workshop: Workshop, plan: Plan) -> Path:
    return workshop.sandbox(plan, plan.resources[0].name)


def moment_of(workshop: Workshop, plan: Plan) -> str:
    """The checkpoint at the end of the first program."""
    with workshop.open() as opened:
        views = opened.checkpoints(plan.plan_id)
        return next(
            each.checkpoint.checkpoint_id
            for each in views
            if each.group.step_index == 0 and "on_tool_write_complete" in each.group.triggers
        )


def swept(workshop: Workshop, plan: Plan, action: Callable[[], object], check: Callable[[], None]) -> None:
    """Kill the action at moments all over it; after each, check, and go back to the end of the plan."""
    last = plan.last_checkpoint_id or ""
    count = count_of_changes(action)
    check()
    for moment in range(1, count + 1, max(1, count // TRIED)):
        with workshop.open() as opened:
            opened.rollback(plan.plan_id, last)
            assert opened.execute(plan.plan_id).succeeded
        assert files(sandbox(workshop, plan)) == AT_END
        killed_at(moment, action)  # the last ones may come after its end
        check()


def test_keeping_that_was_killed_is_finished_or_was_not_begun_and_can_be_repeated(
    workshop: Workshop, plan: Plan
) -> None:
    wanted, seen = moment_of(workshop, plan), []

    def keep() -> None:
        with workshop.open() as opened:
            opened.going_on.keep(plan.plan_id, wanted)

    def check() -> None:
        with workshop.open() as opened:
            result = opened.execute(plan.plan_id)  # the next command, whichever it is
            assert result.plan.state is PlanState.COMPLETE
            assert result.was_done
            assert files(sandbox(workshop, plan)) in (AT_END, AT_MOMENT)
            seen.append(files(sandbox(workshop, plan)) == AT_MOMENT)
            if len(seen) % 2:
                opened.going_on.keep(plan.plan_id, wanted)
                assert files(sandbox(workshop, plan)) == AT_MOMENT
                assert [each.file for each in opened.apply_preview(plan.plan_id).changes] == ["one"]

    swept(workshop, plan, keep, check)
    assert set(seen) == {True, False}


def test_what_resuming_does_after_keeping_was_killed_is_said_before(workshop: Workshop, plan: Plan) -> None:
    wanted = moment_of(workshop, plan)

    def keep() -> None:
        with pytest.MonkeyPatch.context() as patched, workshop.open() as opened:
            patched.setattr(Rollback, "_restore_and_record", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            opened.going_on.keep(plan.plan_id, wanted)

    assert killed_at(-1, keep)
    with workshop.open() as opened:
        expected = opened.resume_preview(plan.plan_id)
        assert (expected.step_index, expected.runs_nothing) == (None, True)
        assert opened.execute(plan.plan_id).was_done
        assert files(sandbox(workshop, plan)) == AT_MOMENT


@pytest.mark.parametrize("is_from_moment", [True, False])
def test_going_on_that_was_killed_goes_on_or_was_not_begun(
    workshop: Workshop, plan: Plan, is_from_moment: bool
) -> None:
    wanted, seen = moment_of(workshop, plan), []
    base = AT_MOMENT if is_from_moment else AT_END

    def go_on() -> None:
        with workshop.open() as opened:
            argv = ["sh", "-c", "echo 3 > three"]
            opened.going_on.with_program(plan.plan_id, argv, at=wanted if is_from_moment else None, folder=workshop.app)

    def check() -> None:
        with workshop.open() as opened:
            result = opened.execute(plan.plan_id)
            assert result.plan.state is PlanState.COMPLETE
            found = files(sandbox(workshop, plan))
            assert found == (AT_END if result.was_done else {**base, "three": "3\n"})
            seen.append(result.was_done)

    swept(workshop, plan, go_on, check)
    assert set(seen) == {True, False}


def test_who_is_asked_may_say_no(workshop: Workshop, plan: Plan) -> None:
    wanted, asked = moment_of(workshop, plan), []

    def no(preview: RollbackPreview) -> bool:
        asked.append((preview.files, preview.expected.plan.state))
        return False

    with workshop.open() as opened:
        before = opened.count_checkpoints(plan.plan_id)
        assert opened.going_on.keep(plan.plan_id, wanted, confirm=no) == Declined()
        argv = ["true"]
        at = {"at": wanted, "folder": workshop.app}
        assert opened.going_on.with_program(plan.plan_id, argv, confirm=no, **at) == Declined()
        assert opened.count_checkpoints(plan.plan_id) == before
        assert opened.find_plan(plan.plan_id).state is PlanState.COMPLETE
    assert asked == [(2, PlanState.COMPLETE), (2, PlanState.QUEUED)]


def test_the_decision_to_go_on_can_be_corrected(workshop: Workshop, plan: Plan) -> None:
    with workshop.open() as opened:
        [decision] = [each for each in opened.decisions(plan.plan_id) if each.is_correction]
        assert decision.chosen.startswith("go on with: sh -c")
        opened.correct(decision.decision_id, guidance="do nothing more")
        assert files(sandbox(workshop, plan)) == AT_MOMENT
        assert [step.name for step in opened.find_plan(plan.plan_id).steps] == ["sh -c 'echo 1 > one'"]


def test_before_programs_can_prevent_that_they_start(workshop: Workshop, plan: Plan) -> None:
    def prevent(plan: Plan, programs: object) -> None:
        raise HoldfastError("not now")

    with workshop.open() as opened:
        opened.going_on.with_program(plan.plan_id, ["sh", "-c", "echo 3 > three"], folder=workshop.app)
        with pytest.raises(HoldfastError, match="not now"):
            opened.execute(plan.plan_id, before_programs=prevent)
        assert opened.find_plan(plan.plan_id).state is PlanState.QUEUED
        assert files(sandbox(workshop, plan)) == AT_END
        assert opened.execute(plan.plan_id).succeeded
