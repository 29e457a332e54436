"""How much there is in a tree: which entries, how many files, and how much space a copy of them takes."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from holdfast.system.directories import join
from holdfast.system.stopping import stop_if_asked

_BLOCK_BYTES = 512


class Found(NamedTuple):
    """An entry of a tree."""

    path: bytes
    is_folder: bool
    size_bytes: int
    """Its space on the disk."""
    names: tuple[int, int] | None
    """What its other names have in common with this one; None if it has no others."""


class Size:
    """How many files there are, and their space on the disk; a file with several names takes it once."""

    def __init__(self) -> None:
        self.files = 0
        self.is_least = False
        """There is more, which was not counted."""
        self._size_bytes = 0
        self._linked: dict[tuple[int, int], int] = {}

    @property
    def size_bytes(self) -> int:
        return self._size_bytes + sum(self._linked.values())

    def add(self, found: Found) -> None:
        self.files += not found.is_folder
        if found.names is None:
            self._size_bytes += found.size_bytes
        else:
            self._linked[found.names] = found.size_bytes

    def add_directory(self, files: int, disk_bytes: int, linked: Iterable[tuple[bytes, int, int, int]]) -> None:
        """``linked``: name, device, inode and space of files with several names; ``disk_bytes`` is without them."""
        self.files += files
        self._size_bytes += disk_bytes
        for _, device, inode, space in linked:
            self._linked[device, inode] = space

    def add_all(self, other: Size) -> None:
        self.files += other.files
        self.is_least |= other.is_least
        self._size_bytes += other._size_bytes
        self._linked.update(other._linked)


def size_of(found: Iterable[Found]) -> Size:
    size = Size()
    for each in found:
        size.add(each)
    return size


def tree_at(root: bytes, path: bytes, *, skip: Collection[bytes] = ()) -> Iterator[Found]:
    """An entry below the root and all that lies in it, a folder before its content, without the paths ``skip``.

    What vanished, or may not be read, is not copied and is not found here.
    """
    try:
        top = os.lstat(os.path.join(root, path))
    except OSError:
        return
    yield entry_at(path, top)
    pending = [path] if stat.S_ISDIR(top.st_mode) else []
    while pending:
        stop_if_asked()
        directory = pending.pop()
        try:
            with os.scandir(os.path.join(root, directory)) as entries:
                for entry in entries:
                    below = join(directory, entry.name)
                    if below in skip:
                        continue
                    found = entry_at(below, entry.stat(follow_symlinks=False))
                    if found.is_folder:
                        pending.append(below)
                    yield found
        except OSError:
            continue


def entry_at(path: bytes, found: os.stat_result) -> Found:
    is_folder = stat.S_ISDIR(found.st_mode)
    names = (found.st_dev, found.st_ino) if found.st_nlink > 1 and not is_folder else None
    return Found(path, is_folder, found.st_blocks * _BLOCK_BYTES, names)
