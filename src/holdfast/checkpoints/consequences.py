"""Consequences: what a rollback to a group does to the records of a plan, computed before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.checkpoints.history import History, is_of
from holdfast.model import CheckpointGroup, Decision, Plan, PlanState, RollbackImpact, StepRun


class Consequences(msgspec.Struct, frozen=True):
    """The records that a rollback changes."""

    superseded: tuple[Decision, ...]
    revived: tuple[Decision, ...]
    runs: tuple[StepRun, ...]
    """Runs of the decisions that are superseded or revived."""
    subplans: tuple[Plan, ...]
    """Subplans spawned by these decisions."""
    applied: tuple[Plan, ...]
    """Subplans of superseded decisions, at any depth, whose results are already in the real files."""
    calls: tuple[StepRun, ...]
    """The tool calls that are undone, also those in subplans."""

    def impact_on(self, plan: Plan) -> RollbackImpact:
        return RollbackImpact(
            child_plans_invalidated=sum(not subplan.is_superseded for subplan in self.subplans),
            sandbox=", ".join(resource.sandbox_path for resource in plan.resources),
            decisions_after_cp=len(self.superseded),
            tool_calls_after_cp=len(self.calls),
            child_plans_applied=tuple(subplan.name for subplan in self.applied),
        )


def consequences_of(history: History, target: CheckpointGroup) -> Consequences:
    decisions = history.decisions_marked_by(target.active_decisions)
    superseded = tuple(each for each in decisions if not each.is_superseded)
    revived = tuple(each for each in decisions if each.is_superseded)
    marked = {decision.decision_id for decision in decisions}
    undone = {decision.decision_id for decision in superseded}
    runs = tuple(history.runs_of(decisions))
    return Consequences(
        superseded=superseded,
        revived=revived,
        runs=runs,
        subplans=tuple(
            subplan
            for subplan in history.subplans
            if subplan.spawn_decision_id in marked and subplan.state is not PlanState.APPLIED
        ),
        applied=tuple(_applied(history, [each for each in history.subplans if each.spawn_decision_id in undone])),
        calls=tuple(_calls(history, [run for run in runs if not run.is_superseded])),
    )


def _calls(history: History, runs: Sequence[StepRun]) -> Iterator[StepRun]:
    """The tool calls of these runs; a run with subplans counts as the tool calls in its subplans."""
    spawning = {subplan.spawn_decision_id for subplan in history.subplans}
    decisions = [each for each in history.decisions if each.decision_id in spawning] if spawning else []
    for run in runs:
        spawned = {each.decision_id for each in decisions if is_of(each, run)}
        if not spawned:
            yield run
        for subplan in history.subplans:
            if subplan.spawn_decision_id in spawned:
                below = history.below(subplan)
                yield from _calls(below, [each for each in below.runs if not each.is_superseded])


def _applied(history: History, subplans: list[Plan]) -> Iterator[Plan]:
    """The applied plans among these and all subplans below them."""
    while subplans:
        subplan = subplans.pop(0)
        if subplan.state is PlanState.APPLIED:
            yield subplan
        subplans += history.below(subplan).subplans
