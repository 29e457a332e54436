"""A validation: a command that says, once all steps are done, whether the result is accepted."""

from __future__ import annotations

from holdfast.checkpoints.recorder import Occasion
from holdfast.events import StepFinished, Validating
from holdfast.execution.calls import Calls
from holdfast.execution.recorder import Recorder, refuse_replaced_sandboxes
from holdfast.model import DecisionSpec, DecisionType, Plan, RunStatus, Step, StepRun, Trigger


class Validation:
    def __init__(self, recorder: Recorder, calls: Calls) -> None:
        self._recorder, self._calls = recorder, calls

    def run(self, plan: Plan, command: str) -> tuple[Plan, StepRun, str | None]:
        """Ask one validation and record its answer; the third value is the group from before that was recorded."""
        self._recorder.tell(Validating(command))
        refuse_replaced_sandboxes(plan)
        step = Step(name=command, tool="shell", args={"command": command}, resource=plan.resources[0].name)
        run = self._recorder.new_run(plan, len(plan.steps), command)
        with self._recorder.store.transaction(self._recorder.lease):
            self._recorder.store.insert(run)
        plan, run = self._calls.make(plan, step, run)
        before = plan.head_group_id
        if run.status is RunStatus.INTERRUPTED:
            # It said nothing yet, and is asked again when the plan goes on.
            self._recorder.save(run)
        else:
            plan, run = self._decided(plan, run)
        self._recorder.tell(StepFinished(run.step_index, len(plan.steps), run))
        return plan, run, before

    def _decided(self, plan: Plan, run: StepRun) -> tuple[Plan, StepRun]:
        has_failed = run.status is RunStatus.FAILED
        verdict = DecisionSpec(
            type=DecisionType.VALIDATION_RESPONSE,
            question=f"Does `{run.step}` accept the result?",
            chosen="no" if has_failed else "yes",
            rationale=run.error or "",
        )
        decision = self._recorder.service.decision(plan, verdict, None, parent=None)
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
