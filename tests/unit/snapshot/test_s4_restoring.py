"""S4: restoring gives a tree whose own snapshot has the same state hash, whatever happens on the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError, SandboxError
from tests.support.crashes import killed_at
from tests.support.snapshots import Place
from tests.support.trees import IS_ROOT, compare, describe, make_odd_tree, write

MIB = 1 << 20


def identities(root: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.lstat().st_ino, path.lstat().st_ctime_ns) for path in [root, *root.rglob("*")]}


def wreck(root: Path) -> None:
    """Something of every kind is removed, changed, added and turned into something else."""
    for name in ("read only", "shared", "linked"):
        subprocess.run(["chmod", "-R", "u+rwx", root / name], check=True)
    shutil.rmtree(root / "shared")
    write(root / "shared", "a file now")
    (root / "private").unlink()
    (root / "private").mkdir()
    write(root / "private" / "inside", "x")
    (root / "relative link").unlink()
    write(root / "relative link", "a file now")
    write(root / "read only" / "file 1", "changed")
    (root / "read only" / "file 2").unlink()
    write(root / "read only" / "added", "x")
    (root / "linked" / "second name").unlink()
    write(root / "linked" / "second name", "one file\n")
    (root / "fifo").unlink()
    os.setxattr(root / "with attributes", "user.colour", b"red")
    (root / "plain.txt").chmod(0o600)
    write(root / "added" / "deeper" / "file", "x")
    (root / "nested").rename(root / "renamed")


# Again, and interrupted


def test_s4_restoring_twice_gives_the_same_and_touches_nothing_the_second_time(place: Place, root: Path):
    make_odd_tree(root)
    before, checkpoint = describe(root), place.take()
    wreck(root)
    place.go_back(checkpoint)
    seen = identities(root)
    place.go_back(checkpoint)
    assert identities(root) == seen
    place.next_process()
    place.go_back(checkpoint)
    assert identities(root) == seen
    assert compare(before, describe(root)) == []


def test_s4_only_what_differs_is_touched(place: Place, root: Path):
    make_odd_tree(root)
    checkpoint = place.take()
    write(root / "shared" / "of the group", "changed")
    changed = {root / "shared" / "of the group", root / "shared"}
    before = {path: seen for path, seen in identities(root).items() if path not in changed}
    place.go_back(checkpoint)
    assert {path: seen for path, seen in identities(root).items() if path not in changed} == before


def test_s4_forth_and_back_and_forth_again(place: Place, root: Path):
    make_odd_tree(root)
    before, first = describe(root), place.take()
    wreck(root)
    after, second = describe(root), place.take()
    for _ in range(2):
        place.go_back(first)
        assert compare(before, describe(root)) == []
        place.go_back(second)
        assert compare(after, describe(root)) == []


def test_s4_a_snapshot_can_be_restored_into_an_empty_directory(place: Place, root: Path):
    make_odd_tree(root)
    before, checkpoint = describe(root), place.take()
    elsewhere = place.folder / "elsewhere"
    elsewhere.mkdir()
    place.manager.restore(elsewhere, checkpoint.state_hash, aside=place.aside)
    assert compare(before, describe(elsewhere)) == []


def test_s4_killed_at_any_moment_a_restore_is_completed_by_running_it_again(tmp_path: Path):
    place = Place(tmp_path)
    make_odd_tree(place.root)
    before, checkpoint = describe(place.root), place.take()
    wreck(place.root)
    wrecked = place.take()
    place.close()

    def restore() -> None:
        Place(tmp_path).go_back(checkpoint)

    moment, kills = 1, 0
    while killed_at(moment, restore):
        kills += 1
        place = Place(tmp_path)
        place.go_back(checkpoint)
        assert compare(before, describe(place.root)) == [], f"killed at change {moment}"
        place.go_back(wrecked)
        place.close()
        moment += 1 + moment // 8
    assert kills > 15
    assert compare(before, describe(place.root)) == []


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "holdfast-test", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@pytest.mark.skipif(not IS_ROOT, reason="only root may mount a small disk")
def test_s4_a_full_disk_stops_a_restore_and_with_space_the_same_command_completes_it(tmp_path: Path):
    with small_disk(tmp_path / "disk", 4 * MIB) as disk:
        place = Place(tmp_path, disk / "tree")
        for number in range(5):
            write(place.root / f"file {number}", os.urandom(MIB // 2))
        before, checkpoint = describe(place.root), place.take()
        for number in range(5):
            (place.root / f"file {number}").unlink()
        write(disk / "something else", os.urandom(3 * MIB))
        with pytest.raises(SandboxError, match="No space left") as refusal:
            place.go_back(checkpoint)
        assert "again" in refusal.value.hint
        (disk / "something else").unlink()
        place.go_back(checkpoint)
        assert compare(before, describe(place.root)) == []
        place.close()


class Restless:
    """Does something again and again beside the test."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action, self._stop = action, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.0001):
            self._action()


@pytest.mark.parametrize("size", [10, 4 * MIB - 50])
def test_s4_a_file_that_grows_while_it_is_read_is_held_as_it_was_at_some_moment(place: Place, root: Path, size: int):
    file = write(root / "log", b"." * size)

    def append() -> None:
        with open(file, "ab") as log:
            log.write(b"a line\n")

    with Restless(append):
        taken = [place.take().state_hash for _ in range(10)]
    complete = file.read_bytes()
    for state in taken:
        place.go_back(state)
        assert complete.startswith(file.read_bytes())
        place.next_process()
        assert place.manager.state_of(root) == state


def test_s4_a_file_that_is_cut_off_while_it_is_read_is_held_as_it_was_at_some_moment(place: Place, root: Path):
    file = write(root / "file", b"." * (5 * MIB))

    def cut_off_and_grow() -> None:
        os.truncate(file, 10)
        os.truncate(file, 5 * MIB)

    taken = []
    with Restless(cut_off_and_grow):
        for _ in range(10):
            with suppress(SandboxError):  # it may change too fast
                taken.append(place.take().state_hash)
    for state in [*taken, place.take().state_hash]:
        place.go_back(state)
        place.next_process()
        assert place.manager.state_of(root) == state


# What lies outside


def test_s4_a_file_outside_that_is_linked_into_the_tree_is_not_modified(place: Place, root: Path):
    outside = write(place.folder / "outside", "mine", mode=0o600)
    write(root / "content", "old")
    write(root / "attributes", "mine", mode=0o644)
    checkpoint = place.take()
    for name in ("content", "attributes"):
        (root / name).unlink()
        os.link(outside, root / name)
    before = describe(place.folder / "outside")
    place.go_back(checkpoint)
    assert (root / "content").read_text() == "old"
    assert (root / "attributes").stat().st_mode & 0o777 == 0o644
    assert compare(before, describe(place.folder / "outside"), ignoring=["names"]) == []


def test_s4_a_symlink_that_took_the_place_of_a_directory_is_not_followed(place: Place, root: Path):
    write(root / "d" / "file", "old")
    write(root / "d" / "removed later", "old")
    before, checkpoint = describe(root), place.take()
    outside = place.folder / "outside"
    write(outside / "file", "mine")
    write(outside / "more", "mine too")
    theirs = describe(outside)
    shutil.rmtree(root / "d")
    os.symlink(outside, root / "d")
    place.take()
    place.go_back(checkpoint)
    assert compare(before, describe(root)) == []
    assert compare(theirs, describe(outside)) == []


class Swapper:
    """Puts a symlink in the place of a directory and takes it back, again and again."""

    def __init__(self, directory: Path, target: Path) -> None:
        self._directory, self._hidden = directory, directory.with_name(".hidden")
        self._link = directory.with_name(".link")
        os.symlink(target, self._link)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.0005):
            try:
                self._directory.rename(self._hidden)
                self._link.rename(self._directory)
                self._directory.rename(self._link)
                self._hidden.rename(self._directory)
            except OSError:
                continue  # a restore is at the same names


def write_following_no_symlink(top: Path, below: str, name: str, content: str) -> None:
    with ExitStack() as opened:
        directory = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        opened.callback(os.close, directory)
        directory = os.open(below, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
        opened.callback(os.close, directory)
        file = os.open(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, dir_fd=directory)
        opened.callback(os.close, file)
        os.write(file, content.encode())


def test_s4_a_symlink_swapped_in_during_a_restore_is_not_followed(place: Place, root: Path):
    for number in range(20):
        write(root / "d" / "e" / f"file {number}", "old")
    before, checkpoint = describe(root), place.take()
    outside = place.folder / "outside"
    write(outside / "e" / "file 1", "mine")
    write(outside / "e" / "more", "mine too")
    theirs = describe(outside)
    with Swapper(root / "d", outside):
        for number in range(40):
            with suppress(OSError):  # what is called d may be a symlink just now
                write_following_no_symlink(root / "d", "e", f"file {number % 20}", "new")
            try:
                place.go_back(checkpoint)
            except HoldfastError:
                continue
    assert compare(theirs, describe(outside)) == []
    place.go_back(checkpoint)
    assert compare(before, describe(root)) == []


def test_s4_a_symlink_swapped_in_while_the_tree_is_read_is_not_followed(place: Place, root: Path):
    write(root / "d" / "e" / "file", "ours")
    outside = place.folder / "outside"
    for number in range(5):
        write(outside / "e" / f"secret {number}", "not ours to read")
    held = 0
    with Swapper(root / "d", outside):
        for _ in range(30):
            try:
                checkpoint = place.take()
            except HoldfastError:
                continue
            held += 1
            paths = [path for path, _ in place.manager.reader.walk(place.manager.reader.state(checkpoint.state_hash))]
            assert not [path for path in paths if b"secret" in path]
    assert held
