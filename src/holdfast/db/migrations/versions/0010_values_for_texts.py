"""What commands used to find out from texts has columns of its own.

These are: whether a rollback cancelled a subplan, whether a run was compensated, whether the owner of a lease listens.
Leases stay as they are, because their owners may still be at work.
"""

from __future__ import annotations

from alembic import op

from holdfast.db.by_alembic import drop_columns, fill, forget, refuse_while_in_use

revision = "0010"
down_revision = "0009"

_CANCELLED = "is_superseded = 1 AND state = 'cancelled' AND error = 'its parent was rolled back'"
_DONE = "compensation = 'done'"
_NOT_DONE = "compensation <> 'done'"


def upgrade() -> None:
    op.execute("ALTER TABLE plan ADD COLUMN is_cancelled_by_rollback BIGINT")
    op.execute("ALTER TABLE step_run ADD COLUMN is_compensated BIGINT")
    op.execute("ALTER TABLE lease ADD COLUMN listens BIGINT")
    fill("plan", "plan_id", {"is_cancelled_by_rollback": 1}, _CANCELLED)
    fill("step_run", "run_id", {"is_compensated": 1}, _DONE)
    fill("step_run", "run_id", {"is_compensated": 0}, _NOT_DONE)


def downgrade() -> None:
    refuse_while_in_use()
    # The texts say the same.
    forget("plan", "plan_id", ["is_cancelled_by_rollback"], f"{_CANCELLED} AND is_cancelled_by_rollback = 1")
    forget("step_run", "run_id", ["is_compensated"], f"{_DONE} AND is_compensated = 1")
    forget("step_run", "run_id", ["is_compensated"], f"{_NOT_DONE} AND is_compensated = 0")
    forget("lease", "plan_id", ["listens"], "owner IS NULL")
    drop_columns("plan", "is_cancelled_by_rollback")
    drop_columns("step_run", "is_compensated")
    drop_columns("lease", "listens")
