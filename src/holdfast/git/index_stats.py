"""Carries git's index over to a copy of a work tree: an entry whose file is unchanged gets the stat data of the copy.

Git reads a file again if its inode or times differ from those in the index, and in a copy they do. The format is that
of gitformat-index(5). Only stat data is replaced, in its place; all else stays as it is.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

_HEAD = struct.Struct(">4sII")
_STATS = struct.Struct(">10I")
"""Seconds and nanoseconds of ctime and mtime, device, inode, mode, user, group and size: 32 bits of each."""
_MTIME, _INODE, _MODE, _SIZE = 2, 5, 6, 9
_FLAGS = struct.Struct(">H")
_LOW = 0xFFFFFFFF
_SECOND_NS = 1_000_000_000
_VERSIONS = (2, 3, 4)
_COMPRESSED = 4
_EXTENDED, _STAGE = 0x4000, 0x3000
_KINDS = (stat.S_IFREG, stat.S_IFLNK)
"""Files and symlinks; git does not compare the stat data of submodules and of folded folders."""
_DIGESTS = (hashlib.sha1, hashlib.sha256)
_SHARED = b"link"
"""The extension of a split index: most of its entries are in another file, which is named by its checksum."""


class CarriedIndex(NamedTuple):
    content: bytes
    is_complete: bool
    """Whether every entry has the stat data of the copy; if not, git has to look at the others."""


def carried_over(
    content: bytes, written_at: int, original: int, copy: int, except_for: Collection[bytes] = ()
) -> CarriedIndex | None:
    """The index of a work tree as that of its copy; None if its form is not understood.

    ``written_at``: the seconds of its mtime; ``original``, ``copy``: descriptors of both trees; ``except_for``: files
    that were not copied byte for byte. An entry gets the stat data of the copy if git would take the original for
    unchanged without reading it: then it was so, too, when it was copied.
    """
    digest_bytes = _digest_bytes(content)
    if digest_bytes is None:
        return None
    changed, is_complete = bytearray(content), True
    try:
        for place, path in _entries(content, digest_bytes):
            noted = _STATS.unpack_from(content, place)
            is_clean = path not in except_for and _is_clean(noted, written_at, original, path)
            stats = _stats_at(copy, path) if is_clean else None
            if stats is not None and stats[_SIZE] == noted[_SIZE]:
                _STATS.pack_into(changed, place, *stats[:_MODE], noted[_MODE], *stats[_MODE + 1 :])
            else:
                is_complete = False
    except (ValueError, IndexError, struct.error):
        return None
    return CarriedIndex(_signed(changed, digest_bytes), is_complete)


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
        at += _STATS.size + digest_bytes
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


def _is_clean(noted: tuple[int, ...], written_at: int, tree: int, path: bytes) -> bool:
    """Whether the file is as it was when its stat data was noted, and any later change would have shown in it."""
    if noted[_MTIME] >= written_at:
        return False  # in the second in which the index was written
    found = _stats_at(tree, path)
    # The device may have another number after a reboot, and git does not compare it.
    return found is not None and (found[:4], found[_INODE], found[_MODE + 1 :]) == (
        noted[:4], noted[_INODE], noted[_MODE + 1 :],
    )  # fmt: skip


def _stats_at(tree: int, path: bytes) -> tuple[int, ...] | None:
    try:
        found = os.stat(path, dir_fd=tree, follow_symlinks=False)
    except OSError:
        return None
    (ctime, ctime_ns), (mtime, mtime_ns) = divmod(found.st_ctime_ns, _SECOND_NS), divmod(found.st_mtime_ns, _SECOND_NS)
    device, inode, mode, size = found.st_dev, found.st_ino, found.st_mode, found.st_size
    stats = (ctime, ctime_ns, mtime, mtime_ns, device, inode, mode, found.st_uid, found.st_gid, size)
    return tuple(each & _LOW for each in stats)


def _signed(content: bytearray, digest_bytes: int) -> bytes:
    digest = next(each for each in _DIGESTS if each(usedforsecurity=False).digest_size == digest_bytes)
    body = bytes(content[:-digest_bytes])
    return body + digest(body, usedforsecurity=False).digest()
