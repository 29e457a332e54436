"""The preview of resuming a plan after a crash, a kill, a failure or a cancel; it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.checkpoints.missing import missing_sandboxes
from holdfast.checkpoints.service import CheckpointService
from holdfast.db.journal import RollbackEntry
from holdfast.errors import StateError
from holdfast.execution.conflicts import refuse_unresolved
from holdfast.execution.standing import Choices, Standing, refuse_to_repeat, refuse_to_skip_nothing, standing_of
from holdfast.model import CheckpointGroup, Operation, OperationKind, Plan, PlanState, Resource, Step
from holdfast.tools import Toolbox


class ResumePreview(msgspec.Struct, frozen=True):
    """What resuming a plan would do."""

    plan: Plan
    """As it is now."""
    choices: Choices
    steps: tuple[Step, ...]
    """The steps in force once unfinished operations are finished."""
    step_index: int | None
    """The step that would run next; None if all are done and only the validations run again."""
    skipped: str | None = None
    """The interrupted step that counts as done."""
    group_id: str | None = None
    """The group to which the plan would be rolled back first, because a step after it was interrupted or lost."""
    operations: tuple[OperationKind, ...] = ()
    """Unfinished operations that would first be finished (a rollback) or undone (an apply)."""
    subplans: tuple[str, ...] = ()
    """The subplans of an interrupted step that are not done."""
    can_skip: bool = False
    """The interrupted step is a program: it would run again, but a person may keep its files and skip it."""
    made_anew: tuple[str, ...] = ()
    """Resources whose missing sandboxes would be re-created from the last checkpoint."""
    is_lost: bool = False
    """Steps have run since that checkpoint, and their work is lost, so they would run again."""

    is_result: bool = False
    """A moment that a person keeps as the result is only restored completely: the plan is complete then."""

    @property
    def programs(self) -> tuple[Step, ...]:
        """The programs of ``holdfast run`` that would start."""
        return (
            () if self.step_index is None else tuple(step for step in self.steps[self.step_index :] if step.is_program)
        )

    @property
    def runs_nothing(self) -> bool:
        """Only sandboxes are restored: nothing is left to run, or a person must first resolve conflicts in them."""
        return self.is_result or (
            bool(self.made_anew) and self.plan.state in (PlanState.COMPLETE, PlanState.CONSTRAINED)
        )


def preview_resume(plan: Plan, service: CheckpointService, tools: Toolbox, choices: Choices) -> ResumePreview:
    """Compute the preview; refuses what resuming would refuse, as far as is known before a crash is recovered from."""
    operations = service.store.operations.unfinished(plan.plan_id)
    if plan.state in (PlanState.COMPLETE, PlanState.APPLIED) and not operations:
        return _of_finished(plan, choices)
    standing = standing_of(plan, service)
    made_anew = () if plan.state is PlanState.APPLIED else tuple(_gone(plan, standing.missing, service))
    if not operations:
        if not made_anew:
            refuse_unresolved(plan, standing.run, service, take_as_is=choices.conflicts_are_resolved)
        refuse_to_repeat(standing, service, tools, choices)
        refuse_to_skip_nothing(standing, service, tools, choices)
    rollback = next((each for each in operations if each.kind is OperationKind.ROLLBACK), None)
    if rollback is not None:
        return _after_rollback(plan, service, choices, rollback)
    lost_since = standing.lost_since
    preview = (
        _in_place(standing, tools, choices)
        if lost_since is None
        else _at(plan, standing.history.position_at(lost_since), choices, lost_since)
    )
    return msgspec.structs.replace(
        preview,
        operations=tuple(operation.kind for operation in operations),
        made_anew=made_anew,
        is_lost=lost_since is not None,
    )


def _of_finished(plan: Plan, choices: Choices) -> ResumePreview:
    missing = missing_sandboxes(plan) if plan.state is PlanState.COMPLETE else []
    if not missing:
        raise StateError(
            f"Plan {plan.plan_id} is {plan.state}: there is nothing to go on with.",
            hint=f"See what it made with `holdfast plan diff {plan.plan_id}`.",
        )
    return msgspec.structs.replace(_at(plan, plan, choices), made_anew=tuple(resource.name for resource in missing))


def _gone(plan: Plan, missing: Sequence[Resource], service: CheckpointService) -> Iterator[str]:
    """Resources whose sandboxes would be re-created, also those of subplans that the plan waits for."""
    yield from (resource.name for resource in missing)
    if plan.state is PlanState.CONSTRAINED:
        for subplan in service.store.plans.below(plan.plan_id):
            if subplan.state is PlanState.CONSTRAINED and not subplan.is_superseded:
                below = _gone(subplan, missing_sandboxes(subplan), service)
                yield from (f"{name} ({subplan.name})" for name in below)


def _in_place(standing: Standing, tools: Toolbox, choices: Choices) -> ResumePreview:
    """The preview if the sandboxes hold all that steps did."""
    plan, run = standing.plan, standing.run
    is_skipped = standing.skips(tools, choices)
    step = plan.interrupted_step(run)
    next_step = plan.next_step + is_skipped
    return ResumePreview(
        plan=plan,
        choices=choices,
        steps=plan.steps,
        step_index=next_step if next_step < len(plan.steps) else None,
        skipped=run.step if run is not None and is_skipped else None,
        group_id=None if run is None or standing.is_divided or is_skipped else run.group_before_id,
        subplans=tuple(each.name for each in standing.subplans if each.state is not PlanState.COMPLETE),
        can_skip=not is_skipped and step is not None and step.is_program,
    )


def _at(plan: Plan, back: Plan, choices: Choices, group: CheckpointGroup | None = None) -> ResumePreview:
    """The preview if the plan is first rolled back to the position ``back``."""
    return ResumePreview(
        plan=plan,
        choices=choices,
        steps=back.steps,
        step_index=None if back.is_finished else back.next_step,
        group_id=group.group_id if group is not None else None,
    )


def _after_rollback(plan: Plan, service: CheckpointService, choices: Choices, operation: Operation) -> ResumePreview:
    """The preview if an interrupted rollback, perhaps with a correction, is finished first."""
    back = service.history(plan).position_at(service.rollback.target_of(operation))
    correction = RollbackEntry.of(operation).correction
    if correction is not None and correction.steps is not None:
        back = back.changed(steps=correction.steps)
    is_result = correction is not None and bool(correction.is_result)
    return msgspec.structs.replace(_at(plan, back, choices), operations=(operation.kind,), is_result=is_result)
