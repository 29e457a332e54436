"""Names that change places in one step, or are given only if they are free (``renameat2``)."""

from __future__ import annotations

import errno
import os

from holdfast.system.calls import rename_specially

_NO_REPLACE, _EXCHANGE = 1, 2
_CANNOT = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK)


def exchange(one: bytes, one_directory: int, other: bytes, other_directory: int) -> bool:
    """False if this kernel or file system cannot, or if one of the names is not there."""
    code = rename_specially(one_directory, one, other_directory, other, _EXCHANGE)
    if not code:
        return True
    if code in (*_CANNOT, errno.ENOENT):
        return False
    raise _error(code, other)


def rename_to_free(name: bytes, free: bytes, directory: int) -> None:
    """Rename within a directory; a FileExistsError if something has the new name."""
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
        # Nothing better is left on such a file system.
        if free in map(os.fsencode, os.listdir(directory)):
            raise _error(errno.EEXIST, free) from error
        os.rename(name, free, src_dir_fd=directory, dst_dir_fd=directory)
    else:
        os.unlink(name, dir_fd=directory)


def _error(code: int, name: bytes) -> OSError:
    return OSError(code, os.strerror(code), os.fsdecode(name))
