"""Carries git's index over to a copy of a work tree: an entry whose file is unchanged gets the stat data of the copy.

Git reads a file again if its inode or times differ from those in the index, and in a copy they do. The format is that
of gitformat-index(5). Only stat data is replaced, in its place; all else stays as it is.
"""

from __future__ import annotations

import hashlib
import stat
import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

from holdfast.system.both import both
from holdfast.system.calls import index_stats
from holdfast.system.plain_calls import INDEX_STATS

_HEAD = struct.Struct(">4sII")
_BYTES = INDEX_STATS.size
_MISSING = bytes(_BYTES)
MTIME, MODE, SIZE = slice(8, 12), slice(24, 28), slice(36, 40)
"""Where the seconds of the mtime, the mode and the size are in the stat data of an entry."""
_TIMES, _INODE, _REST = slice(0, 16), slice(20, 24), slice(28, 40)
"""What tells whether a file changed: times, inode, user, group and size. The device may have another number after a
reboot, and git does not compare it."""
_FLAGS = struct.Struct(">H")
_VERSIONS = (2, 3, 4)
_COMPRESSED = 4
_EXTENDED, _STAGE = 0x4000, 0x3000
_KINDS = (stat.S_IFREG, stat.S_IFLNK)
"""Files and symlinks; git does not compare the stat data of submodules and of folded folders."""
_DIGESTS = (hashlib.sha1, hashlib.sha256)
_SHARED = b"link"
"""The extension of a split index: most of its entries are in another file, which is named by its checksum."""


class Earlier(NamedTuple):
    """The same index, carried over before to the same copy."""

    carried: bytes
    differing: Collection[bytes]
    """Paths whose file, in either tree, is not the same any more."""


class CarriedIndex(NamedTuple):
    content: bytes
    is_complete: bool
    """Whether every entry has the stat data of the copy; if not, git has to look at the others."""


def carried_over(
    content: bytes,
    written_at: int,
    original: int,
    copy: int,
    except_for: Collection[bytes] = (),
    earlier: Earlier | None = None,
) -> CarriedIndex | None:
    """The index of a work tree as that of its copy; None if its form is not understood.

    ``written_at``: the seconds of its mtime; ``original``, ``copy``: descriptors of both trees; ``except_for``: files
    that were not copied byte for byte. An entry gets the stat data of the copy if git would take the original for
    unchanged without reading it: then it was so, too, when it was copied. If the index is the same as ``earlier``, only
    files that differ are looked at.
    """
    if earlier is not None and not earlier.differing:
        return CarriedIndex(earlier.carried, is_complete=True)
    digest_bytes = _digest_bytes(content)
    if digest_bytes is None:
        return None
    try:
        entries = list(_entries(content, digest_bytes))
    except (ValueError, IndexError, struct.error):
        return None
    changed, is_complete = bytearray(content if earlier is None else earlier.carried), True
    if earlier is not None:
        entries = [(place, path) for place, path in entries if path in earlier.differing]
    paths = b"".join(path + b"\0" for _, path in entries)
    originals, copies = both(lambda: index_stats(original, paths), lambda: index_stats(copy, paths))
    racy = min(max(0, written_at), 0xFFFFFFFF).to_bytes(4)
    for at, (place, path) in zip(range(0, len(originals), _BYTES), entries, strict=True):
        noted, found, new = content[place : place + _BYTES], originals[at : at + _BYTES], copies[at : at + _BYTES]
        is_clean = path not in except_for and noted[MTIME] < racy and is_told_the_same(noted, found)
        if is_clean and new != _MISSING and new[SIZE] == noted[SIZE]:
            changed[place : place + _BYTES] = new[: MODE.start] + noted[MODE] + new[MODE.stop :]
        else:
            changed[place : place + _BYTES] = noted
            is_complete = False
    return CarriedIndex(_signed(changed, digest_bytes), is_complete)


def is_told_the_same(noted: bytes, found: bytes) -> bool:
    return noted[_TIMES] == found[_TIMES] and noted[_INODE] == found[_INODE] and noted[_REST] == found[_REST]


def _digest_bytes(content: bytes) -> int | None:
    """The size of the digests in an index of a known form, which its checksum shows."""
    if len(content) < _HEAD.size or content[:4] != b"DIRC" or _HEAD.unpack_from(content)[1] not in _VERSIONS:
        return None
    for digest in _DIGESTS:
        size = digest(usedforsecurity=False).digest_size
        if content[-size:] == digest(content[:-size], usedforsecurity=False).digest():
            return size
    return None


def _entries(content: bytes, digest_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The place of the stat data and the path of each entry that is a file or symlink and in no conflict."""
    _, version, count = _HEAD.unpack_from(content)
    at, path = _HEAD.size, b""
    for _ in range(count):
        start = at
        at += _BYTES + digest_bytes
        (flags,) = _FLAGS.unpack_from(content, at)
        at += _FLAGS.size * (2 if flags & _EXTENDED else 1)
        if version >= _COMPRESSED:
            cut, at = _number(content, at)
            path = path[: len(path) - cut]
        else:
            path = b""
        end = content.index(b"\0", at)
        path += content[at:end]
        at = end + 1
        if version < _COMPRESSED:
            at += -(at - start) % 8
        if not flags & _STAGE and stat.S_IFMT(_mode_at(content, start)) in _KINDS:
            yield start, path
    if _SHARED in _extensions(content[at : len(content) - digest_bytes]):
        raise ValueError("a split index")


def _mode_at(content: bytes, place: int) -> int:
    return int.from_bytes(content[place + 24 : place + 28])


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, as in a pack's offsets, and the place after it."""
    number = content[at] & 0x7F
    while content[at] & 0x80:
        at += 1
        number = ((number + 1) << 7) | (content[at] & 0x7F)
    return number, at + 1


def _extensions(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        name, size = struct.unpack_from(">4sI", content, at)
        yield name
        at += 8 + size


def _signed(content: bytearray, digest_bytes: int) -> bytes:
    digest = next(each for each in _DIGESTS if each(usedforsecurity=False).digest_size == digest_bytes)
    body = bytes(content[:-digest_bytes])
    return body + digest(body, usedforsecurity=False).digest()
