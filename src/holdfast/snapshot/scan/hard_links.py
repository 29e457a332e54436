"""The paths of a tree whose files have several names."""

from __future__ import annotations

import os

from holdfast.snapshot.scan.paths_by_directory import PathsByDirectory

Inode = tuple[int, int]
"""Device and inode."""


class HardLinks:
    """The paths whose files have several names, and which of them share a file."""

    def __init__(
        self,
        by_path: dict[bytes, Inode] | None = None,
        counts: dict[Inode, int] | None = None,
        left: set[bytes] | None = None,
    ) -> None:
        self.by_path = by_path or {}
        self._by_inode: dict[Inode, set[bytes]] = {}
        self.counts = counts or {}
        """How many names each of these files has, inside and outside the tree."""
        self._outside: set[Inode] = set()
        """The files that have names outside the tree."""
        self._by_directory = PathsByDirectory()
        for path, inode in self.by_path.items():
            self._by_inode.setdefault(inode, set()).add(path)
            self._by_directory.add(path)
        for inode in self._by_inode:
            self._count(inode)
        self._groups: tuple[tuple[bytes, ...], ...] | None = None
        self.left = left or set()
        """Paths that are no longer names of such files: an event with such a path may be about the old file, if a
        program has it open."""

    def note(self, path: bytes, inode: Inode, names: int) -> None:
        if names == 1 and path not in self.by_path:
            return
        self.replace(path, inode)
        if names == 1:
            self.forget(path)
            return
        self.counts[inode] = names
        if self.by_path.get(path) != inode:
            self.forget(path)
            self.by_path[path] = inode
            self._by_inode.setdefault(inode, set()).add(path)
            self._by_directory.add(path)
            self._groups = None
        self._count(inode)

    def _count(self, inode: Inode) -> None:
        if 0 < len(self._by_inode[inode]) < self.counts.get(inode, 0):
            self._outside.add(inode)
        else:
            self._outside.discard(inode)

    def replace(self, path: bytes, inode: Inode) -> None:
        """Note that the path leads to that file; if it was another file, that one has lost this name."""
        if self.by_path.get(path, inode) != inode:
            self.leave(path)

    def leave(self, path: bytes) -> None:
        """Note that the file, if it has other names, has lost this one."""
        if path in self.by_path:
            self.left.add(path)
            self.forget(path)

    def leave_directory(self, directory: bytes) -> None:
        """The same for all files in a directory, but not for those in directories below it."""
        for path in self._by_directory.inside(directory):
            self.leave(path)

    def forget(self, path: bytes) -> None:
        inode = self.by_path.pop(path, None)
        if inode is not None:
            self._groups = None
            self._by_inode[inode].discard(path)
            self._by_directory.discard(path)
            self._count(inode)

    def other_names(self, found: os.stat_result) -> list[bytes]:
        return list(self._by_inode.get((found.st_dev, found.st_ino), ()))

    def with_names_outside(self) -> list[bytes]:
        """Paths of files that have names outside the tree, and so can change without an event."""
        return [path for inode in self._outside for path in self._by_inode[inode]]

    def groups(self) -> tuple[tuple[bytes, ...], ...]:
        if self._groups is None:
            shared = (paths for paths in self._by_inode.values() if len(paths) > 1)
            self._groups = tuple(sorted(tuple(sorted(paths)) for paths in shared))
        return self._groups
