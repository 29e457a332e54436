"""Rolling a plan back to a checkpoint: what would happen, and doing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.checkpoints import CheckpointService, Compensate, Consequences, impact_of
from holdfast.compensation import DONE, TO_BE_DONE, is_compensable
from holdfast.errors import StateError, UsageError
from holdfast.model import (
    SUBPLANS_TOOL,
    Checkpoint,
    CheckpointGroup,
    Lease,
    Plan,
    RollbackImpact,
    RollbackResult,
    SideEffect,
    Step,
    StepRun,
)
from holdfast.tools import Toolbox


@dataclass(frozen=True)
class RollbackPreview:
    """What a rollback would do, for the dry run and for the question that is asked before the real one."""

    plan: Plan
    """As it is now."""
    group: CheckpointGroup
    expected: RollbackResult
    """What the rollback will say of itself, but for the group it will leave; ``set_aside`` says what, not where to."""

    @property
    def files(self) -> int:
        return self.expected.files_reverted

    @property
    def decisions(self) -> int:
        return self.expected.impact.decisions_after_cp


def preview_rollback(plan: Plan, service: CheckpointService, tools: Toolbox, checkpoint: Checkpoint) -> RollbackPreview:
    """Refuses whatever the rollback itself would refuse."""
    refuse_if_disabled(plan)
    group = service.store.get(CheckpointGroup, checkpoint.group_id)
    service.check_rollback(plan, group)
    present = service.states_now(plan)
    kept = service.kept_by(plan, present)
    expected = RollbackResult(
        plan=service.taken_back(plan, group),
        checkpoint=checkpoint,
        left_group_id=None,
        changes=service.file_changes(plan, present, group.states),
        set_aside=tuple(_in_the_way(plan, service, group)),
        impact=full_impact(plan, service, tools, service.consequences(plan, group)),
        checkpoints_remaining=service.expected_checkpoints(plan, [kept] if kept else [], (group.group_id,))
        + (sum(present[name] != state for name, state in group.states.items()) or 1),
    )
    return RollbackPreview(plan, group, expected)


def _in_the_way(plan: Plan, service: CheckpointService, group: CheckpointGroup) -> Iterator[str]:
    for resource in plan.resources:
        unheld = {each.path for each in group.unheld.get(resource.name, ())}
        yield from map(
            str, service.manager.in_the_way(Path(resource.sandbox_path), group.states[resource.name], unheld)
        )


def roll_back(
    plan: Plan, lease: Lease, service: CheckpointService, tools: Toolbox, checkpoint: Checkpoint, compensate: Compensate
) -> RollbackResult:
    refuse_if_disabled(plan)
    impact: list[RollbackImpact] = []

    def compensated(plan: Plan, lease: Lease, group: CheckpointGroup) -> None:
        compensate(plan, lease, group)
        # With how that ended; afterwards these steps are undone, and nothing is left to tell of them.
        impact.append(full_impact(plan, service, tools, service.consequences(plan, group)))

    reason = f"rollback to {checkpoint.checkpoint_id}"
    result = service.rollback_to_checkpoint(plan, lease, checkpoint, reason=reason, compensate=compensated)
    return result.model_copy(update={"impact": impact[0]})


def refuse_if_disabled(plan: Plan) -> None:
    if not plan.policy.rollback_enabled:
        raise StateError(
            "This plan's policy says `rollback_enabled: false`.",
            hint="Its checkpoints can still be looked at: `holdfast checkpoint list`.",
        )


# What is not undone


def full_impact(plan: Plan, service: CheckpointService, tools: Toolbox, consequences: Consequences) -> RollbackImpact:
    """With the effects outside of the sandboxes: those that stay, and those that steps undo themselves."""
    effects = list(_side_effects(plan, service, tools, consequences))
    undone = tuple(effect for effect in effects if effect.note in (TO_BE_DONE, DONE))
    return impact_of(plan, consequences).model_copy(
        update={
            "side_effects_not_undone": tuple(effect for effect in effects if effect not in undone),
            "compensated": undone,
        }
    )


def _side_effects(
    plan: Plan, service: CheckpointService, tools: Toolbox, consequences: Consequences
) -> Iterator[SideEffect]:
    undone = [run for run in consequences.runs if not run.is_superseded]
    yield from _effects_of(plan, undone, service, tools, "")
    subplans = [(subplan, subplan.name) for subplan in consequences.subplans if not subplan.is_superseded]
    while subplans:
        subplan, name = subplans.pop(0)
        runs = [run for run in service.store.runs_of(subplan.plan_id) if not run.is_superseded]
        yield from _effects_of(subplan, runs, service, tools, f"{name}: ")
        subplans += [(each, f"{name}: {each.name}") for each in service.store.subplans_of(subplan.plan_id)]


def _effects_of(
    plan: Plan, runs: list[StepRun], service: CheckpointService, tools: Toolbox, where: str
) -> Iterator[SideEffect]:
    for run in runs:
        step = service.step_of(plan, run)
        if step is not None and (step.compensate is not None or _has_side_effects(step, tools)):
            note = run.compensation or (TO_BE_DONE if not where and is_compensable(step, run) else "")
            yield SideEffect(step=where + run.step, step_index=run.step_index, run_id=run.run_id, note=note)


def _has_side_effects(step: Step, tools: Toolbox) -> bool:
    if step.side_effects is not None or step.tool == SUBPLANS_TOOL:
        return bool(step.side_effects)
    try:
        return tools.get_tool(step.tool).declaration.side_effects
    except UsageError:
        return True  # the tool is gone, and nobody knows what it did
