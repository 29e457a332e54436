"""Whoever works on a plan can be asked to stop."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute("ALTER TABLE lease ADD COLUMN stop_requested BIGINT")
