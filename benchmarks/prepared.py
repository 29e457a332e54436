"""Trees with their first checkpoint taken, made once and used by many benchmarks."""

from __future__ import annotations

from pathlib import Path

from benchmarks.trees import make_tree
from benchmarks.worker import Level, open_level

SIZES = (1000, 10_000)
LEVELS = ("snapshot", "whole")


def make_trees(folder: Path) -> None:
    for files in SIZES:
        make_tree(tree_of(folder, files), files)


def take_first_checkpoints(folder: Path) -> None:
    for files in SIZES:
        for level in LEVELS:
            opened = open_prepared(folder, files, level)
            opened.checkpoint()
            opened.close()


def tree_of(folder: Path, files: int) -> Path:
    return folder / str(files) / "tree"


def store_of(folder: Path, files: int, level: str) -> Path:
    return folder / str(files) / level


def open_prepared(folder: Path, files: int, level: str) -> Level:
    return open_level(level, tree_of(folder, files), store_of(folder, files, level))


def open_watching(folder: Path, files: int, level: str) -> Level:
    """As it is while a plan runs: the tree is known, and the kernel tells of changes."""
    opened = open_prepared(folder, files, level)
    opened.watch()
    opened.checkpoint()
    return opened
