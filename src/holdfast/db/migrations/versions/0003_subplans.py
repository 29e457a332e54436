"""Columns for subplans, conflicts, compensation and machines that went down."""

from __future__ import annotations

from alembic import op

from holdfast.db.by_alembic import drop_columns, refuse_while_in_use

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute("ALTER TABLE plan ADD COLUMN spawn_decision_id TEXT")
    op.execute("ALTER TABLE plan ADD COLUMN merged_states TEXT")
    op.execute("ALTER TABLE plan ADD COLUMN is_superseded BIGINT")
    op.execute("ALTER TABLE plan ADD COLUMN boot_id TEXT")
    op.execute("ALTER TABLE step_run ADD COLUMN conflicts TEXT")
    op.execute("ALTER TABLE step_run ADD COLUMN compensation TEXT")


def downgrade() -> None:
    refuse_while_in_use()
    drop_columns("plan", "spawn_decision_id", "merged_states", "is_superseded", "boot_id")
    drop_columns("step_run", "conflicts", "compensation")
