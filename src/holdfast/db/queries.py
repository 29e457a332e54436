"""What may be asked of the records, concept by concept: plans, decisions, runs, groups, operations, leases, damage."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from holdfast.db.access import PLANS, Access, first, in_use, loaded, loaded_plan, problem_with, record_alone, select_sql
from holdfast.db.engine import Row
from holdfast.db.rows import key_text
from holdfast.db.tables import TABLE_OF, TABLES, Table
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
    RunStatus,
    StepRun,
    now,
)
from holdfast.system.ids import new_id


@dataclass(frozen=True)
class DamagedRecord:
    """A record that is not what was written; what else its row says is not relied on."""

    table: str
    key: str
    plan_id: str | None
    """Whose it says it is."""

    def __str__(self) -> str:
        return f"{self.table} {self.key}"


class PlanRecords:
    """Projects, plans and their subplans."""

    def __init__(self, records: Access) -> None:
        self._records = records

    def project_for(self, root: str | os.PathLike[str]) -> Project:
        """The project of that root folder, made if there is none yet; a damaged record is written anew."""
        with self._records.transaction():
            project = Project(project_id=new_id(), root=os.fspath(root), created_at=now())
            self._records.write(project, " ON CONFLICT (root) DO NOTHING")
            project_id = cast("str", self.find_project_id(root))
            found = self._records.find(Project, project_id, sound_only=True)
            if found is None:
                found = project.model_copy(update={"project_id": project_id})
                self._records.save(found)
            return found

    def find_project_id(self, root: str | os.PathLike[str]) -> str | None:
        """That of the project of that root folder, whose record holds nothing else that is needed, damaged or not."""
        rows = self._records.execute("SELECT project_id FROM project WHERE root = ?", os.fspath(root))
        return rows[0][0] if rows else None

    def of_project(self, project_id: str | None, limit: int | None = None) -> list[Plan]:
        """The plans of a project, or of all, newest first, without damaged ones; subplans have a parent to ask."""
        return self._plans_of(project_id, limit, sound_only=True)

    def next_sequence(self) -> int:
        """The number of the next plan; two that are made at the same moment may get the same."""
        return int(self._records.execute("SELECT COALESCE(MAX(sequence), 0) + 1 FROM plan")[0][0])

    def latest(self, project_id: str) -> Plan | None:
        """Not the one before it, if its record is damaged: that is not what was meant."""
        return first(self._plans_of(project_id, limit=1))

    def _plans_of(self, project_id: str | None, limit: int | None, *, sound_only: bool = False) -> list[Plan]:
        # Not by the clock, which may have been set back; those without a number are older than all that have one.
        order = "plan.sequence DESC NULLS LAST, plan.created_at DESC, plan.plan_id DESC"
        where = "plan.parent_plan_id IS NULL" + ("" if project_id is None else " AND plan.project_id = ?")
        parameters = () if project_id is None else (project_id,)
        return self._records.select(Plan, where, *parameters, order=order, limit=limit, sound_only=sound_only)

    def by_prefix(self, prefix: str) -> list[Plan]:
        return self._records.by_prefix(Plan, prefix)

    def below(self, plan_id: str, *, sound_only: bool = False) -> list[Plan]:
        order = "plan.created_at, plan.plan_id"
        return self._records.select(Plan, "plan.parent_plan_id = ?", plan_id, order=order, sound_only=sound_only)

    def ids_below(self, plan_id: str) -> list[str]:
        """The ids of its subplans, whatever else is known of them."""
        return [row[0] for row in self._records.execute("SELECT plan_id FROM plan WHERE parent_plan_id = ?", plan_id)]

    def root_of(self, plan: Plan) -> Plan:
        """The plan that it is a subplan of, over all levels; itself if it is none."""
        while plan.parent_plan_id is not None:
            plan = self._records.get(Plan, plan.parent_plan_id)
        return plan

    def latest_revision(self, plan_id: str) -> int:
        sql = "SELECT coalesce(max(revision), 0) FROM plan_revision WHERE plan_id = ?"
        return int(self._records.execute(sql, plan_id)[0][0])

    def ids(self) -> set[str]:
        """The ids of all plans, subplans too, damaged or not."""
        return {str(row[0]) for row in self._records.execute("SELECT plan_id FROM plan")}


class DecisionRecords:
    """The decisions of a plan."""

    def __init__(self, records: Access) -> None:
        self._records = records

    def of(self, plan_id: str, *, sound_only: bool = False) -> list[Decision]:
        return self._records.select(Decision, "plan_id = ?", plan_id, order="sequence", sound_only=sound_only)

    def in_force_from(self, plan_id: str, sequence: int) -> list[Decision]:
        where = "plan_id = ? AND sequence >= ? AND is_superseded = 0"
        return self._records.select(Decision, where, plan_id, sequence, order="sequence")

    def by_prefix(self, prefix: str) -> list[Decision]:
        return self._records.by_prefix(Decision, prefix)

    def root(self, plan_id: str) -> Decision | None:
        where = "plan_id = ? AND parent_decision_id IS NULL"
        return first(self._records.select(Decision, where, plan_id, order="sequence", limit=1))

    def latest_attempt(self, plan_id: str) -> int:
        """The highest attempt there has been, also one that a rollback took the plan back from."""
        sql = "SELECT coalesce(max(attempt), 1) FROM decision WHERE plan_id = ?"
        return int(self._records.execute(sql, plan_id)[0][0])


class RunRecords:
    """The runs of steps and validations."""

    def __init__(self, records: Access) -> None:
        self._records = records

    def of(self, plan_id: str, *, sound_only: bool = False) -> list[StepRun]:
        return self._records.select(StepRun, "plan_id = ?", plan_id, order="sequence", sound_only=sound_only)

    def latest(self, plan_id: str) -> StepRun | None:
        return first(self._records.select(StepRun, "plan_id = ?", plan_id, order="sequence DESC", limit=1))

    def latest_in_force(self, plan_id: str) -> StepRun | None:
        """Not always the latest of all: a rollback may bring an older one back. One without a decision never goes."""
        where = "plan_id = ? AND is_superseded = 0 AND decision_id IS NOT NULL"
        return first(self._records.select(StepRun, where, plan_id, order="sequence DESC", limit=1))

    def with_status(self, plan_id: str, *statuses: RunStatus) -> list[StepRun]:
        where = f"plan_id = ? AND status IN ({', '.join('?' for _ in statuses)})"
        return self._records.select(StepRun, where, plan_id, *statuses, order="sequence")

    def unfinished(self, plan_id: str) -> list[StepRun]:
        """Those that run, or wait for a person; going back gives up the waiting."""
        unfinished = self._records.select(StepRun, "plan_id = ? AND finished_at IS NULL", plan_id, order="sequence")
        return [run for run in unfinished if not run.is_superseded]


class GroupRecords:
    """The moments of a plan, each over all its resources."""

    def __init__(self, records: Access) -> None:
        self._records = records

    def of(self, plan_id: str, *, sound_only: bool = False) -> list[CheckpointGroup]:
        return self._records.select(CheckpointGroup, "plan_id = ?", plan_id, order="sequence", sound_only=sound_only)

    def first(self, plan_id: str) -> CheckpointGroup:
        """What the plan began with. Damage to others does not matter; the second is never taken for it."""
        return self._records.select(CheckpointGroup, "plan_id = ?", plan_id, order="sequence", limit=1)[0]

    def ids(self, plan_id: str) -> list[str]:
        """In their order, damaged ones too."""
        sql = "SELECT group_id FROM checkpoint_group WHERE plan_id = ? ORDER BY sequence"
        return [row[0] for row in self._records.execute(sql, plan_id)]


class CheckpointRecords:
    """One row for each resource at a moment; only sound ones, because a group holds all that one is needed for."""

    def __init__(self, records: Access) -> None:
        self._records = records

    def of(self, plan_id: str) -> list[Checkpoint]:
        """Those that are sound: a group holds all that a checkpoint is needed for."""
        order = "sequence, checkpoint_id"
        return self._records.select(Checkpoint, "plan_id = ?", plan_id, order=order, sound_only=True)

    def of_group(self, group_id: str) -> list[Checkpoint]:
        """Those that are sound; there may be none."""
        order = "sequence, checkpoint_id"
        return self._records.select(Checkpoint, "group_id = ?", group_id, order=order, sound_only=True)

    def by_prefix(self, prefix: str) -> list[Checkpoint]:
        """Those that are sound."""
        return self._records.by_prefix(Checkpoint, prefix, sound_only=True)

    def count_by_group(self, plan_id: str) -> dict[str, int]:
        """How many checkpoints each group has, damaged ones too."""
        rows = self._records.execute(
            "SELECT group_id, count(*) FROM checkpoint_metadata WHERE plan_id = ? GROUP BY group_id", plan_id
        )
        return {row[0]: int(row[1]) for row in rows}

    def count(self, plan_id: str) -> int:
        return int(self._records.execute("SELECT count(*) FROM checkpoint_metadata WHERE plan_id = ?", plan_id)[0][0])


class OperationRecords:
    """What was begun, so that it can be finished or undone."""

    def __init__(self, records: Access) -> None:
        self._records = records

    def unfinished(self, plan_id: str, *, sound_only: bool = False) -> list[Operation]:
        # One whose state is none of those there are is damaged, and may be one of these.
        where, ended = "plan_id = ? AND state NOT IN (?, ?)", (OperationState.DONE, OperationState.UNDONE)
        order = "created_at, operation_id"
        return self._records.select(Operation, where, plan_id, *ended, order=order, sound_only=sound_only)

    def unfinished_changes(self, store_id: str) -> list[Operation]:
        """Every apply and unapply that is under way, or was cut short, of the plans with that content store.

        Without damaged ones: what they did to real files is told by the marks on those.
        """
        where = "state = ? AND kind IN (?, ?) AND plan_id IN (SELECT plan_id FROM plan WHERE store_id = ?)"
        parameters = (OperationState.BEGUN, OperationKind.APPLY, OperationKind.UNAPPLY, store_id)
        return self._records.select(Operation, where, *parameters, order="created_at, operation_id", sound_only=True)

    def applied(self, plan_id: str) -> Operation | None:
        """The apply that brought the plan into the real files, if that is where it is."""
        where = "plan_id = ? AND state = ? AND kind = ?"
        parameters = (plan_id, OperationState.DONE, OperationKind.APPLY)
        order = "created_at DESC, operation_id DESC"
        return first(self._records.select(Operation, where, *parameters, order=order, limit=1))


class DamagedRecords:
    """What is no longer what was written: named, so that it can be shown and deleted."""

    def __init__(self, records: Access) -> None:
        self._records = records

    def plans(self) -> list[str]:
        """The ids of plans whose own records, or steps, are damaged; subplans too."""
        return [row[0] for row in self._records.execute(PLANS) if problem_with(loaded_plan, TABLE_OF[Plan], row)]

    def parent_of_plan(self, plan_id: str) -> str | None:
        """What a damaged plan says it is a subplan of, if that is a plan."""
        rows = self._records.execute("SELECT parent_plan_id FROM plan WHERE plan_id = ?", plan_id)
        parent = rows[0][0] if rows else None
        return parent if isinstance(parent, str) and self._records.has(Plan, parent) else None

    def checkpoints(self, plan_id: str | None = None, *, prefix: str = "") -> list[DamagedCheckpoint]:
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
        problems = {row[0]: problem_with(loaded, table, row) for row in rows}
        return {group_id: problem for group_id, problem in problems.items() if problem is not None}

    def _rows_of_plan(self, model: type[Record], plan_id: str | None, order: str) -> list[Row]:
        sql = select_sql(TABLE_OF[model])
        if plan_id is None:
            return self._records.execute(f"{sql} ORDER BY {order}")
        return self._records.execute(f"{sql} WHERE plan_id = ? ORDER BY {order}", plan_id)

    def parent_of_group(self, group_id: str) -> str | None:
        """What a damaged group says it came after."""
        rows = self._records.execute("SELECT parent_group_id FROM checkpoint_group WHERE group_id = ?", group_id)
        return rows[0][0] if rows else None

    def records(self) -> list[DamagedRecord]:
        """Every record that is no longer what was written, or not understood."""
        return [
            DamagedRecord(table.name, key_text(table, row), _plan_named_by(table, row))
            for table in TABLES
            for row in self._records.execute(select_sql(table))
            if problem_with(record_alone, table, row) is not None
        ]

    def leases(self) -> list[str]:
        """The ids of the plans whose leases are damaged: nobody can take them, or change anything under them."""
        table = TABLE_OF[Lease]
        return [row[0] for row in self._records.execute(select_sql(table)) if problem_with(loaded, table, row)]


class LeaseRecords:
    """Who may change a plan."""

    def __init__(self, records: Access) -> None:
        self._records = records

    def tokens(self) -> dict[str, int]:
        """The number of the last lease of every plan, subplans too; 0 of one that never had any."""
        plan_ids = PlanRecords(self._records).ids()
        return dict.fromkeys(plan_ids, 0) | {each.plan_id: each.token for each in self._leases()}

    def plans_with_content(self, store_id: str) -> list[tuple[str, int, str]]:
        """The plans, without subplans, of which checkpoints are in that content store.

        Of each the id, and the number and the owner of its last lease: 0 if that is not known, empty if there is none.
        """
        sql = "SELECT plan_id FROM plan WHERE parent_plan_id IS NULL AND head_group_id IS NOT NULL AND store_id = ?"
        leases = {each.plan_id: (each.token, each.owner or "") for each in self._leases(sound_only=True)}
        return [(plan_id, *leases.get(plan_id, (0, ""))) for (plan_id,) in self._records.execute(sql, store_id)]

    def acquire(self, asked: Lease, *, is_dead: Callable[[Lease], bool]) -> Lease:
        """Make its owner the one who may change the plan, unless somebody who is not dead is that already."""
        plan_id = asked.plan_id
        with self._records.transaction():
            held = self._locked_lease(plan_id)
            if held.owner is not None and not is_dead(held):
                raise in_use(held)
            at = self._records.now()  # whoever had it may have kept us waiting
            lease = asked.model_copy(update={"token": held.token + 1, "acquired_at": at, "heartbeat_at": at})
            self._records.save(lease)
            return lease

    def _locked_lease(self, plan_id: str) -> Lease:
        if not self._records.has(Plan, plan_id):
            raise self._records.missing(Plan, plan_id)
        # A row that is not there cannot be locked, so the first owner makes one that nobody owns.
        at = self._records.now()
        nobody = Lease(plan_id=plan_id, token=0, owner=None, acquired_at=at, heartbeat_at=at)
        self._records.write(nobody, " ON CONFLICT (plan_id) DO NOTHING")
        return self._records.select(Lease, "plan_id = ?", plan_id, lock=True)[0]

    def _leases(self, *, sound_only: bool = False) -> list[Lease]:
        return self._records.select(Lease, "plan_id IS NOT NULL", sound_only=sound_only)

    def heartbeat(self, lease: Lease) -> Lease:
        """Say that the owner is alive; the lease as it is now, perhaps with a request to stop."""
        with self._records.transaction(lease):
            alive = self._records.get(Lease, lease.plan_id).model_copy(update={"heartbeat_at": self._records.now()})
            self._records.save(alive)
            return alive

    def request_stop(self, plan_id: str) -> Lease | None:
        """Ask whoever works on the plan to stop; who that is, or None if nobody does."""
        with self._records.transaction():
            found = self._records.select(Lease, "plan_id = ?", plan_id, lock=True)
            if not found or found[0].owner is None:
                return None
            asked = found[0].model_copy(update={"stop_requested": True})
            self._records.save(asked)
            return asked

    def release(self, lease: Lease) -> None:
        """Nobody owns the plan then; if somebody else does already, it stays theirs."""
        with self._records.transaction():
            if self._records.still_holds(lease, self._records.find_locked(lease)):
                released = {"owner": None, "heartbeat_at": self._records.now(), "stop_requested": None}
                self._records.save(lease.model_copy(update=released))


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
