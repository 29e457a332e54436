"""Which states records name is told by tables of their own, in the transaction of each record."""

from __future__ import annotations

from contextlib import suppress

import pytest

from holdfast.db.store import Store
from holdfast.errors import DamagedRecordError
from holdfast.model import CheckpointGroup, OperationKind, OperationState, Plan
from tests.integration.db.database import Database
from tests.integration.db.samples import a_group, an_operation, saved_plan

STORE = "content"


def needed(store: Store, states: str, store_id: str = STORE) -> str:
    return "".join(state for state in states if store.collections.is_needed(state, store_id))


def given_up(store: Store, store_id: str = STORE) -> str:
    return "".join(sorted({state for _, state in store.collections.given_up(store_id)}))


def test_a_group_names_its_states_until_it_is_deleted(store: Store, plan: Plan) -> None:
    first, second = a_group(plan, 1, states={"app": "a", "data": "b"}), a_group(plan, 2, states={"app": "a"})
    store.insert(first)
    store.insert(second)
    assert needed(store, "abc") == "ab"
    store.save(first.model_copy(update={"parent_group_id": None}))
    assert given_up(store) == ""
    store.delete(CheckpointGroup, first.group_id)
    assert needed(store, "abc") == "a"
    assert given_up(store) == "ab"


def test_an_operation_names_its_states_as_long_as_it_needs_them(store: Store, plan: Plan) -> None:
    rollback = an_operation(plan, data={"states": {"app": "a"}})
    apply = an_operation(plan, kind=OperationKind.APPLY, data={"states": {"app/old": "b"}})
    for operation in (rollback, apply):
        store.insert(operation)
    assert needed(store, "ab") == "ab"
    for operation in (rollback, apply):
        store.save(operation.model_copy(update={"state": OperationState.DONE}))
    assert (needed(store, "ab"), given_up(store)) == ("b", "a")
    store.save(apply.model_copy(update={"state": OperationState.UNDONE}))
    assert (needed(store, "ab"), given_up(store)) == ("", "ab")


def test_a_merged_subplan_names_the_states_of_its_last_merge(store: Store, plan: Plan) -> None:
    subplan = saved_plan(store, parent_plan_id=plan.plan_id)
    store.save(subplan.changed(merged_states={"app": "a"}))
    store.save(subplan.changed(merged_states={"app": "b"}))
    assert (needed(store, "ab"), given_up(store)) == ("b", "a")


def test_a_deleted_plan_gives_up_everything_of_itself_and_its_subplans(store: Store, plan: Plan) -> None:
    subplan = saved_plan(store, parent_plan_id=plan.plan_id)
    other = saved_plan(store)
    store.insert(a_group(plan, 1, states={"app": "a"}))
    store.insert(a_group(subplan, 1, states={"app": "b"}))
    store.insert(an_operation(subplan, data={"states": {"app": "c"}}))
    store.save(subplan.changed(merged_states={"app": "d"}))
    store.insert(a_group(other, 1, states={"app": "e", "data": "a"}))
    store.delete(Plan, plan.plan_id)
    assert needed(store, "abcde") == "ae"
    assert given_up(store) == "abcd"


def test_names_go_and_come_with_the_transaction_of_their_record(store: Store, plan: Plan) -> None:
    with suppress(ZeroDivisionError), store.transaction():
        store.insert(a_group(plan, 1, states={"app": "a"}))
        raise ZeroDivisionError
    assert needed(store, "a") == ""


def test_each_content_store_is_told_of_its_own_plans(store: Store, plan: Plan) -> None:
    elsewhere = saved_plan(store, store_id="another content store")
    group = a_group(elsewhere, 1, states={"app": "a"})
    store.insert(group)
    assert needed(store, "a") == ""
    assert needed(store, "a", "another content store") == "a"
    # It counts where the plan is when it is asked: its first group is written before the plan is saved.
    store.save(elsewhere.changed(store_id=STORE))
    assert needed(store, "a") == "a"
    store.delete(CheckpointGroup, group.group_id)
    assert (given_up(store), given_up(store, "another content store")) == ("a", "")


def test_what_a_collection_has_looked_at_is_forgotten_and_nothing_else(store: Store, plan: Plan) -> None:
    groups = [a_group(plan, number, states={"app": "a"}) for number in (1, 2)]
    for group in groups:
        store.insert(group)
    store.delete(CheckpointGroup, groups[0].group_id)
    seen = store.collections.given_up(STORE)
    store.delete(CheckpointGroup, groups[1].group_id)
    store.collections.forget_given_up(seen)
    assert store.collections.given_up(STORE) == [(groups[1].group_id, "a")]


def test_s7_a_damaged_group_still_names_its_states(store: Store, database: Database, plan: Plan) -> None:
    group = a_group(plan, 1, states={"app": "a"})
    store.insert(group)
    database.sql("""UPDATE checkpoint_group SET states = '{"app":"ff"}'""")
    assert needed(store, "a") == "a"
    store.delete(CheckpointGroup, group.group_id)
    assert (needed(store, "a"), given_up(store)) == ("", "a")


def test_s7_a_damaged_plan_does_not_hide_that_a_state_is_needed(store: Store, database: Database, plan: Plan) -> None:
    store.insert(a_group(plan, 1, states={"app": "a"}))
    database.sql("UPDATE plan SET store_id = 'another'")
    with pytest.raises(DamagedRecordError):
        store.collections.is_needed("a", STORE)


@pytest.mark.parametrize("damage", ["substr(state, 1, 40) || 'x'", "'x' || substr(state, 2)"])
def test_s7_a_damaged_name_is_still_found_by_what_is_left_of_it(
    store: Store, database: Database, plan: Plan, damage: str
) -> None:
    """A flipped bit damages the name in one index only; here the row and both indexes have the same damage."""
    state = "ab" * 32
    store.insert(a_group(plan, 1, states={"app": state}))
    database.sql(f"UPDATE named_state SET state = {damage}")
    assert store.collections.is_needed(state, STORE) == damage.startswith("substr")


def test_names_that_are_wrong_are_written_again_from_the_records(store: Store, database: Database, plan: Plan) -> None:
    elsewhere = saved_plan(store, store_id="another content store")
    store.insert(a_group(plan, 1, states={"app": "a"}))
    store.insert(an_operation(plan, data={"states": {"app": "b"}}))
    store.insert(a_group(elsewhere, 1, states={"app": "c"}))
    right = database.sql("SELECT * FROM named_state ORDER BY holder")
    database.sql("UPDATE named_state SET state = 'x' WHERE state = 'a'")
    assert store.renew_names(STORE) == {"a", "b"}
    assert database.sql("SELECT * FROM named_state ORDER BY holder") == right


def test_names_that_an_earlier_version_left_when_it_deleted_a_plan_go_when_they_are_written_again(
    store: Store, database: Database, plan: Plan
) -> None:
    store.insert(a_group(plan, 1, states={"app": "a"}))
    database.sql("INSERT INTO named_state (holder, plan_id, state) VALUES ('gone', 'gone', 'b')")
    assert needed(store, "ab") == "ab"
    assert store.renew_names(STORE) == {"a"}
    assert needed(store, "ab") == "a"


def test_the_mark_of_a_collection_is_kept_for_each_content_store(store: Store) -> None:
    assert store.collections.mark(STORE) == ""
    for mark in ("one", "two"):
        store.collections.set_mark(STORE, mark)
    store.collections.set_mark("another content store", "three")
    assert store.collections.mark(STORE) == "two"


LATER_INDEXES = ("step_run_unfinished", "step_run_half_done", "checkpoint_group_by_parent")
LATER_COLUMNS = (
    ("plan", "is_cancelled_by_rollback"),
    ("plan", "session"),
    ("step_run", "is_compensated"),
    ("step_run", "group_after_id"),
    ("step_run", "call_id"),
    ("lease", "listens"),
)
"""Of the revisions after the one that is tried here."""


def test_an_upgrade_finds_the_states_that_records_name(database: Database) -> None:
    with database.open() as store:
        plan = saved_plan(store)
        subplan = saved_plan(store, parent_plan_id=plan.plan_id, merged_states={"app": "d"})
        done = OperationState.DONE
        for record in (
            a_group(plan, 1, states={"app": "a", "data": "b", "more": "a"}),
            a_group(subplan, 1, states={"app": "a"}),
            an_operation(plan, data={"states": {"app": "c"}}),
            an_operation(plan, data={"note": "without states"}),
            an_operation(plan, data={"states": {"app": "f"}}, state=done),
            an_operation(plan, kind=OperationKind.APPLY, data={"states": {"app/old": "h"}}, state=done),
        ):
            store.insert(record)
        damaged = a_group(plan, 2, states={"app": "x"})
        store.insert(damaged)
    database.sql(f"UPDATE checkpoint_group SET states = 'y' WHERE group_id = '{damaged.group_id}'")
    named = f"SELECT * FROM named_state WHERE holder != '{damaged.group_id}' ORDER BY holder, state"
    before = database.sql(named)
    for statement in (
        *(f"DROP TABLE {table}" for table in ("named_state", "given_up_state", "collected")),
        *(f"DROP INDEX {index}" for index in ("operation_by_state", "plan_in_order")),
        *(f"DROP INDEX {index}" for index in LATER_INDEXES),
        *(f"ALTER TABLE {table} DROP COLUMN {column}" for table, column in LATER_COLUMNS),
        "CREATE INDEX plan_by_project ON plan (project_id, created_at)",
        "UPDATE alembic_version SET version_num = '0007'",
    ):
        database.sql(statement)
    with database.open() as store:
        assert needed(store, "abcdfhx") == "abcdh"
    assert database.sql(named) == before
