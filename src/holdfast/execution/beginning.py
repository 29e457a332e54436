"""The beginning of an execution: creates or repairs what the first step needs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import nullcontext

import msgspec

from holdfast.apply.real_folders import reading
from holdfast.checkpoints.missing import make_sandboxes, recreate_missing
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.errors import ConflictError
from holdfast.events import Listener, SandboxesMadeAnew, SandboxMade
from holdfast.execution.conflicts import refuse_unresolved
from holdfast.execution.recorder import ExecutionRecorder, occasion_of
from holdfast.execution.rollbacks import Rollbacks
from holdfast.execution.standing import Choices, Standing
from holdfast.model import (
    Decision,
    DecisionSpec,
    DecisionType,
    Lease,
    Moment,
    Phase,
    Plan,
    PlanState,
    Resource,
    RunStatus,
    StepRun,
    Trigger,
)
from holdfast.sandbox.bulk import CopySink
from holdfast.sandbox.making import fork
from holdfast.sandbox.protocol import Sandbox, sandbox_for
from holdfast.system.machine import boot_id
from holdfast.system.stopping import stoppable
from holdfast.tools import Toolbox


class Begun(msgspec.Struct, frozen=True):
    """A plan that is ready for its next step."""

    plan: Plan
    recreated: tuple[str, ...] = ()
    """Resources whose missing sandboxes were re-created."""
    divided: Standing | None = None
    """Set if the next step continues the subplans of an interrupted run."""


def with_all_sandboxes(
    plan: Plan, lease: Lease, service: CheckpointService, tell: Listener
) -> tuple[Plan, tuple[str, ...]]:
    """Re-create the missing sandboxes of a plan; conflicts that were resolved in one must be resolved again."""
    if plan.state is PlanState.APPLIED:
        return plan, ()
    plan, made = recreate_missing(plan, lease, service, tell)
    if made and plan.state is PlanState.CONSTRAINED:
        try:
            refuse_unresolved(plan, service.store.runs.latest_in_force(plan.plan_id), service)
        except ConflictError as error:
            gone = f"The sandbox of {', '.join(made)} was missing and has been re-created."
            raise ConflictError(f"{gone} {error.message}", hint=error.hint, paths=error.paths) from error
    if made:
        tell(SandboxesMadeAnew(made))
    return plan, made


class Beginning:
    """Prepares one execution of a plan."""

    def __init__(
        self,
        recorder: ExecutionRecorder,
        rollbacks: Rollbacks,
        tools: Toolbox,
        choices: Choices,
        *,
        sandboxes: Mapping[str, Sandbox],
        cancelled: threading.Event,
    ) -> None:
        self._recorder, self._rollbacks, self._tools, self._choices = recorder, rollbacks, tools, choices
        self._sandboxes, self._cancelled = sandboxes, cancelled

    def begin(self, standing: Standing) -> Begun:
        """Prepare the plan for its next step; raises ``Stopped`` on a stop request while sandboxes are created."""
        plan = standing.plan.changed(phase=Phase.EXECUTE, state=PlanState.PROCESSING, error=None)
        unused = self._recorder.service.history(plan).decisions_without_run
        self._recorder.save(plan, *(each.model_copy(update={"is_superseded": True}) for each in unused))
        if plan.head_group_id is None:
            with stoppable(self._cancelled):
                return Begun(self._start_from_nothing(plan.changed(boot_id=boot_id())))
        recreated = self._recreate_missing(standing)
        plan = self._after_interruption(plan, standing).changed(state=PlanState.PROCESSING, boot_id=boot_id())
        self._recorder.save(plan)
        continues_subplans = standing.is_divided and standing.lost_since is None
        return Begun(plan, recreated, standing if continues_subplans else None)

    def _recreate_missing(self, standing: Standing) -> tuple[str, ...]:
        with stoppable(self._cancelled):
            make_sandboxes(standing.missing, standing.recorded, self._recorder.service)
        recreated = tuple(resource.name for resource in standing.missing)
        if recreated:
            self._recorder.tell(SandboxesMadeAnew(recreated))
        return recreated

    def _after_interruption(self, plan: Plan, standing: Standing) -> Plan:
        """Undo or skip an interrupted step, unless its subplans continue."""
        run = standing.run
        if standing.lost_since is not None:
            reason = f"{standing.missing[0].name} was gone"
            return self._rollbacks.roll_back(plan, standing.lost_since.group_id, reason).plan
        if run is None or standing.is_divided:
            return plan
        if standing.skips(self._tools, self._choices):
            return self._skip(plan, run)
        if run.group_before_id is not None:
            return self._rollbacks.roll_back(plan, run.group_before_id, f"{run.step} was interrupted").plan
        return plan

    def _skip(self, plan: Plan, run: StepRun) -> Plan:
        """Count the step as done, with the files as it left them, because a person chose to skip it."""
        store = self._recorder.store
        spec = DecisionSpec(
            type=DecisionType.USER_INTERVENTION,
            question=f"{run.step} was interrupted: is it run again?",
            chosen="no, it counts as done",
        )
        decision = self._recorder.new_decision(plan, spec, run.step_index, run.decision_id)
        run = run.model_copy(update={"status": RunStatus.SUCCEEDED, "error": "interrupted, and skipped"})
        first = store.get(Decision, run.decision_id or "").sequence
        made = [each.sequence for each in store.decisions.in_force_from(run.plan_id, first)]
        plan = plan.advanced_past(run.step_index, [*made, decision.sequence])
        step, reason = plan.steps[run.step_index], f"{run.step} is skipped"
        occasion = occasion_of(step, run, reason, decision_id=decision.decision_id)
        triggers = [Trigger.ON_TOOL_WRITE_COMPLETE, Trigger.ON_DECISION]
        return self._recorder.trigger(plan, triggers, occasion, [decision, run])

    def _start_from_nothing(self, plan: Plan) -> Plan:
        resources = []
        service = self._recorder.service
        is_of_real_folders = plan.parent_plan_id is None
        with reading(plan.resources, service) if is_of_real_folders else nullcontext():
            for resource in plan.resources:
                parent = self._forked_from(plan, resource)
                with service.learning(resource, parent) as sink:
                    resources.append(self._make_sandbox(plan, resource, parent, sink))
                service.take_over_index(resource)
                self._recorder.tell(SandboxMade(resources[-1]))
        # The content store may have been replaced since the plan was created.
        return plan.changed(resources=tuple(resources), store_id=service.manager.objects.store_id)

    def take_first_checkpoint(self, plan: Plan) -> Plan:
        """Take the one that the first step starts from, unless there is one.

        The sandboxes are watched already, so that they are looked at once: all that changes later is reported.
        """
        if plan.head_group_id is not None:
            return plan
        occasion = Occasion((Moment.PRE_EXECUTE,), source="execute", reason="before the first step")
        with stoppable(self._cancelled):
            return self._recorder.checkpoint(plan, occasion)

    def _forked_from(self, plan: Plan, resource: Resource) -> Resource | None:
        """The resource of the parent plan, if this is a subplan."""
        if plan.parent_plan_id is None:
            return None
        return self._recorder.store.get(Plan, plan.parent_plan_id).resource(resource.name)

    def _make_sandbox(self, plan: Plan, resource: Resource, parent: Resource | None, sink: CopySink) -> Resource:
        if parent is not None:
            return fork(parent, resource, sink)
        return (self._sandboxes.get(resource.name) or sandbox_for(plan, resource)).create(
            sink, self._recorder.service.spares
        )
