"""A large index read and changed without git, which reads and writes all of it for a question about one path.

Understood are the versions in which each entry stands for itself, and the extensions named here; for every other index
``IndexFile.read`` gives None, and git must be asked. The format is that of gitformat-index(5).
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.git.index_stats import MODE
from holdfast.system.calls import index_offsets
from holdfast.system.directories import ancestors, with_ancestors
from holdfast.system.plain_calls import INDEX_STATS

_SECOND_NS = 10**9
_HEAD = struct.Struct(">4sII")
_FLAGS = struct.Struct(">H")
_LONGEST_LENGTH = 0x0FFF
"""A longer name has this length in the flags."""
_EXTENSION = struct.Struct(">4sI")
_TREES = b"TREE"
"""The trees of the folders in which nothing changed since they were written."""
_KEPT = (b"REUC",)
_LEFT_OUT = (b"EOIE", b"IEOT")
"""Where things are in the file: git finds them without."""
_KNOWN = (_TREES, *_KEPT, *_LEFT_OUT)
DIGESTS = {each(usedforsecurity=False).digest_size: each for each in (hashlib.sha1, hashlib.sha256)}


class FileEntry(NamedTuple):
    """One entry, as it is stored."""

    path: bytes
    stats: bytes
    digest: bytes
    flags: int
    """Without the length of the name: zero for a file in no conflict about which git was told nothing special."""

    @property
    def mode(self) -> int:
        return int.from_bytes(self.stats[MODE])

    def stored(self) -> bytes:
        flags = _FLAGS.pack(min(len(self.path), _LONGEST_LENGTH))
        entry = self.stats + self.digest + flags + self.path + b"\0"
        return entry + bytes(-len(entry) % 8)


def entry_of(path: bytes, mode: int, digest: bytes, stats: bytes = bytes(INDEX_STATS.size)) -> FileEntry:
    """An entry for a file of these stat data; without them, git will look at the file itself."""
    return FileEntry(path, stats[: MODE.start] + mode.to_bytes(4) + stats[MODE.stop :], digest, 0)


class IndexFile(msgspec.Struct, frozen=True):
    content: bytes
    written_at: int
    """The seconds of its time: what a file of this second or a later one holds, its stat data cannot tell."""
    digest_bytes: int
    _offsets: memoryview
    _extensions: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def read(cls, path: Path, digest_bytes: int) -> IndexFile | None:
        """None if there is none, or it is not understood."""
        try:
            with path.open("rb") as file:
                written_at, content = os.fstat(file.fileno()).st_mtime_ns // _SECOND_NS, file.read()
        except FileNotFoundError:
            return None
        last = _LAST.get(digest_bytes)
        if last is not None and last.content == content:
            return msgspec.structs.replace(last, written_at=written_at)
        found = cls._understood(content, written_at, digest_bytes)
        if found is not None:
            _LAST[digest_bytes] = found
        return found

    @classmethod
    def _understood(cls, content: bytes, written_at: int, digest_bytes: int) -> IndexFile | None:
        try:
            offsets = memoryview(index_offsets(content, digest_bytes)).cast("I")
            extensions = tuple(_extensions(content[offsets[-1] : len(content) - digest_bytes]))
        except (ValueError, struct.error):
            return None
        if any(name not in _KNOWN for name, _ in extensions):
            return None
        return cls(content, written_at, digest_bytes, offsets, extensions)

    # Reading

    def at(self, path: bytes) -> list[FileEntry]:
        """The entries of that path: several if it is in conflict."""
        found = []
        for number in range(self._place_of(path), len(self._offsets) - 1):
            if self._path(number) != path:
                break
            found.append(self._entry(number))
        return found

    def find_mode(self, path: bytes) -> int | None:
        entries = self.at(path)
        return entries[0].mode if entries else None

    def has_beside(self, paths: Collection[bytes]) -> bool:
        """Whether it lists something above or below one of these paths that is none of them."""
        above = with_ancestors(paths).difference(paths, (b"",))
        return any(self._listed_below(path, paths) for path in paths) or any(map(self.at, above))

    def _listed_below(self, folder: bytes, paths: Collection[bytes]) -> bool:
        """Whether it lists something in that folder besides these."""
        for number in range(self._place_of(folder + b"/"), len(self._offsets) - 1):
            path = self._path(number)
            if not path.startswith(folder + b"/"):
                return False
            if path not in paths:
                return True
        return False

    def _place_of(self, path: bytes) -> int:
        return bisect_left(range(len(self._offsets) - 1), path, key=self._path)

    def _path(self, number: int) -> bytes:
        at = self._offsets[number] + INDEX_STATS.size + self.digest_bytes
        begin = at + (_FLAGS.size * 2 if self.content[at] & 0x40 else _FLAGS.size)
        return self.content[begin : self.content.index(b"\0", begin)]

    def _entry(self, number: int) -> FileEntry:
        at = self._offsets[number]
        stats = self.content[at : at + INDEX_STATS.size]
        digest = self.content[at + INDEX_STATS.size : at + INDEX_STATS.size + self.digest_bytes]
        (flags,) = _FLAGS.unpack_from(self.content, at + INDEX_STATS.size + self.digest_bytes)
        return FileEntry(self._path(number), stats, digest, flags & ~_LONGEST_LENGTH)

    # Changing

    def changed(self, entries: Mapping[bytes, FileEntry | None]) -> bytes:
        """The content of an index with these entries in place of those of the same paths; None for a path that goes.

        There must be nothing above or below a path that comes, except what goes.
        """
        view, at, pieces = memoryview(self.content), _HEAD.size, [memoryview(b"")]
        number = len(self._offsets) - 1
        for path in sorted(entries):
            first, entry = self._place_of(path), entries[path]
            replaced = len(self.at(path))
            number += (entry is not None) - replaced
            pieces.append(view[at : self._offsets[first]])
            if entry is not None:
                pieces.append(memoryview(entry.stored()))
            at = self._offsets[first + replaced]
        pieces.append(view[at : self._offsets[-1]])
        signature, version, _ = _HEAD.unpack_from(self.content)
        pieces[0] = memoryview(_HEAD.pack(signature, version, number))
        for name, content in self._extensions:
            kept = _without_trees_of(content, entries, self.digest_bytes) if name == _TREES else content
            if name not in _LEFT_OUT and kept:
                pieces.append(memoryview(_EXTENSION.pack(name, len(kept)) + kept))
        return b"".join([*pieces, self._checksum(pieces)])

    def _checksum(self, pieces: Iterable[memoryview]) -> bytes:
        # With `index.skipHash` git writes zeros in place of the checksum.
        if not any(self.content[-self.digest_bytes :]):
            return bytes(self.digest_bytes)
        digest = DIGESTS[self.digest_bytes](usedforsecurity=False)
        for piece in pieces:
            digest.update(piece)
        return digest.digest()


_LAST: dict[int, IndexFile] = {}
"""What was read last: to find all entries takes longer than to see that the content is the same."""


def _extensions(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(content):
        name, size = _EXTENSION.unpack_from(content, at)
        at += _EXTENSION.size + size
        if at > len(content):
            raise ValueError(name)
        yield name, content[at - size : at]


# The cached trees

_FOLDER = rb"([^\0]*)\0(?:(-[0-9]+)|[0-9]+) ([0-9]+)\n(?(2)|.{%d})"
"""A folder: its name, the number of its entries, how many folders are in it, and, if the first number is not negative,
its tree."""


def _without_trees_of(content: bytes, changed: Iterable[bytes], digest_bytes: int) -> bytes:
    """The extension with the trees that these paths lie in marked as not known; empty if it cannot be kept.

    After each folder come those in it, each with all that is in it.
    """
    changed = set(changed)
    stale = {folder for path in changed for folder in ancestors(path)}
    pieces: list[bytes] = []
    end, kept_from, skipped = 0, 0, 0
    around: list[bytes] = []
    """The folder around each one that is still to come, the next one last."""
    for found in re.finditer(_FOLDER % digest_bytes, content, re.DOTALL):
        if found.start() != end:
            return b""
        end = found.end()
        inside = int(found[3])
        if skipped:
            skipped += inside - 1
            continue
        path = (around.pop() if around else b"") + found[1]
        if path in changed:
            return b""  # a file takes its place
        if path not in stale:
            skipped = inside
            continue
        pieces += [content[kept_from : found.start()], found[1], b"\0-1 ", found[3], b"\n"]
        kept_from = end
        around += [path + b"/" if path else b""] * inside
    return b"" if end != len(content) else b"".join(pieces) + content[kept_from:]
