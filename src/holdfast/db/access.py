"""Reads and writes records one by one or by a condition, inside transactions that a lease may guard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from holdfast.db.engine import Dialect, Engine, Row, Stored
from holdfast.db.naming import give_up_states, name_states
from holdfast.db.placing import with_home, without_home
from holdfast.db.rows import fields_of, key_text, record_of, row_of, stored_text
from holdfast.db.tables import TABLE_OF, Table
from holdfast.errors import (
    SEE_DOCTOR,
    CheckpointNotFoundError,
    ConflictError,
    DamagedRecordError,
    DatabaseError,
    LeaseLostError,
    NotFoundError,
)
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    Decision,
    Lease,
    Plan,
    Record,
    Revision,
    Step,
    StepRun,
)
from holdfast.system.once import once

M = TypeVar("M", bound=Record)
LAST_ID = "Z" * 26
"""No id is greater."""

_FIRST_PAGE = 32
_LARGEST_PAGE = 1024


class Access:
    def __init__(self, engine: Engine, home: Path) -> None:
        self._engine = engine
        self._known_steps: tuple[Row, tuple[Step, ...]] | None = None
        """The row of the steps that were read last, and the steps: a verb reads its plan several times."""
        self.skipped: list[str] = []
        """``table key`` of each damaged record that was left out of an answer."""
        self.home = home
        """The home whose records these are; a PostgreSQL database may hold those of other homes too."""

    @property
    def dialect(self) -> Dialect:
        return self._engine.dialect

    def close(self) -> None:
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self, lease: Lease | None = None) -> Iterator[None]:
        """All or nothing; with a lease, only while the plan has that lease. Inside another transaction, part of it."""
        with self._engine.transaction():
            if lease is not None:
                self._verify(lease)
            yield

    @once
    def records_id(self) -> str:
        """The id by which a content store knows these records."""
        rows = self.execute("SELECT records_id FROM record_store")
        if len(rows) != 1:
            raise DatabaseError(
                f"The table record_store has {len(rows)} rows instead of one, so these records cannot be identified.",
                hint="Put the database back from a backup.",
            )
        return str(rows[0][0])

    @once
    def place(self) -> str:
        """Where these records are, for a person."""
        return self._engine.place

    def save(self, record: Record) -> None:
        """Write the record, replacing the one with its key; the steps of a plan are a record of their own."""
        table = TABLE_OF[type(record)]
        updates = ", ".join(f"{name} = excluded.{name}" for name in table.names if name not in table.key)
        self.insert(record, f" ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {updates}")

    def insert(self, record: Record, on_conflict: str = "") -> None:
        """Write a record whose key must be new, unless ``on_conflict`` says otherwise."""
        table = TABLE_OF[type(record)]
        values = ", ".join("?" for _ in table.names)
        sql = f"INSERT INTO {table.name} ({', '.join(table.names)}) VALUES ({values}){on_conflict}"
        self._engine.execute(sql, row_of(table, without_home(record, self.home)))
        name_states(self, record, is_new=not on_conflict)

    def update(self, record: Record, *names: str) -> None:
        """Write only these columns of a record that exists; the states that it names must be the same."""
        table = TABLE_OF[type(record)]
        row = dict(zip(table.names, row_of(table, without_home(record, self.home)), strict=True))
        changed = [*names, table.names[-1]]
        sql = f"UPDATE {table.name} SET {', '.join(f'{name} = ?' for name in changed)} WHERE {_by_key(table)}"
        self._engine.execute(sql, [row[name] for name in (*changed, *table.key)])

    def get(self, model: type[M], *key: str | int) -> M:
        found = self.find(model, *key)
        if found is None:
            raise self.missing(model, *key)
        return found

    @staticmethod
    def missing(model: type[Record], *key: str | int) -> NotFoundError:
        word = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", model.__name__).lower()
        kind = CheckpointNotFoundError if model is Checkpoint else NotFoundError
        return kind(
            f"There is no {word} {' '.join(map(str, key))}.", hint="Run `holdfast plan list` to see what there is."
        )

    def find(self, model: type[M], *key: str | int, sound_only: bool = False) -> M | None:
        """The record, or None; a damaged one is an error, or None with ``sound_only``."""
        return first(self.select(model, _by_key(TABLE_OF[model]), *key, sound_only=sound_only))

    def has(self, model: type[Record], *key: str | int) -> bool:
        """Whether there is such a record, damaged or not."""
        table = TABLE_OF[model]
        return bool(self.execute(f"SELECT 1 FROM {table.name} WHERE {_by_key(table)}", *key))

    def delete(self, model: type[Record], *key: str | int) -> None:
        """Delete the record and all that belongs to it: the checkpoints of a group, everything of a plan."""
        table = TABLE_OF[model]
        give_up_states(self, model, key[0])
        self.execute(f"DELETE FROM {table.name} WHERE {_by_key(table)}", *key)

    def by_prefix(self, model: type[M], prefix: str, *, sound_only: bool = False) -> list[M]:
        table = TABLE_OF[model]
        column = f"{table.name}.{table.key[0]}"
        wanted = prefix.upper()
        # Not LIKE: the two databases treat upper and lower case differently in it. The range lets them use the index.
        where = f"substr({column}, 1, ?) = ? AND {column} BETWEEN ? AND ?"
        parameters = (len(prefix), wanted, wanted, wanted + LAST_ID)
        return self.select(model, where, *parameters, order=column, sound_only=sound_only)

    def next_sequence(self, model: type[Decision | CheckpointGroup | StepRun], plan_id: str) -> int:
        """The number of the plan's next record of that kind; no other transaction can take it until this one ends."""
        # From here on, two transactions that work on the plan take turns.
        self.execute(f"SELECT plan_id FROM plan WHERE plan_id = ?{self._engine.dialect.row_lock}", plan_id)
        last = f"SELECT coalesce(max(sequence), 0) FROM {TABLE_OF[model].name} WHERE plan_id = ?"
        return int(self.execute(last, plan_id)[0][0]) + 1

    def all_fields(self, model: type[Record]) -> list[dict[str, Any]]:
        table = TABLE_OF[model]
        return [fields_of(table, row) for row in self.execute(select_sql(table))]

    def now(self) -> datetime:
        """The time of the database: machines compare each other's times, and their own clocks may be wrong."""
        return self._engine.now()

    def _verify(self, lease: Lease) -> None:
        current = self.find_locked_lease(lease.plan_id)
        if not self.still_holds(lease, current):
            by = f"now in use by {_holder(current)}" if current is not None and current.owner else "no longer leased"
            raise LeaseLostError(
                f"Plan {lease.plan_id} is {by}; this process was taken for dead and must no longer change the plan.",
                hint=f"Look at the plan with `holdfast plan status {lease.plan_id}`.",
            )

    def find_locked_lease(self, plan_id: str) -> Lease | None:
        return first(self.select(Lease, "plan_id = ?", plan_id, lock=True))

    @staticmethod
    def still_holds(lease: Lease, current: Lease | None) -> bool:
        return current is not None and (current.owner, current.token) == (lease.owner, lease.token)

    def select(
        self,
        model: type[M],
        where: str,
        *parameters: str | int,
        order: str = "",
        limit: int | None = None,
        lock: bool = False,
        sound_only: bool = False,
    ) -> list[M]:
        table = TABLE_OF[model]
        sql = f"{PLANS if table.model is Plan else select_sql(table)} WHERE {where}"
        if order:
            sql += f" ORDER BY {order}"
        if limit is not None:
            sql, parameters = f"{sql} LIMIT ?", (*parameters, limit)
        if lock:
            sql += self._engine.dialect.row_lock
        return list(self._loaded(model, self.execute(sql, *parameters), sound_only=sound_only))

    def in_sequence(
        self,
        model: type[M],
        plan_id: str,
        where: str = "",
        *parameters: str | int,
        newest_first: bool = False,
        page: int = _FIRST_PAGE,
    ) -> Iterator[M]:
        """The sound records of a plan by their number, read page by page as they are asked for.

        ``page``: how many are read at first, if it is known how many will be asked for.
        """
        table = TABLE_OF[model]
        sql = f"{select_sql(table)} WHERE plan_id = ?{where and f' AND {where}'}"
        compared, order = ("<", " DESC") if newest_first else (">", "")
        number = table.names.index("sequence")
        begin: tuple[str | int, ...] = ()
        while True:
            after = f" AND sequence {compared} ?" if begin else ""
            end = f"{after} ORDER BY sequence{order} LIMIT ?"
            rows = self.execute(sql + end, plan_id, *parameters, *begin, page)
            yield from self._loaded(model, rows, sound_only=True)
            if len(rows) < page:
                return
            begin, page = (rows[-1][number],), min(2 * page, _LARGEST_PAGE)

    def _loaded(self, model: type[M], rows: Iterable[Row], *, sound_only: bool) -> Iterator[M]:
        table = TABLE_OF[model]
        for row in rows:
            try:
                yield cast("M", self._plan(row) if table.model is Plan else loaded(table, row, self.home))
            except DamagedRecordError:
                if not sound_only:
                    raise
                self._skip(f"{table.name} {key_text(table, row[: len(table.names)])}")

    def _plan(self, row: Row) -> Record:
        table = TABLE_OF[Plan]
        known, steps_row = self._known_steps, row[len(table.names) :]
        if known is not None and known[0] == steps_row:
            return record_alone(table, row[: len(table.names)], self.home).model_copy(update={"steps": known[1]})
        plan = cast("Plan", loaded_plan(table, row, self.home))
        self._known_steps = steps_row, plan.steps
        return plan

    def _skip(self, name: str) -> None:
        if name not in self.skipped:
            self.skipped.append(name)

    def execute(self, sql: str, *parameters: str | int) -> list[Row]:
        stored: list[Stored] = [stored_text(value) if isinstance(value, str) else value for value in parameters]
        return self._engine.execute(sql, stored)


def _by_key(table: Table) -> str:
    return " AND ".join(f"{table.name}.{name} = ?" for name in table.key)


def first(found: list[M]) -> M | None:
    return found[0] if found else None


def select_sql(*tables: Table) -> str:
    columns = ", ".join(f"{table.name}.{name}" for table in tables for name in table.names)
    return f"SELECT {columns} FROM {tables[0].name}"


_STEPS = TABLE_OF[Revision]
PLANS = (
    select_sql(TABLE_OF[Plan], _STEPS)
    + " LEFT JOIN plan_revision ON plan_revision.plan_id = plan.plan_id AND plan_revision.revision = plan.revision"
)


def loaded(table: Table, row: Row, home: Path) -> Record:
    return record_of(table, with_home(table.model, fields_of(table, row), home))


def loaded_plan(table: Table, row: Row, home: Path) -> Record:
    width = len(table.names)
    fields = fields_of(table, row[:width])
    if row[width] is None:
        raise DamagedRecordError(
            f"The steps of plan {fields['plan_id']} (revision {fields['revision']}) are missing.",
            hint=SEE_DOCTOR,
        )
    fields = with_home(table.model, fields, home)
    return record_of(table, {**fields, "steps": fields_of(_STEPS, row[width:])["steps"]})


def record_alone(table: Table, row: Row, home: Path) -> Record:
    """A record; of a plan without its steps, which are a record of their own."""
    fields = with_home(table.model, fields_of(table, row), home)
    return record_of(table, {**fields, "steps": ()} if table.model is Plan else fields)


def problem_with(load: Callable[[Table, Row, Path], Record], table: Table, row: Row) -> str | None:
    """Why the row cannot be loaded; None if it can."""
    try:
        load(table, row, Path())
    except DamagedRecordError as error:
        return error.message
    return None


def in_use(held: Lease) -> ConflictError:
    stop = f", or stop it with `holdfast plan cancel {held.plan_id}`" if held.can_be_stopped else ""
    return ConflictError(
        f"Plan {held.plan_id} is in use by {_holder(held)}.", hint=f"Wait until it ends{stop}; then try again."
    )


def _holder(lease: Lease) -> str:
    since = f"{lease.acquired_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"`{lease.command}` (process {lease.pid} on {lease.host}, since {since})"
