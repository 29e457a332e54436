"""Two machines, each with a home of its own, on the same records in PostgreSQL."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.db.lease import leased
from holdfast.db.leases import LeaseRecords
from holdfast.doctor import examine
from holdfast.errors import ConflictError, StateError
from holdfast.execution.executor import ExecutionResult
from holdfast.model import Lease, Plan, PlanState
from holdfast.system import sqlite
from tests.postgres import PostgresServer
from tests.support.workshop import Workshop, run


class Machines:
    """The one that plans are made on, and another."""

    def __init__(self, workshop: Workshop, url: str, other_home: Path) -> None:
        self.workshop, self._url, self._other_home = workshop, url, other_home
        self.here = workshop.open(database__url=url)
        self.there = Holdfast.open(
            workshop.app, home=other_home, environment=dict(os.environ), overrides={"database.url": url}
        )

    def created(self, *commands: str) -> Plan:
        return self.here.create_plan(self.workshop.plan_file(*map(run, commands)))

    @contextmanager
    def running(self, plan: Plan, started: Path) -> Iterator[list[ExecutionResult]]:
        """Here, while this lasts; how it ended is in the list then."""
        results: list[ExecutionResult] = []
        mine = self.workshop.open(database__url=self._url)
        stop = threading.Event()
        thread = threading.Thread(target=lambda: results.append(mine.execute(plan.plan_id, cancelled=stop)))
        thread.start()
        try:
            while not started.exists():
                thread.join(0.01)
                assert thread.is_alive()
            yield results
        finally:
            stop.set()
            thread.join()

    def damage_noted_there(self) -> int:
        with closing(sqlite.connect(self._other_home / "objects.db")) as content:
            return int(content.execute("SELECT count(*) FROM sqlite_master WHERE name = 'damaged'").fetchone()[0])


@pytest.fixture
def machines(postgres: PostgresServer, tmp_path: Path) -> Iterator[Machines]:
    (tmp_path / "one").mkdir()
    workshop = Workshop(tmp_path / "one")
    made = Machines(workshop, postgres.new_database(), tmp_path / "another home")
    yield made
    made.there.close()
    workshop.close()


LOOKS: dict[str, Callable[[Holdfast, Plan], object]] = {
    "diff": lambda there, plan: there.diff(plan.plan_id),
    "diff of checkpoints": lambda there, plan: there.diff(
        plan.plan_id, *(each.checkpoint.checkpoint_id for each in there.checkpoints(plan.plan_id)[:2])
    ),
    "explain": lambda there, plan: there.explain(there.decisions(plan.plan_id)[-1].decision_id),
    "checkpoint show": lambda there, plan: there.changed_files(there.checkpoints(plan.plan_id)[-1]),
    "checkpoint verify": lambda there, plan: there.verify(plan.plan_id),
    "rollback --dry-run": lambda there, plan: there.rollback_preview(
        plan.plan_id, there.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
    ),
    "apply --dry-run": lambda there, plan: there.apply_preview(plan.plan_id),
}


CONCERNED = ("plan", "plans", "sandboxes", "content")
"""The findings of the doctor that concern plans."""


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_what_needs_content_that_is_elsewhere_says_so_and_notes_no_damage(
    machines: Machines, look: Callable[[Holdfast, Plan], object]
) -> None:
    plan = machines.created("echo 1 > one")
    machines.here.execute(plan.plan_id)
    with pytest.raises(StateError, match="kept on another machine or in another home") as caught:
        look(machines.there, plan)
    assert "there" in caught.value.hint
    machines.there.close()
    assert not machines.damage_noted_there()


def test_what_needs_only_records_works_from_everywhere(machines: Machines) -> None:
    plan = machines.created("echo 1 > one")
    machines.here.execute(plan.plan_id)
    there = machines.there
    assert [each.plan_id for each in there.list_plans()] == [plan.plan_id]
    assert there.status(plan.plan_id).plan.state is PlanState.COMPLETE
    shown = [(each.display_id, each.group) for each in there.checkpoints(plan.plan_id)]
    assert shown == [(each.display_id, each.group) for each in machines.here.checkpoints(plan.plan_id)]
    trees = [each.decision_tree(plan.plan_id) for each in (there, machines.here)]
    assert trees[0].roots[0].decision == trees[1].roots[0].decision


def test_the_doctor_misses_nothing_of_a_plan_that_is_kept_elsewhere(machines: Machines) -> None:
    plan = machines.created("echo 1 > one")
    machines.here.execute(plan.plan_id)

    def missed(holdfast: Holdfast) -> list[str]:
        return [each.name for each in examine(holdfast) if each.level != "ok" and each.name.split()[0] in CONCERNED]

    assert missed(machines.there) == []
    with pytest.raises(StateError):
        machines.there.diff(plan.plan_id)  # so there is a content store from now on
    assert missed(machines.there) == []
    shutil.rmtree(machines.here.status(plan.plan_id).plan.resources[0].sandbox_path)
    assert missed(machines.here) == [f"plan {plan.plan_id}"]


def test_a_run_is_stopped_from_another_machine(machines: Machines) -> None:
    started = machines.workshop.outside / "started"
    plan = machines.created("echo 1 > one", f"touch {started}; sleep 60")
    with machines.running(plan, started) as results:
        assert machines.there.status(plan.plan_id).holder is not None
        assert machines.there.cancel(plan.plan_id).state is PlanState.CANCELLED
    assert results[0].plan.state is PlanState.CANCELLED


def test_a_run_that_ends_while_it_is_asked_once_more_counts_as_stopped(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, may_end = machines.workshop.outside / "started", machines.workshop.outside / "may end"
    when_stopped = f'until test -e "{may_end}"; do sleep 0.01; done; exit 1'
    plan = machines.created("echo 1 > one", f"trap '{when_stopped}' TERM; touch {started}; sleep 60 & wait")
    answers: list[Lease | None] = []
    with machines.running(plan, started) as results, monkeypatch.context() as patched:

        def once_it_has_ended(leases: LeaseRecords, plan_id: str) -> Lease | None:
            if answers:
                may_end.touch()
            while answers and not results:
                started.exists()
            answers.append(request_stop(leases, plan_id))
            return answers[-1]

        request_stop = LeaseRecords.request_stop
        patched.setattr(LeaseRecords, "request_stop", once_it_has_ended)
        assert machines.there.cancel(plan.plan_id).state is PlanState.CANCELLED
    assert answers[0] is not None
    assert answers[1:] == [None]


def test_a_plan_that_does_not_run_is_cancelled_only_where_its_content_is(machines: Machines) -> None:
    plan = machines.created("false")
    machines.here.execute(plan.plan_id)
    before = machines.here.find_plan(plan.plan_id)
    with pytest.raises(StateError, match="kept on another machine"):
        machines.there.cancel(plan.plan_id)
    assert machines.here.find_plan(plan.plan_id) == before


def test_a_cancel_that_is_refused_asks_nobody_to_stop(machines: Machines) -> None:
    plan = machines.created("echo 1 > one")
    machines.here.execute(plan.plan_id)
    with leased(machines.here.store, plan.plan_id, "plan execute", on_stop_request=lambda: None):
        with pytest.raises(StateError, match="nothing to stop"):
            machines.there.cancel(plan.plan_id)
        assert not machines.here.store.get(Lease, plan.plan_id).stop_requested


def test_what_cannot_be_stopped_is_not_asked_to(machines: Machines) -> None:
    plan = machines.created("false")
    machines.here.execute(plan.plan_id)
    with leased(machines.here.store, plan.plan_id, "plan rollback"):
        with pytest.raises(ConflictError, match="in use by `plan rollback`"):
            machines.there.cancel(plan.plan_id, patience_seconds=0)
        assert not machines.here.store.get(Lease, plan.plan_id).stop_requested


def test_what_may_listen_because_an_earlier_version_took_the_lease_is_asked_to_stop(machines: Machines) -> None:
    plan = machines.created("false")
    machines.here.execute(plan.plan_id)
    store = machines.here.store
    with leased(store, plan.plan_id, "plan execute") as lease:
        store.save(lease.model_copy(update={"listens": None}))
        with pytest.raises(ConflictError, match="was asked to stop and has not stopped yet"):
            machines.there.cancel(plan.plan_id, patience_seconds=0)
        assert store.get(Lease, plan.plan_id).stop_requested


# A copied home


class Copies:
    """A home, and others made of it, on the same records."""

    def __init__(self, workshop: Workshop, url: str) -> None:
        self.workshop, self._url = workshop, url
        self.original = workshop.home

    def copied(self, name: str) -> Path:
        return shutil.copytree(self.original, self.workshop.folder / name, symlinks=True)

    @contextmanager
    def opened(self, home: Path) -> Iterator[Holdfast]:
        overrides = {"database.url": self._url}
        environment = dict(os.environ)
        with Holdfast.open(self.workshop.app, home=home, environment=environment, overrides=overrides) as holdfast:
            yield holdfast


@pytest.fixture
def copies(postgres: PostgresServer, tmp_path: Path) -> Copies:
    return Copies(Workshop(tmp_path), postgres.new_database())


def begun(copies: Copies, home: Path) -> Plan:
    """Its first step is done, the second fails until there is a folder ``ready``."""
    ready = copies.workshop.folder / "ready"
    file = copies.workshop.plan_file(
        run("echo 1 > one"), run(f"test -d {ready} && echo 2 > two"), run("echo 3 > three")
    )
    with copies.opened(home) as holdfast:
        plan = holdfast.execute(holdfast.create_plan(file).plan_id).plan
    assert plan.state is PlanState.ERRORED
    ready.mkdir()
    return plan


def test_what_a_copy_of_the_home_did_is_not_taken_for_done_in_the_original(copies: Copies) -> None:
    plan = begun(copies, copies.original)
    copy = copies.copied("copy")
    with copies.opened(copy) as holdfast:
        first = holdfast.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
        holdfast.rollback(plan.plan_id, first)
    for use in (
        lambda holdfast: holdfast.execute(plan.plan_id),
        lambda holdfast: holdfast.rollback(plan.plan_id, first),
        lambda holdfast: holdfast.rollback_preview(plan.plan_id, first),
        lambda holdfast: holdfast.diff(plan.plan_id),
    ):
        with copies.opened(copies.original) as holdfast, pytest.raises(StateError, match="last used from another home"):
            use(holdfast)
    with copies.opened(copies.original) as holdfast:
        assert holdfast.verify().checkpoints == 0
    with copies.opened(copy) as holdfast:
        assert holdfast.execute(plan.plan_id).plan.state is PlanState.COMPLETE
        assert sorted(each.path for each in holdfast.diff(plan.plan_id)) == ["one", "three", "two"]


def test_a_home_moved_by_copying_goes_on(copies: Copies) -> None:
    plan = begun(copies, copies.original)
    moved = copies.copied("moved")
    shutil.rmtree(copies.original)
    for _ in range(2):
        with copies.opened(moved) as holdfast:
            assert holdfast.execute(plan.plan_id).plan.state is PlanState.COMPLETE
