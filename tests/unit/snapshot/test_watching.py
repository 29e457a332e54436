"""What the kernel tells of changes is only a short cut: when it tells too little, every file is looked at."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.snapshots import Place
from tests.support.trees import compare, describe, write


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Its content goes with the test; the watching ends with each test's own ``with``."""
    return Place(tmp_path)


def assert_seen(place: Place, *changes: Callable[[], object]) -> None:
    """Every change is in the next snapshot: one that looks at every file, without what is known, finds the same."""
    with place.manager.watching([place.root]):
        place.take()
        for change in changes:
            change()
            seen = place.take().state_hash
            fresh = Place(place.folder, place.root)
            assert fresh.take().state_hash == seen
            fresh.close()


def test_what_is_done_in_new_directories_is_seen(place: Place):
    root = place.root
    assert_seen(
        place,
        lambda: subprocess.run(["sh", "-c", "mkdir -p a/b/c/d && echo x > a/b/c/d/e"], cwd=root, check=True),
        lambda: write(root / "a" / "b" / "c" / "d" / "e", "changed"),
        lambda: subprocess.run(["sh", "-c", "mv a/b/c . && echo y > c/d/f && mkdir a/b/c"], cwd=root, check=True),
        lambda: write(root / "c" / "d" / "g", "x"),
        lambda: write(root / "a" / "b" / "c" / "g", "x"),
    )


def test_directories_that_change_places_are_seen(place: Place):
    root = place.root
    for name in ("one", "two"):
        write(root / name / "deep" / "file", name)
    swap = "mv one tmp; mv two one; mv tmp two; echo more >> one/deep/file"
    assert_seen(
        place,
        lambda: subprocess.run(["sh", "-c", swap], cwd=root, check=True),
        lambda: write(root / "two" / "deep" / "file", "after"),
        lambda: write(root / "one" / "deep" / "another", "after"),
    )


def test_directories_from_outside_and_to_outside_are_seen(place: Place):
    root, outside = place.root, place.folder / "outside"
    write(outside / "deep" / "file", "x")
    assert_seen(
        place,
        lambda: outside.rename(root / "inside"),
        lambda: write(root / "inside" / "deep" / "file", "changed"),
        lambda: (root / "inside").rename(outside),
        lambda: write(outside / "deep" / "file", "not ours any more"),
        lambda: write(root / "inside", "a file now"),
    )


def test_a_directory_removed_and_made_again_is_seen(place: Place):
    root = place.root
    write(root / "d" / "e" / "file", "x")

    def again() -> None:
        shutil.rmtree(root / "d")
        write(root / "d" / "e" / "other", "y")

    assert_seen(place, again, again, lambda: write(root / "d" / "e" / "other", "z"))


def test_more_changes_than_the_kernel_remembers_are_seen(place: Place):
    """20,000 files in a moment: the kernel's queue overflows, unless it is read all the while."""
    burst = "import os\nfor n in range(20000): os.close(os.open(f'd{n % 50}/{n}', os.O_CREAT | os.O_WRONLY))"
    for number in range(50):
        (place.root / f"d{number}").mkdir()

    def change() -> None:
        subprocess.run(["python3", "-c", burst], cwd=place.root, check=True)
        write(place.root / "d1" / "1", "changed")

    assert_seen(place, change)


def test_a_restore_is_exact_when_something_changed_that_nobody_was_told_of(place: Place):
    """A write through a name outside the tree is not reported, but a restore leads to the saved state or says no."""
    root = place.root
    write(root / "file", "old")
    os.link(root / "file", place.folder / "outside")
    with place.manager.watching([root]):
        before, checkpoint = describe(root), place.take()
        (place.folder / "outside").write_text("written from outside")
        write(root / "other", "x")
        place.take()
        place.go_back(checkpoint)
    assert compare(before, describe(root)) == []
