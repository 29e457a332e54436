"""Copying a tree exactly, sharing blocks where the file system can."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from holdfast.model import Unheld
from holdfast.progress import UNWATCHED, Metering, Work, meter_of

_FICLONE = 0x40049409
_CHUNK = 1 << 26
"""Enough to be quick, and little enough to see how far a large file has come."""
_CANNOT_CLONE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS)


class TreeCopy:
    """One copy of ``source`` into ``target``, which must not exist; ``skip`` names paths that are left out.

    ``name`` is what it is called when its progress is told; ``left_out`` tells afterwards what could not be copied, and
    why.
    """

    def __init__(self, source: Path, target: Path, *, name: str, skip: Collection[bytes] = ()) -> None:
        self._source, self._target = os.fsencode(source), os.fsencode(target)
        self._name, self._skip = name, skip
        self._links: dict[tuple[int, int], bytes] = {}
        self._can_clone = True
        self._meter: Metering = UNWATCHED
        self.left_out: list[Unheld] = []

    def run(self) -> TreeCopy:
        os.mkdir(self._target, 0o700)
        directories = [b""]
        finished = []
        with meter_of(Work.COPYING, self._name, self._totals) as self._meter:
            while directories:
                directory = directories.pop()
                finished.append(directory)
                directories.extend(self._copy_entries(directory))
        # Deepest first, and after everything below: making an entry changes the time of its directory.
        for directory in reversed(finished):
            _copy_attributes(self._from(directory), self._to(directory))
        return self

    def _totals(self) -> tuple[int, int]:
        """How many files there are to copy, and how large they are."""
        files, size_bytes, directories = 0, 0, [b""]
        while directories:
            directory = directories.pop()
            try:
                with os.scandir(self._from(directory)) as listing:
                    for entry in listing:
                        path = directory + b"/" + entry.name if directory else entry.name
                        if path in self._skip:
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            directories.append(path)
                        else:
                            files += 1
                            size_bytes += entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue  # it vanished, or it is closed to us: then it will not be copied
        return files, size_bytes

    def copy_each(self, paths: Collection[bytes]) -> None:
        """Copy entries that were skipped, making the directories on their way."""
        with meter_of(Work.COPYING, self._name, lambda: (len(paths), None)) as self._meter:
            for path in paths:
                self._copy_one(path)

    def _copy_one(self, path: bytes) -> None:
        way = path.split(b"/")[:-1]
        for depth in range(1, len(way) + 1):
            directory = b"/".join(way[:depth])
            if not os.path.lexists(self._to(directory)):
                os.mkdir(self._to(directory), 0o700)
                _copy_attributes(self._from(directory), self._to(directory))
        self._copy_entry(path, os.lstat(self._from(path)))

    def _from(self, path: bytes) -> bytes:
        return self._source + b"/" + path if path else self._source

    def _to(self, path: bytes) -> bytes:
        return self._target + b"/" + path if path else self._target

    def _copy_entries(self, directory: bytes) -> list[bytes]:
        below: list[bytes] = []
        try:
            with os.scandir(self._from(directory)) as listing:
                entries = list(listing)
        except PermissionError:
            self._leave_out(directory, "not readable for this user")
            return below
        for entry in entries:
            path = directory + b"/" + entry.name if directory else entry.name
            if path in self._skip:
                continue
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                os.mkdir(self._to(path), 0o700)
                below.append(path)
            else:
                self._copy_entry(path, found)
        return below

    def _copy_entry(self, path: bytes, found: os.stat_result) -> None:
        self._meter.advance(1)
        maker = {
            stat.S_IFREG: self._copy_file,
            stat.S_IFLNK: lambda path: os.symlink(os.readlink(self._from(path)), self._to(path)),
            stat.S_IFIFO: lambda path: os.mkfifo(self._to(path), 0o600),
        }.get(stat.S_IFMT(found.st_mode))
        if maker is None:
            self._leave_out(path, "a socket or a device")
            return
        inode = (found.st_dev, found.st_ino)
        if found.st_nlink > 1 and inode in self._links:
            os.link(self._links[inode], self._to(path), follow_symlinks=False)
            self._meter.advance(size_bytes=found.st_size)
            return
        self._make(maker, path)
        if found.st_nlink > 1:
            self._links[inode] = self._to(path)

    def _make(self, maker: Callable[[bytes], None], path: bytes) -> None:
        try:
            maker(path)
            _copy_attributes(self._from(path), self._to(path))
        except PermissionError:
            self._leave_out(path, "not readable for this user")
        except FileNotFoundError:
            if os.path.lexists(self._from(path)):
                raise  # it did not vanish: something else is wrong

    def _leave_out(self, path: bytes, reason: str) -> None:
        self.left_out.append(Unheld(path=path.decode(errors="backslashreplace"), reason=reason))

    def _copy_file(self, path: bytes) -> None:
        source = os.open(self._from(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            target = os.open(self._to(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                if self._cloned(source, target):
                    self._meter.advance(size_bytes=os.fstat(source).st_size)
                else:
                    _copy_content(source, target, self._meter)
            finally:
                os.close(target)
        finally:
            os.close(source)

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
            return  # a hole, or nothing, up to the end
        yield start, end


def _copy_range(source: int, target: int, start: int, end: int, meter: Metering) -> None:
    while start < end:
        try:
            copied = os.copy_file_range(source, target, min(end - start, _CHUNK), start, start)
        except OSError as error:
            if error.errno not in _CANNOT_CLONE:
                raise
            copied = os.pwrite(target, os.pread(source, min(end - start, 1 << 20), start), start)
        if copied == 0:
            return  # it was cut off meanwhile
        start += copied
        meter.advance(size_bytes=copied)


def _copy_attributes(source: bytes, target: bytes) -> None:
    found = os.lstat(source)
    if os.geteuid() == 0:
        os.chown(target, found.st_uid, found.st_gid, follow_symlinks=False)
    for name in _xattr_names(source):
        value = os.getxattr(source, name, follow_symlinks=False)
        try:
            os.setxattr(target, name, value, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP):
                raise
    if not stat.S_ISLNK(found.st_mode):
        os.chmod(target, stat.S_IMODE(found.st_mode))
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=False)


def _xattr_names(path: bytes) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []  # this file system has none
