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
"""Stands for the user and group a file of this user has anyway, and for those this user could not give to a file.

Only root gives files to other users; any other user owns what a restore makes, so the user is not part of the state.
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


class State(msgspec.Struct, array_like=True, frozen=True):
    """A whole tree: its root directory, and which of its paths are one file under several names."""

    version: int
    root: Entry
    links: tuple[tuple[bytes, ...], ...]


_encode = msgspec.msgpack.Encoder().encode
_decode_entries = msgspec.msgpack.Decoder(list[Entry]).decode
_decode_state = msgspec.msgpack.Decoder(State).decode
_decode_pieces = msgspec.msgpack.Decoder(list[bytes]).decode


def digest_of(content: bytes | bytearray | memoryview) -> bytes:
    return blake3(content).digest()


def encode_directory(entries: Mapping[bytes, Entry]) -> bytes:
    return _encode([entries[name] for name in sorted(entries)])


def decode_directory(content: bytes) -> dict[bytes, Entry]:
    return {entry.name: entry for entry in _decode_entries(content)}


def with_entry_replaced(content: bytes, old: Entry, new: Entry) -> bytes | None:
    """An encoded directory with one entry exchanged for another of the same name; None if it takes encoding it anew.

    Nothing but this entry is read. A name or an attribute of another can hold the same bytes as the whole entry,
    so these must be found in one place only.
    """
    before = _encode(old)
    start = content.find(before)
    if start < 0 or start != content.rfind(before):
        return None
    return content[:start] + _encode(new) + content[start + len(before) :]


def encode_state(root: Entry, links: tuple[tuple[bytes, ...], ...]) -> bytes:
    return _encode(State(FORMAT_VERSION, root, links))


def decode_state(content: bytes) -> State:
    return _decode_state(content)


def encode_pieces(digests: list[bytes]) -> bytes:
    return _encode(digests)


def decode_pieces(content: bytes) -> list[bytes]:
    return _decode_pieces(content)
