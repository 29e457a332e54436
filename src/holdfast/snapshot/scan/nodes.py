"""One directory of a known tree."""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec

from holdfast.content.format import Entry, decode_directory, encode_directory, with_entry_replaced
from holdfast.snapshot.scan.stamps import Stamp, pack_stamps, unpack_stamps

_NEVER: Stamp = (0, 0, 0, 0)
"""The stamp of no file."""


class Node:
    """One directory: its entries, their stamps, and its own entry in its parent.

    What comes from the cache stays packed until it is needed, and it rarely is.
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
        """The encoded entries, if that was needed; at least one of the two is set."""
        self._stamps: dict[bytes, Stamp] = {}
        self._packed_stamps: tuple[bytes, bytes] | None = None
        self._newer_stamps: dict[bytes, Stamp] | None = None
        """Stamps noted since the others were packed."""
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
        """Set the entry of that name; if it had one before, the others need not be encoded again."""
        entries = self._known_entries()
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
        """Have these names count as changed, whatever their stamps say."""
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
        """Whether its digest is known and its parent lists it with that digest."""
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
    """Its number in the list of all nodes; parents come first."""
    head: Entry
    stamp: tuple[int, int]
    digest: bytes
    entries: bytes
    names: bytes
    stamps: bytes
