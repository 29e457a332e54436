"""The meaning of a git index, without what git only caches in it; and an index with a given meaning.

Git rewrites its index even when ``git status`` or a prompt only reads, if it finds other times or inodes.
The format is that of gitformat-index(5).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import NamedTuple

_SIGNATURE = b"DIRC"
_VERSIONS = (2, 3, 4)
_COMPRESSED = 4
"""From this version on a path is stored as its difference from the path before it."""
_DIGESTS = (hashlib.sha1, hashlib.sha256)
_MODE = struct.Struct(">24xI12x")
"""The mode; times, inode, owner and size around it are skipped."""
_FLAGS = struct.Struct(">H")
_EXTENDED = 0x4000
_LONGEST_LENGTH = 0x0FFF
"""A longer name has this length in the flags."""
_MEANT_FLAGS = 0xB000
"""Assume-unchanged and the stage; not the length of the name."""
_MEANT_EXTENDED_FLAGS = 0x6000
"""Skip-worktree and intent-to-add."""
_NOTES = frozenset((b"TREE", b"UNTR", b"FSMN", b"EOIE", b"IEOT"))
"""Extensions that only cache what git can find out again."""


class IndexEntry(NamedTuple):
    path: bytes
    mode: int
    digest: bytes
    flags: tuple[int, int]


class IndexMeaning(NamedTuple):
    entries: tuple[IndexEntry, ...]
    extensions: tuple[tuple[bytes, bytes], ...]


def mean_the_same(one: bytes, other: bytes) -> bool:
    """Whether both are valid indexes with the same meaning."""
    meaning = meaning_of(one)
    return meaning is not None and meaning == meaning_of(other)


def meaning_of(content: bytes) -> IndexMeaning | None:
    """The meaning of an index; None if it is not a valid one."""
    for digest in _DIGESTS:
        size = digest(usedforsecurity=False).digest_size
        body, checksum = content[:-size], content[-size:]
        # With `index.skipHash` git writes zeros in place of the checksum.
        if checksum in (digest(body, usedforsecurity=False).digest(), bytes(size)):
            try:
                return _Reading(body, size).run()
            except (ValueError, struct.error):
                continue
    return None


def index_of(entries: Iterable[IndexEntry], digest_bytes: int) -> bytes:
    """An index that lists these files, and has not looked at any of them yet."""
    listed = sorted(entries)
    body = struct.pack(">4sII", _SIGNATURE, _VERSIONS[0], len(listed)) + b"".join(map(_stored_entry, listed))
    digest = next(each for each in _DIGESTS if each(usedforsecurity=False).digest_size == digest_bytes)
    return body + digest(body, usedforsecurity=False).digest()


def _stored_entry(entry: IndexEntry) -> bytes:
    flags = entry.flags[0] | min(len(entry.path), _LONGEST_LENGTH)
    stored = _MODE.pack(entry.mode) + entry.digest + _FLAGS.pack(flags) + entry.path + b"\0"
    return stored + bytes(-len(stored) % 8)


class _Reading:
    """Reads the body of an index from beginning to end."""

    def __init__(self, body: bytes, digest_bytes: int) -> None:
        self._body, self._digest_bytes = body, digest_bytes
        self._at = 0

    def run(self) -> IndexMeaning:
        signature, version, count = struct.unpack(">4sII", self._take(12))
        if signature != _SIGNATURE or version not in _VERSIONS:
            raise ValueError(signature, version)
        entries: list[IndexEntry] = []
        for _ in range(count):
            entries.append(self._entry(version, entries[-1].path if entries else b""))
        extensions = []
        while self._at < len(self._body):
            name, size = struct.unpack(">4sI", self._take(8))
            extensions.append((name, self._take(size)))
        return IndexMeaning(tuple(entries), tuple(each for each in extensions if each[0] not in _NOTES))

    def _entry(self, version: int, before: bytes) -> IndexEntry:
        start = self._at
        (mode,) = _MODE.unpack(self._take(_MODE.size))
        digest = self._take(self._digest_bytes)
        (flags,) = _FLAGS.unpack(self._take(_FLAGS.size))
        (extended,) = _FLAGS.unpack(self._take(_FLAGS.size)) if flags & _EXTENDED else (0,)
        kept = before[: len(before) - self._number()] if version >= _COMPRESSED else b""
        path = kept + self._text()
        if version < _COMPRESSED:
            self._take(-(self._at - start) % 8)
        return IndexEntry(path, mode, digest, (flags & _MEANT_FLAGS, extended & _MEANT_EXTENDED_FLAGS))

    def _take(self, size: int) -> bytes:
        taken = self._body[self._at : self._at + size]
        if len(taken) < size:
            raise ValueError(size)
        self._at += size
        return taken

    def _text(self) -> bytes:
        """The bytes up to the next NUL, which is skipped."""
        text = self._body[self._at : self._body.index(b"\0", self._at)]
        self._at += len(text) + 1
        return text

    def _number(self) -> int:
        """Seven bits a byte, highest bits first; each length has its own range, so no number has two forms."""
        byte = self._take(1)[0]
        number = byte & 0x7F
        while byte & 0x80:
            byte = self._take(1)[0]
            number = ((number + 1) << 7) | (byte & 0x7F)
        return number
