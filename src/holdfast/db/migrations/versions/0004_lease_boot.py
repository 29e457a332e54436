"""Where the process number of a plan's owner means anything: in one start of a machine, in one container."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("ALTER TABLE lease ADD COLUMN boot_id TEXT")
    op.execute("ALTER TABLE lease ADD COLUMN pid_namespace TEXT")
