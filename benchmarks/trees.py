"""Trees to measure on: generated, the same for everybody, shaped like source code."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

FILES_IN_A_DIRECTORY = 20
_BLOCK_BYTES = 1 << 20
_SOURCES_IN_A_DIRECTORY, _OPEN_FOLDERS, _TOP_FOLDERS, _DEEPEST = 15, 400, 30, 8


def make_tree(root: Path, files: int, *, seed: int = 1) -> None:
    """Text files of a kilobyte or so in nested directories, twenty to a directory."""
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
    folders = (f"d{directory // 400:03}", f"e{directory // 20 % 20:02}", f"f{directory % 20:02}")
    return root.joinpath(*folders, f"file{number:06}.txt")


def make_source_tree(root: Path, files: int, *, seed: int = 7) -> None:
    """Files like those of a large program in C: some four kilobytes, fifteen to a directory, eight levels deep."""
    chance = random.Random(seed)
    root.mkdir(parents=True)
    folders = [root]
    for number in range(files // _SOURCES_IN_A_DIRECTORY):
        parent = chance.choice(folders[-_OPEN_FOLDERS:])
        if len(parent.parts) - len(root.parts) >= _DEEPEST or number < _TOP_FOLDERS:
            parent = root
        folders.append(parent / f"d{number}")
        folders[-1].mkdir()
    line = "int some_function(struct thing *thing, unsigned long flags);\n"
    for number in range(files):
        lines = int(chance.lognormvariate(4.2, 1.2))
        (folders[number % len(folders)] / f"file{number}.c").write_text(f"/* {number} */\n" + line * lines)


def chosen_files(root: Path, total: int, count: int, turn: int) -> list[Path]:
    """In every turn other files, spread over the tree."""
    return [file_path(root, (turn * 7919 + number * (total // count)) % total) for number in range(count)]


def change(files: Iterable[Path]) -> None:
    for path in files:
        with path.open("a") as file:
            file.write(f"changed {os.urandom(8).hex()}\n")


def change_files(root: Path, total: int, count: int, turn: int) -> None:
    change(chosen_files(root, total, count, turn))


def append_random(path: Path, size_bytes: int) -> None:
    """Content that does not compress, in blocks, so that this process stays small."""
    with path.open("ab") as file:
        for start in range(0, size_bytes, _BLOCK_BYTES):
            file.write(os.urandom(min(_BLOCK_BYTES, size_bytes - start)))
