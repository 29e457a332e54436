from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

import holdfast.db.lease
import holdfast.db.queries
from holdfast.db.lease import EXPIRES_AFTER, holder_of, leased
from holdfast.db.store import Store
from holdfast.errors import ConflictError, DatabaseError, LeaseLostError, NotFoundError
from holdfast.model import Lease, Plan
from holdfast.system.identity import FILE_NAME
from tests.integration.db.children import Child, context, holding
from tests.integration.db.database import Database, PostgresDatabase
from tests.integration.db.samples import a_decision, a_lease, interrupted, saved_plan
from tests.postgres import PostgresServer


def acquire(store: Store, plan: Plan, owner: str = "me", *, is_dead: Callable[[Lease], bool] | None = None) -> Lease:
    return store.leases.acquire(a_lease(plan.plan_id, owner=owner), is_dead=is_dead or (lambda _: False))


def process_is_gone(lease: Lease) -> bool:
    return not psutil.pid_exists(lease.pid)


def test_a_lease_is_stored_as_it_was_acquired(store: Store, plan: Plan) -> None:
    lease = acquire(store, plan)
    assert store.get(Lease, plan.plan_id) == lease
    assert (lease.owner, lease.host, lease.pid, lease.process_started_at) == ("me", "here", os.getpid(), 1.5)
    assert lease.heartbeat_at == lease.acquired_at


def test_a_living_owner_keeps_the_plan_and_is_named(store: Store, database: Database, plan: Plan) -> None:
    held = acquire(store, plan)
    with database.open() as other, pytest.raises(ConflictError) as caught:
        acquire(other, plan, "another")
    assert all(
        part in caught.value.message for part in ("`plan execute`", f"process {os.getpid()} on here", "since 20")
    )
    assert store.get(Lease, plan.plan_id) == held


def test_a_dead_owner_is_replaced_and_the_token_grows(store: Store, database: Database, plan: Plan) -> None:
    first = acquire(store, plan)
    asked: list[Lease] = []
    with database.open() as other:
        second = acquire(other, plan, "another", is_dead=lambda lease: not asked.append(lease))
    assert asked == [first]
    assert second.token > first.token
    assert store.get(Lease, plan.plan_id) == second


def test_a_killed_process_is_replaced_and_a_running_one_is_not(store: Store, database: Database, plan: Plan) -> None:
    held, go_on = context.Event(), context.Event()
    child = Child(holding, database.url, database.home, plan.plan_id, held, go_on)
    assert held.wait(60)
    with pytest.raises(ConflictError):
        acquire(store, plan, is_dead=process_is_gone)
    child.kill()
    assert acquire(store, plan, is_dead=process_is_gone).owner == "me"


def test_a_process_taken_for_dead_writes_nothing_and_hears_who_replaced_it(
    store: Store, database: Database, plan: Plan
) -> None:
    held, go_on = context.Event(), context.Event()
    child = Child(holding, database.url, database.home, plan.plan_id, held, go_on)
    assert held.wait(60)
    acquire(store, plan, "successor", is_dead=lambda _: True)
    go_on.set()
    status, said = child.end()
    assert status == ConflictError.exit_code
    assert said.startswith("LeaseLostError")
    assert f"process {os.getpid()} on here" in said
    assert store.get(Plan, plan.plan_id) == plan


def test_a_released_plan_is_free_and_its_token_still_grows(store: Store, plan: Plan) -> None:
    first = acquire(store, plan)
    store.leases.release(first)
    assert store.get(Lease, plan.plan_id).owner is None
    second = acquire(store, plan, "another")
    assert second.token > first.token


def test_releasing_a_lease_that_was_lost_leaves_the_successor_alone(store: Store, plan: Plan) -> None:
    lost = acquire(store, plan)
    successor = acquire(store, plan, "another", is_dead=lambda _: True)
    store.leases.release(lost)
    assert store.get(Lease, plan.plan_id) == successor


def test_releasing_the_lease_of_a_deleted_plan_is_no_error(store: Store, plan: Plan) -> None:
    lease = acquire(store, plan)
    with store.transaction(lease):
        store.delete(Plan, plan.plan_id)
    store.leases.release(lease)
    assert store.find(Lease, plan.plan_id) is None


def test_a_transaction_with_the_current_lease_is_saved(store: Store, plan: Plan) -> None:
    with store.transaction(acquire(store, plan)):
        store.insert(a_decision(plan, 1))
    assert len(store.decisions.of(plan.plan_id)) == 1


@pytest.mark.parametrize("inside_another", [False, True])
def test_a_transaction_with_a_lost_lease_saves_nothing(store: Store, plan: Plan, inside_another: bool) -> None:
    lost = acquire(store, plan)
    acquire(store, plan, "another", is_dead=lambda _: True)
    outer = store.transaction() if inside_another else store.transaction(lost)
    with pytest.raises(LeaseLostError, match="in use by"), outer, store.transaction(lost):
        store.insert(a_decision(plan, 1))
    assert store.decisions.of(plan.plan_id) == []


def test_a_released_or_forgotten_lease_no_longer_allows_changes(store: Store, plan: Plan) -> None:
    lease = acquire(store, plan)
    store.leases.release(lease)
    with pytest.raises(LeaseLostError, match="no longer leased"), store.transaction(lease):
        pass
    store.delete(Lease, plan.plan_id)
    with pytest.raises(LeaseLostError, match="no longer leased"), store.transaction(lease):
        pass


def test_the_same_owner_with_an_older_token_is_refused(store: Store, plan: Plan) -> None:
    old = acquire(store, plan)
    acquire(store, plan, is_dead=lambda _: True)
    with pytest.raises(LeaseLostError), store.transaction(old):
        pass


def test_a_heartbeat_is_stored_and_the_lease_stays_valid(store: Store, plan: Plan) -> None:
    lease = acquire(store, plan)
    beaten = store.leases.heartbeat(lease)
    assert beaten.heartbeat_at > lease.heartbeat_at
    assert store.get(Lease, plan.plan_id) == beaten
    with store.transaction(lease):
        store.insert(a_decision(plan, 1))


def test_the_heartbeat_of_a_lost_lease_says_so_and_changes_nothing(store: Store, plan: Plan) -> None:
    lost = acquire(store, plan)
    successor = acquire(store, plan, "another", is_dead=lambda _: True)
    with pytest.raises(LeaseLostError):
        store.leases.heartbeat(lost)
    assert store.get(Lease, plan.plan_id) == successor


def test_a_plan_that_does_not_exist_cannot_be_leased(store: Store) -> None:
    with pytest.raises(NotFoundError):
        store.leases.acquire(a_lease("01ABC"), is_dead=lambda _: False)


def test_a_judge_that_fails_leaves_the_owner_as_it_is(store: Store, plan: Plan) -> None:
    def judge(lease: Lease) -> bool:
        raise DatabaseError("cannot tell")

    held = acquire(store, plan)
    with pytest.raises(DatabaseError, match="cannot tell"):
        acquire(store, plan, "another", is_dead=judge)
    assert store.get(Lease, plan.plan_id) == held


def test_nobody_takes_a_plan_in_the_middle_of_its_owners_transaction(
    store: Store, database: Database, plan: Plan
) -> None:
    seen: list[int] = []

    def take_over() -> None:
        with database.open() as other:
            acquire(other, plan, "another", is_dead=lambda _: True)
            seen.append(len(other.decisions.of(plan.plan_id)))

    thread = threading.Thread(target=take_over)
    with store.transaction(acquire(store, plan)):
        store.insert(a_decision(plan, 1))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join()
    assert seen == [1]
    assert store.get(Lease, plan.plan_id).owner == "another"


def test_a_heartbeat_from_another_thread_is_kept_when_a_transaction_is_undone(store: Store, plan: Plan) -> None:
    lease = acquire(store, plan)
    thread = threading.Thread(target=store.leases.heartbeat, args=[lease])
    with interrupted(store):
        thread.start()
        store.insert(a_decision(plan, 1))
    thread.join()
    assert store.get(Lease, plan.plan_id).heartbeat_at > lease.heartbeat_at
    assert store.decisions.of(plan.plan_id) == []


# Who counts as dead, for those who share the records


@pytest.fixture
def taken(store: Store, plan: Plan) -> Iterator[Lease]:
    """A lease that a living process holds: this one."""
    with leased(store, plan.plan_id, "plan execute") as lease:
        yield lease


def elsewhere(database: Database, tmp_path: Path) -> Store:
    """The same records, as another machine has them: its home is another."""
    home = tmp_path / "another home"
    home.mkdir()
    return Store(database.engine(), home)


def written(store: Store, lease: Lease, **fields: Any) -> None:
    store.save(lease.model_copy(update=fields))


def test_a_living_lease_is_not_taken_by_a_machine_of_the_same_name_that_was_started_another_time(
    store: Store, database: Database, taken: Lease, tmp_path: Path
) -> None:
    written(store, taken, boot_id="another start", pid=2**22 + 1)
    with elsewhere(database, tmp_path) as other:
        assert holder_of(other, taken.plan_id) is not None
        with pytest.raises(ConflictError, match="is in use by"), leased(other, taken.plan_id, "plan execute"):
            pass


def test_a_copied_home_is_another_machine(store: Store, database: Database, taken: Lease, tmp_path: Path) -> None:
    written(store, taken, boot_id="another start")
    home = tmp_path / "copied"
    home.mkdir()
    shutil.copy2(store.home / FILE_NAME, home)
    with Store(database.engine(), home) as copied:
        assert holder_of(copied, taken.plan_id) is not None


def test_the_owner_does_not_survive_a_start_of_its_own_machine(store: Store, taken: Lease) -> None:
    written(store, taken, boot_id="the start before")
    assert holder_of(store, taken.plan_id) is None


def test_one_of_another_machine_that_has_been_silent_for_long_is_replaced(
    store: Store, database: Database, taken: Lease, tmp_path: Path
) -> None:
    written(store, taken, heartbeat_at=taken.heartbeat_at - EXPIRES_AFTER)
    with elsewhere(database, tmp_path) as other:
        assert holder_of(other, taken.plan_id) is None
        with leased(other, taken.plan_id, "plan execute") as lease:
            assert lease.token > taken.token


def test_a_machine_whose_clock_is_wrong_neither_takes_a_living_lease_nor_holds_one_for_longer(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = PostgresDatabase(postgres.new_database(), tmp_path)
    with database.open() as store, elsewhere(database, tmp_path) as other:
        plan = saved_plan(store)
        with leased(store, plan.plan_id, "plan execute"):
            for module in (holdfast.db.lease, holdfast.db.queries):
                monkeypatch.setattr(module, "now", lambda: datetime.now(UTC) + timedelta(seconds=90))
            assert holder_of(other, plan.plan_id) is not None
            with pytest.raises(ConflictError), leased(other, plan.plan_id, "plan execute"):
                pass
        with leased(other, plan.plan_id, "plan execute") as lease:
            assert abs(lease.heartbeat_at - datetime.now(UTC)) < timedelta(seconds=80)
            assert store.leases.heartbeat(lease).heartbeat_at - datetime.now(UTC) < timedelta(seconds=80)
