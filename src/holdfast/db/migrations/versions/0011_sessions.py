"""A plan can be a session, which records what an agent does in a real folder."""

from __future__ import annotations

from alembic import op

from holdfast.db.by_alembic import drop_columns, refuse_while_in_use

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.execute("ALTER TABLE plan ADD COLUMN session TEXT")
    op.execute("ALTER TABLE step_run ADD COLUMN group_after_id TEXT")
    op.execute("ALTER TABLE step_run ADD COLUMN call_id TEXT")


def downgrade() -> None:
    refuse_while_in_use()
    # Refused while there are sessions: an earlier version would take their real folders for sandboxes.
    drop_columns("plan", "session")
    drop_columns("step_run", "group_after_id", "call_id")
