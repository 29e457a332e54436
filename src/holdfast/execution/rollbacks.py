"""The rollbacks that an execution makes by itself, and the compensation that belongs to every rollback."""

from __future__ import annotations

import threading

from holdfast.checkpoints.consequences import Consequences
from holdfast.checkpoints.service import CheckpointService
from holdfast.events import Compensating, EffectsOutside, Listener, SetAside, WentBack
from holdfast.execution.calls import StepRequests
from holdfast.execution.recorder import Recorder
from holdfast.execution.step import StepRunner
from holdfast.model import CheckpointGroup, DecisionSpec, Lease, Plan, RollbackResult, Step, StepRun
from holdfast.rollback.compensation import compensate, effects_outside
from holdfast.tools import ToolResult


class Compensator:
    """Undoes what steps that a rollback undoes did outside of the sandboxes, as they say how."""

    def __init__(self, service: CheckpointService, runner: StepRunner, listener: Listener | None) -> None:
        self._service, self._runner, self._listener = service, runner, listener
        self.effects: list[EffectsOutside] = []
        """Of each rollback, if steps that it undid had any."""

    def __call__(self, plan: Plan, lease: Lease, consequences: Consequences) -> Consequences:
        """To be called before the rollback changes files and records; the runs say then how it ended."""
        recorder = Recorder(self._service, lease, self._listener)

        def run_tool(plan: Plan, step: Step, run: StepRun) -> ToolResult:
            recorder.tell(Compensating(run.step_index, step.name))
            # It is tried only once, so a request to stop lets it come to its end.
            return self._runner.run(plan, step, run, StepRequests(recorder, plan, step, run), threading.Event())

        consequences = compensate(plan, lease, self._service, consequences, run_tool)
        # Now: afterwards these steps are undone, and nothing is left to tell of them.
        effects = effects_outside(plan, self._service, self._runner.tools, consequences)
        if effects.side_effects_not_undone or effects.compensated:
            self.effects.append(effects)
            recorder.tell(effects)
        return consequences


class Rollbacks:
    """Rolls a plan back while it runs, and collects what there is to tell of that at the end."""

    def __init__(self, recorder: Recorder, compensator: Compensator) -> None:
        self._recorder, self._compensator = recorder, compensator
        self.set_aside: list[str] = []
        """The places that something which no checkpoint holds, and which stood in the way, was moved to."""

    @property
    def effects(self) -> tuple[EffectsOutside, ...]:
        return tuple(self._compensator.effects)

    def roll_back(self, plan: Plan, group_id: str, reason: str, recovery: DecisionSpec | None = None) -> RollbackResult:
        """Roll the plan back to that group; ``recovery``: the decision to do so, after a failure."""
        service, lease = self._recorder.service, self._recorder.lease
        checkpoint = service.checkpoints_at(service.store.get(CheckpointGroup, group_id))[0]
        result = service.rollback_to_checkpoint(
            plan, lease, checkpoint, reason=reason, recovery=recovery, compensate=self._compensator
        )
        if not result.plan.is_finished:
            index = result.plan.next_step
            self._recorder.tell(WentBack(index, result.plan.steps[index].name, checkpoint.checkpoint_id))
        if result.set_aside:
            self.set_aside += result.set_aside
            self._recorder.tell(SetAside(result.set_aside))
        return result
