from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from holdfast.db.store import Store
from holdfast.db.tables import TABLE_OF
from holdfast.errors import DamagedRecordError, DatabaseError, NotFoundError
from holdfast.model import (
    CheckpointGroup,
    Decision,
    Lease,
    Operation,
    OperationKind,
    OperationState,
    Plan,
    Policy,
    Project,
    Record,
    Revision,
    RunStatus,
    StepRun,
    Unheld,
    now,
)
from holdfast.system.ids import new_id
from tests.integration.db.database import Database
from tests.integration.db.samples import (
    a_checkpoint,
    a_decision,
    a_group,
    a_lease,
    a_plan,
    a_run,
    an_operation,
    interrupted,
    saved_plan,
)
from tests.integration.db.strategies import any_of

# The database itself refuses to change these to what does not exist.
REFERENCES = ("plan_id", "parent_plan_id", "project_id", "group_id")
MODELS = sorted(TABLE_OF, key=lambda model: model.__name__)


def key_of(record: Record) -> list[Any]:
    return [getattr(record, name) for name in TABLE_OF[type(record)].key]


def insert_twice(store: Store, record: Record) -> None:
    """The first works, the second is refused."""
    store.insert(record)
    store.insert(record)


def one_of_each(store: Store) -> dict[type[Record], Record]:
    plan = saved_plan(store, policy=Policy(max_checkpoints=7), last_checkpoint_id=new_id(), error="it broke")
    group = a_group(
        plan, 1, label="here", step="look", step_index=0, unheld={"app": (Unheld(path="s", reason="socket"),)}
    )
    records: list[Record] = [
        group,
        a_checkpoint(group, 1),
        a_decision(plan, 1, confidence=0.25, alternatives=("that",), is_correction=True),
        a_run(plan, exit_code=-9, output="a\x00b", finished_at=plan.created_at),
        an_operation(plan, data={"states": {"app": "bb"}}),
    ]
    with store.transaction():
        for record in records:
            store.insert(record)
    lease = store.leases.acquire(a_lease(plan.plan_id), is_dead=lambda _: False)
    revision = Revision(plan_id=plan.plan_id, revision=plan.revision, steps=plan.steps)
    project = store.get(Project, plan.project_id)
    return {type(record): record for record in [project, plan, revision, lease, *records]}


# Round trips


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_record_comes_back_as_it_was_saved(model: type[Record], store: Store, data: st.DataObject) -> None:
    plan = saved_plan(store)
    group = a_group(plan, 1)
    store.insert(group)
    drawn: Record = data.draw(any_of(model))
    assume(not isinstance(drawn, CheckpointGroup) or drawn.sequence != group.sequence)
    existing: dict[str, Any] = {
        "project_id": plan.project_id,
        "parent_plan_id": plan.plan_id,
        "group_id": group.group_id,
    }
    existing |= {"plan_id": plan.plan_id} if model is not Plan else {}
    fields = {
        name: existing[name] for name in model.__struct_fields__ if name in existing and name not in TABLE_OF[model].key
    }
    fields |= {"plan_id": plan.plan_id} if model in (Lease, Revision) else {}
    record = drawn.model_copy(update=fields)

    store.save(record)
    if isinstance(record, Plan):
        store.save(Revision(plan_id=record.plan_id, revision=record.revision, steps=record.steps))

    loaded = store.get(model, *key_of(record))
    assert loaded == record
    assert loaded.model_dump(mode="json") == record.model_dump(mode="json")
    store.delete(Plan, plan.plan_id)
    store.delete(model, *key_of(record))


@pytest.mark.parametrize("model", MODELS)
def test_saving_again_replaces_every_field_but_the_key(model: type[Record], store: Store) -> None:
    record = one_of_each(store)[model]
    other = a_plan(store.plans.project_for("/elsewhere"))
    store.insert(other)
    replacements: dict[str, Any] = {"name": "another", "project_id": other.project_id, "root": "/a", "steps": ()}
    replacements |= {"output": "more", "question": "Why?", "label": None, "size_bytes": 3, "token": 9, "data": {"a": 1}}
    changes = {
        name: value
        for name, value in replacements.items()
        if name in model.__struct_fields__ and name not in TABLE_OF[model].key
    }
    changed = record.model_copy(update=changes)
    assert changed != record

    store.save(changed)

    expected = changed if model is not Plan else changed.model_copy(update={"steps": record.steps})
    assert store.get(model, *key_of(record)) == expected


def test_inserting_a_key_that_exists_is_refused(store: Store, plan: Plan) -> None:
    with pytest.raises(DatabaseError):
        store.insert(plan.changed(name="another"))
    assert store.get(Plan, plan.plan_id) == plan


def test_get_raises_and_find_returns_none_where_there_is_nothing(store: Store) -> None:
    with pytest.raises(NotFoundError, match="There is no checkpoint group 01ABC"):
        store.get(CheckpointGroup, "01ABC")
    assert store.find(Plan, "01ABC") is None


def test_a_plan_has_the_steps_of_its_current_revision(store: Store, plan: Plan) -> None:
    store.insert(Revision(plan_id=plan.plan_id, revision=2, steps=plan.steps * 3))
    assert store.get(Plan, plan.plan_id).steps == plan.steps
    store.save(plan.changed(revision=2))
    assert store.get(Plan, plan.plan_id).steps == plan.steps * 3


def test_a_plan_without_its_steps_is_an_error_and_not_a_plan_without_steps(store: Store, plan: Plan) -> None:
    store.save(plan.changed(revision=7))
    with pytest.raises(DatabaseError, match="revision 7"):
        store.get(Plan, plan.plan_id)


def test_a_record_this_version_does_not_understand_is_an_error_that_names_it(store: Store, plan: Plan) -> None:
    store.save(plan.model_copy(update={"state": "dreaming"}))
    with pytest.raises(DatabaseError, match=f"{plan.plan_id} in table plan"):
        store.get(Plan, plan.plan_id)


def test_deleting_a_plan_deletes_all_that_belongs_to_it_and_nothing_else(store: Store) -> None:
    records = one_of_each(store)
    plan = records.pop(Plan)
    project = records.pop(Project)
    assert isinstance(plan, Plan)
    child = saved_plan(store, parent_plan_id=plan.plan_id)
    other = saved_plan(store)

    store.delete(Plan, plan.plan_id)

    assert all(store.find(model, *key_of(record)) is None for model, record in records.items())
    assert store.find(Plan, child.plan_id) is None
    assert store.get(Plan, other.plan_id) == other
    assert store.get(Project, *key_of(project)) == project


def test_deleting_a_group_deletes_its_checkpoints(store: Store, plan: Plan) -> None:
    groups = [a_group(plan, 1), a_group(plan, 2)]
    checkpoints = [a_checkpoint(group, sequence) for sequence, group in enumerate(groups)]
    for record in [*groups, *checkpoints]:
        store.insert(record)
    store.delete(CheckpointGroup, groups[0].group_id)
    assert store.checkpoints.of(plan.plan_id) == checkpoints[1:]


# Damage


def test_a_changed_value_is_noticed_in_every_column_of_every_table(store: Store, database: Database) -> None:
    for model, record in one_of_each(store).items():
        table = TABLE_OF[model]
        where = " AND ".join(f"{name} = {value!r}" for name, value in zip(table.key, key_of(record), strict=True))
        for column in [name for name in table.names if name not in (*REFERENCES, *table.key)]:
            value = database.sql(f"SELECT {column} FROM {table.name} WHERE {where}")[0][0]
            damaged = f"'{value}x'" if isinstance(value, str) else "7" if value is None else f"{value + 1}"
            database.sql(f"UPDATE {table.name} SET {column} = {damaged} WHERE {where}")
            with pytest.raises(
                DatabaseError, match=rf"{key_of(record)[0]}.* in table {table.name} is damaged"
            ) as caught:
                store.get(model, *key_of(record))
            assert "holdfast doctor" in caught.value.hint
            original = f"'{value}'" if isinstance(value, str) else "NULL" if value is None else f"{value!r}"
            database.sql(f"UPDATE {table.name} SET {column} = {original} WHERE {where}")
        assert store.get(model, *key_of(record)) == record


def test_a_lost_value_is_noticed(store: Store, database: Database, plan: Plan) -> None:
    store.save(plan.changed(error="it broke"))
    database.sql("UPDATE plan SET error = NULL")
    with pytest.raises(DatabaseError, match="is damaged"):
        store.get(Plan, plan.plan_id)


def test_damaged_steps_make_the_plan_unreadable(store: Store, database: Database, plan: Plan) -> None:
    database.sql("UPDATE plan_revision SET steps = '[]'")
    with pytest.raises(DatabaseError, match=f"{plan.plan_id} 1 in table plan_revision"):
        store.get(Plan, plan.plan_id)


def test_damaged_records_are_all_listed(store: Store, database: Database) -> None:
    records = one_of_each(store)
    assert store.damaged.records() == []
    database.sql("UPDATE decision SET chosen = 'that'")
    database.sql("UPDATE lease SET token = 0")
    decision, lease = key_of(records[Decision])[0], key_of(records[Lease])[0]
    assert [str(each) for each in store.damaged.records()] == [f"decision {decision}", f"lease {lease}"]


# Queries


def test_a_project_is_made_once_for_a_root(store: Store, database: Database, tmp_path: Path) -> None:
    assert store.plans.find_project_id(tmp_path) is None
    project = store.plans.project_for(tmp_path)
    with database.open() as other:
        assert other.plans.project_for(str(tmp_path)) == project
        assert other.plans.find_project_id(tmp_path) == project.project_id


def test_plans_of_a_project_come_newest_first_without_subplans(store: Store) -> None:
    first, second = saved_plan(store), saved_plan(store)
    child = saved_plan(store, parent_plan_id=first.plan_id)
    elsewhere = saved_plan(store, root="/elsewhere")
    assert store.plans.of_project(first.project_id) == [second, first]
    assert store.plans.of_project(first.project_id, limit=1) == [second]
    assert store.plans.of_project(None) == [elsewhere, second, first]
    assert store.plans.latest(first.project_id) == second
    assert store.plans.latest(new_id()) is None
    assert store.plans.below(first.plan_id) == [child]
    assert store.plans.below(second.plan_id) == []


def test_the_order_of_plans_is_that_of_their_numbers_and_those_without_one_are_older(store: Store) -> None:
    at = now()
    old, older = saved_plan(store, created_at=at), saved_plan(store, created_at=at - timedelta(days=2))
    first = saved_plan(store, sequence=store.plans.next_sequence(), created_at=at - timedelta(days=3))
    second = saved_plan(store, sequence=store.plans.next_sequence(), created_at=at - timedelta(days=4))
    assert (first.sequence, second.sequence) == (1, 2)
    assert store.plans.of_project(None) == [second, first, old, older]
    assert store.plans.latest(old.project_id) == second
    store.delete(Plan, second.plan_id)
    assert store.plans.latest(old.project_id) == first


def test_plans_are_found_by_a_prefix_in_either_case_and_by_nothing_else(store: Store) -> None:
    one, two = saved_plan(store, plan_id="01AAAB"), saved_plan(store, plan_id="01AAAC")
    assert store.plans.by_prefix("01aaa") == [one, two]
    assert store.plans.by_prefix("01AAAC") == [two]
    assert store.plans.by_prefix("01AAACX") == []
    assert store.plans.by_prefix("%") == []
    assert store.plans.by_prefix("01AAA_") == []


def test_checkpoints_and_decisions_are_found_by_a_prefix(store: Store, plan: Plan) -> None:
    group, decision = a_group(plan, 1), a_decision(plan, 1)
    checkpoint = a_checkpoint(group, 1)
    for record in (group, decision, checkpoint):
        store.insert(record)
    assert store.checkpoints.by_prefix(checkpoint.checkpoint_id[:25]) == [checkpoint]
    assert store.decisions.by_prefix(decision.decision_id[:25]) == [decision]


def test_what_belongs_to_a_plan_comes_in_sequence_whatever_the_clock_said(store: Store, plan: Plan) -> None:
    other = saved_plan(store)
    decisions = [a_decision(plan, sequence) for sequence in (3, 2, 1)]
    groups = [a_group(plan, sequence) for sequence in (3, 2, 1)]
    checkpoints = [a_checkpoint(group, group.sequence) for group in groups]
    runs = [a_run(plan, sequence) for sequence in (3, 2, 1)]
    for record in [*decisions, *groups, *checkpoints, *runs, a_decision(other, 1), a_run(other)]:
        store.insert(record)
    assert store.decisions.of(plan.plan_id) == decisions[::-1]
    assert store.groups.of(plan.plan_id) == groups[::-1]
    assert store.checkpoints.of(plan.plan_id) == checkpoints[::-1]
    assert store.checkpoints.of_group(groups[0].group_id) == [checkpoints[0]]
    assert store.runs.of(plan.plan_id) == runs[::-1]
    assert store.checkpoints.count(plan.plan_id) == 3
    assert store.checkpoints.count(other.plan_id) == 0


def test_the_latest_run_and_those_under_way_are_found(store: Store, plan: Plan) -> None:
    assert store.runs.latest(plan.plan_id) is None
    ended, under_way = a_run(plan, 1, status=RunStatus.SUCCEEDED, finished_at=plan.created_at), a_run(plan, 2)
    for run in (under_way, ended):
        store.insert(run)
    assert store.runs.latest(plan.plan_id) == under_way
    assert store.runs.unfinished(plan.plan_id) == [under_way]


def test_the_latest_run_in_force_is_the_last_with_a_decision_that_is_not_superseded(store: Store, plan: Plan) -> None:
    assert store.runs.latest_in_force(plan.plan_id) is None
    runs = [a_run(plan, number, decision_id=f"decision {number}") for number in (1, 2)]
    for run in (*runs, a_run(plan, 3, decision_id="decision 3", is_superseded=True), a_run(plan, 4)):
        store.insert(run)
    assert store.runs.latest_in_force(plan.plan_id) == runs[1]


def test_runs_that_may_have_to_be_undone_are_found(store: Store, plan: Plan) -> None:
    ended = {"finished_at": plan.created_at, "decision_id": "decision"}
    runs = [a_run(plan, number, status=status, **ended) for number, status in enumerate(RunStatus, start=1)]
    under_way, without_decision = a_run(plan, 20), a_run(plan, 21, finished_at=plan.created_at)
    superseded = a_run(plan, 22, status=RunStatus.FAILED, is_superseded=True, **ended)
    for run in (*runs, under_way, without_decision, superseded):
        store.insert(run)
    half_done = [run for run in runs if run.status in (RunStatus.INTERRUPTED, RunStatus.CONSTRAINED)]
    latest = [] if runs[-1] in half_done else [runs[-1]]
    step = runs[-1].step_index
    assert store.runs.perhaps_to_undo(plan.plan_id, step) == [*half_done, *latest, under_way]
    assert store.runs.perhaps_to_undo(plan.plan_id, step + 1) == [*half_done, under_way]


def test_decisions_in_force_are_found_from_one_on(store: Store, plan: Plan) -> None:
    decisions = [a_decision(plan, number, is_superseded=number == 3) for number in (1, 2, 3, 4)]
    for decision in decisions:
        store.insert(decision)
    assert store.decisions.in_force_from(plan.plan_id, 2) == [decisions[1], decisions[3]]


def test_the_latest_revision_and_attempt_are_the_highest_there_have_been(store: Store, plan: Plan) -> None:
    assert store.decisions.latest_attempt(plan.plan_id) == 1
    for attempt in (3, 2):
        store.insert(a_decision(plan, attempt, attempt=attempt))
        store.insert(Revision(plan_id=plan.plan_id, revision=attempt, steps=()))
    assert store.decisions.latest_attempt(plan.plan_id) == 3
    assert store.plans.latest_revision(plan.plan_id) == 3
    assert store.plans.latest_revision("01ABC") == 0


def test_the_root_of_the_decisions_is_the_first_without_a_parent(store: Store, plan: Plan) -> None:
    assert store.decisions.root(plan.plan_id) is None
    root = a_decision(plan, 2)
    child = a_decision(plan, 1, parent_decision_id=root.decision_id)
    for decision in (child, a_decision(plan, 3), root):
        store.insert(decision)
    assert store.decisions.root(plan.plan_id) == root


def test_only_operations_that_are_begun_are_unfinished(store: Store, plan: Plan) -> None:
    begun, done = an_operation(plan), an_operation(plan, state=OperationState.DONE)
    store.insert(begun)
    store.insert(done)
    assert store.operations.unfinished(plan.plan_id) == [begun]


def test_the_apply_that_is_in_the_real_files_is_found(store: Store, plan: Plan) -> None:
    assert store.operations.applied(plan.plan_id) is None
    undone, done = (
        an_operation(plan, kind=OperationKind.APPLY, state=OperationState(each)) for each in ("undone", "done")
    )
    for record in (undone, done, an_operation(plan, kind=OperationKind.APPLY), an_operation(plan, state=done.state)):
        store.insert(record)
    assert store.operations.applied(plan.plan_id) == done


def test_states_of_groups_unfinished_operations_and_what_is_applied_are_referenced_and_no_others(
    store: Store, plan: Plan
) -> None:
    elsewhere = saved_plan(store, store_id="another content store")
    done = OperationState.DONE
    for record in (
        a_group(plan, 1, states={"app": "a", "data": "b"}),
        a_group(plan, 2, states={"app": "c", "data": "b"}),
        a_group(elsewhere, 1, states={"app": "d"}),
        an_operation(plan, data={"states": {"app": "e"}}),
        an_operation(plan, data={"note": "without states"}),
        an_operation(plan, data={"states": {"app": "f"}}, state=done),
        an_operation(plan, kind=OperationKind.APPLY, data={"states": {"app/old": "h"}}, state=done),
        an_operation(plan, kind=OperationKind.APPLY, data={"states": {"app/old": "i"}}, state=OperationState.UNDONE),
        an_operation(plan, kind=OperationKind.UNAPPLY, data={"states": {"app/old": "j"}}, state=done),
        an_operation(elsewhere, data={"states": {"app": "g"}}),
    ):
        store.insert(record)
    assert store.referenced_states("content") == {"a", "b", "c", "e", "h"}
    assert store.referenced_states("another content store") == {"d", "g"}


def test_referenced_states_are_not_told_from_a_damaged_group(store: Store, database: Database, plan: Plan) -> None:
    store.insert(a_group(plan, 1))
    database.sql("""UPDATE checkpoint_group SET states = '{"app":"ff"}'""")
    with pytest.raises(DatabaseError, match="checkpoint_group is damaged"):
        store.referenced_states("content")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE plan SET store_id = 'another'",
        "UPDATE checkpoint_group SET plan_id = (SELECT max(plan_id) FROM plan)",
        "UPDATE operation SET state = 'finished'",
    ],
    ids=["the plan's content store", "the group's plan", "the operation's state"],
)
def test_s7_no_states_are_told_while_a_record_that_could_name_one_is_damaged(
    store: Store, database: Database, plan: Plan, damage: str
) -> None:
    saved_plan(store, store_id="another content store")
    store.insert(a_group(plan, 1))
    store.insert(an_operation(plan, data={"states": {"app": "e"}}))
    assert store.referenced_states("content")
    database.sql(damage)
    for store_id in ("content", "another content store"):
        with pytest.raises(DamagedRecordError):
            store.referenced_states(store_id)


def test_a_damaged_record_is_left_out_where_only_sound_ones_will_do_and_is_named(
    store: Store, database: Database, plan: Plan
) -> None:
    other = saved_plan(store)
    first, second = a_decision(plan, 1), a_decision(plan, 2)
    for each in (first, second):
        store.insert(each)
    database.sql(f"UPDATE decision SET chosen = 'that' WHERE decision_id = '{first.decision_id}'")
    database.sql(f"UPDATE plan SET name = 'that' WHERE plan_id = '{other.plan_id}'")
    assert store.decisions.of(plan.plan_id, sound_only=True) == [second]
    assert store.plans.of_project(None) == [plan]
    assert store.skipped == [f"decision {first.decision_id}", f"plan {other.plan_id}"]
    with pytest.raises(DamagedRecordError):
        store.decisions.of(plan.plan_id)
    with pytest.raises(DamagedRecordError, match=other.plan_id):
        store.plans.latest(plan.project_id)


def test_an_operation_in_a_state_that_does_not_exist_is_not_taken_for_ended(
    store: Store, database: Database, plan: Plan
) -> None:
    store.insert(an_operation(plan))
    database.sql("UPDATE operation SET state = 'begum'")
    with pytest.raises(DamagedRecordError):
        store.operations.unfinished(plan.plan_id)


@pytest.mark.parametrize("model", [Decision, CheckpointGroup, StepRun])
def test_sequences_count_up_for_each_plan_alone(model: type[Any], store: Store, plan: Plan) -> None:
    other = saved_plan(store)
    for record in (a_group(other, 4), a_decision(other, 4), a_run(other, 4)):
        store.insert(record)
    with store.transaction():
        assert store.next_sequence(model, plan.plan_id) == 1
        assert store.next_sequence(model, other.plan_id) == 5


# Transactions


def test_a_transaction_that_fails_leaves_nothing(store: Store, database: Database, plan: Plan) -> None:
    with interrupted(store):
        store.insert(a_decision(plan, 1))
        store.save(plan.changed(name="another"))
    with database.open() as other:
        assert other.decisions.of(plan.plan_id) == []
        assert other.get(Plan, plan.plan_id) == plan


def test_others_see_a_transaction_only_when_it_is_complete(store: Store, database: Database, plan: Plan) -> None:
    with database.open() as other:
        with store.transaction():
            store.insert(a_decision(plan, 1))
            assert other.decisions.of(plan.plan_id) == []
        assert len(other.decisions.of(plan.plan_id)) == 1


def test_a_transaction_inside_another_ends_with_it(store: Store, plan: Plan) -> None:
    with interrupted(store), store.transaction():
        store.insert(a_decision(plan, 1))
    assert store.decisions.of(plan.plan_id) == []


def test_a_failed_inner_transaction_leaves_nothing_in_the_outer_one(store: Store, plan: Plan) -> None:
    kept = a_decision(plan, 1)
    with store.transaction():
        store.insert(kept)
        with pytest.raises(DatabaseError), store.transaction():
            insert_twice(store, a_decision(plan, 2))
        with store.transaction():
            store.save(plan.changed(name="another"))
    assert store.decisions.of(plan.plan_id) == [kept]
    assert store.get(Plan, plan.plan_id).name == "another"


def test_a_transaction_whose_error_was_swallowed_is_not_half_committed(store: Store, plan: Plan) -> None:
    with pytest.raises(DatabaseError, match="nothing of it is saved"), store.transaction(), suppress(DatabaseError):
        insert_twice(store, a_decision(plan, 1))
    assert store.decisions.of(plan.plan_id) == []
    store.insert(a_decision(plan, 1))


def test_two_threads_do_not_share_a_transaction(store: Store, plan: Plan) -> None:
    kept = a_decision(plan, 2)
    thread = threading.Thread(target=store.insert, args=[kept])
    with interrupted(store):
        store.insert(a_decision(plan, 1))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
    thread.join()
    assert store.decisions.of(plan.plan_id) == [kept]


def test_records_that_refer_to_no_plan_are_refused(store: Store) -> None:
    with pytest.raises(DatabaseError):
        store.insert(a_decision(a_plan(store.plans.project_for("/src/app")), 1))


# Borders


def test_what_another_process_keeps_locked_is_said_to_be_locked(store: Store, database: Database, plan: Plan) -> None:
    engine = database.engine()
    try:
        engine.execute(database.short_wait)
        waiting = Store(engine, database.home)
        with store.transaction():
            store.save(plan.changed(name="another"))
            with pytest.raises(DatabaseError, match="30 s") as caught:
                waiting.save(plan)
        assert "run this one again" in caught.value.hint
        waiting.save(plan)
    finally:
        engine.close()


def test_a_closed_store_gives_our_error(database: Database) -> None:
    store = database.open()
    store.close()
    with pytest.raises(DatabaseError):
        store.plans.of_project(None)


def test_operations_and_runs_are_kept_with_their_plan(store: Store, plan: Plan) -> None:
    run, operation = a_run(plan), an_operation(plan)
    store.insert(run)
    store.insert(operation)
    assert store.get(StepRun, run.run_id) == run
    assert store.get(Operation, operation.operation_id) == operation
