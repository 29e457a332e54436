"""The records have an id of their own, by which a content store knows whose content it keeps."""

from __future__ import annotations

from alembic import op

from holdfast.db.by_alembic import refuse_while_in_use, refuse_with_any
from holdfast.system.ids import new_id

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("CREATE TABLE record_store (records_id TEXT NOT NULL, PRIMARY KEY (records_id))")
    # The id of the first project, which is never deleted: a backup of the same records gets the same id.
    first = op.get_bind().exec_driver_sql("SELECT min(project_id) FROM project").scalar()
    op.execute(f"INSERT INTO record_store (records_id) VALUES ('{first or new_id()}')")


def downgrade() -> None:
    refuse_while_in_use()
    refuse_with_any("plan", "the id of the records, by which saved content is kept for their plans")
    op.execute("DROP TABLE record_store")
