"""Directories in packed form: they take little memory, and none is decoded before it is needed.

A packed tree is written to the index file as it is. It begins with the number of directories and a table with the
places of both parts of each: its stamps, and all else. All stamps follow, and then all else, sorted by path.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping

from holdfast.system.stamps import packed_inode, path_in

_COUNT = struct.Struct("=Q")
_NUMBER_BYTES = 8

PackedNode = tuple[bytes, bytes]
"""The stamps of a directory, and all else that is known of it."""


class PackedTree:
    """Directories of a tree that were packed together; later ones may have replaced some of them.

    ``content`` may contain more than the packed tree, which begins at ``start``.
    """

    def __init__(self, content: bytes, start: int = 0) -> None:
        self._content, self._start = content, start
        (self.count,) = _COUNT.unpack_from(content, start)
        start += _COUNT.size
        end = start + 2 * _NUMBER_BYTES * (self.count + 1)
        table = memoryview(content)[start:end].cast("Q")
        self._stamps, self._others = table[: self.count + 1], table[self.count + 1 :]

    @classmethod
    def of(cls, nodes: Mapping[bytes, PackedNode]) -> PackedTree:
        in_order = [nodes[path] for path in sorted(nodes)]
        place = _COUNT.size + 2 * _NUMBER_BYTES * (len(in_order) + 1)
        table, parts = [], []
        for part in (0, 1):
            for node in in_order:
                table.append(place)
                place += len(node[part])
            table.append(place)
            parts += [node[part] for node in in_order]
        return cls(b"".join((_COUNT.pack(len(in_order)), struct.pack(f"={len(table)}Q", *table), *parts)))

    @property
    def content(self) -> memoryview:
        return self._between(0, self._others[self.count])

    def _between(self, start: int, end: int) -> memoryview:
        return memoryview(self._content)[self._start + start : self._start + end]

    def path_at(self, number: int) -> bytes:
        return path_in(self._content, self._start + self._stamps[number])

    def paths(self) -> Iterator[bytes]:
        return map(self.path_at, range(self.count))

    def find(self, path: bytes) -> PackedNode | None:
        number = bisect_left(range(self.count), path, key=self.path_at)
        if number == self.count or self.path_at(number) != path:
            return None
        other = self._between(self._others[number], self._others[number + 1])
        return bytes(self.stamps(number, number + 1)), bytes(other)

    def stamps(self, first: int, end: int) -> memoryview:
        """The packed stamps of some of its directories."""
        return self._between(self._stamps[first], self._stamps[end])

    def paths_with_inode(self, inode: int) -> set[bytes]:
        """The directories in which a file may have that inode."""
        wanted, found = packed_inode(inode), set()
        place, end = self._start + self._stamps[0], self._start + self._stamps[self.count]
        while (place := self._content.find(wanted, place, end)) >= 0:
            found.add(self.path_at(bisect_right(self._stamps, place - self._start, hi=self.count) - 1))
            place += 1
        return found
