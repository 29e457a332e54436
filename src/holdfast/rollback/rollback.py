"""Rolling a plan back to a checkpoint: what would happen, and doing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.checkpoints.service import CheckpointService, Consequences, impact_of
from holdfast.errors import StateError
from holdfast.events import EffectsOutside
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    Lease,
    Plan,
    RollbackImpact,
    RollbackResult,
)
from holdfast.rollback.compensation import effects_outside, with_effects
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
    present = service.present_to_leave(plan, group)
    service.check_rollback(plan, group)
    kept = service.kept_by(plan, present)
    expected = RollbackResult(
        plan=service.taken_back(plan, group),
        checkpoint=checkpoint,
        left_group_id=None,
        changes=service.file_changes(plan, present, group.states),
        repositories=service.repositories_changed(plan, present, group.states),
        set_aside=tuple(_in_the_way(plan, service, group)),
        impact=full_impact(plan, service, tools, service.consequences(plan, group)),
        checkpoints_remaining=service.expected_checkpoints(plan, [kept] if kept else [], (group.group_id,))
        + (sum(present[name] != state for name, state in group.states.items()) or 1),
    )
    return RollbackPreview(plan, group, expected)


def preview_unkept_rollback(
    plan: Plan, service: CheckpointService, tools: Toolbox, checkpoint: Checkpoint
) -> RollbackPreview:
    """The same for a rollback that does not keep the state it leaves; stores nothing."""
    refuse_if_disabled(plan)
    group = service.store.get(CheckpointGroup, checkpoint.group_id)
    service.check_position(plan, group)
    found = service.look_at_unkept(plan, group)
    head = service.store.get(CheckpointGroup, plan.head_group_id or "")
    moved = sum(head.states[name] != state for name, state in group.states.items())
    expected = RollbackResult(
        plan=service.taken_back(plan, group),
        checkpoint=checkpoint,
        left_group_id=None,
        set_aside=found.in_the_way,
        impact=full_impact(plan, service, tools, service.consequences(plan, group)),
        checkpoints_remaining=service.store.checkpoints.count(plan.plan_id) + (moved or 1),
        **service.unkept_changes(plan, found),
    )
    return RollbackPreview(plan, group, expected)


def _in_the_way(plan: Plan, service: CheckpointService, group: CheckpointGroup) -> Iterator[str]:
    for resource in plan.resources:
        unheld = {each.path for each in group.unheld.get(resource.name, ())}
        yield from map(
            str, service.manager.in_the_way(Path(resource.sandbox_path), group.states[resource.name], unheld)
        )


def roll_back(
    plan: Plan,
    lease: Lease,
    service: CheckpointService,
    checkpoint: Checkpoint,
    compensate: Callable[[Plan, Lease, CheckpointGroup], EffectsOutside],
    *,
    keeps_present: bool = True,
) -> RollbackResult:
    """``keeps_present``: in a checkpoint of its own; without it what no checkpoint holds is lost."""
    refuse_if_disabled(plan)
    effects: list[EffectsOutside] = []

    def compensated(plan: Plan, lease: Lease, group: CheckpointGroup) -> None:
        effects.append(compensate(plan, lease, group))

    reason = f"rollback to {checkpoint.checkpoint_id}"
    told = {} if keeps_present else _told_of_unkept(plan, service, checkpoint)
    result = service.rollback_to_checkpoint(
        plan, lease, checkpoint, reason=reason, compensate=compensated, keeps_present=keeps_present
    )
    return result.model_copy(update={"impact": with_effects(result.impact, effects[0]), **told})


def _told_of_unkept(plan: Plan, service: CheckpointService, checkpoint: Checkpoint) -> dict[str, Any]:
    """Afterwards nothing is left that could tell it."""
    group = service.store.get(CheckpointGroup, checkpoint.group_id)
    return service.unkept_changes(plan, service.look_at_unkept(plan, group))


def refuse_if_disabled(plan: Plan) -> None:
    if not plan.policy.rollback_enabled:
        raise StateError(
            "This plan's policy says `rollback_enabled: false`.",
            hint="Its checkpoints can still be looked at: `holdfast checkpoint list`.",
        )


# What is not undone


def full_impact(plan: Plan, service: CheckpointService, tools: Toolbox, consequences: Consequences) -> RollbackImpact:
    """With the effects outside of the sandboxes: those that stay, and those that steps undo themselves."""
    return with_effects(impact_of(plan, consequences), effects_outside(plan, service, tools, consequences))
