"""Indexes for what is asked at every checkpoint: unfinished and half-done runs, and the groups after a group."""

from __future__ import annotations

from alembic import op

from holdfast.db.by_alembic import refuse_while_in_use

revision = "0009"
down_revision = "0008"

_INDEXES = {
    "step_run_unfinished": "step_run (plan_id, sequence) WHERE finished_at IS NULL",
    "step_run_half_done": "step_run (plan_id, sequence) WHERE status IN ('interrupted', 'constrained')",
    "checkpoint_group_by_parent": "checkpoint_group (parent_group_id)",
}


def upgrade() -> None:
    for name, rest in _INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON {rest}")


def downgrade() -> None:
    refuse_while_in_use()
    for name in _INDEXES:
        op.execute(f"DROP INDEX {name}")
