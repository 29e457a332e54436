"""Rollbacks that an execution makes by itself, and the compensation that every rollback makes."""

from __future__ import annotations

import threading

from holdfast.checkpoints.consequences import Consequences
from holdfast.checkpoints.service import CheckpointService
from holdfast.events import Compensating, EffectsOutside, Listener, RolledBack, SetAside
from holdfast.execution.recorder import ExecutionRecorder
from holdfast.execution.step_runner import StepRunner
from holdfast.execution.tool_calls import StepRequests
from holdfast.model import CheckpointGroup, DecisionSpec, Lease, Plan, RollbackResult, Step, StepRun
from holdfast.rollback.compensation import compensate, effects_outside
from holdfast.tools import ToolResult


class Compensator:
    """Undoes effects outside of the sandboxes, for steps that a rollback undoes and that declare how."""

    def __init__(self, service: CheckpointService, runner: StepRunner, listener: Listener | None) -> None:
        self._service, self._runner, self._listener = service, runner, listener
        self.effects: list[EffectsOutside] = []
        """For each rollback whose steps had effects outside."""

    def __call__(self, plan: Plan, lease: Lease, consequences: Consequences) -> Consequences:
        """Call this before the rollback changes files and records; the returned runs tell how compensation ended."""
        recorder = ExecutionRecorder(self._service, lease, self._listener)

        def run_tool(plan: Plan, step: Step, run: StepRun) -> ToolResult:
            recorder.tell(Compensating(run.step_index, step.name))
            # A compensation is tried only once, so a stop request does not interrupt it.
            return self._runner.run(plan, step, run, StepRequests(recorder, plan, step, run), threading.Event())

        consequences = compensate(plan, lease, self._service, consequences, run_tool)
        # Computed now, because after the rollback these steps are undone and have no effects.
        effects = effects_outside(plan, self._service, self._runner.tools, consequences)
        if effects.side_effects_not_undone or effects.compensated:
            self.effects.append(effects)
            recorder.tell(effects)
        return consequences


class Rollbacks:
    """Rolls a plan back while it runs, and collects what the result of the execution reports of it."""

    def __init__(self, recorder: ExecutionRecorder, compensator: Compensator) -> None:
        self._recorder, self._compensator = recorder, compensator
        self.set_aside: list[str] = []
        """Paths to which files were moved that stood in the way and that no checkpoint holds."""

    @property
    def effects(self) -> tuple[EffectsOutside, ...]:
        return tuple(self._compensator.effects)

    def roll_back(self, plan: Plan, group_id: str, reason: str, recovery: DecisionSpec | None = None) -> RollbackResult:
        """Roll the plan back to that group; ``recovery``: the decision to do so after a failure."""
        service, lease = self._recorder.service, self._recorder.lease
        checkpoint = service.checkpoints_at(service.store.get(CheckpointGroup, group_id))[0]
        result = service.rollback_to_checkpoint(
            plan, lease, checkpoint, reason=reason, recovery=recovery, compensate=self._compensator
        )
        if not result.plan.is_finished:
            index = result.plan.next_step
            self._recorder.tell(RolledBack(index, result.plan.steps[index].name, checkpoint.checkpoint_id))
        if result.set_aside:
            self.set_aside += result.set_aside
            self._recorder.tell(SetAside(result.set_aside))
        return result
