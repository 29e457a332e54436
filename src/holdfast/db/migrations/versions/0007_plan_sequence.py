"""Plans are numbered in the order in which they are created; earlier plans have no number, and are older."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

from holdfast.db.by_alembic import drop_columns, forget, refuse_while_in_use

revision = "0007"
down_revision = "0006"

_PLANS = "SELECT plan_id FROM plan WHERE parent_plan_id IS NULL ORDER BY "


def upgrade() -> None:
    op.execute("ALTER TABLE plan ADD COLUMN sequence BIGINT")


def downgrade() -> None:
    refuse_while_in_use()
    # The order by number differs from the order by time only if a clock was set back.
    by_number = op.get_bind().execute(text(_PLANS + "sequence NULLS FIRST, created_at, plan_id")).all()
    by_time = op.get_bind().execute(text(_PLANS + "created_at, plan_id")).all()
    if by_number == by_time:
        forget("plan", "plan_id", ["sequence"], "sequence IS NOT NULL")
    drop_columns("plan", "sequence")
