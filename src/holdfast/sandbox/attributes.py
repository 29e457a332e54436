"""Owner, mode, times and extended attributes of an entry, read and set on a copy."""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple

from holdfast.system import folder_mark
from holdfast.system.directories import IS_ROOT, OWN_GROUPS

_NOT_COPIED = (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENODATA)
"""Errors of the kernel for an extended attribute that we may not read or set, or that is gone."""


class Attributes(NamedTuple):
    found: os.stat_result
    xattrs: list[tuple[str, bytes]]
    mode: int

    def give_to(self, target: int | bytes) -> None:
        """Set them on an open file, or on an entry by its path; a symlink there is not followed."""
        found, is_open = self.found, isinstance(target, int)
        if IS_ROOT:
            os.chown(target, found.st_uid, found.st_gid, follow_symlinks=is_open)
        elif found.st_gid in OWN_GROUPS and os.stat(target, follow_symlinks=is_open).st_gid != found.st_gid:
            os.chown(target, -1, found.st_gid, follow_symlinks=is_open)
        for name, value in self.xattrs:
            try:
                os.setxattr(target, name, value, follow_symlinks=is_open)
            except OSError as error:
                if error.errno not in _NOT_COPIED:
                    raise
        if not stat.S_ISLNK(found.st_mode):
            os.chmod(target, self.mode)
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=is_open)


def attributes_of(source: int | bytes, found: os.stat_result, mode: int | None = None) -> Attributes:
    """``mode``: the mode of the entry before it was made accessible to us."""
    is_open = isinstance(source, int)
    xattrs = []
    for name in _xattr_names(source):
        if name == folder_mark.ATTRIBUTE:
            continue
        try:
            xattrs.append((name, os.getxattr(source, name, follow_symlinks=is_open)))
        except OSError as error:
            if error.errno not in _NOT_COPIED:
                raise
    return Attributes(found, xattrs, stat.S_IMODE(found.st_mode) if mode is None else mode)


def _xattr_names(source: int | bytes) -> list[str]:
    try:
        return os.listxattr(source, follow_symlinks=isinstance(source, int))
    except OSError:
        return []  # this file system has no extended attributes


def entry_in(directory: int, name: bytes) -> bytes:
    """The path of a name in an open directory, for calls that take only paths."""
    return f"/proc/self/fd/{directory}/".encode() + name
