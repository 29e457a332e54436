"""A file that is open may have lost the name it was opened by, or never had one here, and have another.

What is written to it is told of that name, which may be nobody's, or another file's by now. It must be in the next
checkpoint all the same, and a rollback must undo it.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.snapshot.manager import CheckpointManager
from tests.support.snapshots import Place
from tests.support.trees import compare, describe, write

BAD = b"BAD!"
HELD = "held"
"""The name that the file still has."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path, watching=True)
    write(place.root / "other", "other")
    place.take()
    yield place
    place.close()


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR)


def linked_and_seen(place: Place) -> int:
    """It has two names at a checkpoint, and loses the one it is open by."""
    file = write(place.root / "name", "good")
    os.link(file, place.root / HELD)
    place.take()
    descriptor = opened(file)
    file.unlink()
    return descriptor


def linked_between_two_checkpoints(place: Place) -> int:
    file = write(place.root / "name", "good")
    place.take()
    return link_and_unlink(file)


def new_between_two_checkpoints(place: Place) -> int:
    return link_and_unlink(write(place.root / "name", "good"))


def link_and_unlink(file: Path) -> int:
    """Open by a name that goes, while another comes."""
    descriptor = opened(file)
    os.link(file, file.with_name(HELD))
    file.unlink()
    return descriptor


def replaced_between_two_checkpoints(place: Place) -> int:
    file = write(place.root / "name", "good")
    place.take()
    descriptor = opened(file)
    os.link(file, place.root / HELD)
    write(place.root / "new", "new").rename(file)
    return descriptor


def lost_in_a_removed_directory(place: Place) -> int:
    folder = place.root / "folder"
    folder.mkdir()
    place.take()
    descriptor = opened_without_a_name(folder, then=place.root / HELD)
    place.take()
    folder.rmdir()
    return descriptor


def opened_without_a_name(folder: Path, then: Path) -> int:
    """What is told of such a descriptor has a name that never was there, also after the file got one."""
    descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o644)
    os.write(descriptor, b"good")
    at, follow = -100, 0x400
    through = f"/proc/self/fd/{descriptor}".encode()
    assert ctypes.CDLL(None).linkat(at, through, at, os.fsencode(then), follow) == 0
    return descriptor


LOST = (
    linked_and_seen,
    linked_between_two_checkpoints,
    new_between_two_checkpoints,
    replaced_between_two_checkpoints,
    lost_in_a_removed_directory,
)


def nothing(root: Path) -> None:
    """The name is nobody's."""


def name_is_another_files(root: Path) -> None:
    write(root / "name", "another")


THEN: tuple[Callable[[Path], None], ...] = (nothing, name_is_another_files)


def nothing_else(root: Path) -> None:
    """Only that is written."""


def another_has_the_name_for_a_moment(root: Path) -> None:
    (root / "other").rename(root / "name")
    (root / "name").rename(root / "other")


def another_gets_the_name(root: Path) -> None:
    write(root / "name", "late")


MEANWHILE = (nothing_else, another_has_the_name_for_a_moment, another_gets_the_name)


@pytest.mark.parametrize("way", ["checkpoint", "rollback"])
@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("then", THEN)
@pytest.mark.parametrize("lose", LOST)
def test_what_is_written_to_it_is_seen(
    place: Place,
    lose: Callable[[Place], int],
    then: Callable[[Path], None],
    meanwhile: Callable[[Path], None],
    way: str,
):
    descriptor = lose(place)
    try:
        place.take()
        then(place.root)
        place.take()
        before, checkpoint = describe(place.root), settled(place)
        os.pwrite(descriptor, BAD, 0)
        meanwhile(place.root)
        if way == "rollback":
            place.go_back(checkpoint)
            assert compare(before, describe(place.root)) == []
        else:
            assert place.take().state_hash != checkpoint
        assert place.found_anew() == place.take().state_hash
    finally:
        os.close(descriptor)


def settled(place: Place) -> str:
    """The state, taken when no time stamp is too young to be trusted."""
    time.sleep(0.05)
    place.take()
    return place.take().state_hash


def opened_by_a_name_that_goes(root: Path) -> int:
    return link_and_unlink(write(root / "name", "good"))


def opened_with_a_name_later(root: Path) -> int:
    return opened_without_a_name(root, then=root / HELD)


def another_comes_by_the_name(root: Path) -> None:
    write(root / "name", "x").rename(root / "new")


@pytest.mark.parametrize("meanwhile", [nothing_else, another_comes_by_the_name])
@pytest.mark.parametrize("open_one", [opened_by_a_name_that_goes, opened_with_a_name_later])
def test_what_is_written_to_a_file_that_was_open_before_anybody_watched_is_undone(
    tmp_path: Path, open_one: Callable[[Path], int], meanwhile: Callable[[Path], None]
):
    place = Place(tmp_path)
    descriptor = open_one(place.root)
    try:
        with place.manager.watching([place.root]):
            place.take()
            before, checkpoint = describe(place.root), place.take()
            os.pwrite(descriptor, BAD, 0)
            meanwhile(place.root)
            place.go_back(checkpoint)
            assert compare(before, describe(place.root)) == []
            os.pwrite(descriptor, b"more", 0)
            assert place.found_anew() == place.take().state_hash
    finally:
        os.close(descriptor)
        place.close()


@pytest.mark.parametrize("then", THEN)
def test_the_next_process_knows_which_names_were_lost(place: Place, then: Callable[[Path], None]):
    descriptor = linked_and_seen(place)
    try:
        place.take()
        then(place.root)
        settled(place)
        place.next_process(remembering=True)
        place.take()
        os.pwrite(descriptor, BAD, 0)
        assert place.found_anew() == place.take().state_hash
    finally:
        os.close(descriptor)


def test_a_wanted_file_that_is_not_there_is_not_all_there_is_to_do(place: Place):
    """The name is told of, wanted and nobody's: making it does not undo what was done to the file that had it last."""
    write(place.root / "name", "first")
    write(place.root / HELD, "good")
    before, checkpoint = describe(place.root), place.take()
    (place.root / "name").unlink()
    os.link(place.root / HELD, place.root / "name")
    descriptor = opened(place.root / "name")
    try:
        (place.root / "name").unlink()
        settled(place)
        place.next_process(remembering=True)
        place.take()
        place.take()
        os.pwrite(descriptor, BAD, 0)
        place.go_back(checkpoint)
        assert compare(before, describe(place.root)) == []
    finally:
        os.close(descriptor)


def test_a_file_that_a_rollback_takes_away_is_still_heard_of(tmp_path: Path):
    """It has a second name in another sandbox of the plan, and somebody has it open by the first."""
    place = Place(tmp_path)
    manager: CheckpointManager = place.manager
    one, two = tmp_path / "one", tmp_path / "two"
    write(one / "kept", "kept")
    write(two / "kept", "kept")
    with manager.watching([one, two]):
        before = manager.state_of(one, thorough=False)
        manager.state_of(two, thorough=False)
        write(one / "name", "good")
        os.link(one / "name", two / HELD)
        for each in (one, two):
            manager.state_of(each, thorough=False)
        descriptor = opened(one / "name")
        try:
            manager.restore(one, before, aside=place.aside)
            manager.state_of(two, thorough=False)
            seen = manager.state_of(two, thorough=False)
            os.pwrite(descriptor, BAD, 0)
            assert manager.state_of(two, thorough=False) != seen
        finally:
            os.close(descriptor)
    place.close()
