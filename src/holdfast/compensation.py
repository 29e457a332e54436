"""Compensation: a step's effects outside of the sandboxes are undone by a command of its own when a rollback undoes it.

A run keeps a note of its compensation, made before that starts and again when it has ended. So it is done once, however
often a rollback is cut short and repeated; one that was cut short itself is not done again, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from holdfast.checkpoints import CheckpointService, Consequences
from holdfast.errors import UsageError
from holdfast.events import EffectsOutside
from holdfast.model import (
    SUBPLANS_TOOL,
    CheckpointGroup,
    Lease,
    Plan,
    RollbackImpact,
    RunStatus,
    SideEffect,
    Step,
    StepRun,
)
from holdfast.tools import Toolbox, ToolResult

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


# What is not undone


def effects_outside(
    plan: Plan, service: CheckpointService, tools: Toolbox, consequences: Consequences
) -> EffectsOutside:
    """Of the steps that are undone: all that they did outside of the sandboxes, with what became of it."""
    effects = list(_all_effects(plan, service, tools, consequences))
    undone = tuple(effect for effect in effects if effect.note in (TO_BE_DONE, DONE))
    return EffectsOutside(tuple(effect for effect in effects if effect not in undone), undone)


def _all_effects(
    plan: Plan, service: CheckpointService, tools: Toolbox, consequences: Consequences
) -> Iterator[SideEffect]:
    undone = [run for run in consequences.runs if not run.is_superseded]
    yield from _effects_of(plan, undone, service, tools, "")
    subplans = [(subplan, subplan.name) for subplan in consequences.subplans if not subplan.is_superseded]
    while subplans:
        subplan, name = subplans.pop(0)
        runs = [run for run in service.store.runs_of(subplan.plan_id) if not run.is_superseded]
        yield from _effects_of(subplan, runs, service, tools, f"{name}: ")
        subplans += [(each, f"{name}: {each.name}") for each in service.store.subplans_of(subplan.plan_id)]


def _effects_of(
    plan: Plan, runs: list[StepRun], service: CheckpointService, tools: Toolbox, where: str
) -> Iterator[SideEffect]:
    for run in runs:
        step = service.step_of(plan, run)
        if step is not None and (step.compensate is not None or _has_side_effects(step, tools)):
            note = run.compensation or (TO_BE_DONE if not where and is_compensable(step, run) else "")
            yield SideEffect(step=where + run.step, step_index=run.step_index, run_id=run.run_id, note=note)


def _has_side_effects(step: Step, tools: Toolbox) -> bool:
    if step.side_effects is not None or step.tool == SUBPLANS_TOOL:
        return bool(step.side_effects)
    try:
        return tools.get_tool(step.tool).declaration.side_effects
    except UsageError:
        return True  # the tool is gone, and nobody knows what it did


def with_effects(impact: RollbackImpact, effects: EffectsOutside) -> RollbackImpact:
    return impact.model_copy(
        update={"side_effects_not_undone": effects.side_effects_not_undone, "compensated": effects.compensated}
    )
