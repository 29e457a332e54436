"""The decisions of a plan as a tree.

Its shape, a few words of each record, is read at once; the records themselves are read page by page, as they are asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import overload

import msgspec

from holdfast.checkpoints.display import display_ids_of
from holdfast.checkpoints.line import superseded_groups
from holdfast.db.queries import DecisionPlace
from holdfast.db.store import Store
from holdfast.model import Checkpoint, Decision, DecisionType, Moment, Plan, StepRun
from holdfast.system.once import once

_PAGE = 200


class DecisionCheckpoint(msgspec.Struct, frozen=True):
    """A moment of a decision: the first checkpoint of a group that names the decision."""

    checkpoint: Checkpoint
    display_id: str
    is_superseded: bool


class DecisionNode(msgspec.Struct, frozen=True):
    """A decision in the tree."""

    decision: Decision
    step: str | None
    checkpoints: tuple[DecisionCheckpoint, ...]
    """Oldest first; correcting the decision rolls back to the first."""
    children: Nodes
    call_number: int | None
    """Of a call in a session."""
    subplans: tuple[DecisionTree, ...]
    """The trees of the subplans that the decision spawned."""


class DecisionTree(msgspec.Struct, frozen=True):
    """The decisions of a plan and its subplans."""

    plan: Plan
    roots: Nodes
    """The decision that defined the plan."""
    superseded: int
    """How many decisions of this plan are superseded, whether they are shown or not."""


def decision_tree(plan: Plan, store: Store, *, with_superseded: bool = False) -> DecisionTree:
    return _Shape(plan, store, with_superseded).tree()


class DecisionRecords:
    """Reads decisions of a plan, and what belongs to them, some at a time; damaged records are left out."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan, self.store = plan, store

    @once
    def places(self) -> dict[str, DecisionPlace]:
        """Where each decision is, damaged ones too, in their order."""
        found: dict[str, DecisionPlace] = {}
        for each in self.store.decisions.places(self.plan.plan_id):
            # Every parent comes first; a damaged record may name another, even itself.
            is_right = each.parent_decision_id in found
            found[each.decision_id] = each if is_right else msgspec.structs.replace(each, parent_decision_id=None)
        return found

    @once
    def _run_numbers(self) -> dict[str, int]:
        """By decision the number of its last run."""
        return dict(self.store.runs.numbers_by_decision(self.plan.plan_id))

    @once
    def _group_numbers(self) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for decision_id, number in self.store.checkpoints.numbers_by_decision(self.plan.plan_id):
            numbers.setdefault(decision_id, []).append(number)
        return numbers

    @once
    def _superseded_groups(self) -> set[str]:
        return superseded_groups(self.store, self.plan)

    def checkpoints_of(self, decisions: Sequence[Decision]) -> dict[str, tuple[DecisionCheckpoint, ...]]:
        """By decision the first checkpoint of each of its moments, oldest first."""
        numbers = sorted({each for one in decisions for each in self._group_numbers.get(one.decision_id, ())})
        sound = {group.group_id for group in self.store.groups.numbered(self.plan.plan_id, numbers)}
        first: dict[str, Checkpoint] = {}
        for each in self.store.checkpoints.numbered(self.plan.plan_id, numbers):
            if each.group_id in sound:
                first.setdefault(each.group_id, each)
        shown = display_ids_of(self.store, self.plan.plan_id, [each.checkpoint_id for each in first.values()])
        found: dict[str | None, list[DecisionCheckpoint]] = {}
        for each in first.values():
            view = DecisionCheckpoint(each, shown[each.checkpoint_id], each.group_id in self._superseded_groups)
            found.setdefault(each.decision_id, []).append(view)
        return {one.decision_id: _moments_of(one, found.get(one.decision_id, ())) for one in decisions}

    def runs_of(self, decisions: Sequence[Decision]) -> dict[str, StepRun]:
        """By decision the run of its step; a decision that a tool recorded belongs to the run of the tool."""
        numbers = {each.decision_id: self._run_number(each.decision_id) for each in decisions}
        wanted = sorted({number for number in numbers.values() if number is not None})
        runs = {run.sequence: run for run in self.store.runs.numbered(self.plan.plan_id, wanted)}
        return {key: runs[number] for key, number in numbers.items() if number is not None and number in runs}

    def _run_number(self, decision_id: str) -> int | None:
        place = self.places.get(decision_id)
        while place is not None and place.step_index is not None and place.decision_id not in self._run_numbers:
            place = self.places.get(place.parent_decision_id or "")
        return self._run_numbers.get(place.decision_id) if place else None

    def step_of(self, decision: Decision, run: StepRun | None) -> str | None:
        if run is not None:
            return run.step
        index = decision.step_index
        return self.plan.steps[index].name if index is not None and index < len(self.plan.steps) else None

    def call_number_of(self, run: StepRun | None) -> int | None:
        return run.step_index + 1 if run is not None and self.plan.is_session else None

    @once
    def subplans(self) -> list[Plan]:
        return self.store.plans.below(self.plan.plan_id, sound_only=True)


def _moments_of(decision: Decision, found: Sequence[DecisionCheckpoint]) -> tuple[DecisionCheckpoint, ...]:
    # The group of a rollback names the decision of its target or, after a failure, the decision to roll back; only
    # the latter has no other group.
    is_recovery = decision.type is DecisionType.ERROR_RECOVERY
    return tuple(each for each in found if is_recovery or Moment.ROLLBACK not in each.checkpoint.metadata.triggers)


class _Shape:
    """Which decisions are shown below which."""

    def __init__(self, plan: Plan, store: Store, with_superseded: bool) -> None:
        self._records, self._with_superseded = DecisionRecords(plan, store), with_superseded
        self._below: dict[str | None, list[str]] = {}
        for place in self._records.places.values():
            if self._is_shown(place):
                self._below.setdefault(self._shown_parent(place), []).append(place.decision_id)

    def tree(self) -> DecisionTree:
        superseded = sum(bool(place.is_superseded) for place in self._records.places.values())
        return DecisionTree(self._records.plan, Nodes(self, None), superseded)

    def _is_shown(self, place: DecisionPlace) -> bool:
        return self._with_superseded or not place.is_superseded

    def _shown_parent(self, place: DecisionPlace) -> str | None:
        """The nearest parent that is shown: a correction may have a parent that is superseded with its step."""
        parent = self._records.places.get(place.parent_decision_id or "")
        while parent is not None and not self._is_shown(parent):
            parent = self._records.places.get(parent.parent_decision_id or "")
        return parent.decision_id if parent else None

    def nodes_below(self, decision_id: str | None) -> Iterator[DecisionNode]:
        ids = iter(self._below.get(decision_id, ()))
        while some := list(islice(ids, _PAGE)):
            found = {node.decision.decision_id: node for node in self._nodes(some)}
            for each in some:
                # If a record is damaged, what follows from it is shown in its place.
                yield from [found[each]] if each in found else self.nodes_below(each)

    def _nodes(self, ids: Sequence[str]) -> Iterator[DecisionNode]:
        records = self._records
        decisions = records.store.decisions.with_ids(ids)
        checkpoints, runs = records.checkpoints_of(decisions), records.runs_of(decisions)
        for each in decisions:
            key = each.decision_id
            run = runs.get(key)
            step, call = records.step_of(each, run), records.call_number_of(run)
            yield DecisionNode(each, step, checkpoints[key], Nodes(self, key), call, tuple(self._subplans_of(key)))

    def _subplans_of(self, decision_id: str) -> Iterator[DecisionTree]:
        for subplan in self._records.subplans:
            if subplan.spawn_decision_id == decision_id:
                yield decision_tree(subplan, self._records.store, with_superseded=self._with_superseded)


class Nodes(Sequence[DecisionNode]):
    """The nodes below a decision, or the roots; each time they are gone through, they are read anew."""

    def __init__(self, shape: _Shape, decision_id: str | None) -> None:
        self._shape, self._decision_id = shape, decision_id

    def __iter__(self) -> Iterator[DecisionNode]:
        return self._shape.nodes_below(self._decision_id)

    @overload
    def __getitem__(self, index: int) -> DecisionNode: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[DecisionNode]: ...
    def __getitem__(self, index: int | slice) -> DecisionNode | Sequence[DecisionNode]:
        return tuple(self)[index]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nodes) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self._decision_id)
