"""The stamps of one directory and of the files in it, packed so that comparing them with the disk is one step.

Packed stamps begin with a head (their own size, that of the path, the number of names, and the directory's inode and
ctime). The path and the names follow, a null byte after each, and then a row for each name. ``compare_stamps`` in
``system/plain_calls.py`` reads this form, and ``system/_calls.c`` does the same.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

STAMPS_HEAD = struct.Struct("=IIIIQq")
"""The head of packed stamps: their size, that of the path, the number of names; nanoseconds of the directory's ctime,
its inode, seconds of its ctime."""
STAMPS_ROW = struct.Struct("=QqqqII")
"""A file: inode, size, seconds of ctime and mtime, nanoseconds of both."""
Stamp = tuple[int, int, int, int]
"""Inode, ctime, mtime and size of a file when it was read; its mode cannot change without its ctime."""
OwnStamp = tuple[int, int]
"""Inode and ctime of a directory when it was listed."""

UNTRUSTED = -1
"""Stands for a ctime so recent that the file may change again without a new one."""
RACY_NS = 20_000_000
"""Before Linux 6.13 timestamps advance in steps of up to 10 ms."""

_SECOND_NS = 1_000_000_000
_RACY_IN_SECONDS_NS = 2 * _SECOND_NS
"""Some file systems keep whole seconds only, as ext4 does in inodes of 128 bytes; elsewhere hardly any time is one."""
_END_OF_NAME = b"\0"


def is_settled(ctime_ns: int, read_from_ns: int) -> bool:
    """Whether a change after that moment, at which reading began, gives a new ctime.

    A file that changed shortly before may change again with the same timestamps, so it is read again the next time.
    """
    racy_ns = RACY_NS if ctime_ns % _SECOND_NS else _RACY_IN_SECONDS_NS
    return ctime_ns < read_from_ns - racy_ns


def pack_stamps(path: bytes, own: OwnStamp, stamps: Mapping[bytes, Stamp]) -> bytes:
    names = _END_OF_NAME.join((path, *stamps, b""))
    row = STAMPS_ROW.pack
    rows = [row(inode, size, *_split_up(ctime, mtime)) for inode, ctime, mtime, size in stamps.values()]
    size = STAMPS_HEAD.size + len(names) + len(rows) * STAMPS_ROW.size
    seconds, nanoseconds = divmod(own[1], _SECOND_NS)
    return b"".join((STAMPS_HEAD.pack(size, len(path), len(rows), nanoseconds, own[0], seconds), names, *rows))


def _split_up(ctime: int, mtime: int) -> tuple[int, int, int, int]:
    (ctime_s, ctime_ns), (mtime_s, mtime_ns) = divmod(ctime, _SECOND_NS), divmod(mtime, _SECOND_NS)
    return ctime_s, mtime_s, ctime_ns, mtime_ns


def own_stamp(packed: bytes) -> OwnStamp:
    """The stamp of the directory itself."""
    _, _, _, nanoseconds, inode, seconds = STAMPS_HEAD.unpack_from(packed)
    return inode, seconds * _SECOND_NS + nanoseconds


def path_in(content: bytes, start: int = 0) -> bytes:
    """The path in packed stamps that begin there."""
    length = STAMPS_HEAD.unpack_from(content, start)[1]
    start += STAMPS_HEAD.size
    return content[start : start + length]


def unpack_stamps(packed: bytes) -> dict[bytes, Stamp]:
    _, path_bytes, count, _, _, _ = STAMPS_HEAD.unpack_from(packed)
    if not count:
        return {}
    rows = len(packed) - count * STAMPS_ROW.size
    names = packed[STAMPS_HEAD.size + path_bytes + 1 : rows - 1].split(_END_OF_NAME)
    return {
        name: (inode, ctime * _SECOND_NS + ctime_ns, mtime * _SECOND_NS + mtime_ns, size)
        for name, (inode, size, ctime, mtime, ctime_ns, mtime_ns) in zip(
            names, STAMPS_ROW.iter_unpack(packed[rows:]), strict=True
        )
    }


def packed_inode(inode: int) -> bytes:
    """The bytes that are in the row of every file with that inode."""
    return struct.pack("=Q", inode)
