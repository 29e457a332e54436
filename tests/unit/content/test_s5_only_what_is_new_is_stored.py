"""S5: a checkpoint at which nothing changed adds no content, and one at which little changed adds little."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import QuotaError
from tests.support.snapshots import SANDBOX_ID, Place
from tests.support.trees import make_odd_tree, set_mtime, write

MIB = 1 << 20


def test_s5_nothing_changed_adds_nothing(place: Place, root: Path):
    make_odd_tree(root)
    first = place.take()
    assert first.size_bytes > 0
    content = place.manager.objects.content_bytes()
    for remembering in (True, False):
        again = place.take(previous=first)
        assert (again.state_hash, again.size_bytes) == (first.state_hash, 0)
        place.next_process(remembering=remembering)
        again = place.take(previous=first)
        assert (again.state_hash, again.size_bytes) == (first.state_hash, 0)
    assert place.manager.objects.content_bytes() == content


def test_s5_a_state_that_comes_back_adds_nothing(place: Place, root: Path):
    write(root / "d" / "file", "old", mtime_ns=1)
    set_mtime(root / "d", 1)
    first = place.take()
    write(root / "d" / "file", "new")
    place.take()
    write(root / "d" / "file", "old", mtime_ns=1)
    again = place.take()
    assert (again.state_hash, again.size_bytes) == (first.state_hash, 0)


def test_s5_looking_at_the_state_adds_nothing_when_it_is_known(place: Place, root: Path):
    make_odd_tree(root)
    checkpoint = place.take()
    content = place.manager.objects.content_bytes()
    assert place.manager.state_of(root) == checkpoint.state_hash
    assert place.manager.objects.content_bytes() == content


def test_s5_what_a_look_stored_counts_with_the_next_checkpoint(place: Place, root: Path):
    first = place.take()
    write(root / "file", os.urandom(MIB))
    place.manager.state_of(root)
    place.next_process()
    place.manager.check(root, first.state_hash)
    second = place.take(previous=first)
    assert MIB < second.size_bytes < 1.1 * MIB
    write(root / "little", "content")
    assert place.take(previous=second).size_bytes < 0.1 * MIB


def test_s5_what_a_snapshot_that_was_given_up_had_stored_counts_with_the_next(place: Place, root: Path):
    first = place.take()
    write(root / "file", os.urandom(40 * MIB))
    with place.manager.storing(35 * MIB) as batch, pytest.raises(QuotaError):
        place.take_into(batch)
    place.next_process()
    assert 40 * MIB < place.take(previous=first).size_bytes < 41 * MIB


def test_s5_what_a_look_stored_and_a_collection_freed_counts_once(place: Place, root: Path):
    first = place.take()
    write(root / "file", os.urandom(MIB))
    place.manager.state_of(root)
    place.collect(lambda: {first.state_hash})
    assert MIB < place.take(previous=first).size_bytes < 1.1 * MIB


def test_s5_the_same_content_is_stored_once(place: Place, root: Path):
    content = os.urandom(MIB)
    for number in range(10):
        write(root / str(number), content)
    assert place.take().size_bytes < 2 * MIB


def test_s5_what_one_changed_file_costs_does_not_depend_on_the_others(place: Place, root: Path):
    for number in range(200):
        write(root / f"directory {number % 20}" / f"file {number}", os.urandom(5000))
    place.take()
    write(root / "directory 3" / "file 3", os.urandom(5000))
    assert place.take().size_bytes < 10_000


@pytest.mark.parametrize("where", [0, 7 * MIB + 13, 12 * MIB - 1])
def test_s5_a_small_change_to_a_large_file_stores_little(place: Place, root: Path, where: int):
    write(root / "large", os.urandom(12 * MIB))
    place.take()
    with open(root / "large", "r+b") as file:
        file.seek(where)
        file.write(b"!")
    assert place.take().size_bytes < 1.5 * MIB


def test_s5_appending_to_a_large_file_stores_what_was_appended(place: Place, root: Path):
    write(root / "large", os.urandom(12 * MIB))
    place.take()
    for _ in range(3):
        with open(root / "large", "ab") as file:
            file.write(os.urandom(1000))
        assert place.take().size_bytes < 1.5 * MIB


def test_s5_a_file_whose_attributes_changed_is_not_stored_again(place: Place, root: Path):
    write(root / "large", os.urandom(3 * MIB))
    place.take()
    (root / "large").chmod(0o600)
    set_mtime(root / "large", 0)
    (root / "large").rename(root / "renamed")
    assert place.take().size_bytes < 1000


def test_s5_a_snapshot_is_listed_once_for_each_new_state(place: Place, root: Path):
    write(root / "file", "old")
    first = place.take()
    place.take(previous=first)
    write(root / "file", "new")
    second = place.take(previous=first)
    place.next_process()
    assert place.manager.list_checkpoints(SANDBOX_ID) == (first, second)
    assert place.manager.list_checkpoints("another") == ()
    assert place.manager.get_checkpoint(second.checkpoint_id) == second
