"""ToolCalls: calls a tool while a plan runs, and serves what the tool asks for during the call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.checkpoints.manual import ASKED_BY_PERSON, refuse_label_in_use
from holdfast.checkpoints.references import refuse_label
from holdfast.checkpoints.titles import shortened
from holdfast.door.listening import Door, NotNow
from holdfast.door.wire import SOCKET_VARIABLE, Request, RestorePaths, TakeCheckpoint
from holdfast.errors import StateError
from holdfast.events import StepPrinted, StepStarted, WritesRefused
from holdfast.execution.recorder import ExecutionRecorder, occasion_of
from holdfast.execution.step_runner import StepRunner
from holdfast.model import (
    Checkpoint,
    DecisionSpec,
    Moment,
    Plan,
    RefusedWrite,
    RollbackResult,
    RunStatus,
    Step,
    StepRun,
    Trigger,
    now,
)
from holdfast.process.leftovers import mark_of
from holdfast.tools import ToolResult

if TYPE_CHECKING:
    from holdfast.rollback.rollback import RollbackPreview


class ToolCalls:
    """Calls tools for one execution, and tells the listener."""

    def __init__(
        self, recorder: ExecutionRecorder, runner: StepRunner, cancelled: threading.Event, door: Door | None
    ) -> None:
        self._recorder, self._runner, self._cancelled, self._door = recorder, runner, cancelled, door

    def make(self, plan: Plan, step: Step, run: StepRun) -> tuple[Plan, StepRun]:
        """Call the tool; the plan after the tool's requests, and the run with its end, which is not saved yet."""
        self._recorder.tell(StepStarted(run.step_index, len(plan.steps), run))
        requests = StepRequests(self._recorder, plan, step, run, self._door)
        with self._door.open_for(plan.plan_id, requests.serve) if self._door else nullcontext():
            result = self._runner.run(plan, step, run, requests, self._cancelled)
        return requests.plan, _ended(run, result)


class StepRequests:
    """Carries out what a running tool, or another process, asks for; ``plan`` is the plan after the last request."""

    def __init__(
        self, recorder: ExecutionRecorder, plan: Plan, step: Step, run: StepRun, door: Door | None = None
    ) -> None:
        self._recorder, self.plan, self._step, self._run = recorder, plan, step, run
        self._pauses = 0
        self._one_at_a_time = threading.RLock()  # the tool, the pauses of its program and the door ask in own threads
        self.variables = {} if door is None else {SOCKET_VARIABLE: str(door.place)}

    def record_decision(self, spec: DecisionSpec) -> str:
        with self._one_at_a_time:
            decision = self._recorder.new_decision(self.plan, spec, self._run.step_index, self._run.decision_id)
            occasion = msgspec.structs.replace(
                occasion_of(self._step, self._run, f"decided: {spec.chosen}", decision_id=decision.decision_id),
                title=f"during step {self._run.step_index + 1}, decided: {shortened(spec.chosen)}",
            )
            self.plan = self._recorder.trigger(self.plan, [Trigger.ON_DECISION], occasion, [decision])
            return decision.decision_id

    def checkpoint(self, label: str | None) -> str:
        return self._take(label, "asked for by the step")

    def _take(self, label: str | None, reason: str) -> str:
        if label is not None:
            refuse_label(label)
        occasion = msgspec.structs.replace(
            occasion_of(self._step, self._run, reason), triggers=(Moment.MANUAL.value,), label=label
        )
        if self._run.step_index >= len(self.plan.steps):  # a validation is no step
            occasion = msgspec.structs.replace(occasion, step_index=None)
        with self._one_at_a_time:
            self.plan = self._recorder.checkpoint(self.plan, occasion)
            return self.plan.last_checkpoint_id or ""

    # What other processes ask for

    def serve(self, request: Request) -> object:
        """Do it while everything that the step runs stands still."""
        with self._one_at_a_time, self._standing_still():
            try:
                if isinstance(request, TakeCheckpoint):
                    return self._checkpoint_for(request)
                return self._restore(request)
            except BaseException:
                # What was recorded before that counts.
                self.plan = self._recorder.store.get(Plan, self.plan.plan_id)
                raise

    @contextmanager
    def _standing_still(self) -> Iterator[None]:
        from holdfast.process.pausing import paused  # few runs are asked for something

        mark = mark_of(self._run.run_id, self._recorder.store.home)
        with paused(mark) as is_running:
            if not is_running:
                raise NotNow
            yield

    def _checkpoint_for(self, request: TakeCheckpoint) -> str:
        if request.is_mark:
            return self._take(request.label, "marked by the step")
        if request.label is not None:
            refuse_label_in_use(self.plan, self._recorder.service, request.label)
        return self._take(request.label, ASKED_BY_PERSON)

    def _restore(self, request: RestorePaths) -> RollbackPreview | RollbackResult:
        from holdfast.rollback.paths import preview_restore, restore_paths

        service = self._recorder.service
        wanted = self._recorder.store.get(Checkpoint, request.checkpoint_id)
        if self.plan.parent_plan_id is not None or wanted.plan_id != self.plan.plan_id:
            raise StateError(f"That checkpoint is not one of plan {self.plan.plan_id}.")
        with service.sandboxes.looking():
            if request.is_preview:
                return preview_restore(self.plan, service, wanted, request.only)
            result = restore_paths(self.plan, self._recorder.lease, service, wanted, request.only)
        assert result is not None  # nobody is asked
        self.plan = result.plan
        return result

    def printed(self, text: bytes) -> None:
        self._recorder.tell(StepPrinted(self._run.step_index, text))

    def refused(self, writes: tuple[RefusedWrite, ...]) -> None:
        self._recorder.tell(WritesRefused(self._run.step_index, writes))

    def settled(self) -> None:
        with self._one_at_a_time:
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
