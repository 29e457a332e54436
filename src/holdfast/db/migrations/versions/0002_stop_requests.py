"""A process that works on a plan can be asked to stop."""

from __future__ import annotations

from alembic import op

from holdfast.db.by_alembic import drop_columns, refuse_while_in_use

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("ALTER TABLE lease ADD COLUMN stop_requested BIGINT")


def downgrade() -> None:
    refuse_while_in_use()
    drop_columns("lease", "stop_requested")
