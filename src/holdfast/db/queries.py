"""The queries on the records, by concept: plans, decisions, runs, operations; moments are in ``moment_queries``."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar, cast

import msgspec

from holdfast.db.access import Access, first
from holdfast.db.tables import HALF_DONE_RUNS
from holdfast.model import (
    Decision,
    DecisionType,
    Operation,
    OperationKind,
    OperationState,
    Plan,
    Project,
    Record,
    StepRun,
    now,
)
from holdfast.system.ids import new_id


class DecisionPlace(msgspec.Struct, frozen=True):
    """Where a decision is among those of its plan; not enough of the record to check it."""

    decision_id: str
    parent_decision_id: str | None
    is_superseded: int
    step_index: int | None


_MOST_PARAMETERS = 500
_PLANS_READ_AT_ONCE = 50
V = TypeVar("V", str, int)
M = TypeVar("M", bound=Record)


def batched(values: Iterable[V], most: int = _MOST_PARAMETERS) -> Iterator[list[V]]:
    """The values in lists that are short enough for the parameters of one statement."""
    left = iter(values)
    while some := list(islice(left, most)):
        yield some


# Not by the clock, which may have been set back; plans without a number are older than all that have one.
_NEWEST_FIRST = "plan.sequence DESC NULLS LAST, plan.created_at DESC, plan.plan_id DESC"


class Queries:
    def __init__(self, records: Access) -> None:
        self._records = records

    def _numbered(
        self, model: type[M], plan_id: str, numbers: Sequence[int], order: str = "sequence", *, sound_only: bool = False
    ) -> list[M]:
        """The records of a plan with these numbers, which are in order."""
        found: list[M] = []
        for some in batched(numbers):
            where = f"plan_id = ? AND sequence IN ({', '.join('?' for _ in some)})"
            found += self._records.select(model, where, plan_id, *some, order=order, sound_only=sound_only)
        return found

    def _numbers_by_decision(self, table: str, plan_id: str) -> list[tuple[str, int]]:
        """The decisions that records of a plan name, and the numbers of these records, in their order."""
        sql = f"SELECT DISTINCT decision_id, sequence FROM {table} WHERE plan_id = ? AND decision_id IS NOT NULL"
        return [(row[0], row[1]) for row in self._records.execute(f"{sql} ORDER BY sequence", plan_id)]


class PlanRecords(Queries):
    """Projects, plans and their subplans."""

    def project_for(self, root: str | os.PathLike[str]) -> Project:
        """The project of that root folder, created if there is none yet; a damaged record is replaced."""
        with self._records.transaction():
            project = Project(project_id=new_id(), root=os.fspath(root), created_at=now())
            self._records.insert(project, " ON CONFLICT (root) DO NOTHING")
            project_id = cast("str", self.find_project_id(root))
            found = self._records.find(Project, project_id, sound_only=True)
            if found is None:
                found = project.model_copy(update={"project_id": project_id})
                self._records.save(found)
            return found

    def find_project_id(self, root: str | os.PathLike[str]) -> str | None:
        """The id of the project of that root folder, even if its record is damaged: nothing else in it is needed."""
        rows = self._records.execute("SELECT project_id FROM project WHERE root = ?", os.fspath(root))
        return rows[0][0] if rows else None

    def of_project(self, project_id: str | None, limit: int | None = None) -> list[Plan]:
        return list(self.newest_first(project_id, limit))

    def newest_first(self, project_id: str | None, limit: int | None = None) -> Iterator[Plan]:
        """The plans of a project, or of all projects, without damaged ones and without subplans.

        Only their ids are read at once; they themselves, with their steps, as they are asked for.
        """
        where, parameters = _of_project(project_id)
        sql = f"SELECT plan_id FROM plan WHERE {where} ORDER BY {_NEWEST_FIRST}"
        rows = self._records.execute(sql if limit is None else f"{sql} LIMIT {limit:d}", *parameters)
        for some in batched((str(row[0]) for row in rows), _PLANS_READ_AT_ONCE):
            chosen = f"plan.plan_id IN ({', '.join('?' for _ in some)})"
            yield from self._records.select(Plan, chosen, *some, order=_NEWEST_FIRST, sound_only=True)

    def count_of_project(self, project_id: str | None) -> int:
        """How many plans a project has, or all projects, damaged ones too, without subplans."""
        where, parameters = _of_project(project_id)
        return int(self._records.execute(f"SELECT count(*) FROM plan WHERE {where}", *parameters)[0][0])

    def next_sequence(self) -> int:
        """The number of the next plan; two plans that are created at the same moment may get the same."""
        # By project, because the index is; subplans have no number.
        last = "SELECT MAX(sequence) FROM plan WHERE plan.project_id = project.project_id AND parent_plan_id IS NULL"
        return int(self._records.execute(f"SELECT COALESCE(MAX(({last})), 0) + 1 FROM project")[0][0])

    def latest(self, project_id: str) -> Plan | None:
        """The newest plan; an error if its record is damaged, because the one before it is not what was meant."""
        where, parameters = _of_project(project_id)
        sql = f"SELECT plan_id FROM plan WHERE {where} ORDER BY {_NEWEST_FIRST} LIMIT 1"
        rows = self._records.execute(sql, *parameters)
        return self._records.find(Plan, rows[0][0]) if rows else None

    def by_prefix(self, prefix: str) -> list[Plan]:
        return self._records.by_prefix(Plan, prefix)

    def below(self, plan_id: str, *, sound_only: bool = False) -> list[Plan]:
        order = "plan.created_at, plan.plan_id"
        return self._records.select(Plan, "plan.parent_plan_id = ?", plan_id, order=order, sound_only=sound_only)

    def ids_below(self, plan_id: str) -> list[str]:
        """The ids of its subplans, damaged ones too."""
        return [row[0] for row in self._records.execute("SELECT plan_id FROM plan WHERE parent_plan_id = ?", plan_id)]

    def root_of(self, plan: Plan) -> Plan:
        """The topmost plan that it is a subplan of; the plan itself if it is not a subplan."""
        while plan.parent_plan_id is not None:
            plan = self._records.get(Plan, plan.parent_plan_id)
        return plan

    def latest_revision(self, plan_id: str) -> int:
        sql = "SELECT coalesce(max(revision), 0) FROM plan_revision WHERE plan_id = ?"
        return int(self._records.execute(sql, plan_id)[0][0])

    def ids_beside(self, some: Collection[str], length: int) -> set[str]:
        """The ids right before and after each of these that begin like it, damaged plans and subplans too.

        ``length``: how many characters they must have in common.
        """
        one = "SELECT {}(plan_id) FROM plan WHERE plan_id {} one.plan_id"
        sql = f"SELECT plan_id, ({one.format('max', '<')}), ({one.format('min', '>')}) FROM plan AS one WHERE"
        found: set[str] = set()
        for ids in batched(some):
            rows = self._records.execute(f"{sql} plan_id IN ({', '.join('?' for _ in ids)})", *ids)
            found.update(each for row in rows for each in row if each is not None and each[:length] == row[0][:length])
        return found

    def ids(self) -> set[str]:
        """The ids of all plans, subplans too, damaged or not."""
        return {str(row[0]) for row in self._records.execute("SELECT plan_id FROM plan")}


def _of_project(project_id: str | None) -> tuple[str, tuple[str, ...]]:
    """The condition for the plans of a project, or of all projects, without subplans, and its parameters."""
    where = "plan.parent_plan_id IS NULL"
    return (where, ()) if project_id is None else (f"{where} AND plan.project_id = ?", (project_id,))


class DecisionRecords(Queries):
    """The decisions of a plan."""

    def of(self, plan_id: str, *, sound_only: bool = False) -> list[Decision]:
        return self._records.select(Decision, "plan_id = ?", plan_id, order="sequence", sound_only=sound_only)

    def with_ids(self, ids: Collection[str]) -> list[Decision]:
        """The sound decisions with these ids."""
        found: list[Decision] = []
        for some in batched(ids):
            where = f"decision_id IN ({', '.join('?' for _ in some)})"
            found += self._records.select(Decision, where, *some, sound_only=True)
        return found

    def marks(self, plan_id: str) -> list[tuple[int, bool]]:
        """The number of each decision, and whether it is superseded; not enough of the record to check it."""
        sql = "SELECT sequence, is_superseded FROM decision WHERE plan_id = ? ORDER BY sequence"
        return [(row[0], bool(row[1])) for row in self._records.execute(sql, plan_id)]

    def places(self, plan_id: str) -> list[DecisionPlace]:
        """The places of all decisions, damaged ones too, in their order."""
        columns = "decision_id, parent_decision_id, is_superseded, step_index"
        sql = f"SELECT {columns} FROM decision WHERE plan_id = ? ORDER BY sequence"
        return [DecisionPlace(*row) for row in self._records.execute(sql, plan_id)]

    def numbered(self, plan_id: str, numbers: Sequence[int]) -> list[Decision]:
        """The decisions with these numbers, which are in order."""
        return self._numbered(Decision, plan_id, numbers)

    def corrections(self, plan_id: str) -> list[Decision]:
        return self._records.select(Decision, "plan_id = ? AND is_correction = 1", plan_id, order="sequence")

    def of_type(self, plan_id: str, kind: DecisionType) -> list[Decision]:
        where = "plan_id = ? AND type = ?"
        return self._records.select(Decision, where, plan_id, kind, order="sequence", sound_only=True)

    def of_step(self, plan_id: str, step_index: int) -> list[Decision]:
        where = "plan_id = ? AND step_index = ?"
        return self._records.select(Decision, where, plan_id, step_index, order="sequence")

    def in_force_from(self, plan_id: str, sequence: int) -> list[Decision]:
        where = "plan_id = ? AND sequence >= ? AND is_superseded = 0"
        return self._records.select(Decision, where, plan_id, sequence, order="sequence")

    def by_prefix(self, prefix: str) -> list[Decision]:
        return self._records.by_prefix(Decision, prefix)

    def root(self, plan_id: str) -> Decision | None:
        where = "plan_id = ? AND parent_decision_id IS NULL"
        return first(self._records.select(Decision, where, plan_id, order="sequence", limit=1))

    def latest_attempt(self, plan_id: str) -> int:
        """The highest attempt so far, even if the plan was rolled back from it."""
        sql = "SELECT coalesce(max(attempt), 1) FROM decision WHERE plan_id = ?"
        return int(self._records.execute(sql, plan_id)[0][0])


class RunRecords(Queries):
    """The runs of steps and validations."""

    def of(self, plan_id: str, *, sound_only: bool = False) -> list[StepRun]:
        return self._records.select(StepRun, "plan_id = ?", plan_id, order="sequence", sound_only=sound_only)

    def of_decisions(self, plan_id: str, decision_ids: Collection[str]) -> list[StepRun]:
        """The runs that these decisions started, in their order."""
        found: list[StepRun] = []
        for some in batched(decision_ids):
            where = f"plan_id = ? AND decision_id IN ({', '.join('?' for _ in some)})"
            found += self._records.select(StepRun, where, plan_id, *some)
        return sorted(found, key=lambda run: run.sequence)

    def numbered(self, plan_id: str, numbers: Sequence[int]) -> list[StepRun]:
        """The sound runs with these numbers, which are in order."""
        return self._numbered(StepRun, plan_id, numbers, sound_only=True)

    def numbers_by_decision(self, plan_id: str) -> list[tuple[str, int]]:
        return self._numbers_by_decision("step_run", plan_id)

    def newest_first(self, plan_id: str, page: int) -> Iterator[StepRun]:
        """The sound runs, read as they are asked for."""
        return self._records.in_sequence(StepRun, plan_id, newest_first=True, page=page)

    def in_force_newest_first(self, plan_id: str, page: int) -> Iterator[StepRun]:
        where = "is_superseded = 0"
        return self._records.in_sequence(StepRun, plan_id, where, newest_first=True, page=page)

    def latest(self, plan_id: str) -> StepRun | None:
        return first(self._records.select(StepRun, "plan_id = ?", plan_id, order="sequence DESC", limit=1))

    def latest_in_force(self, plan_id: str) -> StepRun | None:
        """The latest run that is not superseded: after a rollback that may be an older one.

        Runs without a decision are never superseded, and do not count here.
        """
        where = "plan_id = ? AND is_superseded = 0 AND decision_id IS NOT NULL"
        return first(self._records.select(StepRun, where, plan_id, order="sequence DESC", limit=1))

    def latest_of_step(self, plan_id: str, step_index: int) -> StepRun | None:
        """The latest run in force of this step, if its record is sound."""
        where = "plan_id = ? AND step_index = ? AND is_superseded = 0 AND decision_id IS NOT NULL"
        order = "sequence DESC"
        return first(self._records.select(StepRun, where, plan_id, step_index, order=order, limit=1, sound_only=True))

    def perhaps_to_undo(self, plan_id: str, next_step: int) -> list[StepRun]:
        """The unfinished and the half-done runs, superseded or not, and the latest in force if it is of that step."""
        of_plan = "FROM step_run WHERE plan_id = ? AND"
        in_force = f"{of_plan} is_superseded = 0 AND decision_id IS NOT NULL"
        latest = f"SELECT run_id, step_index {in_force} ORDER BY sequence DESC LIMIT 1"
        every = (
            f"SELECT run_id {of_plan} finished_at IS NULL",
            f"SELECT run_id {of_plan} {HALF_DONE_RUNS}",
            f"SELECT run_id FROM ({latest}) AS latest WHERE step_index = ?",
        )
        where = f"run_id IN ({' UNION ALL '.join(every)})"
        return self._records.select(StepRun, where, plan_id, plan_id, plan_id, next_step, order="sequence")

    def unfinished(self, plan_id: str) -> list[StepRun]:
        """The runs that are running or wait for a person; a rollback ends the waiting."""
        unfinished = self._records.select(StepRun, "plan_id = ? AND finished_at IS NULL", plan_id, order="sequence")
        return [run for run in unfinished if not run.is_superseded]


class OperationRecords(Queries):
    """Operations, which are recorded when they begin so that they can be finished or undone."""

    def unfinished(self, plan_id: str, *, sound_only: bool = False) -> list[Operation]:
        # Not ``state = BEGUN``: a damaged operation may have an unknown state, and may be unfinished. Not ``NOT IN``
        # either: that would look at all operations of the plan instead of the index.
        done, undone = OperationState.DONE, OperationState.UNDONE
        where = "plan_id = ? AND (state < ? OR (state > ? AND state < ?) OR state > ?)"
        ended = (done, done, undone, undone)
        order = "created_at, operation_id"
        return self._records.select(Operation, where, plan_id, *ended, order=order, sound_only=sound_only)

    def unfinished_or_applied(self, plan_id: str) -> list[Operation]:
        """Those that are not ended, and every apply that was not undone; damaged ones are left out."""
        done, undone = OperationState.DONE, OperationState.UNDONE
        where = "plan_id = ? AND (state < ? OR (state > ? AND state < ?) OR state > ? OR (state = ? AND kind = ?))"
        parameters = (done, done, undone, undone, done, OperationKind.APPLY)
        order = "created_at, operation_id"
        return self._records.select(Operation, where, plan_id, *parameters, order=order, sound_only=True)

    def unfinished_changes(self, store_id: str) -> list[Operation]:
        """Every change of real files that is running or was interrupted, of the plans with that content store.

        Damaged ones are left out: marks on the real files tell what those did.
        """
        of_store = "SELECT 1 FROM plan WHERE plan.plan_id = operation.plan_id AND plan.store_id = ?"
        where = f"state = ? AND kind IN (?, ?, ?) AND EXISTS ({of_store})"
        kinds = (OperationKind.APPLY, OperationKind.UNAPPLY, OperationKind.UNDO)
        parameters = (OperationState.BEGUN, *kinds, store_id)
        return self._records.select(Operation, where, *parameters, order="created_at, operation_id", sound_only=True)

    def done(self, plan_id: str, kind: OperationKind, limit: int | None = None) -> list[Operation]:
        """Newest first."""
        where = "plan_id = ? AND state = ? AND kind = ?"
        order = "created_at DESC, operation_id DESC"
        return self._records.select(Operation, where, plan_id, OperationState.DONE, kind, order=order, limit=limit)

    def applied(self, plan_id: str) -> Operation | None:
        """The apply that brought the plan's result into the real files, if it was not undone."""
        where = "plan_id = ? AND state = ? AND kind = ?"
        parameters = (plan_id, OperationState.DONE, OperationKind.APPLY)
        order = "created_at DESC, operation_id DESC"
        return first(self._records.select(Operation, where, *parameters, order=order, limit=1))
