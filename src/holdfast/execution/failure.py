"""FailureHandling: keeps the state that a failed step left, and does what the plan's policy says."""

from __future__ import annotations

from holdfast.execution.recorder import ExecutionRecorder, occasion_of
from holdfast.execution.result import ExecutionResult
from holdfast.execution.rollbacks import Rollbacks
from holdfast.model import (
    CheckpointGroup,
    Decision,
    DecisionSpec,
    DecisionType,
    Plan,
    PlanState,
    StepRun,
    Trigger,
)


class FailureHandling:
    """Handles the failures of one execution."""

    def __init__(self, recorder: ExecutionRecorder, rollbacks: Rollbacks) -> None:
        self._recorder, self._rollbacks = recorder, rollbacks

    def before_retry(self, plan: Plan, run: StepRun, try_number: int) -> Plan:
        """Prepare the plan for another try of the failed step: roll it back if a checkpoint and the policy allow it."""
        recovery = _recovery(run, f"try again, try {try_number} of {plan.steps[run.step_index].retries + 1}")
        if run.group_before_id is None or not plan.policy.rollback_enabled:
            return self._keep_and_record(plan, run, recovery)
        plan = self._keep(plan, run)
        back = self._rollbacks.roll_back(plan, run.group_before_id, f"{run.step} is tried again", recovery)
        return back.plan.changed(state=PlanState.PROCESSING)

    def end(self, plan: Plan, run: StepRun) -> ExecutionResult:
        """Keep the failed state, then do what the plan's policy says."""
        before = plan.head_group_id
        target = self._target(plan, run)
        returned = None
        if target is None:
            plan = self._keep_and_record(plan, run, _recovery(run, "keep what is there and stop"))
            kept = self._group_of(plan, before)
        else:
            plan = self._keep(plan, run)
            returned = self._recorder.store.get(CheckpointGroup, target)
            recovery = _recovery(run, f"{plan.policy.on_failure.value.replace('_', ' ')} and stop")
            failed_at = plan.head_group_id
            result = self._rollbacks.roll_back(plan, target, f"{run.step} failed", recovery)
            plan, left = result.plan, result.left_group_id
            # The rollback has kept the state that it left, if nothing else had.
            kept = self._recorder.store.find(CheckpointGroup, (failed_at if failed_at != before else left) or "")
        error = f"step {run.step_index + 1} ({run.step}) failed: {run.error}"
        if target is None and plan.policy.rolls_back_on_failure:
            error += "; what it changed is still there, because no checkpoint was taken before it"
        plan = self._recorder.save_stopped(plan, PlanState.ERRORED, error)
        return ExecutionResult(plan, run, kept, returned)

    def end_of_validation(self, plan: Plan, run: StepRun, before: str | None) -> ExecutionResult:
        """Record that the result is not accepted; its files stay. ``before``: the head group before the verdict."""
        kept = self._group_of(plan, before)
        plan = self._recorder.save_stopped(plan, PlanState.ERRORED, f"validation failed: {run.step}: {run.error}")
        return ExecutionResult(plan, run, kept)

    def _group_of(self, plan: Plan, before: str | None) -> CheckpointGroup | None:
        """The group that holds the present files: one taken since ``before``, or ``before`` if nothing changed."""
        service = self._recorder.service
        if plan.head_group_id != before:
            return self._recorder.group_just_taken(plan)
        head = service.store.get(CheckpointGroup, plan.head_group_id or "")
        return head if service.sandboxes.states_now(plan) == head.states else None

    def _target(self, plan: Plan, run: StepRun) -> str | None:
        """The group that the policy rolls the plan back to; None if it does not, or if there is no such group."""
        if not plan.policy.rolls_back_on_failure:
            return None
        if plan.policy.rolls_back_to_start:
            return self._recorder.store.groups.start_of_attempt(plan)
        return run.group_before_id

    def _keep(self, plan: Plan, run: StepRun, decided: Decision | None = None) -> Plan:
        """Fire the triggers of a failed step; the checkpoint names the decision about the failure, if there is one."""
        step, triggers = plan.steps[run.step_index], [Trigger.ON_ERROR]
        if step.subplans:
            triggers.append(Trigger.AFTER_SUBPLAN)  # a subplan has failed, or a conflict made the step fail
        if decided is None:
            return self._recorder.trigger(plan, triggers, occasion_of(step, run, str(run.error)))
        occasion = occasion_of(step, run, str(run.error), decision_id=decided.decision_id)
        return self._recorder.trigger(plan, [*triggers, Trigger.ON_DECISION], occasion, [decided])

    def _keep_and_record(self, plan: Plan, run: StepRun, spec: DecisionSpec) -> Plan:
        """Keep the failed state together with the decision about it."""
        decision = self._recorder.new_decision(plan, spec, run.step_index, run.decision_id)
        return self._keep(plan.decided(decision.sequence, decision.sequence), run, decision)


def _recovery(run: StepRun, chosen: str) -> DecisionSpec:
    return DecisionSpec(
        type=DecisionType.ERROR_RECOVERY,
        question=f"{run.step} failed: what now?",
        chosen=chosen,
        rationale=run.error or "",
    )
