"""Validation: a command that decides, after all steps, whether the result is accepted."""

from __future__ import annotations

from holdfast.checkpoints.recorder import Occasion
from holdfast.events import StepFinished, Validating
from holdfast.execution.recorder import ExecutionRecorder, refuse_replaced_sandboxes
from holdfast.execution.tool_calls import ToolCalls
from holdfast.model import SHELL_TOOL, DecisionSpec, DecisionType, Plan, RunStatus, Step, StepRun, Trigger


class Validation:
    """Runs the validations of one execution."""

    def __init__(self, recorder: ExecutionRecorder, calls: ToolCalls) -> None:
        self._recorder, self._calls = recorder, calls

    def run(self, plan: Plan, command: str) -> tuple[Plan, StepRun, str | None]:
        """Run one validation and record its verdict; the third value is the head group before the verdict."""
        self._recorder.tell(Validating(command))
        refuse_replaced_sandboxes(plan)
        step = Step(name=command, tool=SHELL_TOOL, args={"command": command}, resource=plan.resources[0].name)
        run = self._recorder.new_run(plan, len(plan.steps), command)
        with self._recorder.store.transaction(self._recorder.lease):
            self._recorder.store.insert(run)
        plan, run = self._calls.make(plan, step, run)
        before = plan.head_group_id
        if run.status is RunStatus.INTERRUPTED:
            # It gave no verdict, and runs again when the plan is resumed.
            self._recorder.save(run)
        else:
            plan, run = self._record_verdict(plan, run)
        self._recorder.tell(StepFinished(run.step_index, len(plan.steps), run))
        return plan, run, before

    def _record_verdict(self, plan: Plan, run: StepRun) -> tuple[Plan, StepRun]:
        has_failed = run.status is RunStatus.FAILED
        verdict = DecisionSpec(
            type=DecisionType.VALIDATION_RESPONSE,
            question=f"Does `{run.step}` accept the result?",
            chosen="no" if has_failed else "yes",
            rationale=run.error or "",
        )
        decision = self._recorder.new_decision(plan, verdict, None, parent=None)
        run = run.model_copy(update={"decision_id": decision.decision_id})
        occasion = Occasion(
            (),
            source="validate",
            reason=f"validation: {run.step}",
            title=f"when the validation `{run.step}` failed" if has_failed else f"after the validation `{run.step}`",
            decision_id=decision.decision_id,
        )
        plan = plan.decided(decision.sequence, decision.sequence)
        triggers = [Trigger.ON_ERROR, Trigger.ON_DECISION] if has_failed else [Trigger.ON_DECISION]
        return self._recorder.trigger(plan, triggers, occasion, [decision, run]), run
