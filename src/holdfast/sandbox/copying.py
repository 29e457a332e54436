"""Copying a tree exactly, sharing blocks where the file system can.

A SQLite database that some program uses is copied as of one moment, and without the logs that belong to it; one that is
not in use like any other file, with its logs.

Both trees are gone through by descriptors of their directories, so no path is too long, and nothing that is swapped in
for a file or a directory meanwhile leads anywhere else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import SandboxError
from holdfast.model import Unheld
from holdfast.names import name_text
from holdfast.sandbox.databases import (
    COMPANIONS,
    Users,
    copy_as_of_one_moment,
    database_of,
    is_open_database,
    moment_of,
    settled_moment_of,
)
from holdfast.system import folder_mark
from holdfast.system.directories import IS_ROOT, OWN_GROUPS, Descent, join, made_accessible, shown, split
from holdfast.system.progress import UNWATCHED, Metering, Totals, Work, meter_of
from holdfast.system.stopping import stop_if_asked

_FICLONE = 0x40049409
_CHUNK = 1 << 24
"""Enough to be quick, and little enough to see how far a large file has come, and to stop in the middle of it."""
_CANNOT_CLONE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS)
# O_NONBLOCK: should it have become a fifo since, opening it must not wait for a writer.
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TO_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MOVED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL)
"""What the kernel says of a name that is gone, or no directory, no file or no symlink any more."""
_NOT_COPIED = (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENODATA)
"""What it says of an extended attribute that is not ours to read or to set, or that is gone."""
_UNREADABLE = "not readable for this user"
_Maker = Callable[[bytes, int, int, os.stat_result], os.stat_result]


class TreeCopy:
    """One copy of ``source`` into ``target``, which must not exist; ``skip`` names paths that are left out.

    ``is_ours``: the source is a sandbox, in which what is closed to ourselves is opened for a moment.

    ``name`` is what it is called when its progress is told; ``left_out`` tells afterwards what could not be copied, and
    why. The target itself is never copied, however it comes to lie in the source, also by a mount. What vanishes before
    it is copied is as if it had been gone before.
    """

    _from: Descent
    _to: Descent

    def __init__(
        self, source: Path, target: Path, *, name: str, skip: Collection[bytes] = (), is_ours: bool = False
    ) -> None:
        self._source, self._target, self._is_ours = source, target, is_ours
        self._name, self._skip = name, skip
        self._makers = {
            stat.S_IFREG: self._copy_file,
            stat.S_IFLNK: self._copy_symlink,
            stat.S_IFIFO: self._copy_fifo,
        }
        self._target_is = (-1, -1)
        self._links: dict[tuple[int, int], bytes] = {}
        self._made: list[tuple[bytes, _Attributes]] = []
        self._databases: list[bytes] = []
        self._companions: list[bytes] = []
        """Files that look like the log of a database; both are copied after all others."""
        self._can_clone = True
        self._meter: Metering = UNWATCHED
        self.left_out: list[Unheld] = []

    def run(self) -> TreeCopy:
        os.mkdir(self._target, 0o700)
        self._target_is = _identity(os.stat(self._target))
        with self._at_work(self._totals):
            directories = [b""]
            while directories:
                directories.extend(self._copy_directory(directories.pop()))
        return self

    def copy_each(self, paths: Collection[bytes]) -> None:
        """Copy entries that were skipped, making the directories on their way."""
        with self._at_work(lambda: (len(paths), None)):
            for path in paths:
                self._copy_one(path)

    @contextmanager
    def _at_work(self, totals: Totals) -> Iterator[None]:
        """With both trees open; at the end the directories that were made get their attributes."""
        source = Descent(self._source, opens_up=self._is_ours, is_sandbox=self._is_ours)
        with source as self._from, Descent(self._target) as self._to:
            with meter_of(Work.COPYING, self._name, totals) as self._meter:
                yield
                self._copy_databases()
            # Deepest first, and after everything below: making an entry changes the time of its directory.
            while self._made:
                directory, attributes = self._made.pop()
                attributes.give_to(self._to.open(directory))

    def _totals(self) -> tuple[int, int]:
        """How many files there are to copy, and how large they are."""
        files, size_bytes, directories = 0, 0, [b""]
        while directories:
            stop_if_asked()
            directory = directories.pop()
            try:
                with os.scandir(self._from.open(directory)) as listing:
                    for entry in listing:
                        path = join(directory, os.fsencode(entry.name))
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

    def _copy_directory(self, directory: bytes) -> list[bytes]:
        """Make a directory and copy what it holds but for the directories; the paths of those."""
        below: list[bytes] = []
        try:
            source = self._make_directory(directory)
        except _Moved:
            self._tell_if_replaced(directory)
            return below
        if source is None:
            return below
        with os.scandir(source) as listing:
            entries = list(listing)
        for entry in entries:
            path = join(directory, os.fsencode(entry.name))
            if path in self._skip:
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except PermissionError:
                self._leave_out(path, _UNREADABLE)
                continue
            if _identity(found) == self._target_is:
                self._leave_out(path, "the sandbox that is being made")
            elif stat.S_ISDIR(found.st_mode):
                below.append(path)
            else:
                self._copy_entry(path, source, found)
        return below

    def _copy_one(self, path: bytes) -> None:
        directory, name = split(path)
        try:
            self._make_way_to(directory)
            with _unless_moved():
                source = self._from.open(directory)
                found = os.stat(name, dir_fd=source, follow_symlinks=False)
        except PermissionError:
            self._leave_out(path, _UNREADABLE)
        except _Moved:
            self._tell_if_replaced(path)
        else:
            self._copy_entry(path, source, found)

    def _make_way_to(self, directory: bytes) -> None:
        missing = []
        while not self._is_made(directory):
            missing.append(directory)
            directory = split(directory)[0]
        for each in reversed(missing):
            self._make_directory(each)

    def _is_made(self, directory: bytes) -> bool:
        try:
            self._to.open(directory)
        except FileNotFoundError:
            return False
        except NotADirectoryError as error:
            raise _Moved from error  # it was something else when that was copied
        return True

    def _make_directory(self, directory: bytes) -> int | None:
        """The descriptor of its original; None if that is closed to us."""
        source = None
        with _unless_moved():
            try:
                source = self._from.open(directory)
                self._refuse_half_changed(directory, source)
                attributes = _attributes_of(source, os.fstat(source), self._from.closed_modes.get(directory))
            except PermissionError:
                above, name = split(directory)
                attributes = _attributes_in(self._from.open(above), name)
                self._leave_out(directory, _UNREADABLE)
        if directory:
            above, name = split(directory)
            os.mkdir(name, 0o700, dir_fd=self._to.open(above))
        self._made.append((directory, attributes))
        return source

    def _refuse_half_changed(self, directory: bytes, source: int) -> None:
        """The copy itself and the folders it is in were looked at before, and nothing changes them meanwhile."""
        mark = folder_mark.find_on(source) if directory else None
        if mark is not None:
            raise folder_mark.half_changed(self._source / os.fsdecode(directory), mark)

    def _copy_entry(self, path: bytes, source: int, found: os.stat_result) -> None:
        """Copy what is no directory; ``source`` is the directory it lies in."""
        stop_if_asked()
        self._meter.advance(1)
        maker = self._makers.get(stat.S_IFMT(found.st_mode))
        if maker is None:
            self._leave_out(path, "a socket or a device")
            return
        name = split(path)[1]
        database = database_of(name)
        if database is not None and _is_file_in(source, database):
            self._companions.append(path)
            return
        try:
            self._copy_with(maker, path, source, found)
        except _IsDatabase:
            self._databases.append(path)

    def _copy_with(self, maker: _Maker, path: bytes, source: int, found: os.stat_result) -> None:
        directory, name = split(path)
        first = self._links.get((found.st_dev, found.st_ino)) if found.st_nlink > 1 else None
        if first is not None:
            self._link(first, directory, name)
            self._meter.advance(size_bytes=found.st_size)
            return
        try:
            copied = maker(name, source, self._to.open(directory), found)
        except PermissionError:
            self._leave_out(path, _UNREADABLE)
        except _Moved:
            self._tell_if_replaced(path)
        else:
            if copied.st_nlink > 1:
                self._links[copied.st_dev, copied.st_ino] = path

    def _link(self, first: bytes, directory: bytes, name: bytes) -> None:
        its_directory, its_name = split(first)
        above = os.dup(self._to.open(its_directory))  # opening the other directory may close this one
        try:
            os.link(its_name, name, src_dir_fd=above, dst_dir_fd=self._to.open(directory), follow_symlinks=False)
        finally:
            os.close(above)

    def _tell_if_replaced(self, path: bytes) -> None:
        """What took the place of something else was not looked at, so it is not copied."""
        directory, name = split(path)
        try:
            os.stat(name, dir_fd=self._from.open(directory), follow_symlinks=False)
        except OSError:
            return  # it vanished
        self._leave_out(path, "replaced while it was being copied")

    def _leave_out(self, path: bytes, reason: str) -> None:
        self.left_out.append(Unheld(path=path.decode(errors="backslashreplace"), reason=reason))

    # Databases, after everything else

    def _copy_databases(self) -> None:
        databases, companions = self._databases, self._companions
        self._databases, self._companions = [], []
        users = Users()
        for path in databases:
            try:
                self._copy_database(path, users)
            except _Moved:
                self._tell_if_replaced(path)
        for path in companions:
            if database_of(path) not in databases:
                with suppress(_Moved):
                    self._copy_plainly(path)

    def _copy_database(self, path: bytes, users: Users) -> None:
        """With its logs, byte for byte; or as of one moment and without them, if some program uses it."""
        directory, name = split(path)
        for has_moved in (False, True, True):
            with _unless_moved():
                source = self._from.open(directory)
            if (has_moved or users.of_database(source, name)) and self._is_copied_by_sqlite(path):
                return
            before = settled_moment_of(source, name)
            if before is None:
                continue
            parts = [path, *(path + suffix for suffix in COMPANIONS if _is_file_in(source, name + suffix))]
            for part in parts:
                self._copy_plainly(part)
            with _unless_moved():
                source = self._from.open(directory)
            if moment_of(source, name) == before:
                return
            for part in parts:
                self._take_back(part)
        raise SandboxError(
            f"The database {name_text(shown(path))} keeps changing while it is copied.",
            hint="Close the programs that use it, then run the command again.",
        )

    def _copy_plainly(self, path: bytes) -> None:
        directory, name = split(path)
        with _unless_moved():
            source = self._from.open(directory)
            found = os.stat(name, dir_fd=source, follow_symlinks=False)
        maker = self._copy_any_file if stat.S_ISREG(found.st_mode) else self._makers.get(stat.S_IFMT(found.st_mode))
        if maker is None:
            raise _Moved
        self._copy_with(maker, path, source, found)

    def _is_copied_by_sqlite(self, path: bytes) -> bool:
        directory, name = split(path)
        source = self._from.open(directory)
        with self._open_file(name, source) as original:
            copied = os.fstat(original)
            first = self._links.get((copied.st_dev, copied.st_ino)) if copied.st_nlink > 1 else None
            if first is not None:
                self._link(first, directory, name)
                return True
            place = self._target / f".holdfast-{secrets.token_hex(8)}"
            if not copy_as_of_one_moment(source, name, place):
                return False
            with _unless_moved():
                copied, opened = os.fstat(original), os.stat(name, dir_fd=source, follow_symlinks=False)
            if not os.path.samestat(copied, opened):
                place.unlink()
                raise _Moved
            _attributes_of(original, copied).give_to(os.fsencode(place))
        os.rename(place, name, dst_dir_fd=self._to.open(directory))
        if copied.st_nlink > 1:
            self._links[copied.st_dev, copied.st_ino] = path
        self._meter.advance(size_bytes=copied.st_size)
        return True

    def _take_back(self, path: bytes) -> None:
        directory, name = split(path)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._to.open(directory))
        self._links = {inode: first for inode, first in self._links.items() if first != path}

    # One maker for each kind: from a directory into another; what the kernel said of the original

    def _copy_symlink(self, name: bytes, source: int, target: int, found: os.stat_result) -> os.stat_result:
        with _unless_moved():
            leads_to = os.readlink(name, dir_fd=source)
        os.symlink(leads_to, name, dir_fd=target)
        _attributes_of(_entry_in(source, name), found).give_to(_entry_in(target, name))
        return found

    def _copy_fifo(self, name: bytes, source: int, target: int, found: os.stat_result) -> os.stat_result:
        os.mkfifo(name, 0o600, dir_fd=target)
        _attributes_of(_entry_in(source, name), found).give_to(_entry_in(target, name))
        return found

    def _copy_file(self, name: bytes, source: int, target: int, found: os.stat_result) -> os.stat_result:  # noqa: ARG002 - every maker is called so
        with self._open_file(name, source) as original:
            if is_open_database(original, source, name):
                raise _IsDatabase
            return self._copy_open(original, name, target)

    def _copy_any_file(self, name: bytes, source: int, target: int, found: os.stat_result) -> os.stat_result:  # noqa: ARG002 - the same
        with self._open_file(name, source) as original:
            return self._copy_open(original, name, target)

    def _copy_open(self, original: int, name: bytes, target: int) -> os.stat_result:
        copy = os.open(name, _TO_MAKE, 0o600, dir_fd=target)
        try:
            if self._cloned(original, copy):
                self._meter.advance(size_bytes=os.fstat(original).st_size)
            else:
                _copy_content(original, copy, self._meter)
            copied = os.fstat(original)
            _attributes_of(original, copied).give_to(copy)
        finally:
            os.close(copy)
        return copied

    @contextmanager
    def _open_file(self, name: bytes, directory: int) -> Iterator[int]:
        with _unless_moved():
            descriptor = self._opened(name, directory)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _Moved
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


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


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
        stop_if_asked()
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


class _IsDatabase(Exception):
    """It is not copied like other files."""


class _Moved(Exception):
    """What was listed is not there any more, or something else took its place."""


@contextmanager
def _unless_moved() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _MOVED:
            raise _Moved from error
        raise


def _is_file_in(directory: int, name: bytes) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


class _Attributes(NamedTuple):
    """All that an entry has beside its content; ``found`` is what the kernel said of it."""

    found: os.stat_result
    xattrs: list[tuple[str, bytes]]
    mode: int

    def give_to(self, target: int | bytes) -> None:
        """To what is open, or to an entry by its path, which is not followed if it is a symlink."""
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


def _attributes_of(source: int | bytes, found: os.stat_result, mode: int | None = None) -> _Attributes:
    """``mode``: the one it had before it was opened up for us."""
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
    return _Attributes(found, xattrs, stat.S_IMODE(found.st_mode) if mode is None else mode)


def _attributes_in(directory: int, name: bytes) -> _Attributes:
    """Of an entry that cannot be opened."""
    return _attributes_of(_entry_in(directory, name), os.stat(name, dir_fd=directory, follow_symlinks=False))


def _entry_in(directory: int, name: bytes) -> bytes:
    """A path for what cannot be done to a name in an open directory otherwise."""
    return f"/proc/self/fd/{directory}/".encode() + name


def _xattr_names(source: int | bytes) -> list[str]:
    try:
        return os.listxattr(source, follow_symlinks=isinstance(source, int))
    except OSError:
        return []  # this file system has none
