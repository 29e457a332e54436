"""S1: an object never changes; its name is the digest of its content, checked whenever it is read for a restore."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.content.difference import StateReader
from holdfast.content.format import encode_directory, encode_pieces, encode_state
from holdfast.content.store import ObjectStore
from holdfast.content.verify import Verifier
from holdfast.errors import ContentError
from holdfast.model import Phase
from holdfast.system import sqlite
from tests.support.snapshots import PLAN_ID, SANDBOX_ID, Place
from tests.support.trees import compare, describe, write

WANTED = b"what the snapshot holds " * 50
LARGE_PIECE = bytes(range(256)) * 4096
Harm = Callable[[Place, bytes], None]


@pytest.fixture(params=[Place.damage, Place.lose], ids=["damaged", "missing"])
def harm(request: pytest.FixtureRequest) -> Harm:
    return request.param


def wreck(root: Path) -> None:
    """Changes that a restore would undo before and after it comes to ``wanted``."""
    (root / "a first file").write_text("changed")
    shutil.rmtree(root / "b directory")
    write(root / "wanted", "changed")
    write(root / "z last file", "added")


def make(root: Path) -> None:
    write(root / "a first file", "first")
    write(root / "b directory" / "inside", "inside")
    write(root / "wanted", WANTED)


def test_s1_content_that_cannot_be_trusted_stops_a_restore_before_a_file_is_touched(
    place: Place, root: Path, harm: Harm
):
    make(root)
    checkpoint = place.take()
    wreck(root)
    place.take()
    harm(place, WANTED)
    before = describe(root)
    with pytest.raises(ContentError) as refusal:
        place.go_back(checkpoint)
    assert refusal.value.exit_code == 7
    assert refusal.value.hint
    assert compare(before, describe(root)) == []


def test_s1_a_piece_of_a_large_file_is_checked_too(place: Place, root: Path, harm: Harm):
    make(root)
    write(root / "large", LARGE_PIECE * 3 + bytes(reversed(LARGE_PIECE)) * 2)
    checkpoint = place.take()
    wreck(root)
    (root / "large").unlink()
    place.take()
    harm(place, bytes(reversed(LARGE_PIECE)))
    before = describe(root)
    with pytest.raises(ContentError):
        place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


def test_s1_content_is_checked_also_for_a_file_that_is_written_anew_only_because_of_its_links(place: Place, root: Path):
    """The file's content is the same now and then, but it is one file under two names now."""
    make(root)
    write(root / "twin", WANTED)
    checkpoint = place.take()
    wreck(root)
    write(root / "wanted", WANTED)
    (root / "twin").unlink()
    os.link(root / "wanted", root / "twin")
    place.take()
    place.damage(WANTED)
    before = describe(root)
    with pytest.raises(ContentError):
        place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


def test_s1_content_is_checked_also_for_a_file_that_has_a_name_outside_the_tree(place: Place, root: Path):
    make(root)
    checkpoint = place.take()
    wreck(root)
    write(root / "wanted", WANTED)
    os.link(root / "wanted", place.folder / "outside")
    place.take()
    place.damage(WANTED)
    before = describe(root)
    with pytest.raises(ContentError):
        place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


def test_s1_check_finds_what_a_restore_would_need_and_touches_nothing(place: Place, root: Path, harm: Harm):
    make(root)
    checkpoint = place.take()
    wreck(root)
    place.take()
    place.manager.check(root, checkpoint.state_hash)
    harm(place, WANTED)
    before = describe(root)
    with pytest.raises(ContentError):
        place.manager.check(root, checkpoint.state_hash)
    assert compare(before, describe(root)) == []


def test_s1_a_state_that_is_not_in_the_store_is_refused(place: Place, root: Path):
    make(root)
    place.take()
    before = describe(root)
    with pytest.raises(ContentError):
        place.go_back("00" * 32)
    assert compare(before, describe(root)) == []


def test_s1_damage_to_content_a_restore_does_not_need_does_not_stop_it(place: Place, root: Path, harm: Harm):
    make(root)
    before = describe(root)
    checkpoint = place.take()
    write(root / "z last file", "added")
    place.take()
    harm(place, WANTED)
    place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


def test_s1_damaged_objects_are_named(place: Place, root: Path):
    write(root / "wanted", WANTED)
    place.take()
    assert place.manager.objects.damaged() == []
    place.damage(WANTED)
    assert len(place.manager.objects.damaged()) == 1


# Healing


def stored_objects(place: Place, state_hash: str) -> dict[str, bytes]:
    """The content of one object of each kind that the state needs."""
    reader = StateReader(place.manager.objects)
    state = reader.state(state_hash)
    folder, large = reader.find(state, b"b directory"), reader.find(state, b"large")
    assert folder is not None
    assert large is not None
    return {
        "file": WANTED,
        "piece": LARGE_PIECE,
        "pieces": encode_pieces(reader.pieces(large)),
        "directory": encode_directory(dict(reader.directory(folder))),
        "state": encode_state(state.root, state.links),
    }


def bad_objects(place: Place, state_hash: str) -> frozenset[bytes]:
    """Read back as the next process would."""
    objects = ObjectStore(place.store / "objects.db")
    found = Verifier(objects).bad_objects_of(state_hash)
    objects.close()
    return found


def make_settled(root: Path) -> None:
    make(root)
    write(root / "large", LARGE_PIECE * 4)
    time.sleep(0.05)  # what changed a moment ago is read again in any case


@pytest.mark.parametrize("kind", ["file", "piece", "pieces", "directory", "state"])
@pytest.mark.parametrize("is_remembered", [True, False], ids=["remembered", "read anew"])
def test_s1_what_was_found_damaged_is_stored_anew_when_it_comes_by_again(
    place: Place, root: Path, harm: Harm, kind: str, is_remembered: bool
):
    make_settled(root)
    checkpoint = place.take()
    content = stored_objects(place, checkpoint.state_hash)[kind]
    if is_remembered:
        place.manager.remember()
    harm(place, content)
    assert bad_objects(place, checkpoint.state_hash)
    assert place.take().state_hash == checkpoint.state_hash
    assert not bad_objects(place, checkpoint.state_hash)
    assert place.collect(lambda: {checkpoint.state_hash}) == 0
    # It is stored once, and then known again.
    assert place.take().size_bytes == 0
    place.next_process(remembering=True)
    assert place.take().size_bytes == 0


def test_s1_a_restore_that_refuses_has_found_the_damage(place: Place, root: Path, harm: Harm):
    make_settled(root)
    checkpoint = place.take()
    wreck(root)
    place.take()
    harm(place, WANTED)
    with pytest.raises(ContentError):
        place.go_back(checkpoint)
    write(root / "elsewhere", WANTED)
    place.take()
    place.go_back(checkpoint)
    assert (root / "wanted").read_bytes() == WANTED


def test_s1_damage_that_another_process_found_is_healed_by_one_that_has_been_running(place: Place, root: Path):
    make_settled(root)
    checkpoint = place.take()
    running = Place(place.folder, place.root)
    assert running.take().state_hash == checkpoint.state_hash
    place.damage(WANTED)
    assert bad_objects(place, checkpoint.state_hash)
    running.take()
    assert not bad_objects(place, checkpoint.state_hash)
    running.close()


def test_s1_what_a_process_remembers_from_before_damage_was_found_is_not_trusted(place: Place, root: Path):
    make_settled(root)
    checkpoint = place.take()
    running = Place(place.folder, place.root)
    running.take()
    place.damage(WANTED)
    assert bad_objects(place, checkpoint.state_hash)
    running.manager.remember()
    running.close()
    place.next_process()
    place.take()
    assert not bad_objects(place, checkpoint.state_hash)


def test_s1_what_was_read_into_a_snapshot_that_was_given_up_is_not_taken_for_healed(place: Place, root: Path):
    make_settled(root)
    checkpoint = place.take()
    place.damage(WANTED)
    assert bad_objects(place, checkpoint.state_hash)
    with place.manager.storing() as batch:
        place.manager.create_checkpoint(
            batch, sandbox_id=SANDBOX_ID, plan_id=PLAN_ID, phase=Phase.EXECUTE, path=root, metadata={}
        )
    assert bad_objects(place, checkpoint.state_hash)
    place.take()
    assert not bad_objects(place, checkpoint.state_hash)


def test_s1_what_was_found_damaged_twice_is_healed_twice(place: Place, root: Path):
    make_settled(root)
    checkpoint = place.take()
    for _ in range(2):
        place.manager.remember()
        place.damage(WANTED)
        assert bad_objects(place, checkpoint.state_hash)
        place.take()
        assert not bad_objects(place, checkpoint.state_hash)


def test_s1_damage_is_forgotten_with_the_last_state_that_needed_it(place: Place, root: Path):
    make_settled(root)
    checkpoint = place.take()
    place.damage(WANTED)
    assert bad_objects(place, checkpoint.state_hash)
    place.collect(set)
    assert place.stored_damage() == 0


def test_content_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    with closing(ObjectStore(tmp_path / "objects.db")):
        pass
    with closing(sqlite.connect(tmp_path / "objects.db")) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'version'")
    with pytest.raises(ContentError, match=r"written by a newer Holdfast \(content format 99\)") as refusal:
        ObjectStore(tmp_path / "objects.db")
    assert refusal.value.hint.startswith("Upgrade holdfast")
