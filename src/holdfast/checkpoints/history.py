"""What the records of a plan say of how far it came: the step that was cut short, what a run spawned."""

from __future__ import annotations

from holdfast.checkpoints.service import CUT_SHORT, CheckpointService
from holdfast.model import Decision, Plan, PlanState, RunStatus, StepRun, is_within


def is_to_be_undone(plan: Plan, service: CheckpointService, failed: StepRun) -> bool:
    """Whether going back after this failure, which supersedes the run, is still to be done."""
    # A validation changes nothing, and is simply made again.
    is_of_step = failed.step_index == plan.next_step and service.step_of(plan, failed) is not None
    return is_of_step and plan.policy.goes_back_on_failure


def never_begun(plan: Plan, service: CheckpointService) -> list[Decision]:
    """Decisions for a step that was cut short before it began: they are made again when it does."""
    used = {run.decision_id for run in service.store.runs.of(plan.plan_id)}
    return [
        decision
        for decision in service.store.decisions.of(plan.plan_id)
        if not decision.is_superseded
        and decision.step_index == plan.next_step
        and not is_within(decision.sequence, plan.active_decisions)
        and not used.intersection((decision.decision_id, decision.parent_decision_id))
    ]


def cut_short(plan: Plan, service: CheckpointService) -> StepRun | None:
    """The run of the plan's next step, if it did not come to its end and its half-done work may be in the sandboxes."""
    run = service.run_of_next_step(plan)
    if run is not None and run.status is RunStatus.FAILED:
        return _failed_as_it_counts(plan, run) if is_to_be_undone(plan, service, run) else None
    return run if run is not None and run.status in CUT_SHORT else None


def _failed_as_it_counts(plan: Plan, run: StepRun) -> StepRun:
    """For those who only look: where the owner died before it could undo the step, recovery makes it interrupted."""
    is_left = plan.state is PlanState.PROCESSING
    return run.model_copy(update={"status": RunStatus.INTERRUPTED}) if is_left else run


def under_way(plan: Plan, service: CheckpointService) -> StepRun | None:
    """The same, for those who look before what a dead process left is put right."""
    return cut_short(plan, service) or next(iter(service.store.runs.unfinished(plan.plan_id)), None)


def spawned_by(service: CheckpointService, run: StepRun) -> list[Plan]:
    """The subplans of one run of a step, in the order in which they are listed."""
    decisions = service.store.decisions.of(run.plan_id)
    of_run = (each for each in decisions if run.decision_id in (each.decision_id, each.parent_decision_id))
    spawning = {each.decision_id for each in of_run}
    return [plan for plan in service.store.plans.below(run.plan_id) if plan.spawn_decision_id in spawning]


def goes_on_with_another(subplan: Plan) -> str:
    """Why it is not gone back, corrected or gone on with by itself."""
    return f"Plan {subplan.plan_id} ({subplan.name}) is a subplan of {subplan.parent_plan_id} and goes on with it."
