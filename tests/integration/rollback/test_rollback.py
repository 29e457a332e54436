from __future__ import annotations

import pytest

from holdfast.app import Declined, Holdfast
from holdfast.decisions.correct import CorrectionResult
from holdfast.errors import AmbiguousError, NotFoundError, StateError, UsageError
from holdfast.model import Decision, DecisionType, Plan, PlanState, RollbackResult
from tests.support.workshop import Workshop, files, run


@pytest.fixture
def plan(workshop: Workshop) -> Plan:
    made = workshop.create(
        run("echo 1 > one"),
        run('echo 2 > two; echo changed > "$HOLDFAST_RESOURCE_DATA/orders.csv"'),
        run("echo 3 > three; rm one"),
    )
    return workshop.open().execute(made.plan_id).plan


def _before_step(opened: Holdfast, plan: Plan, index: int) -> str:
    return next(
        view.checkpoint.checkpoint_id
        for view in opened.checkpoints(plan.plan_id)
        if view.group.step_index == index and "on_tool_write" in view.group.triggers
    )


def _rolled_back(opened: Holdfast, plan: Plan, index: int) -> RollbackResult:
    result = opened.rollback(plan.plan_id, _before_step(opened, plan, index))
    assert isinstance(result, RollbackResult)
    return result


def test_a_rollback_takes_back_files_position_and_decisions_of_all_resources(workshop: Workshop, plan: Plan) -> None:
    result = _rolled_back(workshop.open(), plan, 1)
    assert files(workshop.sandbox(plan)) == {"one": "1\n", "version.txt": "1\n"}
    assert files(workshop.sandbox(plan, "data")) == {"orders.csv": "1;2\n"}
    assert (result.plan.state, result.plan.last_completed_step) == (PlanState.QUEUED, 0)
    assert {(change.resource, change.file, change.action) for change in result.changes} == {
        ("app", "one", "restored"),
        ("app", "two", "removed"),
        ("app", "three", "removed"),
        ("data", "orders.csv", "restored"),
    }
    assert (result.impact.decisions_after_cp, result.impact.tool_calls_after_cp) == (2, 2)
    active = [d.step_index for d in workshop.open().decisions(plan.plan_id) if not d.is_superseded]
    assert active == [None, 0]


def test_a_rollback_can_be_undone_with_everything_it_took_back(workshop: Workshop, plan: Plan) -> None:
    before, decisions = files(workshop.sandbox(plan)), workshop.open().decisions(plan.plan_id)
    opened = workshop.open()
    result = _rolled_back(opened, plan, 0)
    assert result.left_group_id is not None
    again = opened.rollback(plan.plan_id, result.left_group_id)
    assert isinstance(again, RollbackResult)
    assert files(workshop.sandbox(plan)) == before
    assert workshop.open().decisions(plan.plan_id) == decisions
    assert again.plan.last_completed_step == 2
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == before


def test_what_was_left_is_superseded_until_one_returns_to_it(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    result = _rolled_back(opened, plan, 1)
    marks = {view.group.group_id: view.is_superseded for view in opened.checkpoints(plan.plan_id)}
    assert marks[result.left_group_id or ""]
    assert sum(marks.values()) == 4
    opened.rollback(plan.plan_id, result.left_group_id or "")
    assert not {view.group.group_id: view.is_superseded for view in opened.checkpoints(plan.plan_id)}[
        result.left_group_id or ""
    ]


def test_executing_again_after_a_rollback_gives_the_same_result(workshop: Workshop, plan: Plan) -> None:
    before = files(workshop.sandbox(plan))
    _rolled_back(workshop.open(), plan, 1)
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == before


def test_the_state_being_left_is_kept_also_when_a_person_changed_it(workshop: Workshop, plan: Plan) -> None:
    (workshop.sandbox(plan) / "mine").write_text("by hand")
    opened = workshop.open()
    result = _rolled_back(opened, plan, 0)
    assert "mine" not in files(workshop.sandbox(plan))
    opened.rollback(plan.plan_id, result.left_group_id or "")
    assert files(workshop.sandbox(plan))["mine"] == "by hand"


def test_declining_changes_nothing(workshop: Workshop, plan: Plan) -> None:
    before, groups = files(workshop.sandbox(plan)), workshop.groups(plan)
    opened = workshop.open()
    asked = []

    def decline(preview: object) -> bool:
        asked.append(preview)
        return False

    assert isinstance(opened.rollback(plan.plan_id, _before_step(opened, plan, 0), confirm=decline), Declined)
    assert (asked[0].files, asked[0].decisions) == (3, 3)
    assert (files(workshop.sandbox(plan)), workshop.groups(plan)) == (before, groups)


def test_a_plan_that_forbids_rollback_is_not_rolled_back(workshop: Workshop) -> None:
    made = workshop.create(run("echo 1 > one"), policy={"rollback_enabled": False})
    opened = workshop.open()
    opened.execute(made.plan_id)
    with pytest.raises(StateError, match="rollback_enabled"):
        opened.rollback(made.plan_id, opened.checkpoints(made.plan_id)[0].checkpoint.checkpoint_id)


def test_a_correction_goes_on_from_just_before_the_decision_with_new_steps(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    decision = next(d for d in opened.decisions(plan.plan_id) if d.step_index == 1)
    steps = workshop.steps_file(run('printf "%s" "$HOLDFAST_GUIDANCE" > said'))
    corrected = opened.correct(decision.decision_id, guidance="do it differently", steps_file=steps)
    assert isinstance(corrected, CorrectionResult)
    assert (corrected.plan.attempt, corrected.plan.revision, len(corrected.plan.steps)) == (2, 2, 2)
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"one": "1\n", "said": "do it differently", "version.txt": "1\n"}
    active = [d for d in workshop.open().decisions(plan.plan_id) if not d.is_superseded]
    intervention = next(d for d in active if d.type is DecisionType.USER_INTERVENTION)
    assert intervention.is_correction
    assert intervention.chosen == "do it differently"
    assert decision.decision_id not in {d.decision_id for d in active}


def test_going_back_takes_the_guidance_back_and_undoing_that_brings_it_again(workshop: Workshop) -> None:
    plan = workshop.create(run('echo "$HOLDFAST_GUIDANCE" > said'))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    opened.correct(opened.decisions(plan.plan_id)[1].decision_id, guidance="louder")
    opened.execute(plan.plan_id)
    start = opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
    result = opened.rollback(plan.plan_id, start)
    assert isinstance(result, RollbackResult)
    assert opened.find_plan(plan.plan_id).guidance == ""
    opened.rollback(plan.plan_id, result.left_group_id or "")
    assert opened.find_plan(plan.plan_id).guidance == "louder"
    opened.rollback(plan.plan_id, start)
    opened.execute(plan.plan_id)
    assert files(workshop.sandbox(plan))["said"] == "\n"


def test_a_correction_without_new_steps_runs_the_same_ones_with_the_guidance(workshop: Workshop) -> None:
    made = workshop.create(run('printf "%s" "${HOLDFAST_GUIDANCE:-none}" > said'))
    opened = workshop.open()
    opened.execute(made.plan_id)
    decision = next(d for d in opened.decisions(made.plan_id) if d.step_index == 0)
    opened.correct(decision.decision_id[:22], guidance="louder")
    opened.execute(made.plan_id)
    assert files(workshop.sandbox(made))["said"] == "louder"


def test_a_rollback_to_before_a_correction_takes_its_steps_back_too(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    start = opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
    decision = next(d for d in opened.decisions(plan.plan_id) if d.step_index == 1)
    opened.correct(decision.decision_id, guidance="less", steps_file=workshop.steps_file(run("echo x > x")))
    opened.rollback(plan.plan_id, start)
    back = workshop.open().find_plan(plan.plan_id)
    assert (back.revision, len(back.steps), back.attempt) == (1, 3, 1)
    # And a later correction does not reuse an attempt or a list of steps that was there before.
    opened.execute(plan.plan_id)
    decision = next(d for d in opened.decisions(plan.plan_id) if d.step_index == 1 and not d.is_superseded)
    again = opened.correct(decision.decision_id, guidance="more", steps_file=workshop.steps_file(run("echo y > y")))
    assert isinstance(again, CorrectionResult)
    assert (again.plan.attempt, again.plan.revision) == (3, 3)


def test_a_rollback_from_a_shorter_list_of_steps_brings_back_the_longer_one(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    before, end = files(workshop.sandbox(plan)), opened.checkpoints(plan.plan_id)[-1].checkpoint.checkpoint_id
    decision = next(d for d in opened.decisions(plan.plan_id) if d.step_index == 0)
    opened.correct(decision.decision_id, guidance="less", steps_file=workshop.steps_file(run("echo x > x")))
    opened.execute(plan.plan_id)
    opened.rollback_preview(plan.plan_id, end)
    opened.rollback(plan.plan_id, end)
    back = opened.find_plan(plan.plan_id)
    assert (len(back.steps), back.last_completed_step) == (3, 2)
    assert files(workshop.sandbox(plan)) == before


def test_appended_steps_are_new_work_at_the_end(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    decision = opened.decisions(plan.plan_id)[0]
    before = files(workshop.sandbox(plan))
    opened.correct(
        decision.decision_id, guidance="one more", mode="append", steps_file=workshop.steps_file(run("echo 4 > four"))
    )
    assert files(workshop.sandbox(plan)) == before
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {**before, "four": "4\n"}


def _of_type(opened: Holdfast, plan: Plan, kind: DecisionType) -> list[Decision]:
    return [each for each in opened.decisions(plan.plan_id) if each.type is kind]


def _in_force(opened: Holdfast, plan: Plan) -> list[str]:
    return [each.chosen for each in opened.decisions(plan.plan_id) if not each.is_superseded]


def test_a_corrected_verdict_is_not_in_force_beside_the_new_one(workshop: Workshop) -> None:
    flag = workshop.outside / "flag"
    plan = workshop.create(run("echo 1 > one"), validate=[f"test -e {flag}", "test -e one"])
    opened = workshop.open()
    assert not opened.execute(plan.plan_id).succeeded
    [verdict] = _of_type(opened, plan, DecisionType.VALIDATION_RESPONSE)
    assert opened.correction_preview(verdict.decision_id).superseded == (verdict,)
    opened.correct(verdict.decision_id, guidance="the flag is there now")
    assert _in_force(opened, plan) == ["a plan", "echo 1 > one", "the flag is there now"]
    flag.touch()
    assert opened.execute(plan.plan_id).succeeded
    assert _in_force(opened, plan)[3:] == ["yes", "yes"]


def test_correcting_what_was_done_about_a_failure_supersedes_that_and_what_followed(workshop: Workshop) -> None:
    tries = workshop.outside / "tries"
    plan = workshop.create(run(f"echo x >> {tries}; test $(wc -l < {tries}) -gt 1", retries=1), run("echo 2 > two"))
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    [recovery] = _of_type(opened, plan, DecisionType.ERROR_RECOVERY)
    preview = opened.correction_preview(recovery.decision_id)
    assert [each.sequence for each in preview.superseded] == [3, 4, 5]
    opened.correct(recovery.decision_id, guidance="no second try")
    assert _in_force(opened, plan) == ["a plan", "no second try"]
    assert files(workshop.sandbox(plan)) == {"version.txt": "1\n"}


def test_correcting_that_a_failure_was_kept_leaves_the_failed_state_and_nothing_decided_about_it(
    workshop: Workshop,
) -> None:
    plan = workshop.create(run("echo half > half; false"), policy={"on_failure": "keep"})
    opened = workshop.open()
    opened.execute(plan.plan_id)
    [recovery] = _of_type(opened, plan, DecisionType.ERROR_RECOVERY)
    opened.correct(recovery.decision_id, guidance="go on")
    assert _in_force(opened, plan) == ["a plan", "go on"]
    assert files(workshop.sandbox(plan))["half"] == "half\n"


def test_a_correction_can_be_corrected(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    decision = next(d for d in opened.decisions(plan.plan_id) if d.step_index == 1)
    opened.correct(decision.decision_id, guidance="less", steps_file=workshop.steps_file(run("echo x > x")))
    opened.execute(plan.plan_id)
    [correction] = _of_type(opened, plan, DecisionType.USER_INTERVENTION)
    again = opened.correct(correction.decision_id, guidance="more")
    assert isinstance(again, CorrectionResult)
    after = again.plan
    assert (after.attempt, after.guidance, len(after.steps), after.next_step) == (3, "more", 3, 1)
    assert _in_force(opened, plan) == ["a plan", "echo 1 > one", "more"]
    assert files(workshop.sandbox(plan)) == {"one": "1\n", "version.txt": "1\n"}


def test_what_a_correction_undid_stays_undone_when_that_is_corrected(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 1 > one"), validate=["false"])
    opened = workshop.open()
    opened.execute(plan.plan_id)
    [verdict] = _of_type(opened, plan, DecisionType.VALIDATION_RESPONSE)
    opened.correct(verdict.decision_id, guidance="it was wrong")
    [correction] = _of_type(opened, plan, DecisionType.USER_INTERVENTION)
    opened.correct(correction.decision_id, guidance="look again")
    assert _in_force(opened, plan) == ["a plan", "echo 1 > one", "look again"]


def test_steps_that_were_added_are_taken_away_by_correcting_that(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    before = files(workshop.sandbox(plan))
    steps = workshop.steps_file(run("echo 4 > four"))
    opened.correct(opened.decisions(plan.plan_id)[0].decision_id, guidance="more", mode="append", steps_file=steps)
    opened.execute(plan.plan_id)
    [correction] = _of_type(opened, plan, DecisionType.USER_INTERVENTION)
    corrected = opened.correct(correction.decision_id, guidance="no more")
    assert isinstance(corrected, CorrectionResult)
    assert (len(corrected.plan.steps), corrected.plan.is_finished) == (3, True)
    assert files(workshop.sandbox(plan)) == before


def test_appending_needs_steps(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    with pytest.raises(UsageError, match="new steps"):
        opened.correct(opened.decisions(plan.plan_id)[0].decision_id, guidance="more", mode="append")


def test_what_cannot_be_corrected_is_refused(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    root = opened.decisions(plan.plan_id)[0]
    with pytest.raises(StateError, match="nothing comes before it"):
        opened.correct(root.decision_id, guidance="start over")
    _rolled_back(opened, plan, 1)
    superseded = next(d for d in opened.decisions(plan.plan_id) if d.step_index == 2)
    with pytest.raises(StateError, match="already superseded"):
        opened.correct(superseded.decision_id, guidance="again")
    with pytest.raises(NotFoundError):
        opened.correct("nothing", guidance="x")
    with pytest.raises(AmbiguousError):
        opened.correct("0", guidance="x")


@pytest.mark.parametrize("mode", ["revert", "append"])
def test_steps_that_no_plan_may_start_with_are_not_brought_by_a_correction_either(
    workshop: Workshop, plan: Plan, mode: str
) -> None:
    opened, steps = workshop.open(), workshop.steps_file(run("echo x > x", checkpointable=False))
    decision = next(d for d in opened.decisions(plan.plan_id) if d.step_index == 1)
    with pytest.raises(StateError, match="what no checkpoint can hold"):
        opened.correction_preview(decision.decision_id, mode=mode, steps_file=steps)
    with pytest.raises(StateError, match="what no checkpoint can hold"):
        opened.correct(decision.decision_id, guidance="x", mode=mode, steps_file=steps)
    assert opened.find_plan(plan.plan_id) == plan


def test_declining_a_correction_changes_nothing(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    decision = next(d for d in opened.decisions(plan.plan_id) if d.step_index == 0)
    asked = []

    def decline(preview: object) -> bool:
        asked.append(preview)
        return False

    assert isinstance(opened.correct(decision.decision_id, guidance="x", confirm=decline), Declined)
    assert asked[0].resumes_at == 0
    assert ("app", "three") in [(each.resource, each.file) for each in asked[0].files]
    assert opened.find_plan(plan.plan_id) == plan


def test_a_mode_that_does_not_exist_undoes_nothing(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    decision = next(d for d in opened.decisions(plan.plan_id) if d.step_index == 0)
    with pytest.raises(UsageError, match="no mode 'apend'"):
        opened.correct(decision.decision_id, guidance="x", mode="apend")
    assert opened.find_plan(plan.plan_id) == plan


def test_an_applied_plan_is_neither_rolled_back_nor_corrected_nor_applied_again(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    checkpoint = opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
    decision = next(d for d in opened.decisions(plan.plan_id) if d.step_index == 0)
    opened.apply(plan.plan_id)
    for refused in (
        lambda: opened.rollback(plan.plan_id, checkpoint),
        lambda: opened.correct(decision.decision_id, guidance="x"),
        lambda: opened.correct(
            decision.decision_id, guidance="x", mode="append", steps_file=workshop.steps_file(run("true"))
        ),
        lambda: opened.apply(plan.plan_id),
    ):
        with pytest.raises(StateError):
            refused()


def test_a_difference_is_shown_between_any_two_moments(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    assert [(each.path, each.status) for each in opened.diff(plan.plan_id)] == [
        ("three", "added"), ("two", "added"), ("orders.csv", "changed"),
    ]  # fmt: skip
    one, two = _before_step(opened, plan, 1), _before_step(opened, plan, 2)
    between = opened.diff(plan.plan_id, one, two)
    assert [(each.path, each.added_lines, each.removed_lines) for each in between] == [
        ("two", 1, 0), ("orders.csv", 1, 1),
    ]  # fmt: skip
    assert between[1].patch == ("--- a/orders.csv", "+++ b/orders.csv", "@@ -1 +1 @@", "-1;2", "+changed")
    assert [each.path for each in opened.diff(plan.plan_id, two)] == ["one", "three"]
