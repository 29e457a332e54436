"""The plans that a content store keeps content for, and the records that each of them is in.

A plan is noted before content is stored for it, together with the lease under which that happens. Records in which the
plan is missing, or has an earlier lease, are not the ones that content was last stored for. A plan is marked as going
before its records are deleted: if the records no longer have it then, its content may be released.

What a collection has checked it need not check again, as long as the records are the same ones: each collection leaves
a random mark in the records and here, so that an older or newer copy of the records is recognized. Whatever is noted of
a plan makes it unchecked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

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


class RecordStore(msgspec.Struct, frozen=True):
    records_id: str
    place: str
    """For a person; for records in the home only the name of the file, so that the home can be moved."""


class KeptPlan(msgspec.Struct, frozen=True):
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

    def unchecked(self) -> list[KeptPlan]:
        """The plans of which something was noted since a collection last checked them."""
        sql = (
            "SELECT plan_id, records_id, token, owner, mark FROM unchecked_plan "
            "JOIN kept_plan USING (plan_id, records_id) ORDER BY plan_id"
        )
        return [_kept_plan(*row) for row in self._rows(sql)]

    def find(self, plan_id: str, records_id: str) -> KeptPlan | None:
        sql = "SELECT plan_id, records_id, token, owner, mark FROM kept_plan WHERE plan_id = ? AND records_id = ?"
        return next((_kept_plan(*row) for row in self._rows(sql, (plan_id, records_id))), None)

    def keeps_for_others(self, asked: Collection[str]) -> bool:
        """Whether content is kept for other records than these."""
        others = [store.records_id for store in self.stores() if store.records_id not in asked]
        return any(self._rows("SELECT 1 FROM kept_plan WHERE records_id = ? LIMIT 1", (each,)) for each in others)

    def is_catalogued(self, plan_id: str) -> bool:
        """Whether the plan itself, without its subplans, has snapshots in the catalogue."""
        sql = "SELECT 1 FROM snapshot WHERE sandbox_id >= ? AND sandbox_id < ? LIMIT 1"
        return bool(self._rows(sql, (f"{plan_id}/", f"{plan_id}0")))  # in ASCII, 0 follows the slash

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
        noted = self.find(plan.plan_id, plan.records_id)
        store = RecordStore(plan.records_id, place)
        if noted == plan and store in self.stores():
            return
        with self._database.writing() if is_durable else self._database.writing_unsynced():
            self._put_store(store)
            if noted is None:
                self._put(plan)
            elif not noted.is_not_newer_than(plan.token, plan.owner):
                self._put(msgspec.structs.replace(noted, mark=Mark.BEHIND))
            else:
                self._put(msgspec.structs.replace(plan, mark=noted.mark if noted.mark is Mark.BEHIND else Mark.KEPT))

    def let_go(self, plan_id: str, records_id: str) -> None:
        """Mark a plan whose records are about to be deleted."""
        sql = "UPDATE kept_plan SET mark = ? WHERE plan_id = ? AND records_id = ?"
        with self._database.writing():
            self._database.connection.execute(sql, (Mark.GOING.value, plan_id, records_id))
            self._uncheck(plan_id, records_id)

    def forget(self, plans: Iterable[KeptPlan]) -> None:
        """Delete the notes of plans whose content is released; records that nothing is kept for are not asked again."""
        keys = [(each.plan_id, each.records_id) for each in plans]
        if keys:
            with self._database.writing():
                for table in ("kept_plan", "unchecked_plan"):
                    sql = f"DELETE FROM {table} WHERE plan_id = ? AND records_id = ?"
                    self._database.connection.executemany(sql, keys)

    def put(self, plan: KeptPlan) -> None:
        with self._database.writing():
            self._put(plan)

    def _put(self, plan: KeptPlan) -> None:
        row = (plan.plan_id, plan.records_id, plan.token, plan.owner, plan.mark.value)
        self._database.connection.execute("INSERT OR REPLACE INTO kept_plan VALUES (?, ?, ?, ?, ?)", row)
        self._uncheck(plan.plan_id, plan.records_id)

    def _uncheck(self, plan_id: str, records_id: str) -> None:
        sql = "INSERT OR IGNORE INTO unchecked_plan VALUES (?, ?)"
        self._database.connection.execute(sql, (plan_id, records_id))

    def _put_store(self, store: RecordStore) -> None:
        row = (store.records_id, store.place)
        self._database.connection.execute("INSERT OR REPLACE INTO record_store VALUES (?, ?)", row)

    # The marks of collections

    def marks(self, records_id: str) -> tuple[str, str]:
        """The marks that these records have if they are the same ones: of the last collection, or of one that died."""
        row = self._database.row("SELECT last, next FROM collection WHERE records_id = ?", (records_id,))
        return (str(row[0]), str(row[1])) if row else ("", "")

    def begin_collection(self, records: Iterable[str], mark: str) -> None:
        """Note the mark that these records are about to get."""
        sql = "INSERT INTO collection VALUES (?1, '', ?2) ON CONFLICT (records_id) DO UPDATE SET next = excluded.next"
        with self._database.writing_unsynced():
            self._database.connection.executemany(sql, [(each, mark) for each in records])

    def end_collection(self, records: Iterable[str], mark: str, checked: Iterable[KeptPlan]) -> None:
        """Note that these records have the mark, and these plans were checked; in the collection's transaction."""
        connection = self._database.connection
        rows = [(each, mark, mark) for each in records]
        connection.executemany("INSERT OR REPLACE INTO collection VALUES (?, ?, ?)", rows)
        # Unless something else was noted meanwhile.
        sql = (
            "DELETE FROM unchecked_plan WHERE (plan_id, records_id) IN (SELECT plan_id, records_id FROM kept_plan "
            "WHERE plan_id = ? AND records_id = ? AND token = ? AND owner = ? AND mark = ?)"
        )
        plans = [(each.plan_id, each.records_id, each.token, each.owner, each.mark.value) for each in checked]
        connection.executemany(sql, plans)


def _kept_plan(plan_id: Any, records_id: Any, token: Any, owner: Any, mark: Any) -> KeptPlan:
    """One row as a value; a damaged row still keeps its plan."""
    is_sound = isinstance(token, int) and mark in set(Mark)
    number, state = (token, Mark(mark)) if is_sound else (0, Mark.BEHIND)
    return KeptPlan(str(plan_id), str(records_id), number, str(owner), state)


def kept_records(path: Path) -> dict[str, set[str]]:
    """By place, the ids of the records that the content store at ``path`` keeps content for."""
    sql = (
        "SELECT place, records_id FROM record_store WHERE EXISTS (SELECT 1 FROM kept_plan "
        "WHERE kept_plan.records_id = record_store.records_id AND kept_plan.mark != 'going')"
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
