"""What follows when a step fails: its state is kept, and the plan does what its policy says."""

from __future__ import annotations

from holdfast.checkpoints.history import first_of_attempt
from holdfast.execution.recorder import Recorder, occasion_of
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
    def __init__(self, recorder: Recorder, rollbacks: Rollbacks) -> None:
        self._recorder, self._rollbacks = recorder, rollbacks

    def before_retry(self, plan: Plan, run: StepRun, try_number: int) -> Plan:
        """The plan as it is before the failed step is tried once more: rolled back, if there is a way."""
        recovery = _recovery(run, f"try again, try {try_number} of {plan.steps[run.step_index].retries + 1}")
        if run.group_before_id is None or not plan.policy.rollback_enabled:
            return self._keep_decided(plan, run, recovery)
        plan = self._keep(plan, run)
        back = self._rollbacks.roll_back(plan, run.group_before_id, f"{run.step} is tried again", recovery)
        return back.plan.changed(state=PlanState.PROCESSING)

    def end(self, plan: Plan, run: StepRun) -> ExecutionResult:
        """Keep the failed state, then do what the plan's policy says."""
        before = plan.head_group_id
        target = self._target(plan, run)
        returned = None
        if target is None:
            plan = self._keep_decided(plan, run, _recovery(run, "keep what is there and stop"))
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
        if target is None and plan.policy.goes_back_on_failure:
            error += "; what it changed is still there, because no checkpoint was taken before it"
        plan = self._recorder.ended(plan, PlanState.ERRORED, error)
        return ExecutionResult(plan, run, kept, returned)

    def end_of_validation(self, plan: Plan, run: StepRun, before: str | None) -> ExecutionResult:
        """The result is not accepted, and stays; ``before``: the group from before that was recorded."""
        kept = self._group_of(plan, before)
        plan = self._recorder.ended(plan, PlanState.ERRORED, f"validation failed: {run.step}: {run.error}")
        return ExecutionResult(plan, run, kept)

    def _group_of(self, plan: Plan, before: str | None) -> CheckpointGroup | None:
        """The group that was taken since ``before``, or that one if it holds what is in the sandboxes all the same."""
        service = self._recorder.service
        if plan.head_group_id != before:
            return self._recorder.group_just_taken(plan)
        head = service.store.get(CheckpointGroup, plan.head_group_id or "")
        return head if service.sandboxes.states_now(plan) == head.states else None

    def _target(self, plan: Plan, run: StepRun) -> str | None:
        """The group that the policy wants the plan rolled back to."""
        if not plan.policy.goes_back_on_failure:
            return None
        if plan.policy.goes_back_to_start:
            return first_of_attempt(plan, self._recorder.store.groups.of(plan.plan_id)).group_id
        return run.group_before_id

    def _keep(self, plan: Plan, run: StepRun, decided: Decision | None = None) -> Plan:
        """Fire what a failed step fires, tied to what was decided about the failure if something was."""
        step, triggers = plan.steps[run.step_index], [Trigger.ON_ERROR]
        if step.subplans:
            triggers.append(Trigger.AFTER_SUBPLAN)  # one has ended, in a failure or in a conflict that is one
        if decided is None:
            return self._recorder.trigger(plan, triggers, occasion_of(step, run, str(run.error)))
        occasion = occasion_of(step, run, str(run.error), decision_id=decided.decision_id)
        return self._recorder.trigger(plan, [*triggers, Trigger.ON_DECISION], occasion, [decided])

    def _keep_decided(self, plan: Plan, run: StepRun, spec: DecisionSpec) -> Plan:
        """Keep the failed state, tied to what was decided about it."""
        decision = self._recorder.service.decision(plan, spec, run.step_index, run.decision_id)
        return self._keep(plan.decided(decision.sequence, decision.sequence), run, decision)


def _recovery(run: StepRun, chosen: str) -> DecisionSpec:
    return DecisionSpec(
        type=DecisionType.ERROR_RECOVERY,
        question=f"{run.step} failed: what now?",
        chosen=chosen,
        rationale=run.error or "",
    )
