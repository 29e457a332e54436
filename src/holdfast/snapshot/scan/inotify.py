"""inotify: its system calls, and what its events mean."""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import termios
from functools import cache

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
OVERFLOW, IGNORED, IS_DIRECTORY = 0x4000, 0x8000, 0x40000000
_ONLY_DIRECTORY, _DONT_FOLLOW = 0x1000000, 0x2000000
_WATCHED = (
    (MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF)
    | _ONLY_DIRECTORY
    | _DONT_FOLLOW
)
_OF_WATCH = OVERFLOW | IGNORED | DELETE_SELF | MOVE_SELF
_NAME_COMES, _NAME_GOES = MOVED_TO | CREATE, MOVED_FROM | DELETE
NAME_COMES_OR_GOES = _NAME_COMES | _NAME_GOES
SAYS_MORE = _OF_WATCH | IS_DIRECTORY | NAME_COMES_OR_GOES
"""Events that are never skipped as repetitions of the previous one."""
WATCH, DIRECTORY, COMING, GOING, WRITING = range(5)


@cache
def kind_of(mask: int) -> int:
    """What an event is about."""
    if mask & _OF_WATCH:
        return WATCH
    if mask & IS_DIRECTORY:
        return DIRECTORY
    if mask & NAME_COMES_OR_GOES:
        return COMING if mask & _NAME_COMES else GOING
    return WRITING


class Inotify:
    """One queue of events; ``descriptor`` is negative while it is not open."""

    def __init__(self) -> None:
        self.descriptor = -1

    def open(self) -> bool:
        """False if the kernel does not support it."""
        if _libc is not None:
            self.descriptor = int(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        return self.descriptor >= 0

    def close(self) -> None:
        os.close(self.descriptor)
        self.descriptor = -1

    def add_watch(self, path: bytes) -> int:
        """Negative if the kernel refuses; ``ctypes.get_errno()`` says why."""
        assert _libc is not None
        return int(_libc.inotify_add_watch(self.descriptor, path, ctypes.c_uint32(_WATCHED)))

    def remove_watch(self, watch: int) -> None:
        assert _libc is not None
        _libc.inotify_rm_watch(self.descriptor, watch)

    def waiting_bytes(self) -> int:
        waiting = array.array("i", [0])
        fcntl.ioctl(self.descriptor, termios.FIONREAD, waiting)
        return waiting[0]


def _library() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "inotify_init1") else None


_libc = _library()
