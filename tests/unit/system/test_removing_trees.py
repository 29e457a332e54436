"""A tree is removed whatever it is like, and nothing beside it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import SandboxError
from holdfast.system.trees import remove_tree
from tests.support.limits import few_open_files
from tests.support.moments import just_before
from tests.support.trees import IS_ROOT, make_deep, make_odd_tree, write
from tests.support.unprivileged import NOBODY, folder_for_nobody, run_unprivileged


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """An empty directory; what a test leaves of it may be too deep for anybody else to remove."""
    tree = tmp_path / "tree"
    tree.mkdir()
    yield tree
    subprocess.run(["rm", "-rf", tree], check=True)


@pytest.mark.parametrize(("levels", "name"), [(5_000, b"d"), (40, b"n" * 255)], ids=["deep", "with a long path"])
def test_a_tree_is_removed_however_deep_it_is_and_however_long_its_paths(tree: Path, levels: int, name: bytes):
    make_deep(tree, levels, name=name)
    with few_open_files(100):
        remove_tree(tree)
    assert not tree.exists()


def test_everything_in_a_tree_is_removed(tree: Path):
    make_odd_tree(tree)
    os.chmod(tree / "shared", 0o000)
    remove_tree(tree)
    assert not tree.exists()


def test_what_is_not_there_is_removed_already(tmp_path: Path):
    remove_tree(tmp_path / "nothing")
    remove_tree(tmp_path / "nothing" / "at all")
    assert list(tmp_path.iterdir()) == []


def test_a_symlink_is_removed_and_not_what_it_leads_to(tmp_path: Path, tree: Path):
    outside = write(tmp_path / "outside" / "file", "not ours")
    os.symlink(outside.parent, tree / "link")
    os.symlink(tree, tmp_path / "link to the tree")
    remove_tree(tmp_path / "link to the tree")
    assert os.listdir(tree) == ["link"]
    remove_tree(tree)
    assert not tree.exists()
    assert outside.read_text() == "not ours"


def test_a_symlink_swapped_in_for_a_directory_is_not_followed(tmp_path: Path, tree: Path):
    outside = write(tmp_path / "outside" / "file", "not ours")
    outside.parent.chmod(0o555)
    write(tree / "directory" / "file", "ours")

    def swap() -> None:
        (tree / "directory").rename(tmp_path / "taken away")
        os.symlink(outside.parent, tree / "directory")

    with just_before("open", "directory", swap):
        remove_tree(tree)
    assert not tree.exists()
    assert outside.read_text() == "not ours"
    assert outside.parent.stat().st_mode & 0o777 == 0o555


def test_a_directory_moved_away_while_it_is_removed_takes_nothing_else_with_it(tmp_path: Path, tree: Path):
    write(tree / "directory" / "file", "ours")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "directory").mkdir(parents=True)

    def move() -> None:
        (tree / "directory").rename(elsewhere / "moved")

    with just_before("os.remove", "file", move), pytest.raises(SandboxError, match="was moved"):
        remove_tree(tree)
    assert sorted(os.listdir(elsewhere)) == ["directory", "moved"]
    remove_tree(tree)
    assert not tree.exists()


def remove(path: str) -> None:
    from holdfast.system.trees import remove_tree as remove_it

    remove_it(Path(path))


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a tree to another user")
@pytest.mark.parametrize("mode", [0o000, 0o100, 0o444, 0o555])
def test_a_user_removes_their_own_directories_that_are_closed_to_themselves(mode: int):
    with folder_for_nobody() as folder:
        tree = folder / "tree"
        for directory in (tree / "closed" / "in closed", tree / "closed", tree):
            write(directory / "file", "x", mode=0o000)
        for directory in (tree / "closed" / "in closed", tree / "closed", tree):
            for path in (directory / "file", directory):
                os.chown(path, NOBODY, NOBODY)
            directory.chmod(mode)
        run_unprivileged(remove, str(tree))
        assert os.listdir(folder) == []


def test_no_more_entries_are_removed_than_asked(tree: Path):
    for number in range(30):
        write(tree / f"d{number % 3}" / f"{number}", "x")
    assert remove_tree(tree, most_entries=10) == 10
    assert sum(len(files) for _, _, files in os.walk(tree)) == 20
    assert remove_tree(tree) == 20 + 4
    assert not tree.exists()
