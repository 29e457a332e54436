"""Copies one file, symlink or fifo from an open directory into another; files share blocks if the file system can."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.sandbox.attributes import Attributes, attributes_of, entry_in
from holdfast.sandbox.databases import is_open_database
from holdfast.system.directories import IS_ROOT, made_accessible
from holdfast.system.progress import UNWATCHED, Metering
from holdfast.system.stopping import stop_if_asked

_FICLONE = 0x40049409
_CHUNK = 1 << 24
"""Large enough to be fast, small enough to show the progress of a large file and to stop in the middle of it."""
_CANNOT_CLONE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS)
# O_NONBLOCK: if it has become a fifo since, opening it must not wait for a writer.
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TO_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MOVED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL)
"""Errors of the kernel for a name that is gone, or that is no longer a directory, a file or a symlink."""


class IsDatabase(Exception):
    """The file is a database, which is not copied like other files."""


class Moved(Exception):
    """The entry that was listed is gone, or was replaced."""


@contextmanager
def unless_moved() -> Iterator[None]:
    """Raise ``Moved`` for the errors of the kernel that mean it."""
    try:
        yield
    except OSError as error:
        if error.errno in _MOVED:
            raise Moved from error
        raise


def can_be_copied(found: os.stat_result) -> bool:
    """Not a socket or a device."""
    return stat.S_IFMT(found.st_mode) in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO)


class EntryCopy:
    """Copies single entries of a tree.

    ``is_ours``: the source is a sandbox; a file that we may not read is made readable for a moment.
    """

    def __init__(self, *, is_ours: bool) -> None:
        self._is_ours = is_ours
        self._can_clone = True
        self.meter: Metering = UNWATCHED

    def copy(
        self, name: bytes, source: int, target: int, found: os.stat_result, *, also_databases: bool
    ) -> os.stat_result:
        """Copy an entry whose status was ``found``; returns its status after the copy.

        Raises ``Moved``, and ``IsDatabase`` unless ``also_databases``.
        """
        if stat.S_ISREG(found.st_mode):
            return self._copy_file(name, source, target, also_databases=also_databases)
        if stat.S_ISLNK(found.st_mode):
            with unless_moved():
                leads_to = os.readlink(name, dir_fd=source)
            os.symlink(leads_to, name, dir_fd=target)
        else:
            os.mkfifo(name, 0o600, dir_fd=target)
        attributes_of(entry_in(source, name), found).give_to(entry_in(target, name))
        return found

    def _copy_file(self, name: bytes, source: int, target: int, *, also_databases: bool) -> os.stat_result:
        with self.open_file(name, source) as original:
            if not also_databases and is_open_database(original, source, name):
                raise IsDatabase
            copy = os.open(name, _TO_MAKE, 0o600, dir_fd=target)
            try:
                if self._cloned(original, copy):
                    self.meter.advance(size_bytes=os.fstat(original).st_size)
                else:
                    _copy_content(original, copy, self.meter)
                copied = os.fstat(original)
                self._attributes(name, source, original, copied).give_to(copy)
            finally:
                os.close(copy)
            return copied

    def _attributes(self, name: bytes, directory: int, original: int, found: os.stat_result) -> Attributes:
        """The kernel gives extended attributes only if the mode allows reading, even for an open file."""
        if not self._is_ours or IS_ROOT or found.st_mode & stat.S_IRUSR:
            return attributes_of(original, found)
        with made_accessible(name, directory, 0o400):
            return attributes_of(original, found)

    @contextmanager
    def open_file(self, name: bytes, directory: int) -> Iterator[int]:
        with unless_moved():
            descriptor = self._opened(name, directory)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Moved
            yield descriptor
        finally:
            os.close(descriptor)

    def _opened(self, name: bytes, directory: int) -> int:
        try:
            return os.open(name, _TO_READ, dir_fd=directory)
        except PermissionError:
            if not self._is_ours:
                raise
            with made_accessible(name, directory, 0o400):
                return os.open(name, _TO_READ, dir_fd=directory)

    def _cloned(self, source: int, target: int) -> bool:
        if not self._can_clone:
            return False
        try:
            fcntl.ioctl(target, _FICLONE, source)
        except OSError as error:
            if error.errno not in _CANNOT_CLONE:
                raise
            self._can_clone = False
        return self._can_clone


def _copy_content(source: int, target: int, meter: Metering) -> None:
    """Copy the data and leave the holes."""
    data_bytes = 0
    for start, end in _data_in(source):
        _copy_range(source, target, start, end, meter)
        data_bytes += end - start
    size_bytes = os.fstat(source).st_size
    os.ftruncate(target, size_bytes)
    meter.advance(size_bytes=size_bytes - data_bytes)


def _data_in(descriptor: int) -> Iterator[tuple[int, int]]:
    end = 0
    while True:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # a hole up to the end, or the end itself
        yield start, end


def _copy_range(source: int, target: int, start: int, end: int, meter: Metering) -> None:
    while start < end:
        stop_if_asked()
        try:
            copied = os.copy_file_range(source, target, min(end - start, _CHUNK), start, start)
        except OSError as error:
            if error.errno not in _CANNOT_CLONE:
                raise
            copied = os.pwrite(target, os.pread(source, min(end - start, 1 << 20), start), start)
        if copied == 0:
            return  # the file was truncated meanwhile
        start += copied
        meter.advance(size_bytes=copied)
