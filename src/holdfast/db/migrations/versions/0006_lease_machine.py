"""The machine of a lease's owner, identified by more than its host name."""

from __future__ import annotations

from alembic import op

from holdfast.db.by_alembic import drop_columns, forget, refuse_while_in_use

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute("ALTER TABLE lease ADD COLUMN machine_id TEXT")


def downgrade() -> None:
    refuse_while_in_use()
    forget("lease", "plan_id", ["machine_id"], "owner IS NULL")
    drop_columns("lease", "machine_id")
