"""What a process learned of a tree spares the next one the reading, and is never believed when it could be wrong."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import pytest

from tests.support.opens import opened_names
from tests.support.snapshots import Place
from tests.support.trees import compare, describe, make_odd_tree, set_mtime, write

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def settle() -> None:
    """What changed a moment ago is read again in any case: its timestamps could still be in the same step."""
    time.sleep(0.05)


@pytest.fixture
def tree(root: Path) -> Path:
    for directory in ("one", "two/three"):
        for number in range(5):
            write(root / directory / f"file {number}", f"{directory} {number}\n")
    os.link(root / "one" / "file 0", root / "two" / "linked")
    settle()
    return root


def files_read(place: Place) -> set[str]:
    with opened_names() as names:
        place.take()
    return {name for name in names if name.startswith(("file ", "linked"))}


def test_what_did_not_change_is_not_read_again(place: Place, tree: Path):
    assert files_read(place) != set()
    assert files_read(place) == set()
    write(tree / "one" / "file 3", "changed")
    assert files_read(place) == {"file 3"}


def test_the_next_process_does_not_read_again_what_did_not_change(place: Place, tree: Path):
    checkpoint = place.take()
    place.next_process(remembering=True)
    assert files_read(place) == set()
    assert place.take().state_hash == checkpoint.state_hash
    write(tree / "two" / "three" / "file 3", "changed")
    place.next_process(remembering=True)
    assert files_read(place) == {"file 3"}


def test_a_process_that_did_not_remember_leaves_nothing_to_trust(place: Place, tree: Path):
    checkpoint = place.take()
    place.next_process()
    assert len(files_read(place)) > 0
    assert place.take().state_hash == checkpoint.state_hash


def change_keeping_size_and_time(path: Path) -> None:
    status = path.stat()
    path.write_bytes(bytes(reversed(path.read_bytes())))
    set_mtime(path, status.st_mtime_ns)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)


@pytest.mark.parametrize("next_process", [False, True])
def test_a_change_that_keeps_size_and_time_is_noticed(place: Place, tree: Path, next_process: bool):
    before, checkpoint = describe(tree), place.take()
    if next_process:
        place.next_process(remembering=True)
    change_keeping_size_and_time(tree / "one" / "file 2")
    assert place.take().state_hash != checkpoint.state_hash
    place.go_back(checkpoint)
    assert compare(before, describe(tree)) == []


def test_changes_in_quick_succession_are_all_noticed(place: Place, root: Path):
    """Time stamps may move in steps; a file that changed in the step in which it was read must be read again."""
    states = set()
    for number in range(100):
        write(root / "file", f"{number:04}", mtime_ns=1)
        set_mtime(root, 1)
        states.add(place.take().state_hash)
    assert len(states) == 100


def test_a_file_replaced_by_another_with_the_same_size_and_time_is_noticed(place: Place, tree: Path):
    checkpoint = place.take()
    other = write(tree / "other", b"x" * (tree / "one" / "file 1").stat().st_size)
    set_mtime(other, (tree / "one" / "file 1").stat().st_mtime_ns)
    other.rename(tree / "one" / "file 1")
    assert place.take().state_hash != checkpoint.state_hash
    place.go_back(checkpoint)
    assert (tree / "one" / "file 1").read_text() == "one 1\n"


def test_a_write_through_a_memory_mapping_is_noticed_once_it_is_unmapped(place: Place, tree: Path):
    before, checkpoint = describe(tree), place.take()
    with open(tree / "one" / "file 4", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[0:1] = b"X"
    place.go_back(checkpoint)
    assert compare(before, describe(tree)) == []


def test_a_write_through_a_name_outside_the_tree_is_noticed_when_every_file_is_looked_at(place: Place, tree: Path):
    os.link(tree / "one" / "file 4", place.folder / "outside")
    checkpoint = place.take()
    (place.folder / "outside").write_text("written from outside")
    assert place.manager.state_of(tree) != checkpoint.state_hash


def test_a_change_of_attributes_only_is_noticed(place: Place, tree: Path):
    place.take()
    place.next_process(remembering=True)
    seen = {place.take().state_hash}
    for change in (
        lambda: (tree / "one" / "file 1").chmod(0o600),
        lambda: os.setxattr(tree / "one" / "file 1", "user.a", b"1"),
        lambda: os.setxattr(tree / "one" / "file 1", "user.a", b"2"),
        lambda: os.setxattr(tree / "one", "user.a", b"1"),
        lambda: (tree / "one").chmod(0o700),
    ):
        change()
        seen.add(place.take().state_hash)
    assert len(seen) == 6


# A cache that is not to be trusted


def spoil(place: Place, change: bytes | None, replacement: bytes = b"") -> None:
    for cache in place.caches:
        content = cache.read_bytes()
        if change is not None:
            assert change in content
            content = content.replace(change, replacement)
        cache.write_bytes(content)


def remember_and_close(place: Place) -> None:
    place.take()
    place.next_process(remembering=True)
    assert place.caches


@pytest.mark.skipif(not BOOT_ID.exists(), reason="this kernel does not tell one boot from another")
def test_a_cache_from_another_boot_is_not_used(place: Place, tree: Path):
    """After a power cut a file can have its old time stamps and lost content."""
    remember_and_close(place)
    boot_id = BOOT_ID.read_bytes().strip()
    spoil(place, boot_id, bytes(reversed(boot_id)))
    assert len(files_read(place)) > 0


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_a_truncated_cache_is_not_used(place: Place, tree: Path, length: int):
    before, checkpoint = describe(tree), place.take()
    place.next_process(remembering=True)
    for cache in place.caches:
        cache.write_bytes(cache.read_bytes()[:length])
    assert place.take().state_hash == checkpoint.state_hash
    write(tree / "one" / "file 1", "changed")
    place.take()
    place.go_back(checkpoint)
    assert compare(before, describe(tree)) == []


@pytest.mark.parametrize("content", [b"", b"\x00" * 1000, b"\xff" * 1000, b"not a cache at all", os.urandom(5000)])
def test_something_else_in_the_place_of_the_cache_is_not_used(place: Place, tree: Path, content: bytes):
    checkpoint = place.take()
    place.next_process(remembering=True)
    for cache in place.caches:
        cache.write_bytes(content)
    assert place.take().state_hash == checkpoint.state_hash


def test_a_cache_in_which_a_bit_was_flipped_does_no_harm(place: Place, root: Path):
    """Whatever it says of the files: what is saved after it was read can be restored."""
    make_odd_tree(root)
    settle()
    place.take()
    place.next_process(remembering=True)
    (cache,) = place.caches
    good = cache.read_bytes()
    for position in range(7, len(good), max(1, len(good) // 25)):
        bad = bytearray(good)
        bad[position] ^= 0x04
        cache.write_bytes(bytes(bad))
        place.next_process()
        for directory in (root, root / "linked", root / "nested", root / "shared"):
            write(directory / "made now", f"{position}")
        before, checkpoint = describe(root), place.take()
        for directory in (root, root / "linked", root / "nested", root / "shared"):
            (directory / "made now").unlink()
        (root / "private").unlink()
        place.go_back(checkpoint)
        assert compare(before, describe(root)) == [], f"byte {position} of {len(good)}"


def test_a_tree_made_anew_at_the_same_place_is_not_taken_for_the_old_one(place: Place, tree: Path):
    place.take()
    place.next_process(remembering=True)
    tree.rename(place.folder / "old tree")
    tree.mkdir()
    write(tree / "one" / "file 1", "one 1\n")
    place.next_process()
    before, checkpoint = describe(tree), place.take()
    (tree / "one" / "file 1").unlink()
    place.go_back(checkpoint)
    assert compare(before, describe(tree)) == []


def test_a_forgotten_tree_is_read_again(place: Place, tree: Path):
    place.take()
    place.manager.remember()
    place.manager.indexes.forget(tree)
    assert len(files_read(place)) > 0
