"""S3: what a snapshot could not hold is listed with the reason; a restore never touches it, let alone deletes it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.snapshots import Place
from tests.support.trees import IS_ROOT, compare, describe, make_null_device, make_socket, write

Make = Callable[[Path], Path]


@pytest.fixture(
    params=[
        pytest.param((make_socket, "a socket"), id="socket"),
        pytest.param(
            (make_null_device, "a character device"),
            id="device",
            marks=pytest.mark.skipif(not IS_ROOT, reason="only root may make a device"),
        ),
    ]
)
def special(request: pytest.FixtureRequest) -> tuple[Make, str]:
    return request.param


@pytest.fixture
def make(special: tuple[Make, str]) -> Make:
    return special[0]


def identity(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return status.st_ino, status.st_mode, status.st_ctime_ns


def test_s3_it_is_listed_with_the_reason(place: Place, root: Path, special: tuple[Make, str]):
    make, reason = special
    (root / "deep" / "er").mkdir(parents=True)
    make(root / "deep" / "er" / "it")
    make(root / "here")
    assert place.unheld == {"deep/er/it": reason, "here": reason}


def test_s3_it_is_listed_as_long_as_it_is_there(place: Place, root: Path, make: Make):
    write(root / "file")
    assert place.unheld == {}
    make(root / "it")
    assert list(place.unheld) == ["it"]
    assert list(place.unheld) == ["it"], "also when nothing changed"
    place.next_process(remembering=True)
    assert list(place.unheld) == ["it"], "also in the next process"
    (root / "it").rename(root / "moved")
    assert list(place.unheld) == ["moved"]
    (root / "moved").unlink()
    assert place.unheld == {}


def test_s3_it_leaves_the_list_with_its_directory(place: Place, root: Path, make: Make):
    (root / "d" / "e").mkdir(parents=True)
    make(root / "d" / "e" / "it")
    assert list(place.unheld) == ["d/e/it"]
    (root / "d").rename(root / "f")
    assert list(place.unheld) == ["f/e/it"]
    shutil.rmtree(root / "f")
    assert place.unheld == {}


def test_s3_a_restore_does_not_touch_it_where_it_is(place: Place, root: Path, make: Make):
    write(root / "d" / "file", "old")
    make(root / "d" / "it")
    checkpoint = place.take()
    write(root / "d" / "file", "new")
    make(root / "d" / "made later")
    before = {name: identity(root / "d" / name) for name in ("it", "made later")}
    restored = place.go_back(checkpoint)
    assert (root / "d" / "file").read_text() == "old"
    assert {name: identity(root / "d" / name) for name in ("it", "made later")} == before
    assert restored.set_aside == []


def test_s3_it_does_not_count_as_a_change(place: Place, root: Path, make: Make):
    """Making it changes the time of its directory; that is put back, and it is still there."""
    (root / "d").mkdir()
    checkpoint = place.take()
    make(root / "d" / "it")
    place.go_back(checkpoint)
    assert os.path.lexists(root / "d" / "it")
    assert place.manager.state_of(root) == checkpoint.state_hash


def assert_set_aside(place: Place, checkpoint: str, paths: set[bytes], kind: Callable[[int], bool]) -> None:
    restored = place.go_back(checkpoint)
    assert {path for path, _ in restored.set_aside} == paths
    for _, shelter in restored.set_aside:
        assert kind(shelter.lstat().st_mode)
        assert not shelter.is_relative_to(place.root)


@pytest.fixture
def is_same_kind(make: Make) -> Callable[[int], bool]:
    return stat.S_ISSOCK if make is make_socket else stat.S_ISCHR


@pytest.mark.parametrize("wanted", ["file", "directory", "symlink", "fifo"])
def test_s3_in_the_way_of_something_it_is_set_aside(
    place: Place, root: Path, make: Make, is_same_kind: Callable[[int], bool], wanted: str
):
    path = root / "d" / "wanted"
    path.parent.mkdir()
    makers = {
        "file": lambda: write(path, "x"),
        "directory": lambda: write(path / "inside", "x"),
        "symlink": lambda: os.symlink("x", path),
        "fifo": lambda: os.mkfifo(path),
    }
    makers[wanted]()
    before, checkpoint = describe(root), place.take()
    shutil.rmtree(path) if wanted == "directory" else path.unlink()
    make(path)
    assert_set_aside(place, checkpoint.state_hash, {b"d/wanted"}, is_same_kind)
    assert compare(before, describe(root)) == []


def test_s3_in_a_directory_that_has_to_go_it_is_set_aside(
    place: Place, root: Path, make: Make, is_same_kind: Callable[[int], bool]
):
    write(root / "stays")
    before, checkpoint = describe(root), place.take()
    (root / "new" / "deeper").mkdir(parents=True)
    make(root / "new" / "deeper" / "it")
    make(root / "new" / "it")
    make(root / "new" / ("long" * 63 + "est"))
    gone = {b"new/deeper/it", b"new/it", b"new/" + b"long" * 63 + b"est"}
    assert_set_aside(place, checkpoint.state_hash, gone, is_same_kind)
    assert compare(before, describe(root)) == []


def test_s3_in_a_directory_that_was_a_file_it_is_set_aside(
    place: Place, root: Path, make: Make, is_same_kind: Callable[[int], bool]
):
    write(root / "it", "a file")
    before, checkpoint = describe(root), place.take()
    (root / "it").unlink()
    (root / "it").mkdir()
    make(root / "it" / "inside")
    assert_set_aside(place, checkpoint.state_hash, {b"it/inside"}, is_same_kind)
    assert compare(before, describe(root)) == []


def test_s3_what_was_set_aside_before_is_kept_when_the_same_happens_again(place: Place, root: Path):
    write(root / "wanted", "x")
    checkpoint = place.take()
    for _ in range(2):
        (root / "wanted").unlink()
        make_socket(root / "wanted")
        place.go_back(checkpoint)
    kept = [path for path in place.aside.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]
    assert len(kept) == 2
