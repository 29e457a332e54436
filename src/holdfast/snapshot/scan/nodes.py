"""One directory of a known tree."""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec

from holdfast.content.format import Entry, decode_directory, encode_directory, with_entry_replaced
from holdfast.system.stamps import Stamp, own_stamp, pack_stamps, unpack_stamps

_NEVER: Stamp = (0, 0, 0, 0)
"""The stamp of no file."""


class _PackedNode(msgspec.Struct, array_like=True, gc=False):
    head: Entry
    digest: bytes
    entries: bytes
    children: list[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_PackedNode).decode


class Node:
    """One directory: its entries, their stamps, and its own entry in its parent.

    What comes from a packed tree stays packed until it is needed, and it rarely is.
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
        self._packed_stamps: bytes | None = None
        self._newer_stamps: dict[bytes, Stamp] | None = None
        """Stamps noted since the others were packed."""
        self.children: dict[bytes, Node | None] = {}
        """The directories in it; None stands for one that ``KnownTree.child`` has not loaded yet."""
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
            self._stamps, self._packed_stamps = unpack_stamps(self._packed_stamps), None
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

    def packed_stamps(self, path: bytes) -> bytes:
        """Its stamps in the form of ``stamps.py``; its path never changes."""
        packed = self._packed_stamps
        if packed is None or self._newer_stamps or own_stamp(packed) != self.stamp:
            packed = pack_stamps(path, self.stamp, self.stamps)
            self._stamps, self._packed_stamps = {}, packed
        return packed

    @property
    def is_named(self) -> bool:
        """Whether its digest is known and its parent lists it with that digest."""
        return self.digest is not None and self.is_placed and self.head is not None and self.head.content == self.digest

    def packed(self) -> bytes:
        """All but its stamps."""
        assert self.head is not None
        assert self.digest is not None
        self.encoded()
        self._entries = None  # a whole tree is packed at once, and both forms of all would be much
        return _encode(_PackedNode(self.head, self.digest, self.encoded(), list(self.children)))

    @classmethod
    def unpacked(cls, packed_stamps: bytes, packed: bytes) -> Node:
        found = _decode(packed)
        node = cls()
        node._entries, node._packed, node._packed_stamps = None, found.entries, packed_stamps
        node.children = dict.fromkeys(found.children)
        node.digest, node.head, node.stamp, node.is_placed = found.digest, found.head, own_stamp(packed_stamps), True
        return node
