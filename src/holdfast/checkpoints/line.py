"""Line: the groups that lead from a plan's beginning to its head; all others were left by a rollback."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.db.store import Store
from holdfast.model import CheckpointGroup, Plan

_PAGE = 200


def superseded_groups(store: Store, plan: Plan) -> set[str]:
    """The ids of the groups that rollbacks left; if there was none, no record is read."""
    if store.groups.are_one_line(plan.plan_id, plan.head_group_id or ""):
        return set()
    return Line(store, plan).superseded(store.groups.newest_first(plan.plan_id, _PAGE))


class Line:
    """Follows the line from the head down. It is asked about every sound group of the plan, newest first."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self._store, self._next = store, plan.head_group_id
        self._is_interrupted: bool | None = None
        """Whether the next group of the line is damaged; None if that was not asked yet."""

    def is_superseded(self, group: CheckpointGroup) -> bool:
        """Whether the group does not lead to the head.

        A damaged group interrupts the line: it is unknown which groups before it belong to the line, and they count as
        belonging to it.
        """
        if group.group_id == self._next:
            self._next, self._is_interrupted = group.parent_group_id, None
            return False
        if self._is_interrupted is None:
            self._is_interrupted = self._next is not None and self._is_damaged(self._next)
        return not self._is_interrupted

    def superseded(self, newest_first: Iterable[CheckpointGroup]) -> set[str]:
        return {group.group_id for group in newest_first if self.is_superseded(group)}

    def _is_damaged(self, group_id: str) -> bool:
        is_sound = self._store.find(CheckpointGroup, group_id, sound_only=True) is not None
        return not is_sound and self._store.has(CheckpointGroup, group_id)
