"""Line: the groups that lead from a plan's beginning to its head; all others were left by a rollback."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoints.references import MomentAt, MomentReference, MomentsBack
from holdfast.db.store import Store
from holdfast.errors import DamagedRecordError
from holdfast.model import CheckpointGroup, Plan

_PAGE = 200


def superseded_groups(store: Store, plan: Plan) -> set[str]:
    """The ids of the groups that rollbacks left; if there was none, no record is read."""
    if store.groups.are_one_line(plan.plan_id, plan.head_group_id or ""):
        return set()
    return Line(store, plan).superseded(store.groups.newest_first(plan.plan_id, _PAGE))


def group_named(store: Store, plan: Plan, moment: MomentReference) -> CheckpointGroup | None:
    """The group at that moment; None if the plan has no such moment. Only what is on the way to it is read."""
    if plan.head_group_id is None:
        return None
    if isinstance(moment, MomentAt):
        return store.groups.newest_at(plan.plan_id, moment.at)
    if isinstance(moment, MomentsBack):
        return _before_head(store, plan, plan.head_group_id, moment.moments)
    return store.groups.first(plan.plan_id)


def _before_head(store: Store, plan: Plan, head_group_id: str, count: int) -> CheckpointGroup | None:
    if count == 0:
        return store.get(CheckpointGroup, head_group_id)
    wanted: str | None = head_group_id
    for group in store.groups.newest_first(plan.plan_id, min(count + 1, _PAGE)):
        if group.group_id != wanted:
            continue
        if count == 0:
            return group
        wanted, count = group.parent_group_id, count - 1
        if wanted is None:
            return None
    raise DamagedRecordError(
        f"Moment {wanted} of plan {plan.plan_id} is damaged, so it is not known which ones came before it.",
        hint=f"Name the checkpoint by its id (`holdfast checkpoint list {plan.plan_id}`).",
    )


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
