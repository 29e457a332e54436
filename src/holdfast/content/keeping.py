"""The plans that a content store keeps content for, and the records that each of them is in.

A plan is noted before content is stored for it, together with the lease under which that happens. Records in which the
plan is missing, or has an earlier lease, are not the ones that content was last stored for. A plan is marked as going
before its records are deleted: if the records no longer have it then, its content may be released.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.system.sqlite import Error, connect_to_look, is_empty

if TYPE_CHECKING:  # some commands only ask here which records a home has, and open no store
    from holdfast.content.database import ContentDatabase

UNKNOWN = ""
"""The id of unknown records: an earlier version did not note them."""


class Mark(StrEnum):
    KEPT = "kept"
    GOING = "going"
    """Its records are about to be deleted."""
    BEHIND = "behind"
    """Its records were once older than the content stored for it: a backup of them was restored."""


@dataclass(frozen=True)
class RecordStore:
    records_id: str
    place: str
    """For a person; for records in the home only the name of the file, so that the home can be moved."""


@dataclass(frozen=True)
class KeptPlan:
    plan_id: str
    """The root plan; content of subplans is kept with it."""
    records_id: str
    token: int
    """The token of the last lease under which content was stored."""
    owner: str
    """The owner of that lease."""
    mark: Mark = Mark.KEPT

    def is_not_newer_than(self, token: int, owner: str) -> bool:
        """Whether that lease is the one under which content was last stored, or a later one."""
        return self.token < token or (self.token, self.owner) == (token, owner)


class Keeping:
    """The tables ``record_store`` and ``kept_plan`` of the content store."""

    def __init__(self, database: ContentDatabase) -> None:
        self._database, self._rows = database, database.rows

    def stores(self) -> list[RecordStore]:
        return [RecordStore(*row) for row in self._rows("SELECT records_id, place FROM record_store")]

    def plans(self) -> list[KeptPlan]:
        rows = self._rows("SELECT plan_id, records_id, token, owner, mark FROM kept_plan ORDER BY plan_id")
        return [_kept_plan(*row) for row in rows]

    def catalogued(self) -> set[str]:
        """Ids of all plans, subplans too, that have snapshots in the catalogue."""
        sql = "SELECT DISTINCT substr(sandbox_id, 1, instr(sandbox_id, '/') - 1) FROM snapshot"
        return {str(row[0]) for row in self._rows(sql)}

    def take_over(self, stores: Sequence[RecordStore], plans: Iterable[KeptPlan], known: Collection[str]) -> None:
        """Fill the tables, in a new store or in one of an earlier version.

        ``known``: the ids of all plans of these records. Other plans in the catalogue may belong to unknown records.
        """
        with self._database.writing():
            if self.stores():
                return  # another process was faster
            for store in stores:
                self._put_store(store)
            for plan in plans:
                self._put(plan)
            for plan_id in self.catalogued().difference(known):
                self._put(KeptPlan(plan_id, UNKNOWN, token=0, owner=""))

    def keep_for(self, plan: KeptPlan, place: str, *, is_durable: bool = False) -> None:
        """Note the plan, and the lease under which content will be stored for it."""
        found = [each for each in self.plans() if (each.plan_id, each.records_id) == (plan.plan_id, plan.records_id)]
        noted = found[0] if found else None
        store = RecordStore(plan.records_id, place)
        if noted == plan and store in self.stores():
            return
        with self._database.writing() if is_durable else self._database.writing_unsynced():
            self._put_store(store)
            if noted is None:
                self._put(plan)
            elif not noted.is_not_newer_than(plan.token, plan.owner):
                self._put(replace(noted, mark=Mark.BEHIND))
            else:
                self._put(replace(plan, mark=noted.mark if noted.mark is Mark.BEHIND else Mark.KEPT))

    def let_go(self, plan_id: str, records_id: str) -> None:
        """Mark a plan whose records are about to be deleted."""
        sql = "UPDATE kept_plan SET mark = ? WHERE plan_id = ? AND records_id = ?"
        with self._database.writing():
            self._database.connection.execute(sql, (Mark.GOING.value, plan_id, records_id))

    def forget(self, plans: Iterable[KeptPlan]) -> None:
        """Delete the notes of plans whose content is released; records that nothing is kept for are not asked again."""
        keys = [(each.plan_id, each.records_id) for each in plans]
        if keys:
            with self._database.writing():
                sql = "DELETE FROM kept_plan WHERE plan_id = ? AND records_id = ?"
                self._database.connection.executemany(sql, keys)

    def put(self, plan: KeptPlan) -> None:
        with self._database.writing():
            self._put(plan)

    def _put(self, plan: KeptPlan) -> None:
        row = (plan.plan_id, plan.records_id, plan.token, plan.owner, plan.mark.value)
        self._database.connection.execute("INSERT OR REPLACE INTO kept_plan VALUES (?, ?, ?, ?, ?)", row)

    def _put_store(self, store: RecordStore) -> None:
        row = (store.records_id, store.place)
        self._database.connection.execute("INSERT OR REPLACE INTO record_store VALUES (?, ?)", row)


def _kept_plan(plan_id: Any, records_id: Any, token: Any, owner: Any, mark: Any) -> KeptPlan:
    """One row as a value; a damaged row still keeps its plan."""
    is_sound = isinstance(token, int) and mark in set(Mark)
    number, state = (token, Mark(mark)) if is_sound else (0, Mark.BEHIND)
    return KeptPlan(str(plan_id), str(records_id), number, str(owner), state)


def kept_records(path: Path) -> dict[str, set[str]]:
    """By place, the ids of the records that the content store at ``path`` keeps content for."""
    sql = (
        "SELECT DISTINCT record_store.place, record_store.records_id FROM record_store "
        "JOIN kept_plan USING (records_id) WHERE kept_plan.mark != 'going'"
    )
    found: dict[str, set[str]] = {}
    for place, records_id in _looked_up(path, sql):
        found.setdefault(place, set()).add(records_id)
    return found


def kept_plans(path: Path) -> set[str]:
    """The ids of the plans that the content store at ``path`` keeps content for."""
    return {str(row[0]) for row in _looked_up(path, "SELECT plan_id FROM kept_plan")}


def _looked_up(path: Path, sql: str) -> list[Any]:
    """The rows; none if the store cannot be read, because a command that needs the content will say why."""
    if is_empty(path):
        return []
    try:
        with closing(connect_to_look(path)) as connection:
            return connection.execute(sql).fetchall()
    except (Error, HoldfastError):
        return []
