"""Rolling a plan back to a checkpoint: what would happen, and doing it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.checkpoints import CheckpointService
from holdfast.errors import StateError
from holdfast.model import Checkpoint, CheckpointGroup, Lease, Plan, RollbackResult


@dataclass(frozen=True)
class RollbackPreview:
    """What a rollback would do, for the question that is asked before it."""

    plan: Plan
    checkpoint: Checkpoint
    group: CheckpointGroup
    files: int
    decisions: int


def preview_rollback(plan: Plan, service: CheckpointService, checkpoint: Checkpoint) -> RollbackPreview:
    """Refuses whatever the rollback itself would refuse."""
    group = service.store.get(CheckpointGroup, checkpoint.group_id)
    refuse_if_disabled(plan)
    service.check_rollback(plan, group)
    changes = service.changes_between(plan, service.states_now(plan), group.states)
    return RollbackPreview(
        plan=plan,
        checkpoint=checkpoint,
        group=group,
        files=sum(map(len, changes.values())),
        decisions=len(service.consequences(plan, group).superseded),
    )


def roll_back(plan: Plan, lease: Lease, service: CheckpointService, checkpoint: Checkpoint) -> RollbackResult:
    refuse_if_disabled(plan)
    return service.rollback_to_checkpoint(plan, lease, checkpoint, reason=f"rollback to {checkpoint.checkpoint_id}")


def refuse_if_disabled(plan: Plan) -> None:
    if not plan.policy.rollback_enabled:
        raise StateError(
            "This plan's policy says `rollback_enabled: false`.",
            hint="Its checkpoints can still be looked at: `holdfast checkpoint list`.",
        )
