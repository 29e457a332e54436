"""Two names change places in one step (``renameat2`` with ``RENAME_EXCHANGE``)."""

from __future__ import annotations

import ctypes
import errno
import os

_EXCHANGE = 2
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.ENOENT, errno.EOPNOTSUPP)
_libc = ctypes.CDLL(None, use_errno=True)


def exchange(one: bytes, one_directory: int, other: bytes, other_directory: int) -> bool:
    """False if this kernel or file system cannot, or if one of the names is not there."""
    if not hasattr(_libc, "renameat2"):
        return False
    if _libc.renameat2(one_directory, one, other_directory, other, _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), os.fsdecode(other))
