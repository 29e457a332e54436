"""Stamps of many files in one directory, packed so that comparing them with the known ones is one step."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

Stamp = tuple[int, int, int, int]
"""Inode, ctime, mtime and size of a file when it was read; its mode cannot change without its ctime."""

UNTRUSTED = -1
"""Stands for a ctime so recent that the file may change again without a new one."""
RACY_NS = 20_000_000
"""Before Linux 6.13 timestamps advance in steps of up to 10 ms. A file that changed so shortly before it was read may
change again with the same timestamps, so it is read again the next time."""

_SECOND_NS = 1_000_000_000
_BETWEEN_NAMES = b"\0"


def _split_up(stamps: Sequence[Stamp]) -> list[bytes]:
    rows = [
        (inode, size, *divmod(ctime, _SECOND_NS), *divmod(mtime, _SECOND_NS)) for inode, ctime, mtime, size in stamps
    ]
    return [struct.pack(f"={len(rows)}q", *column) for column in zip(*rows, strict=True)]


def pack_stamps(stamps: Mapping[bytes, Stamp]) -> tuple[bytes, bytes]:
    """The joined names, and their stamps in the order and form of ``stamps_of``."""
    return _BETWEEN_NAMES.join(stamps), b"".join(_split_up(list(stamps.values())))


def unpack_names(packed: bytes) -> list[bytes]:
    return packed.split(_BETWEEN_NAMES) if packed else []


def unpack_stamps(packed_names: bytes, packed: bytes) -> dict[bytes, Stamp]:
    names = unpack_names(packed_names)
    if not names:
        return {}
    numbers, count = struct.unpack(f"={len(packed) // 8}q", packed), len(names)
    columns = [numbers[start : start + count] for start in range(0, len(numbers), count)]
    return {
        name: (inode, ctime * _SECOND_NS + ctime_ns, mtime * _SECOND_NS + mtime_ns, size)
        for name, inode, size, ctime, ctime_ns, mtime, mtime_ns in zip(names, *columns, strict=True)
    }
