"""What a folder holds: each of its directories is listed once, and the list serves all that need to know.

The space that a sandbox takes, the progress of making it, and how it is told later what has changed since all follow
from these lists.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from holdfast.sandbox.sizing import Size, entry_at
from holdfast.system.calls import list_directory
from holdfast.system.directories import Descent, join, split
from holdfast.system.stamps import unpack_stamps
from holdfast.system.stopping import stop_if_asked


class Listed(NamedTuple):
    """A directory as it was at one moment."""

    stamps: bytes
    """Packed stamps of all that it holds but its folders."""
    folders: Sequence[bytes]
    """Their names."""
    linked: Sequence[tuple[bytes, int, int, int]]
    """Name, device, inode and space on the disk of the files with several names."""
    newest_ns: int
    """The latest ctime, also of the directory itself."""
    files: int
    size_bytes: int
    disk_bytes: int
    """The space of the directory and of its files with one name."""
    is_plain: bool
    """All of it is on one file system, and nothing is a socket or a device."""

    def has(self, name: bytes) -> bool:
        # Searching all of it first is much quicker than unpacking it, and finds every name, and rarely more.
        return name in self.folders or (b"\0%b\0" % name in self.stamps and name in unpack_stamps(self.stamps))


class ListedTree:
    """A folder of which every directory is listed when it is asked for first.

    ``opens_up``: the folder is a sandbox; directories that we may not enter are made accessible for a moment.
    """

    def __init__(self, root: Path, *, opens_up: bool = False) -> None:
        self.root, self._opens_up = root, opens_up
        self._listed: dict[bytes, Listed | None] = {}

    def directories(
        self,
        top: bytes = b"",
        skip: Collection[bytes] = (),
        known: Mapping[bytes, Sequence[bytes]] = MappingProxyType({}),
    ) -> Iterator[tuple[bytes, Listed | None]]:
        """A directory and all below it, without the paths ``skip``; None for one that cannot be listed.

        ``known``: the names of the folders in directories that need not be listed.
        """
        names = _by_directory(skip)
        try:
            opened = Descent(self.root, opens_up=self._opens_up)
        except OSError:
            yield top, None
            return
        with opened as tree:
            pending = [top]
            while pending:
                stop_if_asked()
                path = pending.pop()
                if path in known:
                    yield path, None
                    pending += [join(path, name) for name in known[path]]
                    continue
                listed = self._list(tree, path, names.get(path, ()))
                if listed is not None and known and not self._is_on_device_of_root(tree, path):
                    listed = listed._replace(is_plain=False)
                yield path, listed
                if listed is not None:
                    pending += [join(path, name) for name in listed.folders]

    def _is_on_device_of_root(self, tree: Descent, path: bytes) -> bool:
        """If not, it is in a mount, which a directory above that is known, and so not listed, does not show."""
        device = os.fstat(tree.open(b"")).st_dev
        return os.fstat(tree.open(path)).st_dev == device

    def only(self, directories: Collection[bytes]) -> Iterator[tuple[bytes, Listed | None]]:
        with Descent(self.root, opens_up=self._opens_up) as tree:
            for path in directories:
                yield path, self._list(tree, path, ())

    def _list(self, tree: Descent, path: bytes, skip: Collection[bytes]) -> Listed | None:
        if skip or path not in self._listed:
            try:
                listed = Listed(*list_directory(tree.open(path), path, tuple(skip)))
            except OSError:
                listed = None
            if skip:
                return listed
            self._listed[path] = listed
        return self._listed[path]

    def size(self, top: bytes = b"", skip: Collection[bytes] = (), most_files: int | None = None) -> Size:
        """What is at a path and below it; of more files than ``most_files`` the rest is not counted.

        What vanished, or may not be read, is not copied and does not count.
        """
        size = Size()
        if top and not self._is_directory(top, size):
            return size
        for _, listed in self.directories(top, skip):
            if most_files is not None and size.files > most_files:
                size.is_least = True
                break
            if listed is not None:
                size.add_directory(listed.files, listed.disk_bytes, listed.linked)
        return size

    def _is_directory(self, path: bytes, size: Size) -> bool:
        """Whether it is one; anything else counts at once."""
        try:
            found = entry_at(path, os.lstat(os.path.join(os.fsencode(self.root), path)))
        except OSError:
            return False
        if not found.is_folder:
            size.add(found)
        return found.is_folder

    def totals(self, skip: Collection[bytes] = ()) -> tuple[int, int]:
        """How many files there are to copy, and how large they are."""
        found = [listed for _, listed in self.directories(skip=skip) if listed is not None]
        return sum(each.files for each in found), sum(each.size_bytes for each in found)


def _by_directory(paths: Collection[bytes]) -> dict[bytes, list[bytes]]:
    names: dict[bytes, list[bytes]] = {}
    for path in paths:
        directory, name = split(path)
        names.setdefault(directory, []).append(name)
    return names
