"""All that is known of a tree: its directories, its hard links, and the paths that no snapshot can hold."""

from __future__ import annotations

import os
from collections.abc import Iterable

from holdfast.snapshot.scan.changes import Changes
from holdfast.snapshot.scan.nodes import Node
from holdfast.system.directories import join


class KnownTree:
    def __init__(
        self, top: Node | None = None, links: HardLinks | None = None, unheld: dict[bytes, str] | None = None
    ) -> None:
        self.top = top or Node()
        self.links = links or HardLinks()
        self.unheld = unheld or {}
        """Paths that no snapshot can hold, and why."""

    def node_at(self, path: bytes) -> Node | None:
        node = self.top
        try:
            for name in path.split(b"/") if path else ():
                node = node.children[name]
        except KeyError:
            return None
        return node

    def nodes(self, top: bytes = b"", node: Node | None = None) -> Iterable[tuple[bytes, Node]]:
        """All known nodes, or only ``node``, which is at ``top``, and those below it."""
        pending = [(top, node or self.top)]
        while pending:
            path, node = pending.pop()
            yield path, node
            pending.extend((join(path, name), child) for name, child in node.children.items())

    def paths_with_inode(self, inode: int) -> list[bytes]:
        return [
            join(path, name) for path, node in self.nodes() for name, stamp in node.stamps.items() if stamp[0] == inode
        ]

    def forget_entry(self, directory: bytes, node: Node, name: bytes) -> None:
        path = join(directory, name)
        node.remove(name)
        node.stamps.pop(name, None)
        self.links.leave(path)
        self.unheld.pop(path, None)
        if node.children.pop(name, None) is not None:
            below = path + b"/"
            for inside in [inside for inside in self.links.by_path if inside.startswith(below)]:
                self.links.leave(inside)
            for inside in [inside for inside in self.unheld if inside.startswith(below)]:
                del self.unheld[inside]

    def distrust(self, changes: Changes) -> None:
        """Have these files read again: a write through a memory mapping may not show in their timestamps."""
        for directory, names in changes.items():
            node = self.node_at(directory)
            if node is None:
                continue
            if names is not None:
                node.distrust(names)
                continue
            for _, each in self.nodes(directory, node):
                each.distrust(each.stamps.keys())


class HardLinks:
    """The paths whose files have several names, and which of them share a file."""

    def __init__(
        self,
        by_path: dict[bytes, tuple[int, int]] | None = None,
        counts: dict[tuple[int, int], int] | None = None,
        left: set[bytes] | None = None,
    ) -> None:
        self.by_path = by_path or {}
        self._by_inode: dict[tuple[int, int], set[bytes]] = {}
        for path, inode in self.by_path.items():
            self._by_inode.setdefault(inode, set()).add(path)
        self.counts = counts or {}
        """How many names each of these files has, inside and outside the tree."""
        self._groups: tuple[tuple[bytes, ...], ...] | None = None
        self.left = left or set()
        """Paths that are no longer names of such files: an event with such a path may be about the old file, if a
        program has it open."""

    def note(self, path: bytes, inode: tuple[int, int], names: int) -> None:
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
            self._groups = None

    def replace(self, path: bytes, inode: tuple[int, int]) -> None:
        """Note that the path leads to that file; if it was another file, that one has lost this name."""
        if self.by_path.get(path, inode) != inode:
            self.leave(path)

    def leave(self, path: bytes) -> None:
        """Note that the file, if it has other names, has lost this one."""
        if path in self.by_path:
            self.left.add(path)
            self.forget(path)

    def forget(self, path: bytes) -> None:
        inode = self.by_path.pop(path, None)
        if inode is not None:
            self._groups = None
            self._by_inode[inode].discard(path)

    def other_names(self, found: os.stat_result) -> list[bytes]:
        return list(self._by_inode.get((found.st_dev, found.st_ino), ()))

    def with_names_outside(self) -> list[bytes]:
        """Paths of files that have names outside the tree, and so can change without an event."""
        return [path for path, inode in self.by_path.items() if len(self._by_inode[inode]) < self.counts.get(inode, 0)]

    def groups(self) -> tuple[tuple[bytes, ...], ...]:
        if self._groups is None:
            shared = (paths for paths in self._by_inode.values() if len(paths) > 1)
            self._groups = tuple(sorted(tuple(sorted(paths)) for paths in shared))
        return self._groups
