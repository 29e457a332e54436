"""PlanExecutor: runs the remaining steps of a plan, with a checkpoint at every write and every decision."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from holdfast.checkpoints.missing import make_recorded_sandboxes
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.door.listening import Door, listening
from holdfast.errors import HoldfastError, LeaseLostError
from holdfast.events import Event, InSubplan, Listener, SeenAtOwnPath
from holdfast.execution.beginning import Beginning
from holdfast.execution.conflicts import refuse_unresolved, restore_waiting
from holdfast.execution.failure import FailureHandling
from holdfast.execution.folders import door_place
from holdfast.execution.recorder import ExecutionRecorder
from holdfast.execution.result import ExecutionResult
from holdfast.execution.rollbacks import Compensator, Rollbacks
from holdfast.execution.standing import (
    AfterInterruption,
    Choices,
    Standing,
    refuse_to_repeat,
    refuse_to_skip_nothing,
    standing_of,
)
from holdfast.execution.step_runner import StepRunner
from holdfast.execution.steps import StepExecutor, StepRecords
from holdfast.execution.tool_calls import ToolCalls
from holdfast.execution.validation import Validation
from holdfast.execution.view import own_path_notice, prepare
from holdfast.model import Lease, Moment, Plan, PlanState, RunStatus, StepRun
from holdfast.sandbox.protocol import Sandbox
from holdfast.system.progress import watched_by
from holdfast.system.stopping import Stopped

if TYPE_CHECKING:
    from holdfast.execution.divided import DividedStep
    from holdfast.execution.subplans import ExecuteSubplan

__all__ = ["AfterInterruption", "Choices", "ExecutionResult", "PlanExecutor"]


class PlanExecutor:
    """Runs plans; each subplan gets an executor of its own."""

    def __init__(
        self,
        service: CheckpointService,
        runner: StepRunner,
        *,
        sandboxes: Mapping[str, Sandbox] | None = None,
        choices: Choices | None = None,
        listener: Listener | None = None,
        cancelled: threading.Event | None = None,
        door: Door | None = None,
    ) -> None:
        """``sandboxes``: those that are to be made and were found to fit on the disk, by resource.

        ``door``: that of the whole plan, for a subplan.
        """
        self._service, self._runner, self._sandboxes = service, runner, sandboxes or {}
        self._choices, self._listener = choices or Choices(), listener
        self._cancelled, self._door = cancelled or threading.Event(), door

    def execute(self, plan: Plan, lease: Lease) -> ExecutionResult:
        """Run what remains. A failed step is a result; an error is raised if the plan cannot be run safely."""
        standing = standing_of(plan, self._service)
        self._refuse(standing)
        recorder = ExecutionRecorder(self._service, lease, self._listener)
        rollbacks = Rollbacks(recorder, Compensator(self._service, self._runner, self._listener))
        try:
            result = self._execute(standing, recorder, rollbacks)
            return msgspec.structs.replace(result, effects=rollbacks.effects, set_aside=tuple(rollbacks.set_aside))
        except HoldfastError as error:
            if not isinstance(error, LeaseLostError):
                self.record_error(plan, lease, error.message)
                # The step may have removed its own sandbox: resuming re-creates it too, but also runs the step again.
                with suppress(HoldfastError):
                    make_recorded_sandboxes(self._service.store.get(Plan, plan.plan_id), self._service)
            raise

    def _refuse(self, standing: Standing) -> None:
        plan, tools = standing.plan, self._runner.tools
        is_resolved = self._choices.conflicts_are_resolved
        refuse_unresolved(plan, standing.run, self._service, take_as_is=is_resolved)
        refuse_to_repeat(standing, self._service, tools, self._choices)
        if plan.parent_plan_id is None:  # the step to skip may be in any of the subplans
            refuse_to_skip_nothing(standing, self._service, tools, self._choices)

    def _execute(self, standing: Standing, recorder: ExecutionRecorder, rollbacks: Rollbacks) -> ExecutionResult:
        beginning = Beginning(
            recorder, rollbacks, self._runner.tools, self._choices, sandboxes=self._sandboxes, cancelled=self._cancelled
        )
        with ExitStack() as watch:
            try:
                begun = beginning.begin(standing)
                plan, notice = self._with_view(begun.plan, recorder)
                watch.enter_context(self._service.sandboxes.watching(plan))
                plan = beginning.take_first_checkpoint(plan)
            except Stopped:
                return self.record_stopped_at_start(standing.plan, recorder.lease)
            door = self._door or watch.enter_context(listening(door_place(plan)))
            calls, records = ToolCalls(recorder, self._runner, self._cancelled, door), StepRecords(recorder)
            failures = FailureHandling(recorder, rollbacks)
            execute_subplan = self._subplans_under(recorder, rollbacks, door)

            @cache
            def divided() -> DividedStep:
                from holdfast.execution.divided import DividedStep  # most plans have no subplans

                return DividedStep(recorder, records, execute_subplan, self._cancelled, begun.divided)

            steps = StepExecutor(self._runner.tools, records, calls, failures)
            result = _run_remaining(
                plan, steps, divided, Validation(recorder, calls), failures, recorder, self._cancelled
            )
        return msgspec.structs.replace(result, made_anew=begun.recreated, own_path=notice)

    def _with_view(self, plan: Plan, recorder: ExecutionRecorder) -> tuple[Plan, SeenAtOwnPath | None]:
        """The plan with the view that its steps get, which is recorded if it is new, and what to know about it."""
        resources = prepare(plan, self._runner.view_of(plan))
        if resources != plan.resources:
            plan = plan.changed(resources=resources)
            recorder.save(plan)
        notice = own_path_notice(plan)
        if notice is not None and plan.parent_plan_id is None:
            recorder.tell(notice)
        return plan, notice

    def _subplans_under(self, recorder: ExecutionRecorder, rollbacks: Rollbacks, door: Door | None) -> ExecuteSubplan:
        def execute_subplan(subplan: Plan, service: CheckpointService) -> Plan:
            def tell(event: Event) -> None:
                recorder.tell(InSubplan(subplan, event))

            executor = PlanExecutor(
                service,
                self._runner,
                choices=self._choices,
                listener=tell,
                cancelled=self._cancelled,
                door=door,
            )
            with watched_by(None if self._listener is None else tell):
                result = executor.execute(subplan, recorder.lease)
            rollbacks.set_aside += result.set_aside
            return result.plan

        return execute_subplan

    def record_stopped_at_start(self, plan: Plan, lease: Lease) -> ExecutionResult:
        """Record that the plan was stopped while its sandboxes were created; resuming creates them again."""
        plan = self._service.store.get(Plan, plan.plan_id)
        recorder = ExecutionRecorder(self._service, lease, self._listener)
        return ExecutionResult(
            recorder.save_stopped(plan, PlanState.CANCELLED, "stopped while its sandboxes were made")
        )

    def record_error(self, plan: Plan, lease: Lease, error: str) -> None:
        """Record the error that ended the execution, unless a step waits for a person."""
        plan = self._service.store.get(Plan, plan.plan_id)
        if restore_waiting(plan, lease, self._service) is None:
            ExecutionRecorder(self._service, lease, self._listener).save_stopped(plan, PlanState.ERRORED, error)


def _run_remaining(
    plan: Plan,
    steps: StepExecutor,
    divided: Callable[[], DividedStep],
    validation: Validation,
    failures: FailureHandling,
    recorder: ExecutionRecorder,
    cancelled: threading.Event,
) -> ExecutionResult:
    """The run loop: every remaining step, then the validations."""
    program_run = None
    for index in range(plan.next_step, len(plan.steps)):
        if cancelled.is_set():
            return ExecutionResult(recorder.save_stopped(plan, PlanState.CANCELLED, "stopped between two steps"))
        plan, run = (divided() if plan.steps[index].subplans else steps).run(plan, index)
        if run.status is RunStatus.INTERRUPTED:
            return _stopped(plan, run, recorder)
        if run.status is RunStatus.CONSTRAINED:
            return ExecutionResult(plan, run)  # it waits for a person to resolve a conflict
        if run.status is RunStatus.FAILED:
            return failures.end(plan, run)
        program_run = run if plan.steps[index].is_program else program_run
    for command in plan.validation:
        plan, run, before = validation.run(plan, command)
        if run.status is RunStatus.INTERRUPTED:
            return _stopped(plan, run, recorder)
        if run.status is RunStatus.FAILED:
            return failures.end_of_validation(plan, run, before)
    plan = plan.changed(state=PlanState.COMPLETE)
    occasion = Occasion((Moment.POST_EXECUTE,), source="execute", reason="all steps are done")
    return ExecutionResult(recorder.checkpoint(plan, occasion), program_run=program_run)


def _stopped(plan: Plan, run: StepRun, recorder: ExecutionRecorder) -> ExecutionResult:
    return ExecutionResult(recorder.save_stopped(plan, PlanState.CANCELLED, f"stopped during {run.step}"), run)
