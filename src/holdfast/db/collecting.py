"""What a collection of one content store asks the records, and notes in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.db.access import Access
from holdfast.db.naming import HALF, put_names
from holdfast.db.rows import fields_of
from holdfast.db.tables import TABLE_OF
from holdfast.model import Lease, Plan

_BY_STATE = "SELECT named_state.plan_id FROM named_state WHERE state = ?"
_BY_HALF = f"SELECT named_state.plan_id FROM named_state WHERE substr(state, 1, {HALF}) = ?"
_IN_STORE = " AND EXISTS (SELECT 1 FROM plan WHERE plan.plan_id = named_state.plan_id AND plan.store_id = ?) LIMIT 1"

GivenUp = tuple[str, str]
"""The record that named a state, and the state."""


class CollectionRecords:
    """Costs what is asked, however much is recorded; only ``renew_names`` reads everything."""

    def __init__(self, records: Access) -> None:
        self._records = records

    def mark(self, store_id: str) -> str:
        """The mark that the last collection of that content store left; empty if there was none."""
        rows = self._records.execute("SELECT mark FROM collected WHERE store_id = ?", store_id)
        return str(rows[0][0]) if rows else ""

    def set_mark(self, store_id: str, mark: str) -> None:
        sql = "INSERT INTO collected (store_id, mark) VALUES (?, ?) ON CONFLICT (store_id) DO UPDATE SET mark = ?"
        self._records.execute(sql, store_id, mark, mark)

    def given_up(self, store_id: str) -> list[GivenUp]:
        sql = "SELECT holder, state FROM given_up_state WHERE store_id = ?"
        return [(str(row[0]), str(row[1])) for row in self._records.execute(sql, store_id)]

    def forget_given_up(self, given_up: Iterable[GivenUp]) -> None:
        with self._records.transaction():
            for each in given_up:
                self._records.execute("DELETE FROM given_up_state WHERE holder = ? AND state = ?", *each)

    def is_needed(self, state: str, store_id: str) -> bool:
        """Whether a record of a plan with that content store names the state, by either of the two indexes."""
        half = state[:HALF]
        execute = self._records.execute
        if execute(_BY_STATE + _IN_STORE, state, store_id) or execute(_BY_HALF + _IN_STORE, half, store_id):
            return True
        rows = execute(f"{_BY_STATE} UNION {_BY_HALF}", state, half)
        return any(self._store_id_of(str(row[0])) in (store_id, None) for row in rows)

    def _store_id_of(self, plan_id: str) -> str | None:
        """The content store of a plan, whose record must be sound; None if there is no such plan."""
        columns = ", ".join(TABLE_OF[Plan].names)
        rows = self._records.execute(f"SELECT {columns} FROM plan WHERE plan_id = ?", plan_id)
        return str(fields_of(TABLE_OF[Plan], rows[0])["store_id"]) if rows else None

    def tokens(self, plan_ids: Collection[str]) -> dict[str, int]:
        """The token of the last lease of each of these plans that exists; 0 for a plan that never had one."""
        known = [plan_id for plan_id in plan_ids if self._records.has(Plan, plan_id)]
        leases = {plan_id: self._records.find(Lease, plan_id) for plan_id in known}
        return {plan_id: lease.token if lease else 0 for plan_id, lease in leases.items()}

    def renew_names(self, holders: Collection[tuple[str, str, Collection[str]]], store_id: str) -> None:
        """Replace the names of all states in that content store, if they are not right, in the caller's transaction.

        ``holders``: each record, its plan, and the states it names.
        """
        # A process of an earlier version, which does not know the names, may have deleted plans and left their names.
        without_plan = "plan_id NOT IN (SELECT plan_id FROM plan)"
        of_store = f"(plan_id IN (SELECT plan_id FROM plan WHERE store_id = ?) OR {without_plan})"
        rows = self._records.execute(f"SELECT holder, plan_id, state FROM named_state WHERE {of_store}", store_id)
        if set(map(tuple, rows)) == {(holder, plan_id, each) for holder, plan_id, states in holders for each in states}:
            return
        self._records.execute(f"DELETE FROM named_state WHERE {of_store}", store_id)
        for holder, plan_id, states in holders:
            put_names(self._records, holder, plan_id, states)
