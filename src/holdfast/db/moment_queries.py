"""The queries on the records of moments: checkpoint groups and their checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

import msgspec

from holdfast.db.queries import Queries, batched
from holdfast.db.rows import stored_time
from holdfast.model import Checkpoint, CheckpointGroup, Plan


class HeadPlace(msgspec.Struct, frozen=True):
    """Where a plan's head group is in its history, and how many checkpoints it has."""

    group_id: str
    parent_group_id: str | None
    sequence: int
    checkpoints: int


class GroupRecords(Queries):
    """The checkpoint groups of a plan, each over all its resources."""

    def of(self, plan_id: str, *, sound_only: bool = False) -> list[CheckpointGroup]:
        return self._records.select(CheckpointGroup, "plan_id = ?", plan_id, order="sequence", sound_only=sound_only)

    def first(self, plan_id: str) -> CheckpointGroup:
        """The group that the plan began with; an error if it is damaged, because no other group can replace it."""
        return self._records.select(CheckpointGroup, "plan_id = ?", plan_id, order="sequence", limit=1)[0]

    def first_id(self, plan_id: str) -> str | None:
        """The id of the group that the plan began with, even if it is damaged."""
        sql = "SELECT group_id FROM checkpoint_group WHERE plan_id = ? ORDER BY sequence LIMIT 1"
        rows = self._records.execute(sql, plan_id)
        return rows[0][0] if rows else None

    def place_of(self, group_id: str) -> HeadPlace | None:
        count = (
            "SELECT count(*) FROM checkpoint_metadata WHERE checkpoint_metadata.group_id = checkpoint_group.group_id"
        )
        sql = f"SELECT group_id, parent_group_id, sequence, ({count}) FROM checkpoint_group WHERE group_id = ?"
        rows = self._records.execute(sql, group_id)
        return HeadPlace(*rows[0]) if rows else None

    def places(self, plan_id: str) -> list[tuple[str, int, str | None]]:
        """The id, number and label of each group, oldest first, damaged ones too; not those of a damaged number."""
        sql = "SELECT group_id, sequence, label FROM checkpoint_group WHERE plan_id = ? ORDER BY sequence"
        return [(row[0], row[1], row[2]) for row in self._records.execute(sql, plan_id) if isinstance(row[1], int)]

    def times(self, plan_id: str) -> list[tuple[str, int, str | None, datetime]]:
        """The id, number, label and time of each sound group, oldest first."""
        found = self._records.select(CheckpointGroup, "plan_id = ?", plan_id, order="sequence", sound_only=True)
        return [(each.group_id, each.sequence, each.label, each.created_at) for each in found]

    def with_ids(self, group_ids: Collection[str]) -> list[CheckpointGroup]:
        """The sound groups with these ids, oldest first."""
        found: list[CheckpointGroup] = []
        for some in batched(group_ids):
            where = f"group_id IN ({', '.join('?' for _ in some)})"
            found += self._records.select(CheckpointGroup, where, *some, order="sequence", sound_only=True)
        return found

    def numbered(self, plan_id: str, numbers: Sequence[int]) -> list[CheckpointGroup]:
        """The sound groups with these numbers, which are in order."""
        return self._numbered(CheckpointGroup, plan_id, numbers, sound_only=True)

    def newest_first(self, plan_id: str, page: int) -> Iterator[CheckpointGroup]:
        """The sound groups, read as they are asked for."""
        return self._records.in_sequence(CheckpointGroup, plan_id, newest_first=True, page=page)

    def oldest_first(self, plan_id: str, page: int) -> Iterator[CheckpointGroup]:
        """The sound groups, read as they are asked for."""
        return self._records.in_sequence(CheckpointGroup, plan_id, page=page)

    def are_one_line(self, plan_id: str, head_group_id: str) -> bool:
        """Whether each group follows the one before it, damaged ones too, and the head is the last."""
        before = "lag(group_id) OVER (ORDER BY sequence)"
        each = f"SELECT parent_group_id, {before} AS before FROM checkpoint_group WHERE plan_id = ?"
        sql = f"SELECT 1 FROM ({each}) AS one WHERE coalesce(parent_group_id, '') <> coalesce(before, '') LIMIT 1"
        last = "SELECT group_id FROM checkpoint_group WHERE plan_id = ? ORDER BY sequence DESC LIMIT 1"
        is_head_last = self._records.execute(last, plan_id) == [(head_group_id,)]
        return is_head_last and not self._records.execute(sql, plan_id)

    def oldest_prunable(self, plan_id: str, page: int) -> Iterator[CheckpointGroup]:
        """The sound groups without a label, and the first and the last in any case; oldest first, read as asked for."""
        end = "sequence = (SELECT {}(sequence) FROM checkpoint_group WHERE plan_id = ?)"
        where = f"(label IS NULL OR {end.format('min')} OR {end.format('max')})"
        return self._records.in_sequence(CheckpointGroup, plan_id, where, plan_id, plan_id, page=page)

    def start_of_attempt(self, plan: Plan) -> str | None:
        """The id of the first group of the plan's attempt, or of all if it has none yet; even if it is damaged.

        The first of all would discard corrections made since.
        """
        sql = "SELECT group_id FROM checkpoint_group WHERE plan_id = ? AND attempt = ? AND revision = ?"
        rows = self._records.execute(f"{sql} ORDER BY sequence LIMIT 1", plan.plan_id, plan.attempt, plan.revision)
        return rows[0][0] if rows else self.first_id(plan.plan_id)

    def after_step(self, plan_id: str, last_completed_step: int) -> Iterator[CheckpointGroup]:
        """The sound groups at that position, read as they are asked for."""
        return self._records.in_sequence(CheckpointGroup, plan_id, "last_completed_step = ?", last_completed_step)

    def count_before(self, plan_id: str, sequence: int) -> int:
        """How many groups there are before that number, damaged ones too."""
        sql = "SELECT count(*) FROM checkpoint_group WHERE plan_id = ? AND sequence < ?"
        return int(self._records.execute(sql, plan_id, sequence)[0][0])

    def ids_of_children(self, group_id: str) -> list[str]:
        """The ids of the groups that continue at that group, damaged ones too."""
        sql = "SELECT group_id FROM checkpoint_group WHERE parent_group_id = ?"
        return [row[0] for row in self._records.execute(sql, group_id)]

    def set_parent(self, group: CheckpointGroup, parent_group_id: str | None) -> None:
        self._records.update(group.model_copy(update={"parent_group_id": parent_group_id}), "parent_group_id")

    def newest_at(self, plan_id: str, at: datetime) -> CheckpointGroup | None:
        """The newest sound group that was taken at or before that time."""
        where, until = "created_at <= ?", stored_time(at)
        return next(self._records.in_sequence(CheckpointGroup, plan_id, where, until, newest_first=True, page=1), None)

    def with_label(self, plan_id: str, label: str) -> CheckpointGroup | None:
        """The first sound group with that label."""
        return next(self._records.in_sequence(CheckpointGroup, plan_id, "label = ?", label, page=1), None)

    def has_label(self, plan_id: str, label: str) -> bool:
        sql = "SELECT 1 FROM checkpoint_group WHERE plan_id = ? AND label = ? LIMIT 1"
        return bool(self._records.execute(sql, plan_id, label))


class CheckpointRecords(Queries):
    """One row for each resource in a group.

    Damaged checkpoints are left out of lists: all that is needed of them is in their group.
    """

    def of(self, plan_id: str) -> list[Checkpoint]:
        order = "sequence, checkpoint_id"
        return self._records.select(Checkpoint, "plan_id = ?", plan_id, order=order, sound_only=True)

    def of_group(self, group_id: str) -> list[Checkpoint]:
        order = "sequence, checkpoint_id"
        return self._records.select(Checkpoint, "group_id = ?", group_id, order=order, sound_only=True)

    def by_prefix(self, prefix: str) -> list[Checkpoint]:
        return self._records.by_prefix(Checkpoint, prefix, sound_only=True)

    def between(self, plan_id: str, first: int, last: int) -> list[Checkpoint]:
        """The checkpoints of the groups with these numbers and those in between."""
        where, order = "plan_id = ? AND sequence BETWEEN ? AND ?", "sequence, checkpoint_id"
        return self._records.select(Checkpoint, where, plan_id, first, last, order=order, sound_only=True)

    def numbered(self, plan_id: str, numbers: Sequence[int]) -> list[Checkpoint]:
        """The checkpoints of the groups with these numbers, which are in order."""
        return self._numbered(Checkpoint, plan_id, numbers, "sequence, checkpoint_id", sound_only=True)

    def numbers_by_decision(self, plan_id: str) -> list[tuple[str, int]]:
        return self._numbers_by_decision("checkpoint_metadata", plan_id)

    def plans_with(self, prefix: str) -> set[str]:
        """The ids of the plans that have checkpoints whose ids have that prefix, damaged ones too."""
        sql = "SELECT DISTINCT plan_id FROM checkpoint_metadata WHERE checkpoint_id BETWEEN ? AND ?"
        exactly = "AND substr(checkpoint_id, 1, ?) = ?"  # whatever the order of the database's language is
        rows = self._records.execute(f"{sql} {exactly}", prefix, _last_with(prefix), len(prefix), prefix)
        return {row[0] for row in rows}

    def ids_with(self, plan_id: str, prefix: str) -> list[str]:
        """The ids of its checkpoints with that prefix, which is no shorter than a display id; damaged ones too."""
        sql = "SELECT checkpoint_id FROM checkpoint_metadata WHERE plan_id || '' = ? AND checkpoint_id BETWEEN ? AND ?"
        rows = self._records.execute(sql, plan_id, prefix, _last_with(prefix))
        return [row[0] for row in rows if row[0].startswith(prefix)]

    def ids_beside(self, plan_id: str, some: Collection[str], length: int) -> set[str]:
        """Which of these ids are the plan's, and the ids right before and after each that begin like it.

        ``length``: how many characters they must have in common.
        """
        # Not ``plan_id = ?``: the database would look at all checkpoints of the plan instead of the next ids.
        one = "SELECT {}(checkpoint_id) FROM checkpoint_metadata WHERE plan_id || '' = one.plan_id AND checkpoint_id {}"
        prefix = f"substr(one.checkpoint_id, 1, {length:d})"
        before = one.format("max", f"< one.checkpoint_id AND checkpoint_id >= {prefix}")
        after = one.format("min", f"> one.checkpoint_id AND checkpoint_id <= {prefix} || '{_last_with('')}'")
        sql = f"SELECT checkpoint_id, ({before}), ({after}) FROM checkpoint_metadata AS one WHERE plan_id || '' = ?"
        found: set[str] = set()
        for ids in batched(some):
            rows = self._records.execute(f"{sql} AND checkpoint_id IN ({', '.join('?' for _ in ids)})", plan_id, *ids)
            found.update(each for row in rows for each in row if each is not None and each[:length] == row[0][:length])
        return found

    def of_groups(self, group_ids: Collection[str]) -> dict[str, list[Checkpoint]]:
        """The checkpoints of each of these groups."""
        found: dict[str, list[Checkpoint]] = {group_id: [] for group_id in group_ids}
        for some in batched(group_ids):
            where, order = f"group_id IN ({', '.join('?' for _ in some)})", "sequence, checkpoint_id"
            for each in self._records.select(Checkpoint, where, *some, order=order, sound_only=True):
                found[each.group_id].append(each)
        return found

    def count_by_group(self, plan_id: str) -> dict[str, int]:
        """How many checkpoints each group has, damaged ones too."""
        sql = "SELECT group_id, count(*) FROM checkpoint_metadata WHERE plan_id = ? GROUP BY group_id"
        return {row[0]: int(row[1]) for row in self._records.execute(sql, plan_id)}

    def count_of_groups(self, group_ids: Collection[str]) -> dict[str, int]:
        """How many checkpoints each of these groups has, damaged ones too."""
        found = dict.fromkeys(group_ids, 0)
        for some in batched(group_ids):
            where = f"group_id IN ({', '.join('?' for _ in some)})"
            sql = f"SELECT group_id, count(*) FROM checkpoint_metadata WHERE {where} GROUP BY group_id"
            found |= {row[0]: int(row[1]) for row in self._records.execute(sql, *some)}
        return found

    def count_of_group(self, group_id: str) -> int:
        """How many checkpoints the group has, damaged ones too."""
        return int(self._records.execute("SELECT count(*) FROM checkpoint_metadata WHERE group_id = ?", group_id)[0][0])

    def count(self, plan_id: str) -> int:
        return int(self._records.execute("SELECT count(*) FROM checkpoint_metadata WHERE plan_id = ?", plan_id)[0][0])


def _last_with(prefix: str) -> str:
    """No id with that prefix comes after this."""
    return prefix + 26 * "Z"
