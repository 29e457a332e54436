"""What a collection counts is exactly what the kept states need, whatever happened before."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from holdfast.content import database
from holdfast.content.counts import STATE, Counts
from holdfast.content.difference import StateReader
from holdfast.content.format import DIRECTORY, FILE, PIECES
from holdfast.content.store import ObjectStore
from holdfast.content.tally import Tally
from holdfast.errors import ConflictError
from holdfast.system import sqlite
from tests.support.snapshots import Place, needed_objects
from tests.support.trees import fast_disk, write


def counted_by_walking(reader: StateReader, states: set[str]) -> Counter[tuple[bytes, int]]:
    """How often each object is named, found by walking all these states."""
    found: Counter[tuple[bytes, int]] = Counter()
    seen: set[tuple[bytes, int]] = set()
    for state in states:
        found[bytes.fromhex(state), STATE] += 1
        root = reader.state(state).root
        found[root.content, DIRECTORY] += 1
        pending = [root]
        while pending:
            entry = pending.pop()
            if (entry.content, entry.kind) in seen:
                continue
            seen.add((entry.content, entry.kind))
            if entry.kind == PIECES:
                found.update((piece, FILE) for piece in reader.pieces(entry))
            if entry.kind == DIRECTORY:
                listed = [each for each in reader.directory(entry).values() if each.kind <= DIRECTORY and each.content]
                found.update((each.content, each.kind) for each in listed)
                pending += listed
    return found


def stored(objects: ObjectStore) -> set[bytes]:
    return {row[0] for row in objects.database.rows("SELECT digest FROM object")} | objects.parcels.numbers().keys()


def assert_exact(place: Place, kept: set[str]) -> None:
    """The store holds what these states need and nothing else, and has counted just that."""
    objects = place.manager.objects
    reader = StateReader(objects)
    assert stored(objects) == needed_objects(reader, kept)
    rows = objects.database.rows("SELECT digest, kind, count FROM reference")
    assert {(digest, kind): count for digest, kind, count in rows} == counted_by_walking(reader, kept)
    objects.counts.refuse_invalid()
    listed = {row[0].hex() for row in objects.database.rows("SELECT state FROM snapshot")}
    assert listed <= kept
    assert objects.damaged() == []


@pytest.fixture
def statements(place: Place) -> Iterator[list[str]]:
    """All that is asked of the content store from now on."""
    asked: list[str] = []
    place.manager.objects.database.connection.set_trace_callback(asked.append)
    yield asked
    place.manager.objects.database.connection.set_trace_callback(None)


def counts_everything(statements: list[str]) -> bool:
    return any(each.startswith("DELETE FROM reference") and "WHERE" not in each for each in statements)


class Died(BaseException):
    pass


NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "f/a"])
CONTENTS = st.sampled_from([b"", b"x", b"same", b"y" * 5000, b"large" * 900_000])


class AnyCollections(RuleBasedStateMachine):
    """Trees are changed, looked at and taken; states are given up; collections come, and some of them die."""

    watching = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=fast_disk()))
        self.place = Place(self.folder, watching=self.watching)
        self.kept: list[str] = []

    def teardown(self) -> None:
        self.place.close()
        while self.folder.exists():  # what a restore replaced may be going at the same time
            shutil.rmtree(self.folder, ignore_errors=True)

    def needed(self) -> set[str]:
        return set(self.kept)

    @rule(name=NAMES, content=CONTENTS)
    def change(self, name: str, content: bytes) -> None:
        write(self.place.root / name, content)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        (self.place.root / name).unlink(missing_ok=True)

    @rule()
    def remove_folder(self) -> None:
        shutil.rmtree(self.place.root / "d", ignore_errors=True)

    @rule(choice=st.integers(0, 9))
    def write_what_is_stored(self, choice: int) -> None:
        """A file with exactly the bytes of a state or a directory."""
        if self.kept:
            objects = self.place.manager.objects
            state = self.kept[choice % len(self.kept)]
            root = self.place.manager.reader.state(state).root
            digest = bytes.fromhex(state) if choice % 2 else root.content
            write(self.place.root / "stored", objects.read(digest))

    @rule()
    def take(self) -> None:
        self.kept.append(self.place.take().state_hash)

    @rule()
    def look(self) -> None:
        """Content that no record is going to name."""
        self.place.manager.state_of(self.place.root)

    @rule(choice=st.integers(0, 100))
    def go_back(self, choice: int) -> None:
        if self.kept:
            self.place.go_back(self.kept[choice % len(self.kept)])

    @rule(choice=st.integers(0, 100))
    def give_up(self, choice: int) -> None:
        if self.kept:
            self.kept.pop(choice % len(self.kept))

    @rule()
    def next_process(self) -> None:
        self.place.next_process(remembering=True)

    @rule()
    def damage_and_heal(self) -> None:
        content = self.place.root / "a"
        if content.is_file() and content.read_bytes() in (b"x", b"same"):
            self.take()
            self.place.damage(content.read_bytes())
            self.place.manager.objects.damaged()
            self.take()

    @rule()
    def collect(self) -> None:
        self.place.collect(self.needed)
        assert_exact(self.place, self.needed())

    @rule(dies_at=st.sampled_from([(Counts, "finish"), (Counts, "put"), (Tally, "collected")]))
    def collect_and_die(self, dies_at: tuple[type, str]) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(*dies_at, _dies)
            with pytest.raises(Died):
                self.place.collect(self.needed)
        self.place.next_process()


def _dies(*_: object) -> None:
    raise Died


class AnyWatchedCollections(AnyCollections):
    """The kernel reports what changes, so that content comes in parcels."""

    watching = True


@pytest.mark.unmeasured
@pytest.mark.parametrize("machine", [AnyCollections, AnyWatchedCollections])
def test_s7_after_any_sequence_a_collection_leaves_exactly_what_is_needed(machine: type[AnyCollections]):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_a_collection_reads_only_what_was_added_and_given_up(place: Place, root: Path, statements: list[str]):
    for number in range(50):
        write(root / f"directory {number}" / "file", str(number))
    kept = [place.take().state_hash]
    place.collect(lambda: set(kept))
    write(root / "directory 7" / "file", "changed")
    kept.append(place.take().state_hash)
    statements.clear()
    place.manager.reader = StateReader(place.manager.objects)
    place.collect(lambda: set(kept))
    kept.pop()
    place.collect(lambda: set(kept))
    read = [each for each in statements if each.startswith("SELECT digest, data, size_bytes")]
    # Each time the state, the root, and the directory that changed.
    assert len(read) <= 6
    assert not counts_everything(statements)
    assert_exact(place, set(kept))


def of_the_version_before(place: Place) -> Path:
    """Close the store and make it one that has no counts."""
    place.close()
    path = place.store / "objects.db"
    with closing(sqlite.module.connect(path)) as connection, connection:
        for table in ("reference", "new_state", "unchecked_plan", "collection"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DELETE FROM meta WHERE key = 'counted'")
        connection.execute("UPDATE meta SET value = '3' WHERE key = 'version'")
    return path


def test_a_store_of_the_version_before_is_counted_once(place: Place, root: Path):
    write(root / "file", "1")
    kept = {place.take().state_hash}
    write(root / "file", "2")
    place.take()
    of_the_version_before(place)
    place._open()
    asked: list[str] = []
    place.manager.objects.database.connection.set_trace_callback(asked.append)
    place.collect(lambda: kept)
    assert counts_everything(asked)
    assert_exact(place, kept)
    asked.clear()
    place.collect(lambda: kept)
    assert not counts_everything(asked)


def test_s7_a_store_that_a_process_of_the_version_before_has_open_stays_of_that_version(
    place: Place, root: Path, monkeypatch: pytest.MonkeyPatch
):
    """It would store more, and not list it; a collection would take that for content that nothing needs."""
    monkeypatch.setattr(database, "_UPGRADE_SECONDS", 0.1)
    write(root / "file", "1")
    kept = {place.take().state_hash}
    path = of_the_version_before(place)
    with closing(sqlite.connect(path)) as earlier:
        version = "SELECT value FROM meta WHERE key = 'version'"
        assert earlier.execute(version).fetchall() == [("3",)]
        with pytest.raises(ConflictError, match="another process has it open") as refused:
            ObjectStore(path)
        assert refused.value.hint
        assert earlier.execute(version).fetchall() == [("3",)]
        earlier.execute("INSERT INTO meta VALUES ('written', 'meanwhile')")
    place._open()
    assert place.manager.objects.database.rows(version) == [("4",)]
    assert place.manager.objects.database.row("SELECT value FROM meta WHERE key = 'written'") == ("meanwhile",)
    assert place.manager.objects.database.row("PRAGMA journal_mode") == ("wal",)
    place.collect(lambda: kept)
    assert_exact(place, kept)


def test_processes_that_find_a_store_of_the_version_before_at_once_all_go_on_with_it(place: Place, root: Path):
    write(root / "file", "1")
    kept = {place.take().state_hash}
    path = of_the_version_before(place)
    with ThreadPoolExecutor(4) as pool:
        for opened in [pool.submit(ObjectStore, path) for _ in range(4)]:
            opened.result().close()
    place._open()
    place.collect(lambda: kept)
    assert_exact(place, kept)


def test_s7_a_state_that_is_only_the_content_of_a_file_does_not_count_as_stored(place: Place, root: Path):
    write(root / "d" / "file", "1")
    state = place.take().state_hash
    elsewhere = place.folder / "elsewhere"
    write(elsewhere / "file", place.manager.objects.read(bytes.fromhex(state)))
    kept = {place.manager.state_of(elsewhere)}
    place.collect(lambda: kept)
    kept.add(place.take().state_hash)
    assert state in kept
    place.collect(lambda: kept)
    assert_exact(place, kept)


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE object SET rowid = rowid - 1",
        "UPDATE meta SET value = 'x' || value WHERE key = 'counted'",
        "UPDATE meta SET value = CAST(value AS BLOB) || x'ff' WHERE key = 'counted'",
        "UPDATE reference SET count = 'two' WHERE count = 2",
        "UPDATE reference SET count = count - 1 WHERE kind != 5",
        "UPDATE reference SET count = 1 WHERE count = 2",
        "DELETE FROM reference WHERE kind != 5",
        "UPDATE new_state SET state = x'00' || substr(state, 2)",
    ],
    ids=[
        "rows were renumbered",
        "the note is damaged",
        "the note is no text",
        "no number",
        "all are too low",
        "one is too low",
        "missing",
        "a new state",
    ],
)
def test_s7_counts_in_doubt_are_counted_again(place: Place, root: Path, harm: str):
    write(root / "aside", "soon gone")
    place.take()
    for name in ("same", "file"):
        write(root / name, name)
    (root / "aside").unlink()
    kept = {place.take().state_hash}
    write(root / "file", "2")
    other = place.take().state_hash
    place.collect(lambda: {*kept, other})
    write(root / "new", "new")
    new = place.take().state_hash
    place.close()
    with closing(sqlite.module.connect(place.store / "objects.db")) as connection, connection:
        connection.execute(harm)
    place._open()
    place.collect(lambda: {*kept, new})
    assert needed_objects(StateReader(place.manager.objects), {*kept, new}) == stored(place.manager.objects)
    place.collect(lambda: kept)
    assert_exact(place, kept)


def test_s7_an_object_that_was_there_before_and_is_not_counted_is_not_taken_for_new(place: Place, root: Path):
    write(root / "sub" / "file", "1")
    kept = {place.take().state_hash}
    place.collect(lambda: kept)
    place.close()
    with closing(sqlite.module.connect(place.store / "objects.db")) as connection, connection:
        connection.execute("UPDATE reference SET digest = x'00' || substr(digest, 2) WHERE kind = ?", (DIRECTORY,))
    place._open()
    write(root / "new", "new")
    new = place.take().state_hash
    place.collect(lambda: {*kept, new})
    place.collect(lambda: kept)
    assert_exact(place, kept)


def test_s7_a_state_that_is_stored_as_a_file_already_is_counted_as_a_state(place: Place, root: Path):
    """A program can write the bytes of a state into a file before it brings the tree into that state."""
    write(root / "sub" / "file", "1")
    times = [(path, path.stat().st_mtime_ns) for path in (root / "sub" / "file", root / "sub", root)]
    first = place.take().state_hash
    write(root / "copy", place.manager.objects.read(bytes.fromhex(first)))
    write(root / "sub" / "file", "2")
    second = place.take().state_hash
    place.collect(lambda: {second})  # the state itself goes, the file with its bytes stays
    (root / "copy").unlink()
    write(root / "sub" / "file", "1")
    for path, time_ns in times:
        os.utime(path, ns=(time_ns, time_ns))
    place.next_process()
    assert place.take().state_hash == first
    place.collect(lambda: {first, second})
    assert_exact(place, {first, second})
    place.collect(lambda: {first})
    assert_exact(place, {first})


def test_a_collection_that_cannot_read_what_was_given_up_counts_what_is_left(place: Place, root: Path):
    write(root / "kept", "kept")
    kept = {place.take().state_hash}
    write(root / "sub" / "file", "1")
    gone = place.take()
    place.collect(lambda: {*kept, gone.state_hash})
    state = place.manager.objects.read(bytes.fromhex(gone.state_hash))
    place.lose(state)
    place.collect(lambda: kept)
    assert_exact(place, kept)
