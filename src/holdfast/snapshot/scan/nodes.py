"""What is known of a tree, directory by directory, and how that survives the process in one file."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast.content.format import (
    DIGEST_BYTES,
    Entry,
    decode_directory,
    digest_of,
    encode_directory,
    with_entry_replaced,
)
from holdfast.snapshot.scan.stamps import Stamp, pack_stamps, unpack_stamps

CACHE_VERSION = 5
_NEVER: Stamp = (0, 0, 0, 0)
"""The stamp of no file."""


class Node:
    """One directory: its entries, their stamps, and its own entry in its parent.

    What comes from the cache stays packed until somebody needs it, because mostly nobody does.
    """

    __slots__ = (
        "_entries",
        "_newer_stamps",
        "_packed",
        "_packed_stamps",
        "_stamps",
        "children",
        "digest",
        "head",
        "is_placed",
        "stamp",
    )

    def __init__(self) -> None:
        self._entries: dict[bytes, Entry] | None = {}
        self._packed: bytes | None = None
        """The entries encoded, as far as that was needed; at least one of the two is there."""
        self._stamps: dict[bytes, Stamp] = {}
        self._packed_stamps: tuple[bytes, bytes] | None = None
        self._newer_stamps: dict[bytes, Stamp] | None = None
        """What became known since the stamps were packed."""
        self.children: dict[bytes, Node] = {}
        self.digest: bytes | None = None
        self.head: Entry | None = None
        self.is_placed = False
        """Whether the parent lists this head."""
        self.stamp = (0, 0)

    @property
    def entries(self) -> Mapping[bytes, Entry]:
        return self._known_entries() if self._entries is None else self._entries

    def _known_entries(self) -> dict[bytes, Entry]:
        if self._entries is None:
            assert self._packed is not None
            self._entries = decode_directory(self._packed)
        return self._entries

    def put(self, entry: Entry) -> None:
        """Set the entry of that name; of the others nothing is looked at if there was one before."""
        entries = self._known_entries() if self._entries is None else self._entries
        old = entries.get(entry.name)
        if old is entry or old == entry:
            return
        entries[entry.name] = entry
        if self._packed is not None:
            self._packed = None if old is None else with_entry_replaced(self._packed, old, entry)
        self.digest = None

    def remove(self, name: bytes) -> None:
        if self._known_entries().pop(name, None) is not None:
            self._packed = None
        self.digest = None

    def encoded(self) -> bytes:
        if self._packed is None:
            self._packed = encode_directory(self.entries)
        return self._packed

    @property
    def stamps(self) -> dict[bytes, Stamp]:
        if self._packed_stamps is not None:
            self._stamps, self._packed_stamps = unpack_stamps(*self._packed_stamps), None
            self._stamps.update(self._newer_stamps or {})
            self._newer_stamps = None
        return self._stamps

    def note_stamp(self, name: bytes, stamp: Stamp) -> None:
        if self._packed_stamps is None:
            self._stamps[name] = stamp
        elif self._newer_stamps is None:
            self._newer_stamps = {name: stamp}
        else:
            self._newer_stamps[name] = stamp

    def distrust(self, names: Set[bytes]) -> None:
        """Take whatever is found under these names for changed."""
        stamps = self.stamps
        for name in names & stamps.keys():
            stamps[name] = _NEVER

    @property
    def packed_stamps(self) -> tuple[bytes, bytes]:
        if self._packed_stamps is None or self._newer_stamps:
            stamps = self.stamps
            self._stamps, self._packed_stamps = {}, pack_stamps(stamps)
        return self._packed_stamps

    @property
    def is_named(self) -> bool:
        """Whether nothing about it is to be written down anew."""
        return self.digest is not None and self.is_placed and self.head is not None and self.head.content == self.digest

    def packed(self, parent: int) -> CachedNode:
        assert self.head is not None
        assert self.digest is not None
        return CachedNode(parent, self.head, self.stamp, self.digest, self.encoded(), *self.packed_stamps)

    @classmethod
    def unpacked(cls, cached: CachedNode) -> Node:
        node = cls()
        node._entries, node._packed, node._packed_stamps = None, cached.entries, (cached.names, cached.stamps)
        node.digest, node.head, node.stamp, node.is_placed = cached.digest, cached.head, cached.stamp, True
        return node


class CachedNode(msgspec.Struct, array_like=True, gc=False):
    parent: int
    """Its number in the list of all; parents come first."""
    head: Entry
    stamp: tuple[int, int]
    digest: bytes
    entries: bytes
    names: bytes
    stamps: bytes


class Cache(msgspec.Struct, array_like=True):
    version: int
    boot_id: str
    root_inode: int
    state: bytes
    finding: str | None
    nodes: list[CachedNode]
    unheld: dict[bytes, str]
    linked: dict[bytes, tuple[int, int]]
    link_counts: dict[tuple[int, int], int]
    left: set[bytes]


_decode_cache = msgspec.msgpack.Decoder(Cache).decode


class Links:
    """Which paths are names of files that have several, and so which paths are one file."""

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
        """How many names each of these files has, in the tree and elsewhere."""
        self._groups: tuple[tuple[bytes, ...], ...] | None = None
        self.left = left or set()
        """Paths that were names of such files and are not any more: what is told of one may be of that file, which
        somebody has open."""

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
        """There is that file now; if it was another, that one is without this name."""
        if self.by_path.get(path, inode) != inode:
            self.leave(path)

    def leave(self, path: bytes) -> None:
        """The file, if it has other names, is without this one."""
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
        """Paths of files that have names outside the tree, and so may change without our being told."""
        return [path for path, inode in self.by_path.items() if len(self._by_inode[inode]) < self.counts.get(inode, 0)]

    def groups(self) -> tuple[tuple[bytes, ...], ...]:
        if self._groups is None:
            shared = (paths for paths in self._by_inode.values() if len(paths) > 1)
            self._groups = tuple(sorted(tuple(sorted(paths)) for paths in shared))
        return self._groups


@contextmanager
def no_garbage() -> Iterator[None]:
    """While many objects are made that all stay, looking for garbage among them is a third of the work."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_cache(file: Path) -> Cache | None:
    try:
        content = memoryview(file.read_bytes())
        digest, content = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        return _decode_cache(content) if digest_of(content) == digest else None
    except (OSError, msgspec.DecodeError):
        return None
