"""Exchanges two names in one step, or renames only to a free name (``renameat2``)."""

from __future__ import annotations

import errno
import os

from holdfast.system.calls import rename_specially

_NO_REPLACE, _EXCHANGE = 1, 2
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK)


def exchange(one: bytes, one_directory: int, other: bytes, other_directory: int) -> bool:
    """Exchange two names; False if this kernel or file system cannot, or if one of the names does not exist."""
    code = rename_specially(one_directory, one, other_directory, other, _EXCHANGE)
    if not code:
        return True
    if code in (*_CANNOT, errno.ENOENT):
        return False
    raise _error(code, other)


def rename_to_free(name: bytes, free: bytes, directory: int) -> None:
    """Rename within a directory; raises FileExistsError if the new name is taken."""
    code = rename_specially(directory, name, directory, free, _NO_REPLACE)
    if not code:
        return
    if code not in _CANNOT:
        raise _error(code, free)
    try:
        os.link(name, free, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Such a file system allows nothing better: a file that is created in between would be overwritten.
        if free in map(os.fsencode, os.listdir(directory)):
            raise _error(errno.EEXIST, free) from error
        os.rename(name, free, src_dir_fd=directory, dst_dir_fd=directory)
    else:
        os.unlink(name, dir_fd=directory)


def _error(code: int, name: bytes) -> OSError:
    return OSError(code, os.strerror(code), os.fsdecode(name))
