from __future__ import annotations

from holdfast.db.store import Store
from holdfast.model import Plan
from tests.integration.db.children import deciding, run_at_once
from tests.integration.db.database import Database

PROCESSES = 8
WRITES = 40


def test_eight_processes_write_at_once_and_no_sequence_number_is_given_twice(
    database: Database, store: Store, plan: Plan
) -> None:
    ended = run_at_once(PROCESSES, deciding, database.url, database.home, plan.plan_id, WRITES)
    assert [status for status, _ in ended] == [0] * PROCESSES
    acknowledged = sorted(number for _, numbers in ended for number in numbers)
    assert acknowledged == list(range(1, PROCESSES * WRITES + 1))
    assert [decision.sequence for decision in store.decisions.of(plan.plan_id)] == acknowledged
