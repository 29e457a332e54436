"""Which states records name is in a table of its own, so that a collection can ask about single states.

Two indexes find the newest plans, and unfinished operations, without looking at the others.

A damaged record is read as far as possible. The content store of an earlier version counted nothing, so its first
collection reads all records, and refuses if one is damaged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from alembic import op
from sqlalchemy import text

from holdfast.db.by_alembic import refuse_while_in_use

revision = "0008"
down_revision = "0007"

_KEY = "PRIMARY KEY (holder, state)"
_SCHEMA = (
    f"CREATE TABLE named_state (holder TEXT NOT NULL, plan_id TEXT NOT NULL, state TEXT NOT NULL, {_KEY})",
    "CREATE INDEX named_state_by_state ON named_state (state, plan_id)",
    "CREATE INDEX named_state_by_half ON named_state (substr(state, 1, 32), plan_id)",
    f"CREATE TABLE given_up_state (holder TEXT NOT NULL, state TEXT NOT NULL, store_id TEXT NOT NULL, {_KEY})",
    "CREATE TABLE collected (store_id TEXT NOT NULL, mark TEXT NOT NULL, PRIMARY KEY (store_id))",
    "CREATE INDEX operation_by_state ON operation (state, kind)",
    "CREATE INDEX plan_in_order ON plan (project_id, sequence, created_at, plan_id) WHERE parent_plan_id IS NULL",
    "DROP INDEX plan_by_project",
)
_NAMING = (
    "SELECT group_id, plan_id, states FROM checkpoint_group",
    "SELECT plan_id, plan_id, merged_states FROM plan WHERE merged_states IS NOT NULL",
)
_OPERATIONS = (
    "SELECT operation_id, plan_id, data FROM operation WHERE state = 'begun' OR (state = 'done' AND kind = 'apply')"
)


def upgrade() -> None:
    for statement in _SCHEMA:
        op.execute(statement)
    rows = [row for sql in _NAMING for row in _rows(sql)]
    rows += [(holder, plan_id, _dict(data).get("states")) for holder, plan_id, data in _rows(_OPERATIONS)]
    names = [
        {"holder": holder, "plan_id": plan_id, "state": state}
        for holder, plan_id, states in rows
        for state in _names(states)
    ]
    if names:
        sql = text("INSERT INTO named_state (holder, plan_id, state) VALUES (:holder, :plan_id, :state)")
        op.get_bind().execute(sql, names)


def downgrade() -> None:
    refuse_while_in_use()
    for table in ("named_state", "given_up_state", "collected"):
        op.execute(f"DROP TABLE {table}")
    for index in ("operation_by_state", "plan_in_order"):
        op.execute(f"DROP INDEX {index}")
    op.execute("CREATE INDEX plan_by_project ON plan (project_id, created_at)")


def _rows(sql: str) -> Any:
    return op.get_bind().execute(text(sql)).all()


def _names(states: object) -> Iterator[str]:
    found = states if isinstance(states, dict) else _dict(states)
    yield from sorted({state for state in found.values() if isinstance(state, str)})


def _dict(stored: Any) -> dict[str, Any]:
    with suppress(ValueError, TypeError):
        found = json.loads(stored)
        if isinstance(found, dict):
            return found
    return {}
