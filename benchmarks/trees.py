"""Trees to measure on: generated, the same for everybody, shaped like source code."""

from __future__ import annotations

import os
import random
from pathlib import Path

FILES_IN_A_DIRECTORY = 20


def make_tree(root: Path, files: int, *, seed: int = 1) -> None:
    """Text files of a few kilobytes in nested directories, twenty to a directory."""
    chance = random.Random(seed)
    words = [f"{chance.getrandbits(40):x}" for _ in range(2000)]
    for number in range(files):
        path = file_path(root, number)
        if number % FILES_IN_A_DIRECTORY == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        size = int(chance.lognormvariate(6.2, 1.1)) // 10 + 5
        path.write_text(f"{number} " + " ".join(chance.choices(words, k=size)))


def file_path(root: Path, number: int) -> Path:
    directory = number // FILES_IN_A_DIRECTORY
    return root / f"d{directory // 400:03}" / f"e{directory // 20 % 20:02}" / f"f{directory % 20:02}" / f"file{number:06}.txt"


def change_files(root: Path, total: int, count: int, turn: int) -> None:
    """Another ``count`` files, spread over the tree, get another line."""
    for number in range(count):
        with open(file_path(root, (turn * 7919 + number * (total // count)) % total), "a") as file:
            file.write(f"changed in turn {turn} {os.urandom(8).hex()}\n")
