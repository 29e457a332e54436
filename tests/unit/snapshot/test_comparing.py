"""A known tree of many directories is compared by several threads; they find what one alone would find."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.system import comparing, plain_calls
from holdfast.system.calls import compare_stamps
from holdfast.system.stopping import Stopped, stoppable
from tests.support.snapshots import Place
from tests.support.trees import compare, describe, write

DIRECTORIES = 250
AT_ONCE = 40


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


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(comparing, "compare_stamps", plain_calls.compare_stamps)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that were started."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def counting(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)

    monkeypatch.setattr(comparing, "_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(comparing, "_MOST_THREADS", 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(threading.Thread, "start", counting)
    return started


def seen_anew(place: Place) -> str:
    """The state hash as somebody finds it who knows nothing."""
    for cache in place.caches:
        cache.unlink()
    place.next_process()
    return place.take().state_hash


def test_nothing_changed_is_found_by_all_together(place: Place, threads: list[threading.Thread]):
    found = place.take().state_hash
    assert len(threads) == 2
    assert found == seen_anew(place)


@pytest.mark.parametrize("number", [0, 1, 120, 249])
def test_a_changed_file_is_found_whichever_thread_compares_it(
    place: Place, threads: list[threading.Thread], number: int
):
    before = place.take().state_hash
    write(place.root / f"folder {number}" / "a file", "changed")
    place.next_process(remembering=True)
    found = place.take().state_hash
    assert threads
    assert found != before
    assert found == seen_anew(place)


@pytest.mark.usefixtures("threads")
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


def test_directories_replaced_by_links_to_the_same_files_outside_are_not_followed(place: Place):
    outside = place.folder / "outside"
    place.root.rename(outside)
    place.root.mkdir()
    for folder in outside.iterdir():
        (place.root / folder.name).symlink_to(folder)
    before, checkpoint = describe(place.root), place.take()
    assert checkpoint.state_hash == seen_anew(place)
    (place.root / "folder 1").unlink()
    place.go_back(checkpoint)
    assert compare(before, describe(place.root)) == []


def test_the_directory_above_replaced_by_a_link_is_not_followed(place: Place):
    write(place.root / "deep" / "er" / "file", "inside")
    time.sleep(0.03)
    place.take()
    place.next_process(remembering=True)
    (place.root / "deep").rename(place.folder / "outside")
    (place.root / "deep").symlink_to(place.folder / "outside")
    assert place.take().state_hash == seen_anew(place)


def test_nothing_is_listed_if_nothing_changed(place: Place, monkeypatch: pytest.MonkeyPatch):
    listed: list[object] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: listed.append(folder) or scandir(folder))
    place.take()
    assert listed == []
    write(place.root / "folder 5" / "a file", "changed")
    place.take()
    assert len(listed) == 1


def test_what_a_thread_that_failed_did_not_compare_is_compared(
    place: Place, threads: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
):
    own, comparing_now = threading.get_ident(), comparing.compare_stamps
    failed = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def failing(root: int, packed: memoryview) -> bytes:
        if threading.get_ident() != own:
            failed.set()
            raise MemoryError
        failed.wait(5)
        return comparing_now(root, packed)

    monkeypatch.setattr(comparing, "compare_stamps", failing)
    write(place.root / "folder 1" / "a file", "changed")
    found = place.take().state_hash
    assert failed.is_set()
    assert len(threads) == 2
    assert found == seen_anew(place)


def test_without_more_threads_one_does_all(place: Place, monkeypatch: pytest.MonkeyPatch):
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(comparing, "_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(threading.Thread, "start", refused)
    write(place.root / "folder 1" / "a file", "changed")
    found = place.take().state_hash
    monkeypatch.undo()
    assert found == seen_anew(place)


def test_it_stops_when_asked_and_so_do_its_threads(
    place: Place, threads: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
):
    stop, shares = threading.Event(), []

    def stopping(root: int, packed: memoryview) -> bytes:
        shares.append(len(packed))
        stop.set()
        return compare_stamps(root, packed)

    monkeypatch.setattr(comparing, "compare_stamps", stopping)
    with pytest.raises(Stopped), stoppable(stop):
        place.take()
    assert not any(thread.is_alive() for thread in threads)
    assert place.take().state_hash == seen_anew(place)


def test_a_kernel_that_cannot_open_from_afar_gets_every_directory_listed(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(comparing, "compare_stamps", plain_calls.compare_stamps)
    monkeypatch.setattr(plain_calls, "open_beneath", lambda _root, _path: -1)
    write(place.root / "folder 1" / "a file", "changed")
    assert place.take().state_hash == seen_anew(place)


def test_names_may_have_any_byte(place: Place):
    root = os.fsencode(place.root)
    names = [bytes([byte]) for byte in range(1, 256) if byte not in b"/."] + [bytes(set(range(1, 256)) - set(b"/"))]
    for name in names:
        os.mkdir(root + b"/ " + name)
    for name in names:
        for path in (root + b"/ " + name + b"/" + name, root + b"/ \n/" + name):
            os.close(os.open(path, os.O_CREAT))
    time.sleep(0.03)
    known = place.take().state_hash
    place.next_process(remembering=True)
    assert place.take().state_hash == known
    with open(root + b"/ \n/\xff", "wb") as file:
        file.write(b"changed")
    changed = place.take().state_hash
    assert changed != known
    assert changed == seen_anew(place)


def test_a_directory_may_have_ten_thousand_files(place: Place):
    (place.root / "large").mkdir()
    for number in range(10_000):
        os.close(os.open(place.root / "large" / f"{number}", os.O_CREAT))
    time.sleep(0.03)
    known = place.take().state_hash
    place.next_process(remembering=True)
    assert place.take().state_hash == known
    write(place.root / "large" / "9999", "changed")
    (place.root / "large" / "0").unlink()
    assert place.take().state_hash == seen_anew(place) != known
