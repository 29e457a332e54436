"""CorrectionService: undo a decision and all that followed from it, or add to a plan, and go on from there."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.checkpoints import CheckpointService
from holdfast.errors import StateError
from holdfast.model import Checkpoint, Correction, Decision, Lease, Plan, PlanState, RollbackResult, Step
from holdfast.rollback import refuse_if_disabled


@dataclass(frozen=True)
class CorrectionPreview:
    """What a correction will undo, for the dry run and for the question asked before the real one."""

    decision: Decision
    checkpoint: Checkpoint | None
    files: tuple[str, ...]
    superseded: tuple[Decision, ...]
    resumes_at: int
    steps: tuple[Step, ...]


class CorrectionService:
    def __init__(self, service: CheckpointService) -> None:
        self._service = service

    def preview(self, plan: Plan, decision: Decision, new_steps: tuple[Step, ...] | None) -> CorrectionPreview:
        """The same analysis the real correction uses; changes nothing."""
        checkpoint = self._checkpoint_before(plan, decision)
        group = next(g for g in self._service.store.groups_of(plan.plan_id) if g.group_id == checkpoint.group_id)
        self._service.check_rollback(plan, group)
        changes = self._service.changes_between(plan, self._service.states_now(plan), group.states)
        kept = plan.steps[: group.last_completed_step + 1]
        return CorrectionPreview(
            decision=decision,
            checkpoint=checkpoint,
            files=tuple(
                f"{name}: {difference.path.decode(errors='backslashreplace')}"
                for name, listed in changes.items()
                for difference in listed
            ),
            superseded=self._service.consequences(plan, group).superseded,
            resumes_at=group.last_completed_step + 1,
            steps=plan.steps if new_steps is None else (*kept, *new_steps),
        )

    def revert(
        self, plan: Plan, lease: Lease, decision: Decision, guidance: str, new_steps: tuple[Step, ...] | None
    ) -> RollbackResult:
        """Go back to just before the decision; it and all that followed from it are superseded by the guidance."""
        refuse_if_disabled(plan)
        preview = self.preview(plan, decision, new_steps)
        assert preview.checkpoint is not None
        correction = Correction(
            question=decision.question,
            guidance=guidance,
            alternatives=(decision.chosen,),
            parent_decision_id=decision.parent_decision_id,
            steps=None if new_steps is None else preview.steps,
        )
        reason = f"decision {decision.decision_id} is corrected"
        return self._service.rollback_to_checkpoint(
            plan, lease, preview.checkpoint, reason=reason, correction=correction
        )

    def append(self, plan: Plan, lease: Lease, decision: Decision, guidance: str, new_steps: tuple[Step, ...]) -> Plan:
        """Nothing is undone: the steps become new work at the end."""
        if plan.state in (PlanState.APPLIED, PlanState.CANCELLED):
            raise StateError(f"Plan {plan.plan_id} is {plan.state}.", hint="Make a new plan for the new work.")
        correction = Correction(
            question=f"What else has to be done after: {decision.question}",
            guidance=guidance,
            parent_decision_id=decision.decision_id,
            steps=(*plan.steps, *new_steps),
        )
        with self._service.store.transaction(lease):
            return self._service.corrected(plan, correction)

    def _checkpoint_before(self, plan: Plan, decision: Decision) -> Checkpoint:
        listed = self._service.list_checkpoints(plan.plan_id)
        found = [checkpoint for checkpoint in listed if checkpoint.decision_id == decision.decision_id]
        # A decision that was itself rolled back, as after a failure, may stand right before where the plan is now.
        leads_here = bool(found) and found[0].group_id not in self._service.superseded_groups(plan)
        if decision.is_superseded and not leads_here:
            raise StateError(
                f"Decision {decision.decision_id} is superseded already: it is not part of what led here.",
                hint="Roll back to a checkpoint of that time first, or correct a decision that is in force.",
            )
        if not found:
            raise StateError(
                f"There is no checkpoint of decision {decision.decision_id} to go back to.",
                hint="It was pruned, or automatic checkpoints were off. See `holdfast checkpoint list`.",
            )
        return found[0]
