"""What a small checkpoint adds while the kernel tells of changes is written as one parcel, and unpacked later."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from holdfast.content import room
from holdfast.content.format import Entry, encode_directory, with_entry_replaced
from holdfast.content.store import ObjectStore
from holdfast.content.verify import Verifier
from holdfast.errors import ContentError, QuotaError
from holdfast.model import Phase
from holdfast.system import sqlite
from tests.support.snapshots import PLAN_ID, SANDBOX_ID, Place
from tests.support.trees import compare, describe, write


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A tree that is known and watched."""
    place = Place(tmp_path, watching=True)
    write(place.root / "one", "one")
    write(place.root / "deep" / "two", "two")
    place.take()
    yield place
    place.close()


def question(place: Place, sql: str, *parameters: bytes) -> list[tuple[object, ...]]:
    connection = sqlite.module.connect(place.store / "objects.db")
    try:
        with connection:
            rows: list[tuple[object, ...]] = connection.execute(sql, parameters).fetchall()
            return rows
    finally:
        connection.close()


def parcels(place: Place) -> int:
    [(count,)] = question(place, "SELECT count(*) FROM parcel")
    assert isinstance(count, int)
    return count


def has_row(place: Place, content: bytes) -> bool:
    return bool(question(place, "SELECT 1 FROM object WHERE digest = ?", blake3(content).digest()))


def test_a_small_change_is_one_parcel_until_the_store_is_closed(place: Place):
    write(place.root / "one", "changed")
    checkpoint = place.take()
    assert parcels(place) == 1
    assert not has_row(place, b"changed")
    place.next_process()
    assert parcels(place) == 0
    assert has_row(place, b"changed")
    assert place.manager.get_checkpoint(checkpoint.checkpoint_id) == checkpoint
    assert place.manager.objects.damaged() == []


def test_what_is_in_parcels_is_restored(place: Place):
    states = []
    for number in range(5):
        write(place.root / "one", f"version {number}")
        write(place.root / "deep" / f"file {number}", f"file {number}")
        states.append((place.take(), describe(place.root)))
    assert parcels(place) == 5
    for checkpoint, before in reversed(states):
        place.go_back(checkpoint)
        assert compare(before, describe(place.root)) == []


def test_another_process_reads_what_is_in_a_parcel(place: Place):
    write(place.root / "one", "changed")
    state = place.take().state_hash
    other = ObjectStore(place.store / "objects.db")
    assert other.read(blake3(b"changed").digest()) == b"changed"
    assert other.has(bytes.fromhex(state))
    assert other.damaged() == []
    assert Verifier(other).bad_objects_of(state) == frozenset()
    other.close()
    assert parcels(place) == 1, "who wrote no parcel leaves those of others alone"


def test_what_a_killed_process_left_in_parcels_is_unpacked_by_the_next_that_writes_one(place: Place, tmp_path: Path):
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tests.support.snapshots import Place\n"
        "place = Place(Path(sys.argv[1]), watching=True)\n"
        "place.take()\n"
        "(place.root / 'one').write_text('before the kill')\n"
        "print(place.take().state_hash, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    said = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert said.returncode == -9
    assert parcels(place) == 1
    write(place.root / "one", "after the kill")
    place.take()
    place.go_back(said.stdout.strip())
    assert (place.root / "one").read_text() == "before the kill"
    place.next_process()
    assert parcels(place) == 0
    place.go_back(said.stdout.strip())
    assert place.manager.objects.damaged() == []


def test_parcels_are_unpacked_when_there_is_much_in_them(place: Place):
    for _ in range(8):
        write(place.root / "one", os.urandom(100_000))
        checkpoint, before = place.take(), describe(place.root)
    assert parcels(place) < 8
    write(place.root / "one", "something else")
    place.take()
    place.go_back(checkpoint)
    assert compare(before, describe(place.root)) == []


@pytest.mark.parametrize("size", [600_000, 5_000_000])
def test_a_large_change_gets_rows_at_once(place: Place, size: int):
    write(place.root / "one", os.urandom(size))
    checkpoint, before = place.take(), describe(place.root)
    assert parcels(place) == 0
    (place.root / "one").unlink()
    place.go_back(checkpoint)
    assert compare(before, describe(place.root)) == []


def test_many_small_changes_get_rows_at_once(place: Place):
    for number in range(300):
        write(place.root / "deep" / str(number), str(number))
    place.take()
    assert parcels(place) == 0
    assert has_row(place, b"299")


def test_content_that_is_known_already_is_dropped_when_its_parcel_is_unpacked(place: Place):
    write(place.root / "copy", "one")
    place.take()
    assert parcels(place) == 1
    place.manager.objects.unpack_parcels()
    [(count,)] = question(place, "SELECT count(*) FROM object WHERE digest = ?", blake3(b"one").digest())
    assert count == 1


def test_a_file_that_was_only_touched_adds_its_directory_but_not_its_content(place: Place):
    content = os.urandom(50_000)
    write(place.root / "one", content)
    place.take()
    os.utime(place.root / "one")
    assert 0 < place.take().size_bytes < 5_000


def test_what_changed_and_changed_back_adds_nothing(place: Place):
    first = place.take()
    (place.root / "one").chmod(0o600)
    (place.root / "one").chmod(0o644)
    again = place.take(previous=first)
    assert (again.state_hash, again.size_bytes) == (first.state_hash, 0)
    assert parcels(place) == 0


def test_collecting_keeps_what_is_needed_of_parcels_and_frees_the_rest(place: Place):
    write(place.root / "one", os.urandom(100_000))
    place.take()
    write(place.root / "one", "kept")
    kept, before = place.take(), describe(place.root)
    assert place.collect(lambda: {kept.state_hash}) >= 100_000
    assert parcels(place) == 0
    write(place.root / "one", "something else")
    place.go_back(kept)
    assert compare(before, describe(place.root)) == []


HARMS = {
    "cut off": "UPDATE parcel SET data = substr(data, 1, length(data) - 9)",
    "something else": "UPDATE parcel SET data = x'01' || 'rotten'",
    "more than any parcel holds": "UPDATE parcel SET data = x'0128B52FFDE0FFFFFFFFFFFFFF7F'",
    "plain, but no list": "UPDATE parcel SET data = x'00C3'",
    "no bytes at all": "UPDATE parcel SET data = 17",
    "a list of something else": "UPDATE parcel SET data = CAST(x'0091C401FF' AS BLOB)",
}


@pytest.mark.parametrize("is_unpacked", [False, True], ids=["in the parcel", "unpacked"])
@pytest.mark.parametrize("sql", HARMS.values(), ids=HARMS)
def test_a_damaged_parcel_stops_a_restore_before_a_file_is_touched(place: Place, sql: str, is_unpacked: bool):
    write(place.root / "one", "wanted")
    checkpoint = place.take()
    write(place.root / "one", "something else")
    question(place, sql)
    if is_unpacked:
        place.manager.objects.unpack_parcels()
    before = describe(place.root)
    with pytest.raises(ContentError, match="damaged"):
        place.go_back(checkpoint)
    assert compare(before, describe(place.root)) == []
    verifier = Verifier(place.manager.objects)
    assert bytes.fromhex(checkpoint.state_hash) in verifier.bad_objects_of(checkpoint.state_hash)
    assert not verifier.missing
    assert blake3(b"wanted").digest() in place.manager.objects.damaged()


def test_content_of_a_damaged_parcel_is_stored_anew_when_it_comes_by_again(place: Place):
    write(place.root / "one", "wanted")
    checkpoint, before = place.take(), describe(place.root)
    question(place, HARMS["cut off"])
    with pytest.raises(ContentError):
        place.manager.objects.read(blake3(b"wanted").digest())
    assert place.take().state_hash == checkpoint.state_hash
    write(place.root / "one", "something else")
    place.take()
    place.go_back(checkpoint)
    assert compare(before, describe(place.root)) == []
    assert place.manager.objects.damaged() == []


def lose_the_end_of_the_last_parcel(place: Place) -> None:
    last = "number = (SELECT max(number) FROM parcel)"
    question(place, f"UPDATE parcel SET data = substr(data, 1, length(data) - 9) WHERE {last}")


@pytest.mark.parametrize("is_unpacked", [False, True])
def test_content_that_was_in_a_damaged_parcel_is_stored_anew_also_by_who_knows_nothing(place: Place, is_unpacked: bool):
    write(place.root / "one", "precious" * 10)
    checkpoint = place.take()
    lose_the_end_of_the_last_parcel(place)
    if is_unpacked:
        place.next_process()
    for cache in place.caches:
        cache.unlink()
    place.manager.indexes.forget(place.root)
    assert place.take().state_hash == checkpoint.state_hash
    write(place.root / "one", "wrecked")
    place.go_back(checkpoint)
    assert (place.root / "one").read_text() == "precious" * 10


@pytest.mark.parametrize("is_unpacked", [False, True])
def test_a_damaged_parcel_does_not_harm_content_that_is_sound_in_another(place: Place, is_unpacked: bool):
    write(place.root / "one", "precious")
    checkpoint = place.take()
    write(place.root / "copy", "precious")
    place.take()
    lose_the_end_of_the_last_parcel(place)
    if is_unpacked:
        place.next_process()
    (place.root / "copy").unlink()
    write(place.root / "one", "wrecked")
    place.go_back(checkpoint)
    assert (place.root / "one").read_text() == "precious"


@pytest.mark.parametrize("is_unpacked", [False, True])
def test_sound_content_in_a_parcel_stands_in_for_a_damaged_row(place: Place, is_unpacked: bool):
    checkpoint = place.take()
    write(place.root / "copy", "one")
    place.take()
    assert parcels(place) == 1
    question(place, "UPDATE object SET data = x'00' WHERE digest = ?", blake3(b"one").digest())
    for _ in range(2):
        write(place.root / "one", "wrecked")
        place.go_back(checkpoint)
        assert (place.root / "one").read_text() == "one"
        if is_unpacked:
            place.manager.objects.unpack_parcels()
            write(place.root / "copy", "one")


def test_what_nobody_needs_goes_from_parcels_that_could_not_be_unpacked(place: Place, monkeypatch: pytest.MonkeyPatch):
    """A state lives as long as what lies below it: one left in a parcel would be trusted by who knows the tree."""
    write(place.root / "one", os.urandom(700_000))
    kept = place.take()
    write(place.root / "one", os.urandom(700_000))
    place.take()
    write(place.root / "deep" / "two", "and more")
    last = place.take()
    assert parcels(place) == 1
    with monkeypatch.context() as full:
        full.setattr(room, "free_bytes", lambda _: 0)
        assert place.collect(lambda: {kept.state_hash}) > 700_000
    assert parcels(place) == 0
    again = place.take()
    assert again.state_hash == last.state_hash
    assert again.size_bytes > 700_000
    assert Verifier(place.manager.objects).bad_objects_of(again.state_hash) == frozenset()


def test_what_is_needed_stays_in_parcels_that_could_not_be_unpacked(place: Place, monkeypatch: pytest.MonkeyPatch):
    write(place.root / "one", "needed")
    kept = place.take()
    write(place.root / "one", "not needed")
    place.take()
    with monkeypatch.context() as full:
        full.setattr(room, "free_bytes", lambda _: 0)
        assert place.collect(lambda: {kept.state_hash}) > 0
    assert not place.manager.objects.has(blake3(b"not needed").digest())
    place.go_back(kept)
    assert (place.root / "one").read_text() == "needed"


def test_where_there_is_a_limit_new_content_counts_as_what_it_takes_in_the_end(place: Place):
    """Packed together, twenty files that are nearly the same take as little as one."""
    place.manager.objects.unpack_parcels()
    limit_bytes = place.manager.objects.content_bytes() + 200_000
    same = os.urandom(20_000)
    for number in range(20):
        (place.root / f"file {number}").write_bytes(b"%d" % number + same)
    with pytest.raises(QuotaError), place.manager.storing(limit_bytes) as batch:
        place.manager.create_checkpoint(
            batch, sandbox_id=SANDBOX_ID, plan_id=PLAN_ID, phase=Phase.EXECUTE, path=place.root, metadata={}
        )


def test_unpacking_keeps_what_is_sound_although_another_process_found_its_row_damaged(place: Place):
    write(place.root / "copy", "one")
    place.take()
    question(place, "UPDATE object SET data = x'00' WHERE digest = ?", blake3(b"one").digest())
    other = ObjectStore(place.store / "objects.db")
    assert other.read(blake3(b"one").digest()) == b"one"
    other.close()
    place.manager.objects.unpack_parcels()
    assert parcels(place) == 0
    assert place.manager.objects.read(blake3(b"one").digest()) == b"one"


ODD = {
    "an object's content is text": "UPDATE object SET data = CAST(data || x'FF' AS TEXT)",
    "an object's name is text": "UPDATE object SET digest = CAST(digest || x'FF' AS TEXT)",
    "an object's size is text": "UPDATE object SET size_bytes = 'x'",
    "an object's size is bytes": "UPDATE object SET size_bytes = x'00'",
}


@pytest.mark.parametrize("sql", ODD.values(), ids=ODD)
def test_what_is_not_of_its_type_any_more_is_damaged_and_stored_anew(place: Place, sql: str):
    """One bit makes of bytes a text; that need not be one."""
    before, checkpoint = describe(place.root), place.take()
    place.next_process()
    question(place, sql)
    write(place.root / "one", "wrecked")
    with pytest.raises(ContentError):
        place.go_back(checkpoint)
    place.manager.objects.damaged()
    write(place.root / "one", "one")
    os.utime(place.root / "one", ns=(before[b"one"].mtime_ns, before[b"one"].mtime_ns))
    place.next_process()
    again = place.take()
    assert Verifier(place.manager.objects).bad_objects_of(again.state_hash) == frozenset()


def test_names_of_a_parcel_that_are_no_names_are_no_objects(place: Place):
    write(place.root / "one", "wanted")
    checkpoint = place.take()
    question(place, "UPDATE parcel SET digests = 17")
    with pytest.raises(ContentError, match="missing"):
        place.manager.objects.read(bytes.fromhex(checkpoint.state_hash))


def test_a_store_without_parcels_gets_them(place: Place):
    checkpoint, before = place.take(), describe(place.root)
    place.close()
    question(place, "DROP TABLE parcel")
    question(place, "UPDATE meta SET value = '1' WHERE key = 'version'")
    [(store_id,)] = question(place, "SELECT value FROM meta WHERE key = 'store_id'")
    place._open()
    assert place.manager.objects.store_id == store_id
    assert question(place, "SELECT value FROM meta WHERE key = 'version'") == [("4",)]
    place.take()
    write(place.root / "one", "changed")
    place.take()
    assert parcels(place) == 1
    place.go_back(checkpoint)
    assert compare(before, describe(place.root)) == []


def test_parcels_that_cannot_be_unpacked_stay_as_they_are(place: Place):
    write(place.root / "one", "changed")
    checkpoint = place.take()
    # Somebody else is writing, and this connection does not wait.
    place.manager.objects.database.connection.execute("PRAGMA busy_timeout = 0")
    other = sqlite.module.connect(place.store / "objects.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    place.manager.objects.unpack_parcels()
    other.execute("ROLLBACK")
    other.close()
    assert parcels(place) == 1
    assert place.manager.objects.read(bytes.fromhex(checkpoint.state_hash))
    place.manager.objects.unpack_parcels()
    assert parcels(place) == 0


names = st.binary(min_size=1, max_size=4).filter(lambda name: b"/" not in name and b"\0" not in name)
entries = st.builds(
    Entry,
    name=names,
    kind=st.integers(0, 4),
    mode=st.integers(0, 0o7777),
    mtime_ns=st.integers(-(2**40), 2**62),
    uid=st.integers(-1, 70_000),
    gid=st.integers(-1, 70_000),
    size=st.integers(0, 2**40),
    content=st.binary(max_size=33),
    xattrs=st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=12)), max_size=2).map(tuple),
)


@pytest.mark.unmeasured
@given(st.lists(entries, min_size=1, max_size=12, unique_by=lambda entry: entry.name), st.data())
def test_a_directory_with_one_entry_replaced_is_encoded_as_if_it_were_encoded_anew(
    listed: list[Entry], data: st.DataObject
):
    listing = {entry.name: entry for entry in listed}
    old = data.draw(st.sampled_from(listed))
    new = Entry(
        old.name, *data.draw(entries.map(lambda entry: tuple(getattr(entry, f) for f in entry.__struct_fields__[1:])))
    )
    replaced = with_entry_replaced(encode_directory(listing), old, new)
    assert replaced in (None, encode_directory({**listing, old.name: new}))


def test_an_entry_whose_bytes_are_also_in_an_attribute_is_not_replaced_there():
    old = Entry(b"b", 0, 0o644, 1, 0, 0, 3, b"x" * 32)
    encoded = encode_directory({b"b": old})[1:]
    other = Entry(b"a", 0, 0o644, 1, 0, 0, 3, b"y" * 32, ((b"user.trap", encoded),))
    listing = {b"a": other, b"b": old}
    assert with_entry_replaced(encode_directory(listing), old, Entry(b"b", 0, 0o600, 2, 0, 0, 3, b"z" * 32)) is None
