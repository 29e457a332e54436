"""The tables, and the columns for the fields of each record, in SQL that SQLite and PostgreSQL have in common.

A record belongs to its plan: deleting a plan deletes its subplans and all their records.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, auto

import msgspec

from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    Decision,
    Lease,
    Operation,
    Plan,
    Project,
    Record,
    Revision,
    StepRun,
)
from holdfast.system.once import once


class Kind(IntEnum):
    TEXT = auto()
    INTEGER = auto()
    BOOLEAN = auto()
    REAL = auto()
    TIME = auto()
    JSON = auto()


_SQL_TYPES = {Kind.INTEGER: "BIGINT", Kind.BOOLEAN: "BIGINT", Kind.REAL: "DOUBLE PRECISION"}


class Column(msgspec.Struct, frozen=True):
    name: str
    kind: Kind = Kind.TEXT
    optional: bool = False
    field: str = ""
    """The record's field, if its name differs from the column's."""
    is_later: bool = False
    """A later version added it, so it is at the end of the table."""

    @property
    def ddl(self) -> str:
        return f"{self.name} {_SQL_TYPES.get(self.kind, 'TEXT')}" + ("" if self.optional else " NOT NULL")


class Table(msgspec.Struct, frozen=True, dict=True):
    name: str
    model: type[Record]
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    constraints: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()

    @once
    def names(self) -> tuple[str, ...]:
        return (*(column.name for column in self.columns), "checksum")

    @property
    def ddl(self) -> Iterator[str]:
        lines = [column.ddl for column in self.columns if not column.is_later] + ["checksum TEXT NOT NULL"]
        lines += [column.ddl for column in self.columns if column.is_later]
        lines += [f"PRIMARY KEY ({', '.join(self.key)})", *self.constraints]
        yield f"CREATE TABLE {self.name} (\n    " + ",\n    ".join(lines) + "\n)"
        yield from self.indexes


_NO_SUBPLANS = "WHERE parent_plan_id IS NULL"
HALF_DONE_RUNS = "status IN ('interrupted', 'constrained')"
"""The condition of an index; a query uses the index only if it has the same condition."""
_OF_PLAN = "FOREIGN KEY (plan_id) REFERENCES plan (plan_id) ON DELETE CASCADE"

TABLES = (
    Table(
        "project",
        Project,
        key=("project_id",),
        columns=(Column("project_id"), Column("root"), Column("created_at", Kind.TIME)),
        indexes=("CREATE UNIQUE INDEX project_by_root ON project (root)",),
    ),
    # Its steps are in plan_revision.
    Table(
        "plan",
        Plan,
        key=("plan_id",),
        columns=(
            Column("plan_id"),
            Column("project_id"),
            Column("name"),
            Column("phase"),
            Column("state"),
            Column("attempt", Kind.INTEGER),
            Column("revision", Kind.INTEGER),
            Column("resources", Kind.JSON),
            Column("policy", Kind.JSON),
            Column("validation", Kind.JSON),
            Column("last_completed_step", Kind.INTEGER),
            Column("active_decisions", Kind.JSON),
            Column("last_checkpoint_id", optional=True),
            Column("head_group_id", optional=True),
            Column("parent_plan_id", optional=True),
            Column("guidance"),
            Column("error", optional=True),
            Column("source_file"),
            Column("store_id"),
            Column("created_at", Kind.TIME),
            Column("updated_at", Kind.TIME),
            Column("spawn_decision_id", optional=True, is_later=True),
            Column("merged_states", Kind.JSON, optional=True, is_later=True),
            Column("is_superseded", Kind.BOOLEAN, optional=True, is_later=True),
            Column("boot_id", optional=True, is_later=True),
            Column("sequence", Kind.INTEGER, optional=True, is_later=True),
            Column("is_cancelled_by_rollback", Kind.BOOLEAN, optional=True, is_later=True),
            Column("session", Kind.JSON, optional=True, is_later=True),
        ),
        constraints=(
            "FOREIGN KEY (project_id) REFERENCES project (project_id)",
            "FOREIGN KEY (parent_plan_id) REFERENCES plan (plan_id) ON DELETE CASCADE",
        ),
        indexes=(
            f"CREATE INDEX plan_in_order ON plan (project_id, sequence, created_at, plan_id) {_NO_SUBPLANS}",
            "CREATE INDEX plan_by_parent ON plan (parent_plan_id)",
        ),
    ),
    Table(
        "plan_revision",
        Revision,
        key=("plan_id", "revision"),
        columns=(Column("plan_id"), Column("revision", Kind.INTEGER), Column("steps", Kind.JSON)),
        constraints=(_OF_PLAN,),
    ),
    Table(
        "decision",
        Decision,
        key=("decision_id",),
        columns=(
            Column("decision_id"),
            Column("plan_id"),
            Column("parent_decision_id", optional=True),
            Column("sequence", Kind.INTEGER),
            Column("type"),
            Column("question"),
            Column("chosen"),
            Column("alternatives", Kind.JSON),
            Column("rationale"),
            Column("confidence", Kind.REAL, optional=True),
            Column("is_correction", Kind.BOOLEAN),
            Column("is_superseded", Kind.BOOLEAN),
            Column("step_index", Kind.INTEGER, optional=True),
            Column("attempt", Kind.INTEGER),
            Column("created_at", Kind.TIME),
        ),
        constraints=(_OF_PLAN,),
        indexes=("CREATE UNIQUE INDEX decision_by_plan ON decision (plan_id, sequence)",),
    ),
    Table(
        "step_run",
        StepRun,
        key=("run_id",),
        columns=(
            Column("run_id"),
            Column("plan_id"),
            Column("sequence", Kind.INTEGER),
            Column("step_index", Kind.INTEGER),
            Column("step"),
            Column("attempt", Kind.INTEGER),
            Column("try_number", Kind.INTEGER),
            Column("decision_id", optional=True),
            Column("group_before_id", optional=True),
            Column("status"),
            Column("exit_code", Kind.INTEGER, optional=True),
            Column("output"),
            Column("output_bytes", Kind.INTEGER),
            Column("error", optional=True),
            Column("is_superseded", Kind.BOOLEAN),
            Column("started_at", Kind.TIME),
            Column("finished_at", Kind.TIME, optional=True),
            Column("conflicts", Kind.JSON, optional=True, is_later=True),
            Column("compensation", optional=True, is_later=True),
            Column("is_compensated", Kind.BOOLEAN, optional=True, is_later=True),
            Column("group_after_id", optional=True, is_later=True),
            Column("call_id", optional=True, is_later=True),
        ),
        constraints=(_OF_PLAN,),
        indexes=(
            "CREATE UNIQUE INDEX step_run_by_plan ON step_run (plan_id, sequence)",
            "CREATE INDEX step_run_unfinished ON step_run (plan_id, sequence) WHERE finished_at IS NULL",
            f"CREATE INDEX step_run_half_done ON step_run (plan_id, sequence) WHERE {HALF_DONE_RUNS}",
        ),
    ),
    Table(
        "checkpoint_group",
        CheckpointGroup,
        key=("group_id",),
        columns=(
            Column("group_id"),
            Column("plan_id"),
            Column("sequence", Kind.INTEGER),
            Column("parent_group_id", optional=True),
            Column("restored_group_id", optional=True),
            Column("triggers", Kind.JSON),
            Column("reason"),
            Column("source"),
            Column("phase"),
            Column("step_index", Kind.INTEGER, optional=True),
            Column("step", optional=True),
            Column("decision_id", optional=True),
            Column("label", optional=True),
            Column("attempt", Kind.INTEGER),
            Column("revision", Kind.INTEGER),
            Column("last_completed_step", Kind.INTEGER),
            Column("active_decisions", Kind.JSON),
            Column("states", Kind.JSON),
            Column("unheld", Kind.JSON),
            Column("created_at", Kind.TIME),
        ),
        constraints=(_OF_PLAN,),
        indexes=(
            "CREATE UNIQUE INDEX checkpoint_group_by_plan ON checkpoint_group (plan_id, sequence)",
            "CREATE INDEX checkpoint_group_by_parent ON checkpoint_group (parent_group_id)",
        ),
    ),
    Table(
        "checkpoint_metadata",
        Checkpoint,
        key=("checkpoint_id",),
        columns=(
            Column("checkpoint_id"),
            Column("plan_id"),
            Column("group_id"),
            Column("sequence", Kind.INTEGER),
            Column("sandbox_ref"),
            Column("resource_id"),
            Column("checkpoint_type"),
            Column("decision_id", optional=True),
            Column("filesystem_path"),
            Column("size_bytes", Kind.INTEGER),
            Column("metadata_json", Kind.JSON, field="metadata"),
            Column("created_at", Kind.TIME),
        ),
        constraints=(
            _OF_PLAN,
            "FOREIGN KEY (group_id) REFERENCES checkpoint_group (group_id) ON DELETE CASCADE",
        ),
        indexes=(
            "CREATE INDEX checkpoint_metadata_by_plan ON checkpoint_metadata (plan_id, sequence)",
            "CREATE INDEX checkpoint_metadata_by_group ON checkpoint_metadata (group_id)",
        ),
    ),
    Table(
        "operation",
        Operation,
        key=("operation_id",),
        columns=(
            Column("operation_id"),
            Column("plan_id"),
            Column("kind"),
            Column("state"),
            Column("data", Kind.JSON),
            Column("created_at", Kind.TIME),
            Column("finished_at", Kind.TIME, optional=True),
        ),
        constraints=(_OF_PLAN,),
        indexes=(
            "CREATE INDEX operation_by_plan ON operation (plan_id, state)",
            "CREATE INDEX operation_by_state ON operation (state, kind)",
        ),
    ),
    Table(
        "lease",
        Lease,
        key=("plan_id",),
        columns=(
            Column("plan_id"),
            Column("token", Kind.INTEGER),
            Column("owner", optional=True),
            Column("host"),
            Column("pid", Kind.INTEGER),
            Column("process_started_at", Kind.REAL),
            Column("command"),
            Column("acquired_at", Kind.TIME),
            Column("heartbeat_at", Kind.TIME),
            Column("stop_requested", Kind.BOOLEAN, optional=True, is_later=True),
            Column("boot_id", optional=True, is_later=True),
            Column("pid_namespace", optional=True, is_later=True),
            Column("machine_id", optional=True, is_later=True),
            Column("listens", Kind.BOOLEAN, optional=True, is_later=True),
        ),
        constraints=(_OF_PLAN,),
    ),
)

TABLE_OF: dict[type[Record], Table] = {table.model: table for table in TABLES}
