"""Going on with a plan after a crash, a kill, a failure or a cancel: from where, and what is put right first."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.checkpoints import CheckpointService
from holdfast.errors import StateError
from holdfast.executor import (
    AfterInterruption,
    Choices,
    may_count_as_done,
    refuse_to_repeat,
    refuse_to_skip_nothing,
)
from holdfast.model import CheckpointGroup, Correction, Operation, OperationKind, Plan, PlanState, RunStatus, Step
from holdfast.operations import cut_short
from holdfast.subplans import refuse_unresolved, spawned_by
from holdfast.tools import Toolbox


@dataclass(frozen=True)
class ResumePreview:
    plan: Plan
    """As it is now."""
    choices: Choices
    steps: tuple[Step, ...]
    """As they are when what was begun is finished."""
    step_index: int | None
    """The step that would run next; None if all are done and only the result is checked again."""
    skipped: str | None
    """The step that was cut short and counts as done."""
    group_id: str | None
    """The group the sandboxes would be taken back to first, because the step there did not come to its end."""
    operations: tuple[OperationKind, ...]
    """What was begun and would be finished (a rollback) or undone (an apply) first."""
    subplans: tuple[str, ...] = ()
    """Of a step with subplans that was cut short: those that are not done."""
    can_skip: bool = False
    """The step is a program, and would be run again although what it made could be kept."""


def preview_resume(plan: Plan, service: CheckpointService, tools: Toolbox, choices: Choices) -> ResumePreview:
    """Refuses what going on would refuse, as far as that can be known before what a crash left is put right."""
    operations = service.store.unfinished_operations(plan.plan_id)
    if plan.state in (PlanState.COMPLETE, PlanState.APPLIED) and not operations:
        raise StateError(
            f"Plan {plan.plan_id} is {plan.state}: there is nothing to go on with.",
            hint=f"See what it made with `holdfast plan diff {plan.plan_id}`.",
        )
    run = cut_short(plan, service) or next(iter(service.store.unfinished_runs(plan.plan_id)), None)
    if not operations:
        refuse_unresolved(plan, service, take_as_is=choices.conflicts_are_resolved)
        refuse_to_repeat(plan, run, tools, choices)
        refuse_to_skip_nothing(plan, service, tools, choices)
    going_back = next((each for each in operations if each.kind is OperationKind.ROLLBACK), None)
    if going_back is not None:
        return _after_going_back(plan, service, choices, going_back)
    is_skipped = choices.interrupted_step is AfterInterruption.SKIP and may_count_as_done(plan, run, tools)
    step = plan.interrupted_step(run)
    next_step = plan.next_step + is_skipped
    is_divided = run is not None and run.step_index < len(plan.steps) and bool(plan.steps[run.step_index].subplans)
    is_interrupted = run is not None and run.status in (RunStatus.RUNNING, RunStatus.INTERRUPTED)
    goes_back = is_interrupted and not is_divided and not is_skipped
    subplans = spawned_by(service, run) if run is not None and is_divided else []
    return ResumePreview(
        plan=plan,
        choices=choices,
        steps=plan.steps,
        step_index=next_step if next_step < len(plan.steps) else None,
        skipped=run.step if run is not None and is_skipped else None,
        group_id=run.group_before_id if run is not None and goes_back else None,
        operations=tuple(operation.kind for operation in operations),
        subplans=tuple(each.name for each in subplans if each.state is not PlanState.COMPLETE),
        can_skip=not is_skipped and step is not None and step.is_program,
    )


def _after_going_back(plan: Plan, service: CheckpointService, choices: Choices, operation: Operation) -> ResumePreview:
    """From where it goes on when a rollback, perhaps with a correction, was cut short and is finished first."""
    target = service.store.get(CheckpointGroup, operation.data["target_group_id"])
    back = service.taken_back(plan, target)
    corrected = operation.data["correction"] and Correction.model_validate(operation.data["correction"]).steps
    steps = corrected or back.steps
    return ResumePreview(
        plan=plan,
        choices=choices,
        steps=steps,
        step_index=back.next_step if back.next_step < len(steps) else None,
        skipped=None,
        group_id=None,
        operations=(operation.kind,),
    )
