"""The boot and the container in which the process number of a lease's owner is valid."""

from __future__ import annotations

from alembic import op

from holdfast.db.by_alembic import drop_columns, forget, refuse_while_in_use

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("ALTER TABLE lease ADD COLUMN boot_id TEXT")
    op.execute("ALTER TABLE lease ADD COLUMN pid_namespace TEXT")


def downgrade() -> None:
    refuse_while_in_use()
    forget("lease", "plan_id", ["boot_id", "pid_namespace"], "owner IS NULL")
    drop_columns("lease", "boot_id", "pid_namespace")
