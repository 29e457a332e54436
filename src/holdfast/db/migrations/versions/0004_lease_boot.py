"""Which start of the machine the owner of a plan belongs to."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("ALTER TABLE lease ADD COLUMN boot_id TEXT")
