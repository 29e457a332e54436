"""What is put into the trash is gone at once, and its space is freed whatever happens."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.system.trash import TRASH, Trash
from tests.support.detached import run_to_the_end
from tests.support.trees import IS_ROOT, write
from tests.support.unprivileged import NOBODY, folder_for_nobody, run_unprivileged

MANY = 1_500
"""More entries than are removed before a command returns."""
_TIDY = "from pathlib import Path; from holdfast.system.trash import Trash; Trash(Path(sys.argv[1])).tidy()"


@pytest.fixture
def sandboxes(tmp_path: Path) -> Path:
    folder = tmp_path / "sandboxes"
    folder.mkdir()
    return folder


def _make(tree: Path, files: int) -> Path:
    """A tree with that many files, and a symlink that leads out of it."""
    for number in range(files):
        write(tree / f"d{number // 1000}" / f"{number}", "x")
    outside = write(tree.parents[1] / "outside" / "file", "not ours").parent
    os.symlink(outside, tree / "link")
    return tree


def test_a_small_tree_is_removed_at_once_and_leaves_no_trash(sandboxes: Path) -> None:
    Trash(sandboxes).put(_make(sandboxes / "plan", 20))
    assert list(sandboxes.iterdir()) == []
    assert (sandboxes.parent / "outside" / "file").read_text() == "not ours"


def test_the_rest_of_a_large_tree_is_removed_by_a_process_that_outlives_the_command(sandboxes: Path) -> None:
    Trash(sandboxes).put(_make(sandboxes / "plan", 2 * MANY))
    assert not (sandboxes / "plan").exists()
    assert len(Trash(sandboxes).waiting()) == 1
    assert run_to_the_end(_TIDY, sandboxes) == 1
    assert list(sandboxes.iterdir()) == []
    assert (sandboxes.parent / "outside" / "file").read_text() == "not ours"


def test_what_a_killed_process_left_is_removed_by_the_next_one(sandboxes: Path) -> None:
    trash = Trash(sandboxes)
    assert trash.take(_make(sandboxes / "plan", 20))
    assert trash.take(_make(sandboxes / "other", 20))
    assert len(trash.waiting()) == 2
    trash.tidy()
    assert list(sandboxes.iterdir()) == []


def test_an_empty_trash_that_a_killed_process_left_is_removed(sandboxes: Path) -> None:
    (sandboxes / TRASH).mkdir()
    Trash(sandboxes).tidy()
    assert list(sandboxes.iterdir()) == []


def test_only_one_process_removes_at_a_time(sandboxes: Path) -> None:
    trash = Trash(sandboxes)
    trash.take(_make(sandboxes / "plan", 20))
    other = os.open(sandboxes / TRASH, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    trash.tidy()
    trash.put(_make(sandboxes / "more", 20))
    assert len(trash.waiting()) == 2
    os.close(other)
    trash.tidy()
    assert list(sandboxes.iterdir()) == []


def test_trees_with_one_name_and_what_is_not_there_can_be_put_away(sandboxes: Path) -> None:
    trash = Trash(sandboxes)
    for _ in range(2):
        assert trash.take(_make(sandboxes / "plan", 2))
    trash.put(sandboxes / "plan")
    assert len(trash.waiting()) == 2


def test_a_symlink_in_the_place_of_the_trash_is_not_followed(sandboxes: Path) -> None:
    mine = write(sandboxes.parent / "mine" / "thesis", "mine").parent
    os.symlink(mine, sandboxes / TRASH)
    trash = Trash(sandboxes)
    trash.put(_make(sandboxes / "plan", 20))
    trash.tidy()
    assert not (sandboxes / "plan").exists()
    assert [path.name for path in mine.iterdir()] == ["thesis"]


@pytest.fixture
def small_disk(sandboxes: Path) -> Iterator[Path]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=50m", "holdfast-test", sandboxes], check=True)
    try:
        yield sandboxes
    finally:
        subprocess.run(["umount", "--lazy", sandboxes], check=True)


@pytest.mark.skipif(not IS_ROOT, reason="only root may mount a small disk")
def test_if_space_is_short_all_of_it_is_freed_before_the_command_returns(small_disk: Path) -> None:
    trash = Trash(small_disk)
    trash.take(_make(small_disk / "plan", MANY))
    trash.put(_make(small_disk / "other", MANY))
    assert list(small_disk.iterdir()) == []


def put_away_what_is_closed(folder: str) -> list[str]:
    from holdfast.system.trash import Trash as AsThisUser

    place = Path(folder)
    (place / "plan" / "d").mkdir(parents=True)
    (place / "plan" / "d" / "file").write_text("x")
    (place / "plan" / "d").chmod(0o000)
    (place / "plan").chmod(0o000)
    trash = AsThisUser(place)
    assert trash.take(place / "plan")
    trash.tidy()
    return os.listdir(place)


def test_a_tree_that_is_closed_to_its_own_user_is_put_away_and_removed() -> None:
    with folder_for_nobody() as folder:
        if IS_ROOT:
            os.chown(folder, NOBODY, NOBODY)
        assert run_unprivileged(put_away_what_is_closed, str(folder)) == []
