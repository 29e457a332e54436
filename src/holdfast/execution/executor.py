"""PlanExecutor: runs the steps of a plan that remain, with a checkpoint at every write and every decision."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from holdfast.checkpoints.missing import make_recorded_sandboxes
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.errors import HoldfastError, LeaseLostError
from holdfast.events import Event, InSubplan, Listener
from holdfast.execution.beginning import Beginning
from holdfast.execution.calls import Calls
from holdfast.execution.conflicts import refuse_unresolved, waiting_again
from holdfast.execution.divided import DividedStep
from holdfast.execution.failure import FailureHandling
from holdfast.execution.recorder import Recorder
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
from holdfast.execution.step import StepRunner
from holdfast.execution.steps import StepExecutor, StepRecords
from holdfast.execution.subplans import ExecuteSubplan
from holdfast.execution.validation import Validation
from holdfast.model import Lease, Moment, Plan, PlanState, RunStatus, StepRun
from holdfast.system.progress import watched_by
from holdfast.system.stopping import Stopped

__all__ = ["AfterInterruption", "Choices", "ExecutionResult", "PlanExecutor"]


class PlanExecutor:
    def __init__(
        self,
        service: CheckpointService,
        runner: StepRunner,
        *,
        include_ignored: Collection[str] = (),
        choices: Choices | None = None,
        listener: Listener | None = None,
        cancelled: threading.Event | None = None,
    ) -> None:
        """``include_ignored``: what git ignores and is to be in the sandboxes all the same."""
        self._service, self._runner, self._include_ignored = service, runner, include_ignored
        self._choices, self._listener = choices or Choices(), listener
        self._cancelled = cancelled or threading.Event()

    def execute(self, plan: Plan, lease: Lease) -> ExecutionResult:
        """Run what remains; a failed step is a result, an error is what stops us from running it safely."""
        standing = standing_of(plan, self._service)
        self._refuse(standing)
        recorder = Recorder(self._service, lease, self._listener)
        rollbacks = Rollbacks(recorder, Compensator(self._service, self._runner, self._listener))
        try:
            result = self._execute(standing, recorder, rollbacks)
            return replace(result, effects=rollbacks.effects, set_aside=tuple(rollbacks.set_aside))
        except HoldfastError as error:
            if not isinstance(error, LeaseLostError):
                self.broken_off(plan, lease, error.message)
                # The step may have removed its own sandbox: going on makes it anew, but also runs the step again.
                with suppress(HoldfastError):
                    make_recorded_sandboxes(self._service.store.get(Plan, plan.plan_id), self._service)
            raise

    def _refuse(self, standing: Standing) -> None:
        plan, tools = standing.plan, self._runner.tools
        is_resolved = self._choices.conflicts_are_resolved
        refuse_unresolved(plan, standing.run, self._service, take_as_is=is_resolved)
        refuse_to_repeat(standing, self._service, tools, self._choices)
        if plan.parent_plan_id is None:  # what is skipped may be in any of the subplans
            refuse_to_skip_nothing(standing, self._service, tools, self._choices)

    def _execute(self, standing: Standing, recorder: Recorder, rollbacks: Rollbacks) -> ExecutionResult:
        try:
            begun = Beginning(
                recorder,
                rollbacks,
                self._runner.tools,
                self._choices,
                include_ignored=self._include_ignored,
                cancelled=self._cancelled,
            ).begin(standing)
        except Stopped:
            return self.stopped_at_the_start(standing.plan, recorder.lease)
        calls, records = Calls(recorder, self._runner, self._cancelled), StepRecords(recorder)
        failures = FailureHandling(recorder, rollbacks)
        execute_subplan = self._subplans_under(recorder, rollbacks)
        divided = DividedStep(recorder, records, execute_subplan, self._cancelled, begun.divided)
        steps = StepExecutor(self._runner.tools, records, calls, failures)
        validation = Validation(recorder, calls)
        with self._service.sandboxes.watching(begun.plan):
            result = _run_remaining(begun.plan, steps, divided, validation, failures, recorder, self._cancelled)
        return replace(result, made_anew=begun.made_anew)

    def _subplans_under(self, recorder: Recorder, rollbacks: Rollbacks) -> ExecuteSubplan:
        def execute_subplan(subplan: Plan, service: CheckpointService) -> Plan:
            def tell(event: Event) -> None:
                recorder.tell(InSubplan(subplan, event))

            executor = PlanExecutor(
                service,
                self._runner,
                include_ignored=self._include_ignored,
                choices=self._choices,
                listener=tell,
                cancelled=self._cancelled,
            )
            with watched_by(None if self._listener is None else tell):
                result = executor.execute(subplan, recorder.lease)
            rollbacks.set_aside += result.set_aside
            return result.plan

        return execute_subplan

    def stopped_at_the_start(self, plan: Plan, lease: Lease) -> ExecutionResult:
        """Record that it was stopped while sandboxes were made; going on makes them anew."""
        plan = self._service.store.get(Plan, plan.plan_id)
        recorder = Recorder(self._service, lease, self._listener)
        return ExecutionResult(recorder.ended(plan, PlanState.CANCELLED, "stopped while its sandboxes were made"))

    def broken_off(self, plan: Plan, lease: Lease, error: str) -> None:
        """Record why it does not go on, unless it waits for a person again."""
        plan = self._service.store.get(Plan, plan.plan_id)
        if waiting_again(plan, lease, self._service) is None:
            Recorder(self._service, lease, self._listener).ended(plan, PlanState.ERRORED, error)


def _run_remaining(
    plan: Plan,
    steps: StepExecutor,
    divided: DividedStep,
    validation: Validation,
    failures: FailureHandling,
    recorder: Recorder,
    cancelled: threading.Event,
) -> ExecutionResult:
    """The run loop: every step that remains, then the validations."""
    for index in range(plan.next_step, len(plan.steps)):
        if cancelled.is_set():
            return ExecutionResult(recorder.ended(plan, PlanState.CANCELLED, "stopped between two steps"))
        plan, run = (divided if plan.steps[index].subplans else steps).run(plan, index)
        if run.status is RunStatus.INTERRUPTED:
            return _stopped(plan, run, recorder)
        if run.status is RunStatus.CONSTRAINED:
            return ExecutionResult(plan, run)  # it waits for a person to resolve a conflict
        if run.status is RunStatus.FAILED:
            return failures.end(plan, run)
    for command in plan.validation:
        plan, run, before = validation.run(plan, command)
        if run.status is RunStatus.INTERRUPTED:
            return _stopped(plan, run, recorder)
        if run.status is RunStatus.FAILED:
            return failures.end_of_validation(plan, run, before)
    plan = plan.changed(state=PlanState.COMPLETE)
    occasion = Occasion((Moment.POST_EXECUTE,), source="execute", reason="all steps are done")
    return ExecutionResult(recorder.checkpoint(plan, occasion))


def _stopped(plan: Plan, run: StepRun, recorder: Recorder) -> ExecutionResult:
    return ExecutionResult(recorder.ended(plan, PlanState.CANCELLED, f"stopped during {run.step}"), run)
