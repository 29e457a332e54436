"""Plans have numbers in the order in which they are made; those made before have none, and are older."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

from holdfast.db.by_alembic import drop_columns, forget, refuse_while_in_use

revision = "0007"
down_revision = "0006"

_NUMBERED = "SELECT plan_id FROM plan WHERE sequence IS NOT NULL ORDER BY {0}, plan_id"


def upgrade() -> None:
    op.execute("ALTER TABLE plan ADD COLUMN sequence BIGINT")


def downgrade() -> None:
    refuse_while_in_use()
    # Only where clocks went backwards do the numbers tell another order than the times.
    by_number = [row[0] for row in op.get_bind().execute(text(_NUMBERED.format("sequence"))).all()]
    by_time = [row[0] for row in op.get_bind().execute(text(_NUMBERED.format("created_at"))).all()]
    if by_number == by_time:
        forget("plan", "plan_id", ["sequence"], "sequence IS NOT NULL")
    drop_columns("plan", "sequence")
