"""Looking at the decisions of a plan: all of them as a tree, and one with what it did and what depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from holdfast.checkpoints.consequences import consequences_of
from holdfast.checkpoints.file_diffs import FileDiff, file_diff
from holdfast.checkpoints.service import CheckpointService
from holdfast.decisions.correct import CorrectionService, Target
from holdfast.errors import DamagedRecordError, StateError
from holdfast.model import Checkpoint, CheckpointGroup, Decision, DecisionType, Moment, Plan, StepRun, Trigger
from holdfast.names import display_ids
from holdfast.tools import Toolbox

_ENDINGS = (Trigger.ON_ERROR, Moment.BEFORE_ROLLBACK)
"""Groups of these moments hold what a step that did not work out had done."""


@dataclass(frozen=True)
class DecisionCheckpoint:
    """A moment that belongs to a decision, by the first checkpoint of its group."""

    checkpoint: Checkpoint
    display_id: str
    is_superseded: bool


@dataclass(frozen=True)
class DecisionNode:
    decision: Decision
    step: str | None
    checkpoints: tuple[DecisionCheckpoint, ...]
    """Oldest first; the first is what correcting the decision goes back to."""
    children: tuple[DecisionNode, ...]
    subplans: tuple[DecisionTree, ...]
    """What the decision spawned."""


@dataclass(frozen=True)
class DecisionTree:
    plan: Plan
    roots: tuple[DecisionNode, ...]
    """The one that defined the plan."""
    superseded: int
    """How many decisions of this plan are superseded, shown or not."""


@dataclass(frozen=True)
class Explanation:
    plan: Plan
    decision: Decision
    parent: Decision | None
    step: str | None
    run: StepRun | None
    """How its step went."""
    checkpoint: DecisionCheckpoint | None
    """What correcting it goes back to; None if it has none, or none any more."""
    changes: tuple[FileDiff, ...] | None
    """What its step changed after it; None if that was not recorded."""
    dependents: tuple[Decision, ...]
    """Later decisions that correcting this one supersedes."""
    subplans: tuple[Plan, ...]
    """What it spawned, and what these depend on it for."""
    refusal: str | None
    """Why it cannot be reverted."""
    correctable: Decision | None
    """What to correct in order to undo it: itself or, of a subplan, what spawned that; None if neither can be."""


def decision_tree(plan: Plan, service: CheckpointService, *, with_superseded: bool = False) -> DecisionTree:
    return _Growing(plan, service, with_superseded).tree()


class _Records:
    """What is recorded of a plan's decisions, read once."""

    def __init__(self, plan: Plan, service: CheckpointService) -> None:
        self.plan, self.service = plan, service
        self.decisions = service.store.decisions.of(plan.plan_id, sound_only=True)
        self.by_id = {decision.decision_id: decision for decision in self.decisions}
        self.runs = {run.decision_id: run for run in service.store.runs.of(plan.plan_id, sound_only=True)}
        self.groups = service.store.groups.of(plan.plan_id, sound_only=True)
        self.subplans = service.store.plans.below(plan.plan_id, sound_only=True)
        listed = service.list_checkpoints(plan.plan_id)
        shown = display_ids(checkpoint.checkpoint_id for checkpoint in listed)
        left = service.history(plan).superseded_groups
        self._first: dict[str, DecisionCheckpoint] = {}
        sound = {group.group_id for group in self.groups}
        for each in [each for each in listed if each.group_id in sound]:
            view = DecisionCheckpoint(each, shown[each.checkpoint_id], each.group_id in left)
            self._first.setdefault(each.group_id, view)

    def checkpoints_of(self, decision: Decision) -> tuple[DecisionCheckpoint, ...]:
        found = (each for each in self._first.values() if each.checkpoint.decision_id == decision.decision_id)
        # A rollback names the decision of the moment it went back to, or the one to go back, which has no other.
        is_to_go_back = decision.type is DecisionType.ERROR_RECOVERY
        return tuple(
            each for each in found if is_to_go_back or Moment.ROLLBACK not in each.checkpoint.metadata.triggers
        )

    def run_of(self, decision: Decision | None) -> StepRun | None:
        """Of its step; a decision that a tool recorded belongs to the run of the tool."""
        while decision is not None and decision.step_index is not None:
            if decision.decision_id in self.runs:
                return self.runs[decision.decision_id]
            decision = self.by_id.get(decision.parent_decision_id or "")
        return self.runs.get(decision.decision_id) if decision else None

    def step_of(self, decision: Decision) -> str | None:
        run = self.run_of(decision)
        if run is not None:
            return run.step
        index = decision.step_index
        return self.plan.steps[index].name if index is not None and index < len(self.plan.steps) else None

    def subplans_of(self, decision: Decision) -> list[Plan]:
        return [subplan for subplan in self.subplans if subplan.spawn_decision_id == decision.decision_id]


class _Growing:
    def __init__(self, plan: Plan, service: CheckpointService, with_superseded: bool) -> None:
        self._records = _Records(plan, service)
        self._with_superseded = with_superseded
        self._children: dict[str | None, list[Decision]] = {}
        for decision in self._records.decisions:
            if self._is_shown(decision):
                self._children.setdefault(self._shown_parent(decision), []).append(decision)

    def tree(self) -> DecisionTree:
        records = self._records
        superseded = sum(decision.is_superseded for decision in records.decisions)
        return DecisionTree(records.plan, tuple(map(self._node, self._children.get(None, []))), superseded)

    def _is_shown(self, decision: Decision) -> bool:
        return self._with_superseded or not decision.is_superseded

    def _shown_parent(self, decision: Decision) -> str | None:
        """A correction inside a step hangs on a decision that is superseded with that step."""
        parent = self._records.by_id.get(decision.parent_decision_id or "")
        while parent is not None and not self._is_shown(parent):
            parent = self._records.by_id.get(parent.parent_decision_id or "")
        return parent.decision_id if parent else None

    def _node(self, decision: Decision) -> DecisionNode:
        records = self._records
        return DecisionNode(
            decision=decision,
            step=records.step_of(decision),
            checkpoints=records.checkpoints_of(decision),
            children=tuple(map(self._node, self._children.get(decision.decision_id, []))),
            subplans=tuple(
                decision_tree(subplan, records.service, with_superseded=self._with_superseded)
                for subplan in records.subplans_of(decision)
            ),
        )


def explain_decision(plan: Plan, service: CheckpointService, tools: Toolbox, decision: Decision) -> Explanation:
    records = _Records(plan, service)
    checkpoints = records.checkpoints_of(decision)
    corrections, target = CorrectionService(service, tools), None
    with suppress(StateError, DamagedRecordError):
        target = corrections.target_of(plan, decision)
    dependents = tuple(_dependents(records, decision, target))
    undone = {each.decision_id for each in (decision, *dependents)}
    return Explanation(
        plan=plan,
        decision=decision,
        parent=records.by_id.get(decision.parent_decision_id or ""),
        step=records.step_of(decision),
        run=records.run_of(decision),
        checkpoint=checkpoints[0] if checkpoints else None,
        changes=_changes(records, decision, checkpoints),
        dependents=dependents,
        subplans=tuple(subplan for subplan in records.subplans if subplan.spawn_decision_id in undone),
        refusal=corrections.find_refusal(plan, decision),
        correctable=corrections.correctable_for(plan, decision),
    )


def _dependents(records: _Records, decision: Decision, target: Target | None) -> Iterator[Decision]:
    if target is not None:
        superseded = consequences_of(records.service.history(records.plan), target.group).superseded
        yield from (each for each in superseded if each.decision_id != decision.decision_id)
    elif not decision.is_superseded:
        yield from (each for each in records.decisions if each.sequence > decision.sequence and not each.is_superseded)


def _changes(
    records: _Records, decision: Decision, checkpoints: tuple[DecisionCheckpoint, ...]
) -> tuple[FileDiff, ...] | None:
    """From the moment of the decision to the end of its step."""
    if not checkpoints or decision.step_index is None:
        return None
    groups = {group.group_id: group for group in records.groups}
    before = groups[checkpoints[0].checkpoint.group_id]
    after = _group_after(groups, before, decision.step_index)
    if after is None:
        return None
    changes = records.service.changes.between(records.plan, before.states, after.states)
    reader = records.service.manager.reader
    return tuple(file_diff(reader, name, difference) for name, listed in changes.items() for difference in listed)


def _group_after(
    groups: dict[str, CheckpointGroup], before: CheckpointGroup, step_index: int
) -> CheckpointGroup | None:
    """The first group on a way that leads on from there that was taken when the step had ended."""
    followed = {before.group_id}
    for group in groups.values():
        if group.parent_group_id not in followed:
            continue
        if Moment.ROLLBACK in group.triggers:
            return None
        if group.last_completed_step == step_index or any(moment in group.triggers for moment in _ENDINGS):
            return group
        if group.last_completed_step > step_index:
            return None
        followed.add(group.group_id)
    return None
