"""The records of Holdfast: what may be asked of them and done to them; the only module that speaks SQL."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

from holdfast.db.engine import Engine, PostgresDialect, Row, SqliteDialect, Stored
from holdfast.db.placing import with_home, without_home
from holdfast.db.rows import fields_of, key_text, record_of, row_of, stored_text
from holdfast.db.schema import ensure_schema
from holdfast.db.tables import TABLE_OF, TABLES, Table
from holdfast.errors import (
    CheckpointNotFoundError,
    ConfigError,
    ConflictError,
    DamagedRecordError,
    DatabaseError,
    LeaseLostError,
    NotFoundError,
)
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    DamagedCheckpoint,
    Decision,
    Lease,
    Operation,
    OperationKind,
    OperationState,
    Plan,
    Project,
    Record,
    Revision,
    RunStatus,
    StepRun,
    now,
)
from holdfast.system.ids import new_id
from holdfast.system.sqlite import is_empty

M = TypeVar("M", bound=Record)


FILE = "holdfast.db"
"""The records in a home."""


@dataclass(frozen=True)
class DamagedRecord:
    """A record that is not what was written; what else its row says is not relied on."""

    table: str
    key: str
    plan_id: str | None
    """Whose it says it is."""

    def __str__(self) -> str:
        return f"{self.table} {self.key}"


def open_store(url: str | None, home: Path, kept: Mapping[str, Collection[str]] = MappingProxyType({})) -> Store:
    """The records in ``home``, or in PostgreSQL if ``url`` says so; made or brought up to date if need be.

    ``kept``: by place the ids of records for which the home keeps content; others in their place are refused.
    """
    # Not even opened: SQLite would remove the write-ahead log of an empty file.
    if url is None and kept.get(FILE) and is_empty(home / FILE):
        raise _lost(FILE, home)
    engine = Engine(SqliteDialect(home / FILE) if url is None else postgres(url))
    try:
        place = engine.place

        def refuse_new() -> None:
            if kept.get(place):
                raise _lost(place, home)

        ensure_schema(engine, refuse_new)
        store = Store(engine, home)
        is_known = any(store.records_id in ids for ids in kept.values())
        if kept.get(place) and not is_known:
            raise _lost(place, home)
    except BaseException:
        engine.close()
        raise
    return store


def _lost(place: str, home: Path) -> DatabaseError:
    anew = (
        f"move the folder {home} away, or set HOLDFAST_HOME to another one"
        if place == FILE
        else "use another database, or none; then `holdfast checkpoint release` gives up what is kept for the old one"
    )
    return DatabaseError(
        f"{home / 'objects.db'} keeps content for records in {place}, and those are not there: the records are "
        "missing, empty or others.",
        hint=f"Put the records back from a backup; their content is still there. To start anew, {anew}.",
    )


def postgres(url: str) -> PostgresDialect:
    scheme, separator, _ = url.partition("://")
    if scheme != "postgresql" or not separator:
        # Not the whole of it: it may hold a password.
        raise ConfigError(
            f"The database URL begins with {scheme!r}, which is none of the databases Holdfast knows."
            if separator
            else "The database URL has no scheme.",
            hint="Use postgresql://..., or no URL at all for SQLite in HOLDFAST_HOME.",
        )
    return PostgresDialect(url)


class Store:
    def __init__(self, engine: Engine, home: Path) -> None:
        self._engine = engine
        self.skipped: list[str] = []
        """``table key`` of damaged records that were left out where others of their kind were asked for."""
        self.home = home
        """Whose records they are; in PostgreSQL other homes may have theirs there as well."""

    def close(self) -> None:
        self._engine.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self, lease: Lease | None = None) -> Iterator[None]:
        """All or nothing; with a lease, only while that lease is the plan's. Inside another one, a part of it."""
        with self._engine.transaction():
            if lease is not None:
                self._verify(lease)
            yield

    @cached_property
    def records_id(self) -> str:
        """What a content store knows these records by."""
        rows = self._execute("SELECT records_id FROM record_store")
        if len(rows) != 1:
            raise DatabaseError(
                f"The table record_store has {len(rows)} rows in place of one, so it is not known which records these "
                "are.",
                hint="Put the database back from a backup.",
            )
        return str(rows[0][0])

    @cached_property
    def place(self) -> str:
        """Where these records are, for a person."""
        return self._engine.place

    # Records

    def save(self, record: Record) -> None:
        """Write the record, in place of the one with its key; of a plan the row, its steps are a ``Revision``."""
        table = TABLE_OF[type(record)]
        updates = ", ".join(f"{name} = excluded.{name}" for name in table.names if name not in table.key)
        self._write(record, f" ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {updates}")

    def insert(self, record: Record) -> None:
        """Write a record whose key must be new."""
        self._write(record)

    def _write(self, record: Record, on_conflict: str = "") -> None:
        table = TABLE_OF[type(record)]
        values = ", ".join("?" for _ in table.names)
        sql = f"INSERT INTO {table.name} ({', '.join(table.names)}) VALUES ({values}){on_conflict}"
        self._engine.execute(sql, row_of(table, without_home(record, self.home)))

    def get(self, model: type[M], *key: str | int) -> M:
        found = self.find(model, *key)
        if found is None:
            raise self._missing(model, *key)
        return found

    @staticmethod
    def _missing(model: type[Record], *key: str | int) -> NotFoundError:
        word = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", model.__name__).lower()
        kind = CheckpointNotFoundError if model is Checkpoint else NotFoundError
        return kind(
            f"There is no {word} {' '.join(map(str, key))}.", hint="Run `holdfast plan list` to see what there is."
        )

    def find(self, model: type[M], *key: str | int, sound_only: bool = False) -> M | None:
        """None also for a damaged record, if only a sound one will do; otherwise that is an error."""
        return _first(self._select(model, _by_key(TABLE_OF[model]), *key, sound_only=sound_only))

    def has(self, model: type[Record], *key: str | int) -> bool:
        """Whether there is such a record, damaged or not."""
        table = TABLE_OF[model]
        return bool(self._execute(f"SELECT 1 FROM {table.name} WHERE {_by_key(table)}", *key))

    def delete(self, model: type[Record], *key: str | int) -> None:
        """Delete the record and what belongs to it: a group's checkpoints, everything of a plan."""
        table = TABLE_OF[model]
        self._execute(f"DELETE FROM {table.name} WHERE {_by_key(table)}", *key)

    # Projects and plans

    def project_for(self, root: str | os.PathLike[str]) -> Project:
        """The project of that root folder, made if there is none yet; a damaged record is written anew."""
        with self.transaction():
            project = Project(project_id=new_id(), root=os.fspath(root), created_at=now())
            self._write(project, " ON CONFLICT (root) DO NOTHING")
            project_id = cast("str", self.find_project_id(root))
            found = self.find(Project, project_id, sound_only=True)
            if found is None:
                found = project.model_copy(update={"project_id": project_id})
                self.save(found)
            return found

    def find_project_id(self, root: str | os.PathLike[str]) -> str | None:
        """That of the project of that root folder, whose record holds nothing else that is needed, damaged or not."""
        rows = self._execute("SELECT project_id FROM project WHERE root = ?", os.fspath(root))
        return rows[0][0] if rows else None

    def plans_of(self, project_id: str | None, limit: int | None = None) -> list[Plan]:
        """The plans of a project, or of all, newest first, without damaged ones; subplans have a parent to ask."""
        return self._plans_of(project_id, limit, sound_only=True)

    def next_plan_sequence(self) -> int:
        """The number of the next plan; two that are made at the same moment may get the same."""
        return int(self._execute("SELECT COALESCE(MAX(sequence), 0) + 1 FROM plan")[0][0])

    def latest_plan(self, project_id: str) -> Plan | None:
        """Not the one before it, if its record is damaged: that is not what was meant."""
        return _first(self._plans_of(project_id, limit=1))

    def _plans_of(self, project_id: str | None, limit: int | None, *, sound_only: bool = False) -> list[Plan]:
        # Not by the clock, which may have been set back; those without a number are older than all that have one.
        order = "plan.sequence DESC NULLS LAST, plan.created_at DESC, plan.plan_id DESC"
        where = "plan.parent_plan_id IS NULL" + ("" if project_id is None else " AND plan.project_id = ?")
        parameters = () if project_id is None else (project_id,)
        return self._select(Plan, where, *parameters, order=order, limit=limit, sound_only=sound_only)

    def damaged_plans(self) -> list[str]:
        """The ids of plans whose own records, or steps, are damaged; subplans too."""
        return [row[0] for row in self._execute(_PLANS) if _problem(_plan_of, TABLE_OF[Plan], row)]

    def parent_of_damaged(self, plan_id: str) -> str | None:
        """What a damaged plan says it is a subplan of, if that is a plan."""
        rows = self._execute("SELECT parent_plan_id FROM plan WHERE plan_id = ?", plan_id)
        parent = rows[0][0] if rows else None
        return parent if isinstance(parent, str) and self.has(Plan, parent) else None

    def subplan_ids(self, plan_id: str) -> list[str]:
        """The ids of its subplans, whatever else is known of them."""
        return [row[0] for row in self._execute("SELECT plan_id FROM plan WHERE parent_plan_id = ?", plan_id)]

    def find_plans_by_prefix(self, prefix: str) -> list[Plan]:
        return self._by_prefix(Plan, prefix)

    def find_checkpoints_by_prefix(self, prefix: str) -> list[Checkpoint]:
        """Those that are sound."""
        return self._by_prefix(Checkpoint, prefix, sound_only=True)

    def find_decisions_by_prefix(self, prefix: str) -> list[Decision]:
        return self._by_prefix(Decision, prefix)

    def _by_prefix(self, model: type[M], prefix: str, *, sound_only: bool = False) -> list[M]:
        table = TABLE_OF[model]
        column = f"{table.name}.{table.key[0]}"
        # Not LIKE: the two databases differ about upper and lower case in it.
        where, parameters = f"substr({column}, 1, ?) = ?", (len(prefix), prefix.upper())
        return self._select(model, where, *parameters, order=column, sound_only=sound_only)

    def subplans_of(self, plan_id: str, *, sound_only: bool = False) -> list[Plan]:
        order = "plan.created_at, plan.plan_id"
        return self._select(Plan, "plan.parent_plan_id = ?", plan_id, order=order, sound_only=sound_only)

    def root_of(self, plan: Plan) -> Plan:
        """The plan that it is a subplan of, over all levels; itself if it is none."""
        while plan.parent_plan_id is not None:
            plan = self.get(Plan, plan.parent_plan_id)
        return plan

    # What belongs to a plan. What only looks asks for what is sound; what is about to change the plan needs all of it.

    def decisions_of(self, plan_id: str, *, sound_only: bool = False) -> list[Decision]:
        return self._select(Decision, "plan_id = ?", plan_id, order="sequence", sound_only=sound_only)

    def decisions_in_force_from(self, plan_id: str, sequence: int) -> list[Decision]:
        where = "plan_id = ? AND sequence >= ? AND is_superseded = 0"
        return self._select(Decision, where, plan_id, sequence, order="sequence")

    def runs_of(self, plan_id: str, *, sound_only: bool = False) -> list[StepRun]:
        return self._select(StepRun, "plan_id = ?", plan_id, order="sequence", sound_only=sound_only)

    def latest_run(self, plan_id: str) -> StepRun | None:
        return _first(self._select(StepRun, "plan_id = ?", plan_id, order="sequence DESC", limit=1))

    def latest_run_in_force(self, plan_id: str) -> StepRun | None:
        """Not always the latest of all: a rollback may bring an older one back. One without a decision never goes."""
        where = "plan_id = ? AND is_superseded = 0 AND decision_id IS NOT NULL"
        return _first(self._select(StepRun, where, plan_id, order="sequence DESC", limit=1))

    def runs_with(self, plan_id: str, *statuses: RunStatus) -> list[StepRun]:
        where = f"plan_id = ? AND status IN ({', '.join('?' for _ in statuses)})"
        return self._select(StepRun, where, plan_id, *statuses, order="sequence")

    def unfinished_runs(self, plan_id: str) -> list[StepRun]:
        """Those that run, or wait for a person; going back gives up the waiting."""
        unfinished = self._select(StepRun, "plan_id = ? AND finished_at IS NULL", plan_id, order="sequence")
        return [run for run in unfinished if not run.is_superseded]

    def root_decision(self, plan_id: str) -> Decision | None:
        return _first(
            self._select(Decision, "plan_id = ? AND parent_decision_id IS NULL", plan_id, order="sequence", limit=1)
        )

    def latest_revision(self, plan_id: str) -> int:
        return int(
            self._execute("SELECT coalesce(max(revision), 0) FROM plan_revision WHERE plan_id = ?", plan_id)[0][0]
        )

    def latest_attempt(self, plan_id: str) -> int:
        """The highest attempt there has been, also one that a rollback took the plan back from."""
        return int(self._execute("SELECT coalesce(max(attempt), 1) FROM decision WHERE plan_id = ?", plan_id)[0][0])

    def groups_of(self, plan_id: str, *, sound_only: bool = False) -> list[CheckpointGroup]:
        return self._select(CheckpointGroup, "plan_id = ?", plan_id, order="sequence", sound_only=sound_only)

    def first_group(self, plan_id: str) -> CheckpointGroup:
        """What the plan began with. Damage to others does not matter; the second is never taken for it."""
        return self._select(CheckpointGroup, "plan_id = ?", plan_id, order="sequence", limit=1)[0]

    def group_ids(self, plan_id: str) -> list[str]:
        """In their order, damaged ones too."""
        rows = self._execute("SELECT group_id FROM checkpoint_group WHERE plan_id = ? ORDER BY sequence", plan_id)
        return [row[0] for row in rows]

    def parent_of_damaged_group(self, group_id: str) -> str | None:
        """What a damaged group says it came after."""
        rows = self._execute("SELECT parent_group_id FROM checkpoint_group WHERE group_id = ?", group_id)
        return rows[0][0] if rows else None

    def checkpoints_of(self, plan_id: str) -> list[Checkpoint]:
        """Those that are sound: a group holds all that a checkpoint is needed for."""
        order = "sequence, checkpoint_id"
        return self._select(Checkpoint, "plan_id = ?", plan_id, order=order, sound_only=True)

    def checkpoints_of_group(self, group_id: str) -> list[Checkpoint]:
        """Those that are sound; there may be none."""
        order = "sequence, checkpoint_id"
        return self._select(Checkpoint, "group_id = ?", group_id, order=order, sound_only=True)

    def damaged_checkpoints(self, plan_id: str | None = None, *, prefix: str = "") -> list[DamagedCheckpoint]:
        """Those of a plan, or of all, whose ids begin so: damaged ones, and those of a damaged group."""
        unsound_groups = self._unsound_groups(plan_id)
        return [
            each
            for row in self._rows_of_plan(Checkpoint, plan_id, order="sequence, checkpoint_id")
            if (each := _damaged_checkpoint(row, unsound_groups)) is not None and each.checkpoint_id.startswith(prefix)
        ]

    def _unsound_groups(self, plan_id: str | None) -> dict[str, str]:
        table = TABLE_OF[CheckpointGroup]
        rows = self._rows_of_plan(CheckpointGroup, plan_id, order="sequence")
        problems = {row[0]: _problem(_record_of, table, row) for row in rows}
        return {group_id: problem for group_id, problem in problems.items() if problem is not None}

    def _rows_of_plan(self, model: type[Record], plan_id: str | None, order: str) -> list[Row]:
        sql = _select_sql(TABLE_OF[model])
        if plan_id is None:
            return self._execute(f"{sql} ORDER BY {order}")
        return self._execute(f"{sql} WHERE plan_id = ? ORDER BY {order}", plan_id)

    def count_by_group(self, plan_id: str) -> dict[str, int]:
        """How many checkpoints each group has, damaged ones too."""
        rows = self._execute(
            "SELECT group_id, count(*) FROM checkpoint_metadata WHERE plan_id = ? GROUP BY group_id", plan_id
        )
        return {row[0]: int(row[1]) for row in rows}

    def checkpoint_count(self, plan_id: str) -> int:
        return int(self._execute("SELECT count(*) FROM checkpoint_metadata WHERE plan_id = ?", plan_id)[0][0])

    def unfinished_operations(self, plan_id: str, *, sound_only: bool = False) -> list[Operation]:
        # One whose state is none of those there are is damaged, and may be one of these.
        where, ended = "plan_id = ? AND state NOT IN (?, ?)", (OperationState.DONE, OperationState.UNDONE)
        order = "created_at, operation_id"
        return self._select(Operation, where, plan_id, *ended, order=order, sound_only=sound_only)

    def unfinished_changes(self, store_id: str) -> list[Operation]:
        """Every apply and unapply that is under way, or was cut short, of the plans with that content store.

        Without damaged ones: what they did to real files is told by the marks on those.
        """
        where = "state = ? AND kind IN (?, ?) AND plan_id IN (SELECT plan_id FROM plan WHERE store_id = ?)"
        parameters = (OperationState.BEGUN, OperationKind.APPLY, OperationKind.UNAPPLY, store_id)
        return self._select(Operation, where, *parameters, order="created_at, operation_id", sound_only=True)

    def applied_operation(self, plan_id: str) -> Operation | None:
        """The apply that brought the plan into the real files, if that is where it is."""
        where = "plan_id = ? AND state = ? AND kind = ?"
        parameters = (plan_id, OperationState.DONE, OperationKind.APPLY)
        return _first(self._select(Operation, where, *parameters, order="created_at DESC, operation_id DESC", limit=1))

    def next_sequence(self, model: type[Decision | CheckpointGroup | StepRun], plan_id: str) -> int:
        """The number of the plan's next record of that kind; it stays free until the transaction around it ends."""
        # Two transactions that both work on the plan take turns from here on.
        self._execute(f"SELECT plan_id FROM plan WHERE plan_id = ?{self._engine.dialect.row_lock}", plan_id)
        last = f"SELECT coalesce(max(sequence), 0) FROM {TABLE_OF[model].name} WHERE plan_id = ?"
        return int(self._execute(last, plan_id)[0][0]) + 1

    # Keeping house

    def referenced_states(self, store_id: str) -> set[str]:
        """Every state that a group, an unfinished operation or a merged subplan in that content store needs.

        Refuses if any record that could name one is damaged, of whichever plan: a damaged one may be another's.
        """
        plans = [fields for fields in self._all(Plan) if fields["store_id"] == store_id]
        kept = {fields["plan_id"] for fields in plans}
        named = [fields["states"] for fields in self._all(CheckpointGroup) if fields["plan_id"] in kept]
        named += [
            fields["data"].get("states", {})
            for fields in self._all(Operation)
            if fields["plan_id"] in kept and _needs_states(fields)
        ]
        named += [fields["merged_states"] for fields in plans if fields["merged_states"]]
        return {state for states in named for state in states.values()}

    def _all(self, model: type[Record]) -> list[dict[str, Any]]:
        table = TABLE_OF[model]
        return [fields_of(table, row) for row in self._execute(_select_sql(table))]

    def plan_ids(self) -> set[str]:
        """The ids of all plans, subplans too, damaged or not."""
        return {str(row[0]) for row in self._execute("SELECT plan_id FROM plan")}

    def lease_tokens(self) -> dict[str, int]:
        """The number of the last lease of every plan, subplans too; 0 of one that never had any."""
        return dict.fromkeys(self.plan_ids(), 0) | {each.plan_id: each.token for each in self._leases()}

    def plans_with_content(self, store_id: str) -> list[tuple[str, int, str]]:
        """The plans, without subplans, of which checkpoints are in that content store.

        Of each the id, and the number and the owner of its last lease: 0 if that is not known, empty if there is none.
        """
        sql = "SELECT plan_id FROM plan WHERE parent_plan_id IS NULL AND head_group_id IS NOT NULL AND store_id = ?"
        leases = {each.plan_id: (each.token, each.owner or "") for each in self._leases(sound_only=True)}
        return [(plan_id, *leases.get(plan_id, (0, ""))) for (plan_id,) in self._execute(sql, store_id)]

    def _leases(self, *, sound_only: bool = False) -> list[Lease]:
        return self._select(Lease, "plan_id IS NOT NULL", sound_only=sound_only)

    def damaged_leases(self) -> list[str]:
        """The ids of the plans whose leases are damaged: nobody can take them, or change anything under them."""
        table = TABLE_OF[Lease]
        return [row[0] for row in self._execute(_select_sql(table)) if _problem(_record_of, table, row)]

    def damaged_records(self) -> list[DamagedRecord]:
        """Every record that is no longer what was written, or not understood."""
        return [
            DamagedRecord(table.name, key_text(table, row), _plan_named_by(table, row))
            for table in TABLES
            for row in self._execute(_select_sql(table))
            if _problem(_record_alone, table, row) is not None
        ]

    # Leases

    def now(self) -> datetime:
        """The database's time: what one machine writes is compared with it on another, whose clock may be wrong."""
        return self._engine.now()

    def acquire_lease(self, asked: Lease, *, is_dead: Callable[[Lease], bool]) -> Lease:
        """Make its owner the one who may change the plan, unless somebody who is not dead is that already."""
        plan_id = asked.plan_id
        with self.transaction():
            held = self._locked_lease(plan_id)
            if held.owner is not None and not is_dead(held):
                raise in_use(held)
            at = self.now()  # whoever had it may have kept us waiting
            lease = asked.model_copy(update={"token": held.token + 1, "acquired_at": at, "heartbeat_at": at})
            self.save(lease)
            return lease

    def _locked_lease(self, plan_id: str) -> Lease:
        if not self.has(Plan, plan_id):
            raise self._missing(Plan, plan_id)
        # A row that is not there cannot be locked, so the first owner makes one that nobody owns.
        nobody = Lease(plan_id=plan_id, token=0, owner=None, acquired_at=self.now(), heartbeat_at=self.now())
        self._write(nobody, " ON CONFLICT (plan_id) DO NOTHING")
        return self._select(Lease, "plan_id = ?", plan_id, lock=True)[0]

    def heartbeat(self, lease: Lease) -> Lease:
        """Say that the owner is alive; the lease as it is now, perhaps with a request to stop."""
        with self.transaction(lease):
            alive = self.get(Lease, lease.plan_id).model_copy(update={"heartbeat_at": self.now()})
            self.save(alive)
            return alive

    def request_stop(self, plan_id: str) -> Lease | None:
        """Ask whoever works on the plan to stop; who that is, or None if nobody does."""
        with self.transaction():
            found = self._select(Lease, "plan_id = ?", plan_id, lock=True)
            if not found or found[0].owner is None:
                return None
            asked = found[0].model_copy(update={"stop_requested": True})
            self.save(asked)
            return asked

    def release_lease(self, lease: Lease) -> None:
        """Nobody owns the plan then; if somebody else does already, it stays theirs."""
        with self.transaction():
            if self._still_holds(lease, self._find_locked(lease)):
                self.save(lease.model_copy(update={"owner": None, "heartbeat_at": self.now(), "stop_requested": None}))

    def _verify(self, lease: Lease) -> None:
        current = self._find_locked(lease)
        if not self._still_holds(lease, current):
            by = f"now in use by {_holder(current)}" if current is not None and current.owner else "no longer leased"
            raise LeaseLostError(
                f"Plan {lease.plan_id} is {by}; this process was taken for dead and must not change it any more.",
                hint=f"Look at the plan with `holdfast plan status {lease.plan_id}`.",
            )

    def _find_locked(self, lease: Lease) -> Lease | None:
        return _first(self._select(Lease, "plan_id = ?", lease.plan_id, lock=True))

    @staticmethod
    def _still_holds(lease: Lease, current: Lease | None) -> bool:
        return current is not None and (current.owner, current.token) == (lease.owner, lease.token)

    # SQL

    def _select(
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
        sql = f"{_PLANS if table.model is Plan else _select_sql(table)} WHERE {where}"
        if order:
            sql += f" ORDER BY {order}"
        if limit is not None:
            sql, parameters = f"{sql} LIMIT ?", (*parameters, limit)
        if lock:
            sql += self._engine.dialect.row_lock
        load = _plan_of if table.model is Plan else _record_of
        loaded = []
        for row in self._execute(sql, *parameters):
            try:
                loaded.append(cast("M", load(table, row, self.home)))
            except DamagedRecordError:
                if not sound_only:
                    raise
                self._skip(f"{table.name} {key_text(table, row[: len(table.names)])}")
        return loaded

    def _skip(self, name: str) -> None:
        if name not in self.skipped:
            self.skipped.append(name)

    def _execute(self, sql: str, *parameters: str | int) -> list[Row]:
        stored: list[Stored] = [stored_text(value) if isinstance(value, str) else value for value in parameters]
        return self._engine.execute(sql, stored)


def _needs_states(operation: dict[str, Any]) -> bool:
    is_applied = (operation["state"], operation["kind"]) == (OperationState.DONE, OperationKind.APPLY)
    return operation["state"] == OperationState.BEGUN or is_applied


def _first(found: list[M]) -> M | None:
    return found[0] if found else None


def _select_sql(*tables: Table) -> str:
    columns = ", ".join(f"{table.name}.{name}" for table in tables for name in table.names)
    return f"SELECT {columns} FROM {tables[0].name}"


def _by_key(table: Table) -> str:
    return " AND ".join(f"{table.name}.{name} = ?" for name in table.key)


_STEPS = TABLE_OF[Revision]
_PLANS = (
    _select_sql(TABLE_OF[Plan], _STEPS)
    + " LEFT JOIN plan_revision ON plan_revision.plan_id = plan.plan_id AND plan_revision.revision = plan.revision"
)


def _record_of(table: Table, row: Row, home: Path) -> Record:
    return record_of(table, with_home(table.model, fields_of(table, row), home))


def _plan_of(table: Table, row: Row, home: Path) -> Record:
    width = len(table.names)
    fields = fields_of(table, row[:width])
    if row[width] is None:
        raise DamagedRecordError(
            f"The steps of plan {fields['plan_id']} (revision {fields['revision']}) are missing.",
            hint="Run `holdfast doctor` to see what is affected.",
        )
    fields = with_home(table.model, fields, home)
    return record_of(table, {**fields, "steps": fields_of(_STEPS, row[width:])["steps"]})


def _problem(load: Callable[[Table, Row, Path], Record], table: Table, row: Row) -> str | None:
    """Why the row cannot be relied on."""
    try:
        load(table, row, Path())
    except DamagedRecordError as error:
        return error.message
    return None


def _plan_named_by(table: Table, row: Row) -> str | None:
    names = dict(zip(table.names, row, strict=True))
    return str(names["plan_id"]) if "plan_id" in names else None


def _record_alone(table: Table, row: Row, home: Path) -> Record:
    """Of a plan without its steps, which are a record of their own."""
    fields = with_home(table.model, fields_of(table, row), home)
    return record_of(table, {**fields, "steps": ()} if table.model is Plan else fields)


def _damaged_checkpoint(row: Row, unsound_groups: dict[str, str]) -> DamagedCheckpoint | None:
    table = TABLE_OF[Checkpoint]
    stored = dict(zip(table.names, row, strict=True))
    group_id = str(stored["group_id"])
    own = _problem(_record_of, table, row)
    problem = unsound_groups.get(group_id, own)
    if problem is None:
        return None
    return DamagedCheckpoint(
        checkpoint_id=str(stored["checkpoint_id"]),
        plan_id=str(stored["plan_id"]),
        group_id=group_id,
        is_group=group_id in unsound_groups,
        problem=problem,
    )


def in_use(held: Lease) -> ConflictError:
    stop = f", or stop it with `holdfast plan cancel {held.plan_id}`" if held.can_be_stopped else ""
    return ConflictError(
        f"Plan {held.plan_id} is in use by {_holder(held)}.", hint=f"Wait until it ends{stop}; then try again."
    )


def _holder(lease: Lease) -> str:
    since = f"{lease.acquired_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"`{lease.command}` (process {lease.pid} on {lease.host}, since {since})"
