"""ToolCalls: calls a tool while a plan runs, and serves what the tool asks for during the call."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from holdfast.checkpoints.references import refuse_label
from holdfast.checkpoints.titles import shortened
from holdfast.events import StepPrinted, StepStarted, WritesRefused
from holdfast.execution.recorder import ExecutionRecorder, occasion_of
from holdfast.execution.step_runner import StepRunner
from holdfast.model import DecisionSpec, Moment, Plan, RefusedWrite, RunStatus, Step, StepRun, Trigger, now
from holdfast.tools import ToolResult


class ToolCalls:
    """Calls tools for one execution, and tells the listener."""

    def __init__(self, recorder: ExecutionRecorder, runner: StepRunner, cancelled: threading.Event) -> None:
        self._recorder, self._runner, self._cancelled = recorder, runner, cancelled

    def make(self, plan: Plan, step: Step, run: StepRun) -> tuple[Plan, StepRun]:
        """Call the tool; the plan after the tool's requests, and the run with its end, which is not saved yet."""
        self._recorder.tell(StepStarted(run.step_index, len(plan.steps), run))
        requests = StepRequests(self._recorder, plan, step, run)
        result = self._runner.run(plan, step, run, requests, self._cancelled)
        return requests.plan, _ended(run, result)


class StepRequests:
    """Carries out what a running tool asks for; ``plan`` is the plan after the last request."""

    def __init__(self, recorder: ExecutionRecorder, plan: Plan, step: Step, run: StepRun) -> None:
        self._recorder, self.plan, self._step, self._run = recorder, plan, step, run
        self._pauses = 0

    def record_decision(self, spec: DecisionSpec) -> str:
        decision = self._recorder.new_decision(self.plan, spec, self._run.step_index, self._run.decision_id)
        occasion = msgspec.structs.replace(
            occasion_of(self._step, self._run, f"decided: {spec.chosen}", decision_id=decision.decision_id),
            title=f"during step {self._run.step_index + 1}, decided: {shortened(spec.chosen)}",
        )
        self.plan = self._recorder.trigger(self.plan, [Trigger.ON_DECISION], occasion, [decision])
        return decision.decision_id

    def checkpoint(self, label: str | None) -> str:
        if label is not None:
            refuse_label(label)
        occasion = occasion_of(self._step, self._run, "asked for by the step")
        self.plan = self._recorder.checkpoint(
            self.plan, msgspec.structs.replace(occasion, triggers=(Moment.MANUAL.value,), label=label)
        )
        return self.plan.last_checkpoint_id or ""

    def printed(self, text: bytes) -> None:
        self._recorder.tell(StepPrinted(self._run.step_index, text))

    def refused(self, writes: tuple[RefusedWrite, ...]) -> None:
        self._recorder.tell(WritesRefused(self._run.step_index, writes))

    def settled(self) -> None:
        before, pause = self.plan.head_group_id, self._pauses + 1
        occasion = msgspec.structs.replace(
            occasion_of(self._step, self._run, f"while {self._step.name} runs"),
            triggers=(Moment.SETTLED.value,),
            title=f"during step {self._run.step_index + 1}, pause {pause}",
        )
        self.plan = self._recorder.checkpoint(self.plan, occasion, only_if_changed=True)
        if self.plan.head_group_id != before:
            self._pauses = pause

    def heard(self) -> object:
        return self._recorder.service.sandboxes.heard(self.plan)

    def made_directory(self, path: str) -> None:
        sandbox = Path(self.plan.resource(self._step.resource).sandbox_path)
        self._recorder.service.sandboxes.watch_new(sandbox, path)


def _ended(run: StepRun, result: ToolResult) -> StepRun:
    status = RunStatus.SUCCEEDED if result.succeeded else RunStatus.FAILED
    return run.model_copy(
        update={
            "status": RunStatus.INTERRUPTED if result.cancelled else status,
            "exit_code": result.exit_code,
            "output": result.output,
            "output_bytes": result.output_bytes,
            "error": result.error,
            "finished_at": now(),
        }
    )
