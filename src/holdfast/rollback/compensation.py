"""Compensation: a step's effects outside of the sandboxes are undone by a command of its own when a rollback undoes it.

A run keeps a note of its compensation, made before that starts and again when it has ended. So it is done once, however
often a rollback is cut short and repeated; one that was cut short itself is not done again, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.checkpoints.consequences import Consequences
from holdfast.checkpoints.service import CheckpointService
from holdfast.errors import UsageError
from holdfast.events import EffectsOutside
from holdfast.model import (
    SUBPLANS_TOOL,
    Decision,
    Lease,
    Plan,
    RollbackImpact,
    RunStatus,
    SideEffect,
    Step,
    StepRun,
)

if TYPE_CHECKING:
    from holdfast.tools import ToolResult

RunTool = Callable[[Plan, Step, StepRun], "ToolResult"]


class ToolEffects(Protocol):
    """Knows which tools do something outside of the sandboxes; raises a UsageError for a tool that it does not know."""

    def has_side_effects(self, tool: str) -> bool: ...


class Compensable(msgspec.Struct, frozen=True):
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


def compensable(plan: Plan, consequences: Consequences) -> list[Compensable]:
    """The steps that are undone and that say how their effects outside are undone, last first."""
    undone = [Compensable(run, step) for run, step in _undone(plan, consequences) if is_compensable(step, run)]
    return sorted(undone, key=lambda each: each.run.sequence, reverse=True)


def _undone(plan: Plan, consequences: Consequences) -> Iterator[tuple[StepRun, Step]]:
    return _in_force(plan, consequences.runs, consequences.superseded)


def _in_force(plan: Plan, runs: Iterable[StepRun], decisions: Iterable[Decision]) -> Iterator[tuple[StepRun, Step]]:
    """The runs that count, with their steps; not those of validations, whose decisions are for no step."""
    for_steps = {each.decision_id for each in decisions if each.step_index is not None}
    for run in runs:
        # One that is superseded may be of a longer list of steps than the plan has now.
        if run.decision_id in for_steps and not run.is_superseded:
            yield run, plan.steps[run.step_index]


def is_compensable(step: Step, run: StepRun) -> bool:
    """Whether it was done, and undoing it was not tried yet."""
    return step.compensate is not None and run.status is RunStatus.SUCCEEDED and run.compensation is None


def compensate(
    plan: Plan, lease: Lease, service: CheckpointService, consequences: Consequences, run_tool: RunTool
) -> Consequences:
    """Undo, before the files are restored, what those steps did outside; the runs get a note of how that ended."""
    undone = [_undo(plan, lease, service, each, run_tool) for each in compensable(plan, consequences)]
    noted = {run.run_id: run for run in undone}
    return msgspec.structs.replace(consequences, runs=tuple(noted.get(run.run_id, run) for run in consequences.runs))


def _undo(plan: Plan, lease: Lease, service: CheckpointService, each: Compensable, run_tool: RunTool) -> StepRun:
    _note(lease, service, each.run, "begun; whether it was done is not known")
    result = run_tool(plan, each.undoing, each.run)
    note = "done" if result.succeeded else f"failed: {result.error}"
    return _note(lease, service, each.run, note, is_done=result.succeeded)


def _note(lease: Lease, service: CheckpointService, run: StepRun, note: str, *, is_done: bool = False) -> StepRun:
    noted = run.model_copy(update={"compensation": note, "is_compensated": is_done})
    with service.store.transaction(lease):
        service.store.save(noted)
    return noted


# What is not undone


def effects_outside(
    plan: Plan, service: CheckpointService, tools: ToolEffects, consequences: Consequences
) -> EffectsOutside:
    """Of the steps that are undone: all that they did outside of the sandboxes, with what became of it."""
    effects = list(_all_effects(plan, service, tools, consequences))
    # In the order in which that is done: the last step first.
    undone = tuple(effect for effect, is_undone in reversed(effects) if is_undone)
    gone = tuple(
        _effect(run, run.compensation)
        for run in consequences.runs
        if run.is_superseded and run.compensation is not None
    )
    return EffectsOutside(tuple(effect for effect, is_undone in effects if not is_undone), undone, gone)


def _all_effects(
    plan: Plan, service: CheckpointService, tools: ToolEffects, consequences: Consequences
) -> Iterator[tuple[SideEffect, bool]]:
    """Each with whether it is undone, now or by the rollback."""
    for run, step in _with_effects(_undone(plan, consequences), tools):
        will_be = is_compensable(step, run)
        yield _effect(run, run.compensation or ("to be done" if will_be else "")), will_be or bool(run.is_compensated)
    subplans = [(subplan, subplan.name) for subplan in consequences.subplans if not subplan.is_superseded]
    while subplans:
        subplan, name = subplans.pop(0)
        runs, decisions = service.store.runs.of(subplan.plan_id), service.store.decisions.of(subplan.plan_id)
        for run, _ in _with_effects(_in_force(subplan, runs, decisions), tools):
            yield _effect(run, run.compensation or "", f"{name}: "), bool(run.is_compensated)
        subplans += [(each, f"{name}: {each.name}") for each in service.store.plans.below(subplan.plan_id)]


def _with_effects(runs: Iterable[tuple[StepRun, Step]], tools: ToolEffects) -> Iterator[tuple[StepRun, Step]]:
    for run, step in runs:
        if step.compensate is not None or _has_side_effects(step, tools):
            yield run, step


def _effect(run: StepRun, note: str, where: str = "") -> SideEffect:
    return SideEffect(step=where + run.step, step_index=run.step_index, run_id=run.run_id, note=note)


def _has_side_effects(step: Step, tools: ToolEffects) -> bool:
    if step.side_effects is not None or step.tool == SUBPLANS_TOOL:
        return bool(step.side_effects)
    try:
        return tools.has_side_effects(step.tool)
    except UsageError:
        return True  # the tool is gone, and what it did is not known


def with_effects(impact: RollbackImpact, effects: EffectsOutside) -> RollbackImpact:
    return impact.model_copy(update=msgspec.structs.asdict(effects))
