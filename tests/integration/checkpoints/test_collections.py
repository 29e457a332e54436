"""A collection costs what it frees, whatever else is stored, and leaves exactly what the records need."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from benchmarks.command_line import fill
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from holdfast.app import Holdfast
from holdfast.checkpoints import garbage
from holdfast.checkpoints.releasing import Release
from holdfast.content.counts import Counts
from holdfast.content.difference import StateReader
from holdfast.content.keeping import Keeping
from holdfast.content.tally import Tally
from holdfast.db.collecting import CollectionRecords
from holdfast.db.store import Store
from holdfast.errors import StateError
from holdfast.execution.beginning import Beginning
from holdfast.model import Plan
from holdfast.system import sqlite
from tests.integration.db.test_lost_records import copied, put_back
from tests.support.detached import run_to_the_end
from tests.support.snapshots import needed_objects
from tests.support.trees import fast_disk, write
from tests.support.workshop import Workshop, run


def assert_exact(opened: Holdfast) -> None:
    """The store holds what the records need and nothing else, and the records know what they name."""
    objects = opened.service.manager.objects
    needed = opened.store.referenced_states(objects.store_id)
    stored = {row[0] for row in objects.database.rows("SELECT digest FROM object")}
    assert stored | objects.parcels.numbers().keys() == needed_objects(StateReader(objects), needed)
    named = {str(row[0]) for row in opened.store.execute("SELECT state FROM named_state")}
    assert named == needed
    assert opened.verify().is_sound


def counts_everything(opened: Holdfast, action: Callable[[], object]) -> bool:
    """Whether a collection in that action reads everything that is kept."""
    asked: list[str] = []
    connection = opened.service.manager.objects.database.connection
    connection.set_trace_callback(asked.append)
    action()
    connection.set_trace_callback(None)
    assert any(each.startswith("DELETE FROM new_state") for each in asked), "nothing was collected"
    return any(each == "DELETE FROM reference" for each in asked)


# What it costs


class Work(Counter[str]):
    """Steps of SQLite's virtual machine, in tens, by file."""


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    counted, connect = Work(), sqlite.module.connect

    def connected(path: Any, *args: Any, **options: Any) -> Any:
        connection = connect(path, *args, **options)
        name = Path(str(path)).name.partition("?")[0]
        connection.set_progress_handler(lambda: counted.update([name]), 10)
        return connection

    monkeypatch.setattr(sqlite.module, "connect", connected)
    return counted


COMMANDS: dict[str, Callable[[Holdfast, str], object]] = {
    "find": lambda holdfast, plan: holdfast.find_plan(plan),
    "latest": lambda holdfast, _: holdfast.find_plan("latest"),
    "list": lambda holdfast, _: holdfast.list_plans(limit=5),
    "status": lambda holdfast, plan: holdfast.status(plan),
    "create": lambda holdfast, plan: holdfast.create_plan(Path(holdfast.find_plan(plan).source_file)),
    "checkpoint": lambda holdfast, plan: holdfast.create_checkpoint(plan),
    "prune": lambda holdfast, plan: holdfast.prune(plan, keep=2),
    "delete": lambda holdfast, plan: (holdfast.find_damaged_plan(plan), holdfast.delete(plan)),
}


def _costs(folder: Path, work: Work, plans: int) -> dict[str, Counter[str]]:
    """The work of each command on one plan in a home with so many others, each with ten checkpoints."""
    fill(folder / "project", folder / "home", plans, plans * 10)
    found = {}
    for name, command in COMMANDS.items():
        with Holdfast.open(folder / "project", home=folder / "home") as holdfast:
            if name == "find":
                plan = holdfast.create_plan(folder / "project" / "plan.yaml").plan_id
                holdfast.execute(plan)
        work.clear()
        with Holdfast.open(folder / "project", home=folder / "home") as holdfast:
            command(holdfast, plan)
        found[name] = Counter(work)
    return found


@pytest.mark.unmeasured
def test_a_command_on_one_plan_costs_the_same_however_many_others_there_are(tmp_path: Path, work: Work) -> None:
    few, many = (_costs(tmp_path / str(plans), work, plans) for plans in (10, 200))
    for name, costs in few.items():
        for file, steps in costs.items():
            # Searching a larger index takes a step more here and there.
            assert many[name][file] <= steps * 1.1 + 10, (name, file, steps, many[name][file])


@pytest.mark.unmeasured
def test_pruning_costs_the_same_however_much_other_plans_have_stored(tmp_path: Path, work: Work) -> None:
    found = {}
    for others in (0, 12):
        folder = tmp_path / str(others)
        folder.mkdir()
        workshop = Workshop(folder)
        for number in range(others):
            for folders in range(40):
                place = workshop.data / f"folder {number} {folders}"
                place.mkdir()
                (place / "file").write_text(f"{number} {folders}")
            workshop.open().execute(workshop.create(run(f"echo {number} > other")).plan_id)
        for path in workshop.data.glob("folder *"):
            shutil.rmtree(path)
        plan = workshop.create(run("echo 1 > file"), run("echo 2 > file"), run("echo 3 > file"))
        workshop.open().execute(plan.plan_id)
        workshop.open().service.garbage.collect()
        workshop.close()
        work.clear()
        with Holdfast.open(workshop.app, home=workshop.home) as holdfast:
            assert holdfast.prune(plan.plan_id, keep=2) > 0
        found[others] = Counter(work)
    for file, steps in found[0].items():
        assert found[12][file] <= steps * 1.1 + 10, (file, steps, found[12][file])


# What is left


DIES_AT = [
    (CollectionRecords, "set_mark"),
    (CollectionRecords, "is_needed"),
    (CollectionRecords, "forget_given_up"),
    (Counts, "put"),
    (Tally, "collected"),
    (Keeping, "begin_collection"),
    (Keeping, "end_collection"),
]


class Died(BaseException):
    pass


def _dies(*_: object) -> None:
    raise Died


class AnyHistory(RuleBasedStateMachine):
    """Plans with and without subplans, applied and unapplied, rolled back, pruned and deleted; collections that die."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=fast_disk()))
        self.workshop = Workshop(self.folder)
        self.plans: list[Plan] = []

    def teardown(self) -> None:
        self.workshop.close()
        while self.folder.exists():
            shutil.rmtree(self.folder, ignore_errors=True)

    @initialize()
    def first_plan(self) -> None:
        self.make_plan(False)

    @rule(is_divided=st.booleans())
    def make_plan(self, is_divided: bool) -> None:
        number = len(self.plans)
        steps: list[dict[str, Any]] = [run(f"echo {number} > file")]
        if is_divided:
            subplans = [{"name": name, "steps": [run(f"echo {number} > {name}")]} for name in ("left", "right")]
            steps.append({"name": "both", "subplans": subplans})
        plan = self.workshop.create(*steps)
        assert self.workshop.open().execute(plan.plan_id).succeeded
        self.plans.append(plan)

    def _any(self, choice: int) -> Plan | None:
        return self.plans[choice % len(self.plans)] if self.plans else None

    @rule(choice=st.integers(0, 9), content=st.sampled_from(["a", "b", "c"]))
    def checkpoint(self, choice: int, content: str) -> None:
        if plan := self._any(choice):
            (self.workshop.sandbox(plan) / "by hand").write_text(content)
            self.workshop.open().create_checkpoint(plan.plan_id)

    @rule(choice=st.integers(0, 9), where=st.integers(0, 9))
    def roll_back(self, choice: int, where: int) -> None:
        if plan := self._any(choice):
            groups = self.workshop.groups(plan)
            with suppress(StateError):  # it is applied
                self.workshop.open().rollback(plan.plan_id, groups[where % len(groups)].group_id)

    @rule(choice=st.integers(0, 9))
    def apply_and_take_back(self, choice: int) -> None:
        if plan := self._any(choice):
            opened = self.workshop.open()
            with suppress(StateError):  # it is not complete
                opened.apply(plan.plan_id)
                opened.unapply(plan.plan_id)

    @rule(choice=st.integers(0, 9), keep=st.integers(2, 4))
    def prune(self, choice: int, keep: int) -> None:
        if plan := self._any(choice):
            self.workshop.open().prune(plan.plan_id, keep=keep)
            assert_exact(self.workshop.open())

    @rule(choice=st.integers(0, 9))
    def delete(self, choice: int) -> None:
        if plan := self._any(choice):
            self.workshop.open().delete(plan.plan_id)
            self.plans.remove(plan)
            assert_exact(self.workshop.open())

    @rule(choice=st.integers(0, 9), dies_at=st.sampled_from(DIES_AT))
    def die_while_deleting(self, choice: int, dies_at: tuple[type, str]) -> None:
        if plan := self._any(choice):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(*dies_at, _dies)
                with suppress(Died):
                    self.workshop.open().delete(plan.plan_id)
            self.plans.remove(plan)
            self.workshop.close()


@pytest.mark.unmeasured
def test_s7_after_any_history_a_collection_leaves_exactly_what_the_records_need() -> None:
    run_state_machine_as_test(
        AnyHistory,
        settings=settings(
            max_examples=8, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


# When a deleted plan is not waited for


def test_a_plan_that_gives_up_little_does_not_have_all_that_was_added_counted(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "_MANY_OBJECTS", 1)
    _ran(workshop, "first")
    opened, second = workshop.open(), _ran(workshop, "second")
    opened.delete(second.plan_id)
    objects = opened.service.manager.objects
    assert objects.counts.added() > 1
    # It is not lost: the next collection frees it.
    opened.service.garbage.collect()
    assert objects.counts.added() == 0
    assert_exact(opened)


_DELETE_AS_IF_MUCH_WAS_ADDED = """\
from pathlib import Path
from holdfast.app import Holdfast
from holdfast.checkpoints import garbage
garbage._MANY_OBJECTS = 1
with Holdfast.open(Path(sys.argv[1]), home=Path(sys.argv[2])) as holdfast:
    holdfast.delete(sys.argv[3])
"""


def test_content_of_a_plan_killed_before_its_first_checkpoint_is_freed_after_it_is_deleted(workshop: Workshop) -> None:
    """No checkpoint names it, so none gives it up."""
    for number in range(20):
        write(workshop.app / "random" / str(number), os.urandom(300_000))
    plan = workshop.create(run("true"))
    with pytest.MonkeyPatch.context() as patched, suppress(Died):
        patched.setattr(Beginning, "take_first_checkpoint", _dies)
        workshop.open().execute(plan.plan_id)
    opened = workshop.open()
    assert opened.service.manager.objects.content_bytes() > 6_000_000
    run_to_the_end(_DELETE_AS_IF_MUCH_WAS_ADDED, workshop.app, workshop.home, plan.plan_id)
    assert opened.service.manager.objects.content_bytes() < 1_000_000
    assert_exact(opened)


def test_a_plan_is_deleted_with_its_content_if_little_was_added(workshop: Workshop) -> None:
    _ran(workshop, "first")
    opened, second = workshop.open(), _ran(workshop, "second")
    opened.delete(second.plan_id)
    assert opened.service.manager.objects.counts.added() == 0
    assert_exact(opened)


# When it counts everything again


def _ran(workshop: Workshop, marker: str) -> Plan:
    plan = workshop.create(run(f"echo {marker} > {marker}.txt"))
    return workshop.open().execute(plan.plan_id).plan


def test_a_collection_counts_everything_only_if_the_records_are_not_those_it_knows(
    workshop: Workshop, tmp_path: Path
) -> None:
    first, second = _ran(workshop, "first"), _ran(workshop, "second")
    opened = workshop.open()
    assert not counts_everything(opened, lambda: opened.prune(first.plan_id, keep=2))
    backup = copied(workshop, tmp_path / "backup")
    opened = workshop.open()
    assert not counts_everything(opened, lambda: opened.service.garbage.collect())
    put_back(workshop, backup)
    opened = workshop.open()
    assert counts_everything(opened, lambda: opened.service.garbage.collect())
    assert opened.unfreed() is None
    assert not counts_everything(opened, lambda: opened.prune(second.plan_id, keep=2))
    assert_exact(opened)


def test_s8_records_put_back_after_the_last_collection_are_noticed(workshop: Workshop, tmp_path: Path) -> None:
    """They have the mark of that collection, but do not know what was stored since."""
    _ran(workshop, "first")
    workshop.open().service.garbage.collect()
    backup = copied(workshop, tmp_path / "older")
    second = _ran(workshop, "second")
    newer = copied(workshop, tmp_path / "newer")
    put_back(workshop, backup)
    opened = workshop.open()
    opened.service.garbage.collect()
    assert second.plan_id in (opened.unfreed() or "")
    put_back(workshop, newer)
    assert workshop.open().verify().is_sound


def test_s8_a_plan_that_was_checked_before_is_missed_in_an_older_copy_of_the_records(
    workshop: Workshop, tmp_path: Path
) -> None:
    first = _ran(workshop, "first")
    workshop.open().service.garbage.collect()
    backup = copied(workshop, tmp_path / "older")
    second = _ran(workshop, "second")
    workshop.open().service.garbage.collect()
    newer = copied(workshop, tmp_path / "newer")
    put_back(workshop, backup)
    opened = workshop.open()
    opened.prune(first.plan_id, keep=2)
    assert second.plan_id in (opened.unfreed() or "")
    put_back(workshop, newer)
    assert workshop.open().verify().is_sound


def test_s8_a_copy_of_the_records_made_during_a_collection_does_not_know_what_was_noted_after_it(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy has the mark of that collection, and is older than the lease under which a waiting process stores."""
    _ran(workshop, "first")
    second = workshop.create(run("echo 2 > second.txt"))
    set_mark, keep_for = CollectionRecords.set_mark, Release.keep_for
    is_noted = threading.Event()

    def noted(release: Release, *lease: Any) -> None:
        keep_for(release, *lease)
        is_noted.set()

    def mark_and_go_on(records: CollectionRecords, *mark: str) -> None:
        set_mark(records, *mark)
        with closing(sqlite.connect(workshop.home / "holdfast.db")) as present:
            present.execute("VACUUM INTO ?", (str(tmp_path / "copy" / "holdfast.db"),))
        running.append(pool.submit(lambda: workshop.open().execute(second.plan_id)))
        assert is_noted.wait(60)

    (tmp_path / "copy").mkdir()
    running: list[Future[Any]] = []
    with ThreadPoolExecutor(1) as pool, monkeypatch.context() as patched:
        patched.setattr(Release, "keep_for", noted)
        patched.setattr(CollectionRecords, "set_mark", mark_and_go_on)
        workshop.open().service.garbage.collect()
    assert running[0].result().succeeded
    put_back(workshop, tmp_path / "copy")
    opened = workshop.open()
    opened.service.garbage.collect()
    assert second.plan_id in (opened.unfreed() or "")


def test_what_is_given_up_while_everything_is_counted_goes_with_the_next_collection(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ran(workshop, "first")
    second = _ran(workshop, "second")
    renew_names = Store.renew_names

    def delete_then(store: Store, store_id: str) -> set[str]:
        found = renew_names(store, store_id)
        opened.service.release.let_go(second.plan_id)
        store.delete(Plan, second.plan_id)
        return found

    opened = workshop.open()
    objects = opened.service.manager.objects
    with objects.database.writing():
        objects.counts.give_up()
    with monkeypatch.context() as patched:
        patched.setattr(Store, "renew_names", delete_then)
        opened.service.garbage.collect()
    opened.service.garbage.collect()
    assert_exact(opened)


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    folder = tmp_path / "workshop"
    folder.mkdir()
    made = Workshop(folder)
    yield made
    made.close()


def test_a_collection_that_died_is_not_paid_for_by_the_next_one(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _ran(workshop, "first")
    workshop.open().service.garbage.collect()
    for dies_at in DIES_AT:
        (workshop.sandbox(plan) / "file").write_text(os.urandom(8).hex())
        workshop.open().create_checkpoint(plan.plan_id)
        with monkeypatch.context() as patched:
            patched.setattr(*dies_at, _dies)
            with pytest.raises(Died):
                workshop.open().prune(plan.plan_id, keep=2)
        workshop.close()
        opened = workshop.open()
        assert not counts_everything(opened, opened.service.garbage.collect), dies_at
        assert_exact(opened)
