"""The records of Holdfast: what may be asked of them and done to them; the only module that speaks SQL."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from holdfast.db.engine import Engine, PostgresDialect, Row, SqliteDialect, Stored
from holdfast.db.rows import fields_of, key_text, record_of, row_of, stored_text
from holdfast.db.schema import ensure_schema
from holdfast.db.tables import TABLE_OF, TABLES, Table
from holdfast.errors import ConfigError, ConflictError, DatabaseError, LeaseLostError, NotFoundError
from holdfast.ids import new_id
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
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

M = TypeVar("M", bound=Record)


def open_store(url: str | None, home: Path) -> Store:
    """The records in ``home``, or in PostgreSQL if ``url`` says so; made or brought up to date if need be."""
    engine = Engine(SqliteDialect(home / "holdfast.db") if url is None else _postgres(url))
    try:
        ensure_schema(engine)
    except BaseException:
        engine.close()
        raise
    return Store(engine)


def _postgres(url: str) -> PostgresDialect:
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
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

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
        self._engine.execute(sql, row_of(table, record))

    def get(self, model: type[M], *key: str | int) -> M:
        found = self.find(model, *key)
        if found is None:
            word = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", model.__name__).lower()
            raise NotFoundError(
                f"There is no {word} {' '.join(map(str, key))}.", hint="Run `holdfast plan list` to see what there is."
            )
        return found

    def find(self, model: type[M], *key: str | int) -> M | None:
        return _first(self._select(model, _by_key(TABLE_OF[model]), *key))

    def delete(self, model: type[Record], *key: str | int) -> None:
        """Delete the record and what belongs to it: a group's checkpoints, everything of a plan."""
        table = TABLE_OF[model]
        self._execute(f"DELETE FROM {table.name} WHERE {_by_key(table)}", *key)

    # Projects and plans

    def project_for(self, root: str | os.PathLike[str]) -> Project:
        """The project of that root folder, made if there is none yet."""
        with self.transaction():
            project = Project(project_id=new_id(), root=os.fspath(root), created_at=now())
            self._write(project, " ON CONFLICT (root) DO NOTHING")
            return self._select(Project, "root = ?", os.fspath(root))[0]

    def find_project(self, root: str | os.PathLike[str]) -> Project | None:
        return _first(self._select(Project, "root = ?", os.fspath(root)))

    def plans_of(self, project_id: str | None, limit: int | None = None) -> list[Plan]:
        """The plans of a project, or of all, newest first; subplans are found through their parent."""
        order = "plan.created_at DESC, plan.plan_id DESC"
        if project_id is None:
            return self._select(Plan, "plan.parent_plan_id IS NULL", order=order, limit=limit)
        where = "plan.parent_plan_id IS NULL AND plan.project_id = ?"
        return self._select(Plan, where, project_id, order=order, limit=limit)

    def latest_plan(self, project_id: str) -> Plan | None:
        return _first(self.plans_of(project_id, limit=1))

    def find_plans_by_prefix(self, prefix: str) -> list[Plan]:
        return self._by_prefix(Plan, prefix)

    def find_checkpoints_by_prefix(self, prefix: str) -> list[Checkpoint]:
        return self._by_prefix(Checkpoint, prefix)

    def find_decisions_by_prefix(self, prefix: str) -> list[Decision]:
        return self._by_prefix(Decision, prefix)

    def _by_prefix(self, model: type[M], prefix: str) -> list[M]:
        table = TABLE_OF[model]
        column = f"{table.name}.{table.key[0]}"
        # Not LIKE: the two databases differ about upper and lower case in it.
        return self._select(model, f"substr({column}, 1, ?) = ?", len(prefix), prefix.upper(), order=column)

    def subplans_of(self, plan_id: str) -> list[Plan]:
        order = "plan.created_at, plan.plan_id"
        return self._select(Plan, "plan.parent_plan_id = ?", plan_id, order=order)

    def root_of(self, plan: Plan) -> Plan:
        """The plan that it is a subplan of, over all levels; itself if it is none."""
        while plan.parent_plan_id is not None:
            plan = self.get(Plan, plan.parent_plan_id)
        return plan

    # What belongs to a plan

    def decisions_of(self, plan_id: str) -> list[Decision]:
        return self._select(Decision, "plan_id = ?", plan_id, order="sequence")

    def decisions_in_force_from(self, plan_id: str, sequence: int) -> list[Decision]:
        where = "plan_id = ? AND sequence >= ? AND is_superseded = 0"
        return self._select(Decision, where, plan_id, sequence, order="sequence")

    def runs_of(self, plan_id: str) -> list[StepRun]:
        return self._select(StepRun, "plan_id = ?", plan_id, order="sequence")

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

    def groups_of(self, plan_id: str) -> list[CheckpointGroup]:
        return self._select(CheckpointGroup, "plan_id = ?", plan_id, order="sequence")

    def checkpoints_of(self, plan_id: str) -> list[Checkpoint]:
        return self._select(Checkpoint, "plan_id = ?", plan_id, order="sequence, checkpoint_id")

    def checkpoints_of_group(self, group_id: str) -> list[Checkpoint]:
        return self._select(Checkpoint, "group_id = ?", group_id, order="sequence, checkpoint_id")

    def checkpoint_count(self, plan_id: str) -> int:
        return int(self._execute("SELECT count(*) FROM checkpoint_metadata WHERE plan_id = ?", plan_id)[0][0])

    def unfinished_operations(self, plan_id: str) -> list[Operation]:
        where = "plan_id = ? AND state = ?"
        return self._select(Operation, where, plan_id, OperationState.BEGUN, order="created_at, operation_id")

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
        """Every state that a group, an unfinished operation or a merged subplan in that content store needs."""
        groups = self._of_content_store(CheckpointGroup, store_id)
        needed = " AND (operation.state = ? OR (operation.state = ? AND operation.kind = ?))"
        parameters = (OperationState.BEGUN, OperationState.DONE, OperationKind.APPLY)
        operations = self._of_content_store(Operation, store_id, needed, *parameters)
        named = [fields["states"] for fields in groups]
        named += [fields["data"].get("states", {}) for fields in operations]
        named += [plan.merged_states for plan in self._merged_subplans(store_id) if plan.merged_states]
        return {state for states in named for state in states.values()}

    def _merged_subplans(self, store_id: str) -> list[Plan]:
        return self._select(Plan, "plan.store_id = ? AND plan.merged_states IS NOT NULL", store_id)

    def _of_content_store(
        self, model: type[Record], store_id: str, condition: str = "", *parameters: str
    ) -> list[dict[str, Any]]:
        table = TABLE_OF[model]
        join = f" JOIN plan ON plan.plan_id = {table.name}.plan_id WHERE plan.store_id = ?{condition}"
        return [fields_of(table, row) for row in self._execute(_select_sql(table) + join, store_id, *parameters)]

    def damaged_records(self) -> list[str]:
        """``table key`` of every record that is no longer what was written."""
        return [
            f"{table.name} {key_text(table, row)}"
            for table in TABLES
            for row in self._execute(_select_sql(table))
            if not _is_sound(table, row)
        ]

    # Leases

    def acquire_lease(self, asked: Lease, *, is_dead: Callable[[Lease], bool]) -> Lease:
        """Make its owner the one who may change the plan, unless somebody who is not dead is that already."""
        plan_id = asked.plan_id
        with self.transaction():
            held = self._locked_lease(plan_id)
            if held.owner is not None and not is_dead(held):
                raise in_use(held)
            at = now()  # whoever had it may have kept us waiting
            lease = asked.model_copy(update={"token": held.token + 1, "acquired_at": at, "heartbeat_at": at})
            self.save(lease)
            return lease

    def _locked_lease(self, plan_id: str) -> Lease:
        self.get(Plan, plan_id)
        # A row that is not there cannot be locked, so the first owner makes one that nobody owns.
        nobody = Lease(plan_id=plan_id, token=0, owner=None, acquired_at=now(), heartbeat_at=now())
        self._write(nobody, " ON CONFLICT (plan_id) DO NOTHING")
        return self._select(Lease, "plan_id = ?", plan_id, lock=True)[0]

    def heartbeat(self, lease: Lease) -> Lease:
        """Say that the owner is alive; the lease as it is now, perhaps with a request to stop."""
        with self.transaction(lease):
            alive = self.get(Lease, lease.plan_id).model_copy(update={"heartbeat_at": now()})
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
                self.save(lease.model_copy(update={"owner": None, "heartbeat_at": now(), "stop_requested": None}))

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
        return [cast("M", load(table, row)) for row in self._execute(sql, *parameters)]

    def _execute(self, sql: str, *parameters: str | int) -> list[Row]:
        stored: list[Stored] = [stored_text(value) if isinstance(value, str) else value for value in parameters]
        return self._engine.execute(sql, stored)


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


def _record_of(table: Table, row: Row) -> Record:
    return record_of(table, fields_of(table, row))


def _plan_of(table: Table, row: Row) -> Record:
    width = len(table.names)
    fields = fields_of(table, row[:width])
    if row[width] is None:
        raise DatabaseError(
            f"The steps of plan {fields['plan_id']} (revision {fields['revision']}) are missing.",
            hint="Run `holdfast doctor` to see what is affected.",
        )
    return record_of(table, {**fields, "steps": fields_of(_STEPS, row[width:])["steps"]})


def _is_sound(table: Table, row: Row) -> bool:
    try:
        _ = fields_of(table, row)
    except DatabaseError:
        return False
    return True


def in_use(held: Lease) -> ConflictError:
    stop = f", or stop it with `holdfast plan cancel {held.plan_id}`" if held.can_be_stopped else ""
    return ConflictError(
        f"Plan {held.plan_id} is in use by {_holder(held)}.", hint=f"Wait until it ends{stop}; then try again."
    )


def _holder(lease: Lease) -> str:
    since = f"{lease.acquired_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"`{lease.command}` (process {lease.pid} on {lease.host}, since {since})"
