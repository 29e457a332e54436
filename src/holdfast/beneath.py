"""Opening a directory far below another in one step, without following any symlink on the way (``openat2``)."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

_OPENAT2 = 437  # the same on every architecture
_RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x04, 0x08
_MEANT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW = _How(os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH)
_HOW_REFERENCE = ctypes.byref(_HOW)
_HOW_BYTES = ctypes.sizeof(_HOW)


def open_directory_beneath(path: bytes, root: int) -> int | None:
    """None if this kernel cannot, or if it takes more than opening (a path too long, a directory closed to us)."""
    if sys.platform != "linux":
        return None
    descriptor = _libc.syscall(_OPENAT2, root, path, _HOW_REFERENCE, _HOW_BYTES)
    if descriptor >= 0:
        return int(descriptor)
    code = ctypes.get_errno()
    if code in _MEANT:
        raise OSError(code, os.strerror(code), path)
    return None
