"""The queries on records that are damaged: which they are, and what can still be read of them."""

from __future__ import annotations

import msgspec

from holdfast.db.access import PLANS, loaded, loaded_plan, problem_with, record_alone, select_sql
from holdfast.db.engine import Row
from holdfast.db.queries import Queries
from holdfast.db.rows import key_text
from holdfast.db.tables import TABLE_OF, TABLES, Table
from holdfast.model import Checkpoint, CheckpointGroup, DamagedCheckpoint, Lease, Plan, Record


class DamagedRecord(msgspec.Struct, frozen=True):
    """A record that is not as it was written; the other fields of its row are not used."""

    table: str
    key: str
    plan_id: str | None
    """The plan that it names."""

    def __str__(self) -> str:
        return f"{self.table} {self.key}"


class DamagedRecords(Queries):
    """Records that are not as they were written, found so that they can be shown and deleted."""

    def is_plan_damaged(self, plan_id: str) -> bool:
        """Whether the record of the plan, its steps or its lease is damaged."""
        rows = self._records.execute(f"{PLANS} WHERE plan.plan_id = ?", plan_id)
        return any(problem_with(loaded_plan, TABLE_OF[Plan], row) for row in rows) or self.is_lease_damaged(plan_id)

    def parent_of_plan(self, plan_id: str) -> str | None:
        """The parent that a damaged plan names, if there is such a plan."""
        rows = self._records.execute("SELECT parent_plan_id FROM plan WHERE plan_id = ?", plan_id)
        parent = rows[0][0] if rows else None
        return parent if isinstance(parent, str) and self._records.has(Plan, parent) else None

    def checkpoints(self, plan_id: str, *, since: int | None = None) -> list[DamagedCheckpoint]:
        """Damaged checkpoints, and those of damaged groups, of a plan; ``since``: the least number of their groups."""
        unsound_groups = self._unsound_groups(plan_id, since)
        rows = self._rows_of_plan(Checkpoint, plan_id, since, order="sequence, checkpoint_id")
        found = (_damaged_checkpoint(row, unsound_groups) for row in rows)
        return [each for each in found if each is not None]

    def _unsound_groups(self, plan_id: str, since: int | None) -> dict[str, str]:
        table = TABLE_OF[CheckpointGroup]
        rows = self._rows_of_plan(CheckpointGroup, plan_id, since, order="sequence")
        problems = {row[0]: problem_with(loaded, table, row) for row in rows}
        return {group_id: problem for group_id, problem in problems.items() if problem is not None}

    def _rows_of_plan(self, model: type[Record], plan_id: str, since: int | None, order: str) -> list[Row]:
        where, more = ("plan_id = ?", ()) if since is None else ("plan_id = ? AND sequence >= ?", (since,))
        return self._records.execute(f"{select_sql(TABLE_OF[model])} WHERE {where} ORDER BY {order}", plan_id, *more)

    def parent_of_group(self, group_id: str) -> str | None:
        """The parent that a damaged group names."""
        rows = self._records.execute("SELECT parent_group_id FROM checkpoint_group WHERE group_id = ?", group_id)
        return rows[0][0] if rows else None

    def records(self) -> list[DamagedRecord]:
        """Every record that is not as it was written, or that this version cannot read."""
        return [
            DamagedRecord(table.name, key_text(table, row), _plan_named_by(table, row))
            for table in TABLES
            for row in self._records.execute(select_sql(table))
            if problem_with(record_alone, table, row) is not None
        ]

    def is_lease_damaged(self, plan_id: str) -> bool:
        """Whether the lease of the plan is damaged: no process can take such a lease, or use it."""
        table = TABLE_OF[Lease]
        rows = self._records.execute(f"{select_sql(table)} WHERE plan_id = ?", plan_id)
        return any(problem_with(loaded, table, row) for row in rows)


def _plan_named_by(table: Table, row: Row) -> str | None:
    names = dict(zip(table.names, row, strict=True))
    return str(names["plan_id"]) if "plan_id" in names else None


def _damaged_checkpoint(row: Row, unsound_groups: dict[str, str]) -> DamagedCheckpoint | None:
    table = TABLE_OF[Checkpoint]
    stored = dict(zip(table.names, row, strict=True))
    group_id = str(stored["group_id"])
    own = problem_with(loaded, table, row)
    problem = unsound_groups.get(group_id, own)
    if problem is None:
        return None
    return DamagedCheckpoint(
        checkpoint_id=str(stored["checkpoint_id"]),
        plan_id=str(stored["plan_id"]),
        group_id=group_id,
        is_group=group_id in unsound_groups,
        sequence=stored["sequence"] if isinstance(stored["sequence"], int) else 0,
        problem=problem,
    )
