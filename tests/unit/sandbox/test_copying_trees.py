"""A tree is copied whatever it is like, also while somebody works in it, and nothing from beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.sandbox.bulk import CopiedFile
from holdfast.sandbox.copying import TreeCopy
from holdfast.system.directories import join
from holdfast.system.trees import remove_tree
from tests.support.limits import few_open_files
from tests.support.moments import just_before
from tests.support.trees import IS_ROOT, compare, describe, difference_of, make_deep, make_odd_tree, read_deep, write
from tests.support.unprivileged import NOBODY, folder_for_nobody, run_unprivileged

REPLACED = "replaced while it was being copied"


def write_to_be_copied_alone(path: Path) -> None:
    write(path, "ours")
    os.setxattr(path, "user.color", b"blue")


class Meanwhile:
    """A sink that does something when the first files of many were copied, and keeps what it is shown."""

    def __init__(self, action: Callable[[], object] = lambda: None) -> None:
        self._action: Callable[[], object] | None = action
        self.contents: dict[bytes, bytes] = {}
        self.directories: dict[bytes, int] = {}

    def note_entry(self, path: bytes) -> None:
        pass

    def note_directory(self, path: bytes, inode: int) -> None:
        self.directories[path] = inode

    def note_files(self, files: Sequence[CopiedFile]) -> None:
        self.contents |= {join(file.directory, file.name): bytes(file.content) for file in files}
        if self._action is not None:
            self._action()
            self._action = None


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    return source


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    write(tmp_path / "outside" / "secret", "not ours to read")
    return tmp_path / "outside"


def copy(source: Path, target: Path) -> list[tuple[str, str]]:
    """What was left out."""
    return [(each.path, each.reason) for each in TreeCopy(source, target, name="app").run().left_out]


@pytest.mark.parametrize(("levels", "name"), [(2_500, b"d"), (40, b"n" * 255)], ids=["deep", "with a long path"])
def test_a_tree_is_copied_however_deep_it_is_and_however_long_its_paths(
    source: Path, target: Path, levels: int, name: bytes
):
    leaf = make_deep(source, levels, name=name)
    try:
        with few_open_files(200):
            assert copy(source, target) == []
        assert read_deep(target, leaf) == b"at the bottom"
    finally:
        remove_tree(source)
        remove_tree(target)


def test_the_copy_is_not_copied_into_itself(source: Path):
    write(source / "file", "x")
    (source / "place").mkdir()
    copy = TreeCopy(source, source / "place" / "copy", name="source").run()
    assert [(each.path, each.reason) for each in copy.left_out] == [("place/copy", "the sandbox that is being made")]
    assert sorted(str(path.relative_to(source)) for path in source.rglob("*")) == [
        "file", "place", "place/copy", "place/copy/file", "place/copy/place",
    ]  # fmt: skip


def test_names_of_one_file_in_many_directories_stay_names_of_one_file(source: Path, target: Path):
    first = write(source / "0" / "name", "one file")
    for number in range(1, 200):
        (source / str(number)).mkdir()
        os.link(first, source / str(number) / "name")
    assert copy(source, target) == []
    assert difference_of(source, target) == []


# While somebody works in it


@pytest.mark.parametrize("opened", [-1, 0], ids=["it", "the first"])
def test_a_file_that_vanishes_is_as_if_it_had_been_gone_before(source: Path, target: Path, opened: int):
    for number in range(20):
        write_to_be_copied_alone(source / "directory" / f"file {number}")
    names = os.listdir(source / "directory")
    with just_before("open", names[opened], (source / "directory" / names[-1]).unlink):
        assert copy(source, target) == []
    assert sorted(os.listdir(target / "directory")) == sorted(names[:-1])


@pytest.fixture
def many(source: Path) -> list[str]:
    """The names of many small files, in the order in which they are copied."""
    for number in range(700):
        write(source / "directory" / f"file {number}", f"{number}")
    return os.listdir(source / "directory")


def test_a_small_file_that_vanishes_is_as_if_it_had_been_gone_before(source: Path, target: Path, many: list[str]):
    meanwhile = Meanwhile((source / "directory" / many[-1]).unlink)
    assert TreeCopy(source, target, name="app", sink=meanwhile).run().left_out == []
    assert sorted(os.listdir(target / "directory")) == sorted(many[:-1])


def test_a_directory_that_vanishes_is_as_if_it_had_been_gone_before(source: Path, target: Path):
    write(source / "file", "kept")
    write(source / "directory" / "in it" / "file", "x")
    write(source / "other" / "last", "kept")
    with just_before("open", "directory", lambda: shutil.rmtree(source / "directory")):
        assert copy(source, target) == []
    assert sorted(os.listdir(target)) == ["file", "other"]
    assert (target / "other" / "last").read_text() == "kept"


def symlink(path: Path, outside: Path) -> None:
    os.symlink(outside / "secret", path)


def fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def directory(path: Path, outside: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("put", [symlink, fifo, directory])
def test_what_is_swapped_in_for_a_file_is_left_out_and_listed(
    source: Path, target: Path, outside: Path, put: Callable[[Path, Path], None]
):
    write_to_be_copied_alone(source / "swapped")
    write(source / "other", "kept")

    def swap() -> None:
        (source / "swapped").unlink()
        put(source / "swapped", outside)

    with just_before("open", "swapped", swap):
        assert copy(source, target) == [("swapped", REPLACED)]
    assert os.listdir(target) == ["other"]


@pytest.mark.parametrize("put", [symlink, fifo, directory])
def test_what_is_swapped_in_for_a_small_file_is_left_out_and_listed(
    source: Path, target: Path, outside: Path, many: list[str], put: Callable[[Path, Path], None]
):
    swapped = source / "directory" / many[-1]

    def swap() -> None:
        swapped.unlink()
        put(swapped, outside)

    left_out = TreeCopy(source, target, name="app", sink=Meanwhile(swap)).run().left_out
    assert [(each.path, each.reason) for each in left_out] == [(f"directory/{many[-1]}", REPLACED)]
    assert sorted(os.listdir(target / "directory")) == sorted(many[:-1])


def test_a_sink_is_shown_exactly_what_is_in_the_copies(source: Path, target: Path):
    """With enough files for several threads, and with files too large, or of a kind, to be copied with others."""
    make_odd_tree(source)
    for number in range(3_000):
        write(source / f"directory {number % 40}" / f"file {number}", f"content {number}" * (number % 90))
    write(source / "directory 1" / "large", b"x" * (3 << 20))
    shown = Meanwhile()
    copied = TreeCopy(source, target, name="app", is_ours=True, sink=shown).run()
    assert copied.left_out == []
    assert difference_of(source, target) == []
    assert len(shown.contents) >= 3_000
    assert b"directory 1/large" not in shown.contents
    for path, content in shown.contents.items():
        assert (target / os.fsdecode(path)).read_bytes() == content
    assert shown.directories == {
        b"" if path == target else os.fsencode(path.relative_to(target)): path.stat().st_ino
        for path in [target, *target.rglob("*")]
        if path.is_dir() and not path.is_symlink()
    }


def test_what_goes_wrong_in_a_thread_ends_the_copy(source: Path, target: Path):
    for number in range(3_000):
        write(source / f"directory {number % 40}" / f"file {number}", "x")

    def fail() -> None:
        raise HoldfastError("No more of this.")

    with pytest.raises(HoldfastError, match=r"No more of this\."):
        TreeCopy(source, target, name="app", sink=Meanwhile(fail)).run()


def test_a_symlink_swapped_in_for_a_directory_is_not_followed(source: Path, target: Path, outside: Path):
    write(source / "file", "kept")
    write(source / "directory" / "in it" / "secret", "ours")

    def swap() -> None:
        (source / "directory").rename(source.parent / "taken away")
        os.symlink(outside, source / "directory")

    with just_before("open", "directory", swap):
        assert copy(source, target) == [("directory", REPLACED)]
    assert os.listdir(target) == ["file"]


def test_a_file_swapped_in_for_a_symlink_leaves_alone_what_the_symlink_leads_to(
    source: Path, target: Path, outside: Path
):
    os.symlink(outside / "secret", source / "link")
    before = describe(outside)

    def swap() -> None:
        (source / "link").unlink()
        write(source / "link", "ours", mode=0o777)

    with just_before("os.symlink", "secret", swap):
        copy(source, target)
    assert compare(before, describe(outside)) == []


# As a user who is not root


def copied(folder: str) -> list[list[str]]:
    return [list(each) for each in copy(Path(folder) / "source", Path(folder) / "target")]


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a tree to another user")
def test_what_is_closed_to_the_user_is_left_out_and_not_touched():
    unreadable = "not readable for this user"
    with folder_for_nobody() as folder:
        source = folder / "source"
        write(source / "file", "x")
        write(source / "closed file", "x", mode=0o000)
        os.link(source / "closed file", source / "closed file, again")
        write(source / "closed" / "file", "x")
        os.setxattr(source / "closed", "user.colour", b"green")
        write(source / "not to be entered" / "file", "x")
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", source], check=True)
        (source / "closed").chmod(0o000)
        (source / "not to be entered").chmod(0o444)
        before = {path: path.stat().st_ctime_ns for path in source.rglob("*")}
        left_out = run_unprivileged(copied, str(folder))
        assert sorted(left_out) == [
            ["closed", unreadable],
            ["closed file", unreadable],
            ["closed file, again", unreadable],
            ["not to be entered/file", unreadable],
        ]
        assert {path: path.stat().st_ctime_ns for path in source.rglob("*")} == before
        modes = {path.name: path.stat().st_mode & 0o777 for path in (folder / "target").iterdir()}
        assert modes == {"file": 0o644, "closed": 0o000, "not to be entered": 0o444}
