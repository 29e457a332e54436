"""A plan can be a session, which records what an agent does in a real folder."""

from __future__ import annotations

from alembic import op

from holdfast.db.by_alembic import drop_columns, refuse_while_in_use

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.execute("ALTER TABLE plan ADD COLUMN session TEXT")
    op.execute("ALTER TABLE step_run ADD COLUMN group_after_id TEXT")


def downgrade() -> None:
    refuse_while_in_use()
    # What earlier versions do not know is not left for them to misread: they would take the folder for a sandbox.
    op.execute("DELETE FROM plan WHERE session IS NOT NULL")
    drop_columns("plan", "session")
    drop_columns("step_run", "group_after_id")
