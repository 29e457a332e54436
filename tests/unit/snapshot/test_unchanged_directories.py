"""A known tree of many directories is looked at by several processes; what they say is what one alone would say."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.snapshot.scan import unchanged
from tests.support.snapshots import Place
from tests.support.trees import write

DIRECTORIES = 250


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A tree that was seen when nothing in it was young any more."""
    place = Place(tmp_path)
    for number in range(DIRECTORIES):
        write(place.root / f"folder {number}" / "a file", f"{number}")
    time.sleep(0.03)
    place.take()
    place.next_process(remembering=True)
    return place


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that were forked."""
    made: list[int] = []
    fork = os.fork

    def counting() -> int:
        made.append(fork())
        return made[-1]

    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # those of the test runner do not count
    monkeypatch.setattr(os, "fork", counting)
    return made


def seen_anew(place: Place) -> str:
    """The state hash as somebody finds it who knows nothing."""
    for cache in place.caches:
        cache.unlink()
    place.next_process()
    return place.take().state_hash


def test_nothing_changed_is_found_by_all_together(place: Place, forks: list[int]):
    found = place.take().state_hash
    assert len(forks) == 2
    assert found == seen_anew(place)


@pytest.mark.parametrize("number", range(4))
def test_a_changed_file_is_found_whoever_looks_at_it(place: Place, forks: list[int], number: int):
    before = place.take().state_hash
    write(place.root / f"folder {number}" / "a file", "changed")
    place.next_process(remembering=True)
    found = place.take().state_hash
    assert forks
    assert found != before
    assert found == seen_anew(place)


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "folder 7" / "a file").unlink(),
        lambda root: write(root / "folder 8" / "new", "n"),
        lambda root: (root / "folder 9").rename(root / "moved"),
        lambda root: ((root / "folder 10").rename(root / "old"), (root / "folder 11").rename(root / "folder 10")),
        lambda root: ((root / "folder 12").rename(root / "real"), (root / "folder 12").symlink_to("real")),
        lambda root: (root / "folder 13").chmod(0o700),
    ],
    ids=["file removed", "file added", "renamed", "replaced by another", "replaced by a link to it", "mode"],
)
def test_other_changes_are_found(place: Place, change: Callable[[Path], object]):
    change(place.root)
    assert place.take().state_hash == seen_anew(place)


def test_with_another_thread_nobody_forks(place: Place, forks: list[int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    found = place.take().state_hash
    assert forks == []
    assert found == seen_anew(place)


def test_what_a_fork_that_died_did_not_say_is_looked_at(
    place: Place, forks: list[int], monkeypatch: pytest.MonkeyPatch
):
    own = os.getpid()
    stamps_of = unchanged.stamps_of

    def dying(directory: int, names: bytes) -> bytes | None:
        if os.getpid() != own:
            raise MemoryError
        return stamps_of(directory, names)

    monkeypatch.setattr(unchanged, "stamps_of", dying)
    write(place.root / "folder 1" / "a file", "changed")
    found = place.take().state_hash
    assert len(forks) == 2
    assert found == seen_anew(place)


def test_a_kernel_that_cannot_open_from_afar_gets_a_closer_look(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unchanged, "open_beneath", lambda _root, _path: -1)
    write(place.root / "folder 1" / "a file", "changed")
    assert place.take().state_hash == seen_anew(place)
