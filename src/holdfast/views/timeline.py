"""Timeline: the moments of a plan, read page by page as they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import msgspec

from holdfast.checkpoints.display import display_ids_of
from holdfast.checkpoints.line import Line, superseded_groups
from holdfast.db.store import Store
from holdfast.model import Checkpoint, CheckpointGroup, Decision, Plan
from holdfast.system.once import once

_PAGE = 200
"""How many groups are read at once if all are asked for."""


class CheckpointView(msgspec.Struct, frozen=True):
    checkpoint: Checkpoint
    group: CheckpointGroup
    display_id: str
    is_superseded: bool


class MomentView(msgspec.Struct, frozen=True):
    """A group of a plan, with those of its checkpoints whose records are sound: at least one."""

    group: CheckpointGroup
    checkpoints: tuple[CheckpointView, ...]
    decision: Decision | None
    """The decision that the group names."""
    is_superseded: bool


class Timeline:
    """The moments of a plan, or the newest ones."""

    def __init__(self, store: Store, plan: Plan, most: int | None = None) -> None:
        self.plan = plan
        self._store, self._most = store, most

    def newest_first(self) -> Iterator[MomentView]:
        return self._from_newest(_PAGE) if self._most is None else iter(self._newest)

    def oldest_first(self) -> Iterator[MomentView]:
        return self._from_oldest() if self._most is None else reversed(self._newest)

    @once
    def older(self) -> int:
        """How many moments there are before these."""
        if self._most is None or not self._newest:
            return 0
        return self._store.groups.count_before(self.plan.plan_id, self._newest[-1].group.sequence)

    @property
    def since(self) -> int | None:
        """The number of the oldest of these moments; None if there are none before it."""
        return self._newest[-1].group.sequence if self.older else None

    def has(self, group_id: str) -> bool:
        """Whether the group is one of these moments."""
        if self._most is not None:
            return any(each.group.group_id == group_id for each in self._newest)
        is_sound = self._store.find(CheckpointGroup, group_id, sound_only=True) is not None
        return is_sound and bool(self._store.checkpoints.of_group(group_id))

    @once
    def _newest(self) -> list[MomentView]:
        return list(islice(self._from_newest(self._most or _PAGE), self._most))

    def _from_newest(self, page: int) -> Iterator[MomentView]:
        line = Line(self._store, self.plan)
        for groups in _pages(self._store.groups.newest_first(self.plan.plan_id, page), page):
            yield from self._views(groups, line.superseded(groups))

    def _from_oldest(self) -> Iterator[MomentView]:
        superseded = superseded_groups(self._store, self.plan)
        for groups in _pages(self._store.groups.oldest_first(self.plan.plan_id, _PAGE), _PAGE):
            yield from self._views(groups, superseded)

    def _views(self, groups: Sequence[CheckpointGroup], superseded: Collection[str]) -> Iterator[MomentView]:
        rows = self._checkpoints_of(groups)
        ids = [each.checkpoint_id for some in rows.values() for each in some]
        shown = display_ids_of(self._store, self.plan.plan_id, ids)
        named = {group.decision_id for group in groups if group.decision_id is not None}
        decisions = {each.decision_id: each for each in self._store.decisions.with_ids(named)}
        for group in groups:
            is_superseded = group.group_id in superseded
            views = tuple(
                CheckpointView(each, group, shown[each.checkpoint_id], is_superseded)
                for each in rows.get(group.group_id, ())
            )
            if views:
                yield MomentView(group, views, decisions.get(group.decision_id or ""), is_superseded)

    def _checkpoints_of(self, groups: Sequence[CheckpointGroup]) -> dict[str, list[Checkpoint]]:
        numbers = [group.sequence for group in groups]
        found: dict[str, list[Checkpoint]] = {group.group_id: [] for group in groups}
        for each in self._store.checkpoints.between(self.plan.plan_id, min(numbers), max(numbers)):
            if each.group_id in found:
                found[each.group_id].append(each)
        return found


def _pages(groups: Iterator[CheckpointGroup], size: int) -> Iterator[list[CheckpointGroup]]:
    while some := list(islice(groups, size)):
        yield some
