"""Rolling a plan back to a checkpoint: what would happen, and doing it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.checkpoints.consequences import Consequences
from holdfast.checkpoints.rollback import Compensate, RollbackDecision
from holdfast.checkpoints.service import CheckpointService
from holdfast.errors import StateError
from holdfast.model import Checkpoint, CheckpointGroup, Correction, Lease, Plan, RollbackImpact, RollbackResult
from holdfast.rollback.compensation import ToolEffects, effects_outside, with_effects


class RollbackPreview(msgspec.Struct, frozen=True):
    """What a rollback would do, for the dry run and for the question that is asked before the real one."""

    plan: Plan
    """As it is now."""
    group: CheckpointGroup
    expected: RollbackResult
    """The expected result, without the group it will leave; ``set_aside`` names the files, not their new places."""

    @property
    def files(self) -> int:
        return self.expected.files_reverted

    @property
    def decisions(self) -> int:
        return self.expected.impact.decisions_after_cp


def decide_rollback(
    plan: Plan, service: CheckpointService, checkpoint: Checkpoint, *, keeps_present: bool = True
) -> RollbackDecision:
    """What a rollback is going to do, or the refusal; changes nothing."""
    refuse_if_disabled(plan)
    return service.rollback.decide(plan, checkpoint, keeps_present=keeps_present)


def preview_rollback(decision: RollbackDecision, service: CheckpointService, tools: ToolEffects) -> RollbackPreview:
    """The outcome of the decision; refuses whatever carrying it out would refuse."""
    expected = service.rollback.expected(decision)
    impact = full_impact(decision.plan, service, tools, decision.consequences)
    return RollbackPreview(decision.plan, decision.target, expected.model_copy(update={"impact": impact}))


def roll_back(
    plan: Plan,
    lease: Lease,
    service: CheckpointService,
    tools: ToolEffects,
    checkpoint: Checkpoint,
    compensate: Compensate,
    confirm: Callable[[RollbackPreview], bool] | None,
    *,
    keeps_present: bool = True,
) -> RollbackResult | None:
    """Roll back; if ``confirm``, which is shown what will happen, says no, change nothing and return None."""
    decision = decide_rollback(plan, service, checkpoint, keeps_present=keeps_present)
    preview = preview_rollback(decision, service, tools)
    if confirm is not None:
        if not confirm(preview):
            return None
        # The answer may have taken long.
        if keeps_present:
            service.sandboxes.states_now(plan)  # not every write is reported
        else:
            decision = decide_rollback(plan, service, checkpoint, keeps_present=False)
            preview = preview_rollback(decision, service, tools)
    reason = f"rollback to {checkpoint.checkpoint_id}"
    result = carry_out(decision, lease, service, tools, compensate, reason=reason)
    if keeps_present:
        return result
    # From the preview, because afterwards nothing is left to compute it from.
    told = {name: getattr(preview.expected, name) for name in ("changes", "repositories", "is_unkept", "lost")}
    return result.model_copy(update=told)


def carry_out(
    decision: RollbackDecision,
    lease: Lease,
    service: CheckpointService,
    tools: ToolEffects,
    compensate: Compensate,
    *,
    reason: str,
    correction: Correction | None = None,
    title: str = "",
) -> RollbackResult:
    """Carry it out; the impact says what really became of the effects outside of the sandboxes."""
    after = decision.consequences

    def compensated(plan: Plan, lease: Lease, consequences: Consequences) -> Consequences:
        nonlocal after
        after = compensate(plan, lease, consequences)
        return after

    result = service.rollback.carry_out(
        decision, lease, reason=reason, correction=correction, compensate=compensated, title=title
    )
    effects = effects_outside(decision.plan, service, tools, after)
    return result.model_copy(update={"impact": with_effects(result.impact, effects)})


def refuse_if_disabled(plan: Plan) -> None:
    if not plan.policy.rollback_enabled:
        raise StateError(
            "This plan's policy says `rollback_enabled: false`.",
            hint="Its checkpoints can still be looked at: `holdfast checkpoint list`.",
        )


def full_impact(
    plan: Plan, service: CheckpointService, tools: ToolEffects, consequences: Consequences
) -> RollbackImpact:
    """With the effects outside of the sandboxes: those that stay, and those that steps undo themselves."""
    return with_effects(consequences.impact_on(plan), effects_outside(plan, service, tools, consequences))
