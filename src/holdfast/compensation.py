"""Compensation: a step's effects outside of the sandboxes are undone by a command of its own when a rollback undoes it.

A run keeps a note of its compensation, made before that starts and again when it has ended. So it is done once, however
often a rollback is cut short and repeated; one that was cut short itself is not done again, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.checkpoints import CheckpointService
from holdfast.model import CheckpointGroup, Lease, Plan, RunStatus, Step, StepRun
from holdfast.tools import ToolResult

UNDER_WAY = "begun; whether it was done is not known"
DONE = "done"
TO_BE_DONE = "to be done"

RunTool = Callable[[Plan, Step, StepRun], ToolResult]


@dataclass(frozen=True)
class Compensable:
    """A step that is undone by a command of its own."""

    run: StepRun
    step: Step

    @property
    def undoing(self) -> Step:
        assert self.step.compensate is not None
        return Step(
            name=f"undo {self.step.name}",
            tool=self.step.compensate.tool,
            args=self.step.compensate.args,
            resource=self.step.resource,
            timeout_seconds=self.step.timeout_seconds,
        )


def compensable(plan: Plan, service: CheckpointService, target: CheckpointGroup) -> list[Compensable]:
    """The steps that going back to ``target`` undoes and that say how their effects outside are undone, last first."""
    undone = [run for run in service.consequences(plan, target).runs if not run.is_superseded]
    steps = ((run, service.step_of(plan, run)) for run in sorted(undone, key=lambda run: run.sequence, reverse=True))
    return [Compensable(run, step) for run, step in steps if step is not None and is_compensable(step, run)]


def is_compensable(step: Step, run: StepRun) -> bool:
    """Whether it was done, and undoing it was not tried yet."""
    return step.compensate is not None and run.status is RunStatus.SUCCEEDED and run.compensation is None


def compensate(
    plan: Plan, lease: Lease, service: CheckpointService, target: CheckpointGroup, run_tool: RunTool
) -> list[StepRun]:
    """Undo, before the files go back, what those steps did outside; the runs with a note of how that ended."""
    return [_undo(plan, lease, service, each, run_tool) for each in compensable(plan, service, target)]


def _undo(plan: Plan, lease: Lease, service: CheckpointService, each: Compensable, run_tool: RunTool) -> StepRun:
    _note(lease, service, each.run, UNDER_WAY)
    result = run_tool(plan, each.undoing, each.run)
    return _note(lease, service, each.run, DONE if result.succeeded else f"failed: {result.error}")


def _note(lease: Lease, service: CheckpointService, run: StepRun, note: str) -> StepRun:
    noted = run.model_copy(update={"compensation": note})
    with service.store.transaction(lease):
        service.store.save(noted)
    return noted
