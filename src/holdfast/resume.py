"""Going on with a plan after a crash, a kill, a failure or a cancel: from where, and what is put right first."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.checkpoints import CheckpointService
from holdfast.errors import StateError
from holdfast.executor import Choices, refuse_to_repeat
from holdfast.model import OperationKind, Plan, PlanState, RunStatus
from holdfast.operations import cut_short
from holdfast.subplans import refuse_unresolved, spawned_by
from holdfast.tools import Toolbox


@dataclass(frozen=True)
class ResumePreview:
    plan: Plan
    step_index: int | None
    """The step that would run next; None if all are done and only the result is checked again."""
    group_id: str | None
    """The group the sandboxes would be taken back to first, because the step there did not come to its end."""
    operations: tuple[OperationKind, ...]
    """What was begun and would be finished (a rollback) or undone (an apply) first."""
    subplans: tuple[str, ...] = ()
    """Of a step with subplans that was cut short: those that are not done."""


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
    is_divided = run is not None and run.step_index < len(plan.steps) and bool(plan.steps[run.step_index].subplans)
    is_interrupted = run is not None and run.status in (RunStatus.RUNNING, RunStatus.INTERRUPTED)
    subplans = spawned_by(service, run) if run is not None and is_divided else []
    return ResumePreview(
        plan=plan,
        step_index=None if plan.is_finished else plan.next_step,
        group_id=run.group_before_id if run is not None and is_interrupted and not is_divided else None,
        operations=tuple(operation.kind for operation in operations),
        subplans=tuple(each.name for each in subplans if each.state is not PlanState.COMPLETE),
    )
