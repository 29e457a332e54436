"""Explains the decisions of a plan: all as a tree, or one with what it changed and what depends on it."""

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
"""Groups of these moments hold the work of a step that did not succeed."""


@dataclass(frozen=True)
class DecisionCheckpoint:
    """A moment of a decision: the first checkpoint of a group that names the decision."""

    checkpoint: Checkpoint
    display_id: str
    is_superseded: bool


@dataclass(frozen=True)
class DecisionNode:
    """A decision in the tree."""

    decision: Decision
    step: str | None
    checkpoints: tuple[DecisionCheckpoint, ...]
    """Oldest first; correcting the decision rolls back to the first."""
    children: tuple[DecisionNode, ...]
    subplans: tuple[DecisionTree, ...]
    """The trees of the subplans that the decision spawned."""


@dataclass(frozen=True)
class DecisionTree:
    """The decisions of a plan and its subplans."""

    plan: Plan
    roots: tuple[DecisionNode, ...]
    """The decision that defined the plan."""
    superseded: int
    """How many decisions of this plan are superseded, whether they are shown or not."""


@dataclass(frozen=True)
class Explanation:
    """One decision, with what it changed and what depends on it."""

    plan: Plan
    decision: Decision
    parent: Decision | None
    step: str | None
    run: StepRun | None
    """The run of its step."""
    checkpoint: DecisionCheckpoint | None
    """Correcting the decision rolls back to it; None if none was taken, or it was pruned."""
    changes: tuple[FileDiff, ...] | None
    """What its step changed after the decision; None if that was not recorded."""
    dependents: tuple[Decision, ...]
    """Later decisions that correcting this one supersedes."""
    subplans: tuple[Plan, ...]
    """The subplans that it or its dependents spawned."""
    refusal: str | None
    """Why it cannot be reverted; None if it can."""
    correctable: Decision | None
    """The decision to correct in order to undo it: itself, or the one that spawned its subplan; None if neither can."""


def decision_tree(plan: Plan, service: CheckpointService, *, with_superseded: bool = False) -> DecisionTree:
    return _TreeBuilder(plan, service, with_superseded).tree()


class _Records:
    """The records of a plan's decisions, read once; damaged ones are left out."""

    def __init__(self, plan: Plan, service: CheckpointService) -> None:
        self.plan, self.service, self.history = plan, service, service.history(plan)
        self.decisions = service.store.decisions.of(plan.plan_id, sound_only=True)
        self.by_id = {decision.decision_id: decision for decision in self.decisions}
        self.runs = {run.decision_id: run for run in service.store.runs.of(plan.plan_id, sound_only=True)}
        self.groups = self.history.groups
        self.subplans = service.store.plans.below(plan.plan_id, sound_only=True)
        listed = service.list_checkpoints(plan.plan_id)
        shown = display_ids(checkpoint.checkpoint_id for checkpoint in listed)
        superseded = self.history.superseded_groups
        sound = {group.group_id for group in self.groups}
        first: dict[str, Checkpoint] = {}
        for each in listed:
            first.setdefault(each.group_id, each)
        self._of_decision: dict[str | None, list[DecisionCheckpoint]] = {}
        for each in (each for each in first.values() if each.group_id in sound):
            view = DecisionCheckpoint(each, shown[each.checkpoint_id], each.group_id in superseded)
            self._of_decision.setdefault(each.decision_id, []).append(view)

    def checkpoints_of(self, decision: Decision) -> tuple[DecisionCheckpoint, ...]:
        found = self._of_decision.get(decision.decision_id, ())
        # The group of a rollback names the decision of its target or, after a failure, the decision to roll back; only
        # the latter has no other group.
        is_recovery = decision.type is DecisionType.ERROR_RECOVERY
        return tuple(each for each in found if is_recovery or Moment.ROLLBACK not in each.checkpoint.metadata.triggers)

    def run_of(self, decision: Decision | None) -> StepRun | None:
        """The run of its step; a decision that a tool recorded belongs to the run of the tool."""
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


class _TreeBuilder:
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
        """The nearest parent that is shown: a correction may have a parent that is superseded with its step."""
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
        target = corrections.target_of(records.history, decision)
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
        superseded = consequences_of(records.history, target.group).superseded
        yield from (each for each in superseded if each.decision_id != decision.decision_id)
    elif not decision.is_superseded:
        yield from (each for each in records.decisions if each.sequence > decision.sequence and not each.is_superseded)


def _changes(
    records: _Records, decision: Decision, checkpoints: tuple[DecisionCheckpoint, ...]
) -> tuple[FileDiff, ...] | None:
    """What changed from the moment of the decision to the end of its step."""
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
    """The first descendant of the group that was taken when the step had ended."""
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
