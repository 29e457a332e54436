"""A tree is copied whatever it is like, also while somebody works in it, and nothing from beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.sandbox.copying import TreeCopy
from holdfast.system.trees import remove_tree
from tests.support.limits import few_open_files
from tests.support.moments import just_before
from tests.support.trees import IS_ROOT, compare, describe, difference_of, make_deep, read_deep, write
from tests.support.unprivileged import NOBODY, folder_for_nobody, run_unprivileged

REPLACED = "replaced while it was being copied"


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


def test_a_file_that_vanishes_is_as_if_it_had_been_gone_before(source: Path, target: Path):
    for number in range(20):
        write(source / "directory" / f"file {number}", "x")
    last = os.listdir(source / "directory")[-1]
    for moment, name in (("open", last), ("open", os.listdir(source / "directory")[0])):
        write(source / "directory" / last, "x")
        with just_before(moment, name, (source / "directory" / last).unlink):
            assert copy(source, target) == []
        assert sorted(os.listdir(target / "directory")) == sorted(os.listdir(source / "directory"))
        assert last not in os.listdir(target / "directory")
        remove_tree(target)


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
    write(source / "swapped", "ours")
    write(source / "other", "kept")

    def swap() -> None:
        (source / "swapped").unlink()
        put(source / "swapped", outside)

    with just_before("open", "swapped", swap):
        assert copy(source, target) == [("swapped", REPLACED)]
    assert os.listdir(target) == ["other"]


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
