"""What going back would do is known before it is done, and what it cannot undo; the results of attempts are kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.app import Declined, Holdfast
from holdfast.decisions.correct import CorrectionResult
from holdfast.errors import NotFoundError, SandboxError, StateError
from holdfast.model import Plan, PlanState, RollbackResult
from holdfast.tools import Toolbox
from tests.support.workshop import Workshop, files, run

TOLD = {"changes", "impact", "checkpoints_remaining", "checkpoint", "set_aside", "only"}


@pytest.fixture
def plan(workshop: Workshop) -> Plan:
    made = workshop.create(
        run("echo 1 > one"),
        run('echo 2 > two; echo changed > "$HOLDFAST_RESOURCE_DATA/orders.csv"', name="send", side_effects=True),
        run("echo 3 > three; rm one"),
    )
    return workshop.open().execute(made.plan_id).plan


def _before_step(opened: Holdfast, plan: Plan, index: int) -> str:
    return next(
        view.checkpoint.checkpoint_id
        for view in opened.checkpoints(plan.plan_id)
        if view.group.step_index == index and "on_tool_write" in view.group.triggers
    )


def _decision_of(opened: Holdfast, plan: Plan, index: int) -> str:
    return next(d.decision_id for d in opened.decisions(plan.plan_id) if d.step_index == index)


# The preview of a rollback


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_preview_tells_what_the_rollback_then_does(workshop: Workshop, plan: Plan, by_hand: bool) -> None:
    if by_hand:
        (workshop.sandbox(plan) / "mine").write_text("by hand")
    opened = workshop.open()
    target = _before_step(opened, plan, 1)
    before, groups = files(workshop.sandbox(plan)), workshop.groups(plan)
    expected = opened.rollback_preview(plan.plan_id, target).expected
    assert (files(workshop.sandbox(plan)), workshop.groups(plan)) == (before, groups)
    assert opened.find_plan(plan.plan_id) == plan
    assert opened.store.operations.unfinished(plan.plan_id) == []
    result = opened.rollback(plan.plan_id, target)
    assert isinstance(result, RollbackResult)
    assert [getattr(expected, name) for name in TOLD] == [getattr(result, name) for name in TOLD]
    position = {"phase", "state", "attempt", "revision", "last_completed_step", "steps", "active_decisions"}
    assert [getattr(expected.plan, name) for name in position] == [getattr(result.plan, name) for name in position]


def test_a_preview_counts_what_retention_will_prune(workshop: Workshop) -> None:
    made = workshop.create(*(run(f"echo {n} > f{n}") for n in range(4)), policy={"max_checkpoints": 5})
    opened = workshop.open()
    opened.execute(made.plan_id)
    (workshop.sandbox(made) / "mine").write_text("by hand")
    target = opened.checkpoints(made.plan_id)[2].checkpoint.checkpoint_id
    expected = opened.rollback_preview(made.plan_id, target).expected
    result = opened.rollback(made.plan_id, target)
    assert isinstance(result, RollbackResult)
    assert expected.checkpoints_remaining == result.checkpoints_remaining == len(opened.checkpoints(made.plan_id))


def test_keeping_the_present_state_does_not_prune_what_one_goes_back_to(workshop: Workshop) -> None:
    made = workshop.create(*(run(f"echo {n} > f{n}") for n in range(4)), policy={"max_checkpoints": 4})
    opened = workshop.open()
    opened.execute(made.plan_id)
    second = opened.checkpoints(made.plan_id)[1]
    (workshop.sandbox(made) / "mine").write_text("by hand")
    result = opened.rollback(made.plan_id, second.checkpoint.checkpoint_id)
    assert isinstance(result, RollbackResult)
    assert "mine" not in files(workshop.sandbox(made))
    assert result.plan.last_completed_step == second.group.last_completed_step


def test_a_preview_names_what_would_be_set_aside(workshop: Workshop, plan: Plan) -> None:
    command = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('one'); s.close()"
    subprocess.run([sys.executable, "-c", command], cwd=workshop.sandbox(plan), check=True)
    opened = workshop.open()
    target = _before_step(opened, plan, 1)
    expected = opened.rollback_preview(plan.plan_id, target).expected
    assert expected.set_aside == (str(workshop.sandbox(plan) / "one"),)
    result = opened.rollback(plan.plan_id, target)
    assert isinstance(result, RollbackResult)
    assert [Path(each).is_socket() for each in result.set_aside] == [True]


def test_a_preview_refuses_what_the_rollback_refuses(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    target = _before_step(opened, plan, 1)
    with pytest.raises(NotFoundError):
        opened.rollback_preview(plan.plan_id, "cp_nothing")
    away = workshop.folder / "away"
    workshop.sandbox(plan).rename(away)
    with pytest.raises(SandboxError, match="missing"):
        opened.rollback_preview(plan.plan_id, target)
    away.rename(workshop.sandbox(plan))
    opened.apply(plan.plan_id)
    with pytest.raises(StateError, match="applied"):
        opened.rollback_preview(plan.plan_id, target)


# Effects outside


def _not_undone(result: RollbackResult) -> list[tuple[str, int]]:
    return [(each.step, each.step_index) for each in result.impact.side_effects_not_undone]


def test_declared_effects_outside_are_listed_as_not_undone(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    late = opened.rollback(plan.plan_id, _before_step(opened, plan, 2))
    assert isinstance(late, RollbackResult)
    assert _not_undone(late) == []
    early = opened.rollback(plan.plan_id, _before_step(opened, plan, 0))
    assert isinstance(early, RollbackResult)
    assert _not_undone(early) == [("send", 1)]
    run_id = early.impact.side_effects_not_undone[0].run_id
    assert [run.step for run in opened.store.runs.of(plan.plan_id) if run.run_id == run_id] == ["send"]
    # They were undone by neither, but the second time there is nothing left that could be.
    again = opened.rollback(plan.plan_id, _before_step(opened, plan, 0))
    assert isinstance(again, RollbackResult)
    assert _not_undone(again) == []


def test_effects_of_subplans_that_are_invalidated_are_listed_too(workshop: Workshop) -> None:
    inner = {"name": "inner", "subplans": [{"name": "deep", "steps": [run("true", name="ping", side_effects=True)]}]}
    made = workshop.create(
        {"name": "outer", "subplans": [{"name": "part", "steps": [run("true", name="call", side_effects=True), inner]}]}
    )
    opened = workshop.open()
    assert opened.execute(made.plan_id).succeeded
    result = opened.rollback(made.plan_id, workshop.groups(made)[0].group_id)
    assert isinstance(result, RollbackResult)
    assert _not_undone(result) == [("part: call", 0), ("part: deep: ping", 0)]
    assert result.impact.child_plans_invalidated == 1


def test_a_tool_that_is_gone_may_have_had_effects(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    opened.tools = Toolbox()
    result = opened.rollback(plan.plan_id, _before_step(opened, plan, 2))
    assert isinstance(result, RollbackResult)
    assert _not_undone(result) == [("echo 3 > three; rm one", 2)]


def test_a_validation_is_no_step_also_when_steps_were_added_since(workshop: Workshop) -> None:
    made = workshop.create(run("echo 1 > one"), validate=["true"])
    opened = workshop.open()
    opened.execute(made.plan_id)
    steps = workshop.steps_file(run("echo 2 > two", name="send", side_effects=True))
    opened.correct(_decision_of(opened, made, 0), guidance="more", mode="append", steps_file=steps)
    opened.execute(made.plan_id)
    result = opened.rollback(made.plan_id, workshop.groups(made)[0].group_id)
    assert isinstance(result, RollbackResult)
    assert _not_undone(result) == [("send", 1)]


# The preview of a correction


def test_a_correction_tells_what_it_cannot_undo(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    preview = opened.correction_preview(_decision_of(opened, plan, 1))
    assert [each.step for each in preview.impact.side_effects_not_undone] == ["send"]
    assert (preview.impact.decisions_after_cp, preview.impact.tool_calls_after_cp) == (2, 2)
    assert opened.find_plan(plan.plan_id) == plan


def test_a_preview_of_a_correction_tells_the_steps_that_then_are_in_force(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    more = workshop.steps_file(run("echo 4 > four"))
    opened.correct(_decision_of(opened, plan, 2), guidance="more", mode="append", steps_file=more)
    opened.execute(plan.plan_id)
    decision = _decision_of(opened, plan, 1)
    preview = opened.correction_preview(decision)
    corrected = opened.correct(decision, guidance="again")
    assert isinstance(corrected, CorrectionResult)
    assert preview.steps == corrected.plan.steps
    assert preview.resumes_at == corrected.plan.next_step


def test_appending_is_asked_for_as_well(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    steps = workshop.steps_file(run("echo 4 > four"))
    preview = opened.correction_preview(_decision_of(opened, plan, 1), mode="append", steps_file=steps)
    assert (preview.checkpoint, preview.files, preview.superseded, preview.resumes_at) == (None, (), (), 3)
    assert [step.name for step in preview.steps[3:]] == ["echo 4 > four"]
    declined = opened.correct(
        _decision_of(opened, plan, 1), guidance="x", mode="append", steps_file=steps, confirm=lambda _: False
    )
    assert isinstance(declined, Declined)
    assert opened.find_plan(plan.plan_id) == plan


@pytest.mark.parametrize("confirm", [None, lambda _: True])
def test_steps_are_appended_to_a_plan_that_was_never_executed(
    workshop: Workshop, confirm: Callable[[object], bool] | None
) -> None:
    made, opened = workshop.create(run("echo 1 > one")), workshop.open()
    root, steps = opened.decisions(made.plan_id)[0], workshop.steps_file(run("echo 2 > two"))
    done = opened.correct(root.decision_id, guidance="more", mode="append", steps_file=steps, confirm=confirm)
    assert isinstance(done, CorrectionResult)
    assert opened.execute(made.plan_id).succeeded
    assert (workshop.sandbox(opened.find_plan(made.plan_id)) / "two").exists()


def test_a_correction_tells_how_compensation_really_ended(workshop: Workshop) -> None:
    made = workshop.create(run("true", name="send", side_effects=True, compensate="false"))
    opened = workshop.open()
    assert opened.execute(made.plan_id).succeeded
    done = opened.correct(_decision_of(opened, made, 0), guidance="x")
    assert isinstance(done, CorrectionResult)
    assert done.impact is not None
    assert done.impact.compensated == ()
    assert [each.note for each in done.impact.side_effects_not_undone] == ["failed: the command ended with exit code 1"]


def test_nothing_is_appended_to_a_plan_that_was_applied_or_cancelled(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    steps = workshop.steps_file(run("echo 4 > four"))
    opened.apply(plan.plan_id)
    with pytest.raises(StateError, match="is applied"):
        opened.correction_preview(_decision_of(opened, plan, 1), mode="append", steps_file=steps)


def test_a_correction_where_rollback_is_forbidden_is_refused_before_anybody_is_asked(workshop: Workshop) -> None:
    made = workshop.create(run("echo 1 > one"), policy={"rollback_enabled": False})
    opened = workshop.open()
    opened.execute(made.plan_id)
    with pytest.raises(StateError, match="rollback_enabled"):
        opened.correction_preview(_decision_of(opened, made, 0))


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_correction_that_would_undo_an_applied_subplan_is_refused_whole(workshop: Workshop, is_nested: bool) -> None:
    inner = {"name": "inner", "subplans": [{"name": "deep", "steps": [run("echo d > deep")]}]}
    made = workshop.create(
        run("echo 1 > one"),
        {"name": "outer", "subplans": [{"name": "part", "steps": [inner]}]},
        run("echo 3 > three"),
    )
    opened = workshop.open()
    assert opened.execute(made.plan_id).succeeded
    applied = opened.store.plans.below(made.plan_id)[0]
    if is_nested:
        applied = opened.store.plans.below(applied.plan_id)[0]
    with opened.store.transaction():
        opened.store.save(applied.changed(state=PlanState.APPLIED))
    before, groups = files(workshop.sandbox(made)), workshop.groups(made)
    for index in (0, 1):
        with pytest.raises(StateError, match=applied.plan_id):
            opened.correct(_decision_of(opened, made, index), guidance="x")
    assert (files(workshop.sandbox(made)), workshop.groups(made)) == (before, groups)
    assert isinstance(
        opened.correct(_decision_of(opened, made, 2), guidance="what came after it is free"), CorrectionResult
    )


# Attempts


def _corrected(opened: Holdfast, workshop: Workshop, plan: Plan, *steps: dict[str, object]) -> None:
    opened.correct(_decision_of(opened, plan, 1), guidance="x", steps_file=workshop.steps_file(*steps))
    opened.execute(plan.plan_id)


def test_the_results_of_two_attempts_are_compared(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    _corrected(opened, workshop, plan, run("echo other > two; echo 4 > four"))
    ends = [opened.result_of_attempt(plan.plan_id, attempt).checkpoint_id for attempt in (1, 2)]
    assert [(each.path, each.status) for each in opened.diff(plan.plan_id, *ends)] == [
        ("four", "added"),
        ("one", "added"),
        ("three", "removed"),
        ("two", "changed"),
        ("orders.csv", "changed"),
    ]
    assert opened.diff(plan.plan_id, ends[1]) == []


def test_the_result_of_an_attempt_that_failed_is_what_it_left(workshop: Workshop) -> None:
    made = workshop.create(run("echo 1 > one"), run("echo bad > bad; false"))
    opened = workshop.open()
    opened.execute(made.plan_id)
    _corrected(opened, workshop, made, run("echo good > good"))
    ends = [opened.result_of_attempt(made.plan_id, attempt).checkpoint_id for attempt in (1, 2)]
    assert [(each.path, each.status) for each in opened.diff(made.plan_id, *ends)] == [
        ("bad", "removed"),
        ("good", "added"),
    ]


def test_an_attempt_there_never_was_is_refused_with_those_there_were(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    _corrected(opened, workshop, plan, run("true"))
    with pytest.raises(NotFoundError, match="attempt 3") as caught:
        opened.result_of_attempt(plan.plan_id, 3)
    assert "1, 2" in caught.value.hint
    fresh = workshop.create(run("true"))
    with pytest.raises(NotFoundError) as caught:
        opened.result_of_attempt(fresh.plan_id, 1)
    assert "not run yet" in caught.value.hint


# A sandbox that is gone


def test_a_missing_sandbox_is_made_anew_by_going_on_and_not_by_going_back(workshop: Workshop, plan: Plan) -> None:
    shutil.rmtree(workshop.sandbox(plan))
    opened = workshop.open()
    target = _before_step(opened, plan, 1)
    for go_back in (opened.rollback_preview, opened.rollback):
        with pytest.raises(SandboxError, match="is missing") as refusal:
            go_back(plan.plan_id, target)
        assert f"`holdfast plan resume {plan.plan_id}`" in refusal.value.hint
        assert not workshop.sandbox(plan).exists()
    assert opened.execute(plan.plan_id).made_anew == ("app",)
    result = opened.rollback(plan.plan_id, target)
    assert isinstance(result, RollbackResult)
    assert files(workshop.sandbox(plan)) == {"one": "1\n", "version.txt": "1\n"}
    undone = opened.rollback(plan.plan_id, result.left_group_id or "")
    assert isinstance(undone, RollbackResult)
    assert files(workshop.sandbox(plan)) == {"two": "2\n", "three": "3\n", "version.txt": "1\n"}


def test_a_step_that_removed_its_sandbox_can_be_corrected(workshop: Workshop) -> None:
    made = workshop.create(run("echo 1 > one"), run('rm -rf "$HOLDFAST_RESOURCE_APP"', name="clean"))
    opened = workshop.open(sandbox__confine="false", sandbox__view="own-path")
    with pytest.raises(SandboxError, match="is missing"):
        opened.execute(made.plan_id)
    opened.correct(
        _decision_of(opened, made, 1), guidance="keep it", steps_file=workshop.steps_file(run("echo 2 > two"))
    )
    assert opened.execute(made.plan_id).succeeded
    assert files(workshop.sandbox(made)) == {"one": "1\n", "two": "2\n", "version.txt": "1\n"}


def test_a_sandbox_whose_last_checkpoint_does_not_hold_all_is_not_made_anew_to_go_back(workshop: Workshop) -> None:
    made = workshop.create(run("echo 1 > one"), run("exit 3"), policy={"auto_create_on": []})
    opened = workshop.open()
    opened.execute(made.plan_id)
    shutil.rmtree(workshop.sandbox(made))
    with pytest.raises(SandboxError, match="is missing") as refusal:
        opened.rollback(made.plan_id, opened.checkpoints(made.plan_id)[0].checkpoint.checkpoint_id)
    assert "holdfast plan resume --dry-run" in refusal.value.hint
    assert not workshop.sandbox(made).exists()
