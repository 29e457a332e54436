"""Which states records name, in tables of their own, so that a collection can ask about single states.

They are written in the transaction that writes or deletes the record. What a record no longer names is noted as given
up, until a collection has looked at it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from holdfast.model import CheckpointGroup, Operation, Plan, Record

HALF = 32
_KEY = "PRIMARY KEY (holder, state)"
NAMING_TABLES = (
    f"CREATE TABLE named_state (holder TEXT NOT NULL, plan_id TEXT NOT NULL, state TEXT NOT NULL, {_KEY})",
    "CREATE INDEX named_state_by_state ON named_state (state, plan_id)",
    f"CREATE INDEX named_state_by_half ON named_state (substr(state, 1, {HALF}), plan_id)",
    f"CREATE TABLE given_up_state (holder TEXT NOT NULL, state TEXT NOT NULL, store_id TEXT NOT NULL, {_KEY})",
    "CREATE TABLE collected (store_id TEXT NOT NULL, mark TEXT NOT NULL, PRIMARY KEY (store_id))",
)
"""Two indexes find the same, so that no single flipped bit can hide that a state is named."""

_FAMILY = (
    "WITH RECURSIVE family(plan_id) AS (SELECT plan_id FROM plan WHERE plan_id = ? UNION "
    "SELECT plan.plan_id FROM plan JOIN family ON plan.parent_plan_id = family.plan_id) "
)
_OF_PLAN = (
    f"holder IN ({_FAMILY}SELECT group_id FROM checkpoint_group WHERE plan_id IN (SELECT plan_id FROM family) "
    "UNION ALL SELECT operation_id FROM operation WHERE plan_id IN (SELECT plan_id FROM family) "
    "UNION ALL SELECT plan_id FROM family)"
)


class Executing(Protocol):
    def execute(self, sql: str, *parameters: str | int) -> list[Any]: ...


def name_states(records: Executing, record: Record, *, is_new: bool) -> None:
    """Note which states a record, just written, names; what it named before is given up."""
    if isinstance(record, CheckpointGroup):  # its states never change
        put_names(records, record.group_id, record.plan_id, record.states.values())
    elif isinstance(record, Operation):
        _rename(records, record.operation_id, record.plan_id, _states_of(record), is_new)
    elif isinstance(record, Plan) and record.merged_states is not None:
        _rename(records, record.plan_id, record.plan_id, record.merged_states.values(), is_new)


def give_up_states(records: Executing, model: type[Record], key: str | int) -> None:
    """Note what is given up by a record that is about to be deleted, and by all that is deleted with it."""
    if model is Plan:
        _give_up(records, _OF_PLAN, str(key))
    elif model in (CheckpointGroup, Operation):
        _give_up(records, "holder = ?", str(key))


def put_names(records: Executing, holder: str, plan_id: str, states: Collection[str]) -> None:
    rows = [value for state in sorted(set(states)) for value in (holder, plan_id, state)]
    if rows:
        values = ", ".join(["(?, ?, ?)"] * (len(rows) // 3))
        sql = f"INSERT INTO named_state (holder, plan_id, state) VALUES {values} ON CONFLICT (holder, state) DO NOTHING"
        records.execute(sql, *rows)


def _states_of(operation: Operation) -> Collection[str]:
    from holdfast.db.journal import states_needed_by  # most commands write no operation

    return states_needed_by({"state": operation.state, "kind": operation.kind, "data": operation.data}).values()


def _rename(records: Executing, holder: str, plan_id: str, states: Collection[str], is_new: bool) -> None:
    put_names(records, holder, plan_id, states)
    if is_new:
        return
    left = sorted(set(states))
    others = f" AND state NOT IN ({', '.join('?' for _ in left)})" if left else ""
    _give_up(records, f"holder = ?{others}", holder, *left)


def _give_up(records: Executing, where: str, *parameters: str) -> None:
    records.execute(
        "INSERT INTO given_up_state (holder, state, store_id) SELECT holder, state, "
        "coalesce((SELECT store_id FROM plan WHERE plan.plan_id = named_state.plan_id), '') FROM named_state "
        f"WHERE {where} ON CONFLICT (holder, state) DO NOTHING",
        *parameters,
    )
    records.execute(f"DELETE FROM named_state WHERE {where}", *parameters)
