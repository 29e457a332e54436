"""The stored form of a state: directory objects that list entries, and one state object that names the root.

``docs/format.md`` is the reference. The digest of the state object is the state hash: equal states have equal hashes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from blake3 import blake3

FORMAT_VERSION = 1
DIGEST_BYTES = 32
PIECE_BYTES = 1 << 20
PIECES_FROM_BYTES = 4 << 20
"""Files of this size and more are stored in pieces, so that a small change to a large file stores little."""

FILE, PIECES, DIRECTORY, SYMLINK, FIFO = range(5)
REGULAR = (FILE, PIECES)
UNKNOWN_OWNER = -1
"""Stands for the user and group that a new file of this user gets, and for those this user could not give to a file.

Only root can give files to other users; any other user owns what a restore makes, so the user is not part of the state.
"""


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One name in a directory. ``content`` is a digest; for a symlink it is the target, for an empty file nothing."""

    name: bytes
    kind: int
    mode: int
    mtime_ns: int
    uid: int
    gid: int
    size: int
    content: bytes
    xattrs: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def is_file(self) -> bool:
        return self.kind in REGULAR

    @property
    def attributes(self) -> tuple[object, ...]:
        return self.mode, self.uid, self.gid, self.xattrs

    def is_same_kind(self, other: Entry) -> bool:
        """Whether both are the same kind of file; how its content is stored does not matter."""
        return self.kind == other.kind or (self.is_file and other.is_file)


class State(msgspec.Struct, array_like=True, frozen=True):
    """A whole tree: its root directory, and which of its paths are one file under several names."""

    version: int
    root: Entry
    links: tuple[tuple[bytes, ...], ...]


_encode = msgspec.msgpack.Encoder().encode
_decode_entries = msgspec.msgpack.Decoder(list[Entry]).decode
decode_state = msgspec.msgpack.Decoder(State).decode
decode_pieces = msgspec.msgpack.Decoder(list[bytes]).decode


def digest_of(content: bytes | bytearray | memoryview) -> bytes:
    return blake3(content).digest()


def encode_directory(entries: Mapping[bytes, Entry]) -> bytes:
    return _encode([entries[name] for name in sorted(entries)])


def decode_directory(content: bytes) -> dict[bytes, Entry]:
    return {entry.name: entry for entry in _decode_entries(content)}


def with_entry_replaced(content: bytes, old: Entry, new: Entry) -> bytes | None:
    """An encoded directory with one entry replaced by another of the same name; None if it must be encoded again.

    Only this entry is read. The name or an attribute of another entry can hold the same bytes as this whole entry, so
    the bytes must occur exactly once.
    """
    before = _encode(old)
    start = content.find(before)
    if start < 0 or start != content.rfind(before):
        return None
    return content[:start] + _encode(new) + content[start + len(before) :]


def encode_state(root: Entry, links: tuple[tuple[bytes, ...], ...]) -> bytes:
    return _encode(State(FORMAT_VERSION, root, links))


def encode_pieces(digests: list[bytes]) -> bytes:
    return _encode(digests)
