"""The campaign finds bugs that were planted: patched into this process, of which the commands are forks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoints.releasing import Release
from holdfast.content.batch import Batch
from holdfast.content.keeping import Keeping
from holdfast.content.store import ObjectStore
from holdfast.db.store import Store
from holdfast.snapshot.manager import CheckpointManager
from holdfast.system import sqlite
from tests.faults import homes
from tests.faults.gate import FAILURES, fail_at, stop_at
from tests.faults.power import bench_on, why_not
from tests.faults.trial import Bench, Outcome, Reference
from tests.faults.verbs import VERBS, Verb

VERB = {verb.name: verb for verb in VERBS}
LOOKING_AT_ONCE = 1
"""The way to go on in which everything recorded is read back first."""
Patch = pytest.MonkeyPatch


def killed_while_content_is_written(bench: Bench, verb: Verb) -> Iterator[Outcome]:
    """At every third such call of the verb as it is now, planted bug and all."""
    calls = [call for call in Reference(bench.world, verb).calls if call.path == "home/objects.db-wal"]
    for call in calls[::3]:
        yield bench.try_out(verb, stop_at(call.number), way=LOOKING_AT_ONCE)


def found_by(outcomes: Iterator[Outcome]) -> list[str]:
    """What the first trial that did not hold says."""
    return next((outcome.problems for outcome in outcomes if not outcome.held), [])


def test_without_a_planted_bug_nothing_is_found(bench: Bench) -> None:
    assert found_by(killed_while_content_is_written(bench, VERB["checkpoint"])) == []


def test_a_record_before_its_content_is_found(bench: Bench, monkeypatch: Patch) -> None:
    storing = CheckpointManager.storing

    @contextmanager
    def storing_and_writing_later(self: CheckpointManager, limit_bytes: int | None = None) -> Iterator[Batch]:
        with storing(self, limit_bytes) as batch:
            monkeypatch.setattr(batch, "commit", lambda: None, raising=False)
            yield batch
            Batch.commit(batch)

    monkeypatch.setattr(CheckpointManager, "storing", storing_and_writing_later)
    problems = found_by(killed_while_content_is_written(bench, VERB["checkpoint"]))
    assert any("checkpoints right after the fault" in each for each in problems), problems


def test_an_object_under_its_name_before_it_is_whole_is_found(bench: Bench, monkeypatch: Patch) -> None:
    insert = ObjectStore.insert

    def insert_in_two_steps(
        self: ObjectStore, rows: list[Any], parcels: list[Any], snapshots: list[Any], *more: Any
    ) -> None:
        insert(self, [(digest, size, b"") for digest, size, _ in rows], parcels, [])
        with self.database.writing():
            changes = [(data, digest) for digest, _, data in rows]
            self.database.connection.executemany("UPDATE object SET data = ? WHERE digest = ?", changes)
        insert(self, [], [], snapshots, *more)

    monkeypatch.setattr(ObjectStore, "insert", insert_in_two_steps)
    problems = found_by(killed_while_content_is_written(bench, VERB["checkpoint"]))
    assert any("damaged" in each for each in problems), problems


def test_a_write_into_the_users_files_before_apply_is_found(bench: Bench, monkeypatch: Patch) -> None:
    remember = CheckpointManager.remember

    def remember_and_touch(self: CheckpointManager) -> None:
        os.utime(bench.world.app / "mine.txt")
        remember(self)

    # What it is compared with is made without the bug.
    assert bench.try_out(VERB["rollback"], stop_at(10**6)).problems == []
    monkeypatch.setattr(CheckpointManager, "remember", remember_and_touch)
    problems = bench.try_out(VERB["rollback"], stop_at(10**6)).problems
    assert any("mine.txt" in each for each in problems), problems


def test_an_error_that_is_passed_over_is_found(bench: Bench, monkeypatch: Patch) -> None:
    """The content is not stored, and the command says that all went well."""

    def insert_or_not(self: ObjectStore, *what: Any) -> None:
        with suppress(Exception):
            insert(self, *what)

    insert = ObjectStore.insert
    monkeypatch.setattr(ObjectStore, "insert", insert_or_not)
    calls = Reference(bench.world, VERB["checkpoint"]).calls
    points = [call.number for call in calls if call.path.endswith("objects.db-wal") and call.name == "fsync"]
    keepers = [fail_at(number, FAILURES[0]) for number in points]
    outcomes = (bench.try_out(VERB["checkpoint"], each, way=LOOKING_AT_ONCE, kills=False) for each in keepers)
    problems = found_by(outcomes)
    assert any("missing" in each for each in problems), problems


def test_a_collection_that_asks_only_the_records_in_use_is_found(bench: Bench, monkeypatch: Patch) -> None:
    @contextmanager
    def of_present(self: Release) -> Iterator[Sequence[Store]]:
        yield (self._present,)

    monkeypatch.setattr(Release, "records", of_present)
    monkeypatch.setattr(Release, "check", lambda *_: [])
    monkeypatch.setattr(Keeping, "keeps_for_others", lambda *_: False)
    problems = homes.two_record_stores(bench, 0).problems
    assert any("checkpoint verify" in each for each in problems), problems


def test_records_that_are_made_anew_in_place_of_lost_ones_are_found(bench: Bench, monkeypatch: Patch) -> None:
    monkeypatch.setattr("holdfast.parts.kept_records", lambda _: {})
    monkeypatch.setattr(homes, "_keeps_content", lambda _: True)
    problems = homes.records_lost(bench, 0).problems
    assert any("with missing records" in each for each in problems), problems


def test_paths_that_lead_to_where_the_home_was_are_found(bench: Bench, monkeypatch: Patch) -> None:
    before = bench.world.home
    monkeypatch.setattr("holdfast.db.placing.in_home", lambda stored, *_: f"{before}/{stored}")
    problems = homes.moved_home(bench, 0).problems
    assert any("plan rollback" in each or "where the home was" in each for each in problems), problems


def _no_flush_of_files(monkeypatch: Patch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def _no_flush_of_records(monkeypatch: Patch) -> None:
    configure = sqlite._configure

    def configure_carelessly(connection: Any, path: Path, auto_vacuum: bool) -> None:
        configure(connection, path, auto_vacuum)
        connection.execute("PRAGMA synchronous = OFF")

    monkeypatch.setattr(sqlite, "_configure", configure_carelessly)


TRIES = 5
"""Trials beside this one have all disks flushed now and then, which may save what was not."""


@pytest.mark.parametrize(
    ("verb", "plant", "lost"),
    [("apply", _no_flush_of_files, "the user's files"), ("checkpoint", _no_flush_of_records, "labels")],
    ids=["files", "records"],
)
def test_a_missing_fsync_is_found(
    bench: Bench, place: Path, monkeypatch: Patch, verb: str, plant: Callable[[Patch], None], lost: str
) -> None:
    if why_not("ext4"):
        pytest.skip(f"power cuts on ext4: {why_not('ext4')}")
    powered = bench_on("ext4", place)
    powered.reference(VERB[verb])
    plant(monkeypatch)
    for _ in range(TRIES):
        problems = powered.cut_at(VERB[verb], None).problems
        if any(lost in each for each in problems):
            return
    pytest.fail(f"Not found: {problems}")
