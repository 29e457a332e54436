"""The tables as they were at first."""

from __future__ import annotations

from alembic import op

from holdfast.db.by_alembic import refuse_while_in_use, refuse_with_any

revision = "0001"
down_revision = None

_TABLES = (
    "lease", "operation", "checkpoint_metadata", "checkpoint_group", "step_run", "decision", "plan_revision", "plan",
    "project",
)  # fmt: skip
"""In an order in which they can be dropped."""

_STATEMENTS = (
    """CREATE TABLE project (
        project_id TEXT NOT NULL,
        root TEXT NOT NULL,
        created_at TEXT NOT NULL,
        checksum TEXT NOT NULL,
        PRIMARY KEY (project_id)
    )""",
    "CREATE UNIQUE INDEX project_by_root ON project (root)",
    """CREATE TABLE plan (
        plan_id TEXT NOT NULL,
        project_id TEXT NOT NULL,
        name TEXT NOT NULL,
        phase TEXT NOT NULL,
        state TEXT NOT NULL,
        attempt BIGINT NOT NULL,
        revision BIGINT NOT NULL,
        resources TEXT NOT NULL,
        policy TEXT NOT NULL,
        validation TEXT NOT NULL,
        last_completed_step BIGINT NOT NULL,
        active_decisions TEXT NOT NULL,
        last_checkpoint_id TEXT,
        head_group_id TEXT,
        parent_plan_id TEXT,
        guidance TEXT NOT NULL,
        error TEXT,
        source_file TEXT NOT NULL,
        store_id TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        checksum TEXT NOT NULL,
        PRIMARY KEY (plan_id),
        FOREIGN KEY (project_id) REFERENCES project (project_id),
        FOREIGN KEY (parent_plan_id) REFERENCES plan (plan_id) ON DELETE CASCADE
    )""",
    "CREATE INDEX plan_by_project ON plan (project_id, created_at)",
    "CREATE INDEX plan_by_parent ON plan (parent_plan_id)",
    """CREATE TABLE plan_revision (
        plan_id TEXT NOT NULL,
        revision BIGINT NOT NULL,
        steps TEXT NOT NULL,
        checksum TEXT NOT NULL,
        PRIMARY KEY (plan_id, revision),
        FOREIGN KEY (plan_id) REFERENCES plan (plan_id) ON DELETE CASCADE
    )""",
    """CREATE TABLE decision (
        decision_id TEXT NOT NULL,
        plan_id TEXT NOT NULL,
        parent_decision_id TEXT,
        sequence BIGINT NOT NULL,
        type TEXT NOT NULL,
        question TEXT NOT NULL,
        chosen TEXT NOT NULL,
        alternatives TEXT NOT NULL,
        rationale TEXT NOT NULL,
        confidence DOUBLE PRECISION,
        is_correction BIGINT NOT NULL,
        is_superseded BIGINT NOT NULL,
        step_index BIGINT,
        attempt BIGINT NOT NULL,
        created_at TEXT NOT NULL,
        checksum TEXT NOT NULL,
        PRIMARY KEY (decision_id),
        FOREIGN KEY (plan_id) REFERENCES plan (plan_id) ON DELETE CASCADE
    )""",
    "CREATE UNIQUE INDEX decision_by_plan ON decision (plan_id, sequence)",
    """CREATE TABLE step_run (
        run_id TEXT NOT NULL,
        plan_id TEXT NOT NULL,
        sequence BIGINT NOT NULL,
        step_index BIGINT NOT NULL,
        step TEXT NOT NULL,
        attempt BIGINT NOT NULL,
        try_number BIGINT NOT NULL,
        decision_id TEXT,
        group_before_id TEXT,
        status TEXT NOT NULL,
        exit_code BIGINT,
        output TEXT NOT NULL,
        output_bytes BIGINT NOT NULL,
        error TEXT,
        is_superseded BIGINT NOT NULL,
        started_at TEXT NOT NULL,
        finished_at TEXT,
        checksum TEXT NOT NULL,
        PRIMARY KEY (run_id),
        FOREIGN KEY (plan_id) REFERENCES plan (plan_id) ON DELETE CASCADE
    )""",
    "CREATE UNIQUE INDEX step_run_by_plan ON step_run (plan_id, sequence)",
    """CREATE TABLE checkpoint_group (
        group_id TEXT NOT NULL,
        plan_id TEXT NOT NULL,
        sequence BIGINT NOT NULL,
        parent_group_id TEXT,
        restored_group_id TEXT,
        triggers TEXT NOT NULL,
        reason TEXT NOT NULL,
        source TEXT NOT NULL,
        phase TEXT NOT NULL,
        step_index BIGINT,
        step TEXT,
        decision_id TEXT,
        label TEXT,
        attempt BIGINT NOT NULL,
        revision BIGINT NOT NULL,
        last_completed_step BIGINT NOT NULL,
        active_decisions TEXT NOT NULL,
        states TEXT NOT NULL,
        unheld TEXT NOT NULL,
        created_at TEXT NOT NULL,
        checksum TEXT NOT NULL,
        PRIMARY KEY (group_id),
        FOREIGN KEY (plan_id) REFERENCES plan (plan_id) ON DELETE CASCADE
    )""",
    "CREATE UNIQUE INDEX checkpoint_group_by_plan ON checkpoint_group (plan_id, sequence)",
    """CREATE TABLE checkpoint_metadata (
        checkpoint_id TEXT NOT NULL,
        plan_id TEXT NOT NULL,
        group_id TEXT NOT NULL,
        sequence BIGINT NOT NULL,
        sandbox_ref TEXT NOT NULL,
        resource_id TEXT NOT NULL,
        checkpoint_type TEXT NOT NULL,
        decision_id TEXT,
        filesystem_path TEXT NOT NULL,
        size_bytes BIGINT NOT NULL,
        metadata_json TEXT NOT NULL,
        created_at TEXT NOT NULL,
        checksum TEXT NOT NULL,
        PRIMARY KEY (checkpoint_id),
        FOREIGN KEY (plan_id) REFERENCES plan (plan_id) ON DELETE CASCADE,
        FOREIGN KEY (group_id) REFERENCES checkpoint_group (group_id) ON DELETE CASCADE
    )""",
    "CREATE INDEX checkpoint_metadata_by_plan ON checkpoint_metadata (plan_id, sequence)",
    "CREATE INDEX checkpoint_metadata_by_group ON checkpoint_metadata (group_id)",
    """CREATE TABLE operation (
        operation_id TEXT NOT NULL,
        plan_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        state TEXT NOT NULL,
        data TEXT NOT NULL,
        created_at TEXT NOT NULL,
        finished_at TEXT,
        checksum TEXT NOT NULL,
        PRIMARY KEY (operation_id),
        FOREIGN KEY (plan_id) REFERENCES plan (plan_id) ON DELETE CASCADE
    )""",
    "CREATE INDEX operation_by_plan ON operation (plan_id, state)",
    """CREATE TABLE lease (
        plan_id TEXT NOT NULL,
        token BIGINT NOT NULL,
        owner TEXT,
        host TEXT NOT NULL,
        pid BIGINT NOT NULL,
        process_started_at DOUBLE PRECISION NOT NULL,
        command TEXT NOT NULL,
        acquired_at TEXT NOT NULL,
        heartbeat_at TEXT NOT NULL,
        checksum TEXT NOT NULL,
        PRIMARY KEY (plan_id),
        FOREIGN KEY (plan_id) REFERENCES plan (plan_id) ON DELETE CASCADE
    )""",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    refuse_while_in_use()
    refuse_with_any("plan", "all plans")
    for table in _TABLES:
        op.execute(f"DROP TABLE {table}")
