"""What the kernel says of many files in one directory, packed so that comparing it with what was known is one step."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Mapping, Sequence
from itertools import repeat

Stamp = tuple[int, int, int, int]
"""Inode, ctime, mtime and size of a file when it was read; its mode cannot change without its ctime."""

UNTRUSTED = -1
"""Stands for a ctime so young that the file may change again without it moving."""

_AT_SYMLINK_NOFOLLOW, _BASIC = 0x100, 0x7FF
_STATUS_BYTES = 256
_WORDS = _STATUS_BYTES // 8
_INODE, _SIZE, _CTIME, _MTIME = 4, 5, 12, 14
_COLUMNS = (_INODE, _SIZE, _CTIME, _CTIME + 1, _MTIME, _MTIME + 1)
"""Which 64-bit words of ``struct statx`` are kept; of a time these are the seconds and the nanoseconds."""
_AT_ONCE = 512
_SECOND_NS = 1_000_000_000
_BETWEEN_NAMES = b"\0"


class _Statx(threading.local):
    """The system call with the places for its answers, made once a thread: it is called for every file there is."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None).statx  # without declared argument types it is twice as fast
        self._answers = bytearray(_STATUS_BYTES * _AT_ONCE)
        self._words = memoryview(self._answers).cast("Q")
        place = ctypes.c_char * _STATUS_BYTES
        self._places = [place.from_buffer(self._answers, number * _STATUS_BYTES) for number in range(_AT_ONCE)]

    def columns(self, directory: int, names: Sequence[bytes]) -> list[bytes] | None:
        flags, mask = repeat(_AT_SYMLINK_NOFOLLOW), repeat(_BASIC)
        if any(map(self._call, repeat(directory), names, flags, mask, self._places)):
            return None
        return [self._words[column : len(names) * _WORDS : _WORDS].tobytes() for column in _COLUMNS]


def _statx() -> _Statx | None:
    return _Statx() if hasattr(ctypes.CDLL(None), "statx") and ctypes.sizeof(ctypes.c_void_p) == 8 else None


_system_call = _statx()


def look(directory: int, names: Sequence[bytes]) -> bytes | None:
    """The packed stamps of these files as they are now; None if one is not there."""
    if len(names) <= _AT_ONCE:
        found = _columns(directory, names)
        return None if found is None else b"".join(found)
    columns: list[list[bytes]] = []
    for start in range(0, len(names), _AT_ONCE):
        found = _columns(directory, names[start : start + _AT_ONCE])
        if found is None:
            return None
        columns.append(found)
    return b"".join(b"".join(parts) for parts in zip(*columns, strict=True))


def _columns(directory: int, names: Sequence[bytes]) -> list[bytes] | None:
    if _system_call is not None:
        return _system_call.columns(directory, names)
    try:
        found = [os.stat(name, dir_fd=directory, follow_symlinks=False) for name in names]
    except OSError:
        return None
    return _split_up([(each.st_ino, each.st_ctime_ns, each.st_mtime_ns, each.st_size) for each in found])


def _split_up(stamps: Sequence[Stamp]) -> list[bytes]:
    rows = [
        (inode, size, *divmod(ctime, _SECOND_NS), *divmod(mtime, _SECOND_NS)) for inode, ctime, mtime, size in stamps
    ]
    return [struct.pack(f"={len(rows)}q", *column) for column in zip(*rows, strict=True)]


def pack_stamps(stamps: Mapping[bytes, Stamp]) -> tuple[bytes, bytes]:
    """The names as one text, and their stamps in the order and form that ``look`` gives."""
    return _BETWEEN_NAMES.join(stamps), b"".join(_split_up(list(stamps.values())))


def unpack_names(packed: bytes) -> list[bytes]:
    return packed.split(_BETWEEN_NAMES) if packed else []


def unpack_stamps(packed_names: bytes, packed: bytes) -> dict[bytes, Stamp]:
    names = unpack_names(packed_names)
    numbers = struct.unpack(f"={len(packed) // 8}q", packed)
    count = len(names)
    columns = [numbers[start : start + count] for start in range(0, len(numbers), count or 1)]
    return (
        {
            name: (inode, ctime * _SECOND_NS + ctime_ns, mtime * _SECOND_NS + mtime_ns, size)
            for name, inode, size, ctime, ctime_ns, mtime, mtime_ns in zip(names, *columns, strict=True)
        }
        if names
        else {}
    )
