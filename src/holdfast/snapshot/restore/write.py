"""Turning a tree into a stored state: only what differs is touched, and everything may be interrupted and run again.

A file is never written in place (it may be hard-linked from elsewhere): it is made complete under a temporary name and
renamed. What no snapshot could hold is moved aside when it stands in the way, and never deleted.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path

import msgspec

from holdfast.content.difference import Difference, StateReader, have_same_shape
from holdfast.content.format import DIRECTORY, Entry
from holdfast.errors import SandboxError
from holdfast.snapshot.restore.decide import RestorePlan
from holdfast.snapshot.restore.exchange import exchange
from holdfast.snapshot.restore.file_attributes import (
    chmod,
    flush,
    set_attributes,
    set_attributes_through,
    status,
)
from holdfast.snapshot.restore.guarded import Guard, Meddled
from holdfast.snapshot.restore.new_files import NewFiles
from holdfast.snapshot.restore.staging import Staging
from holdfast.system.calls import set_mtime
from holdfast.system.directories import IS_ROOT, Descent, split
from holdfast.system.progress import UNWATCHED, Metering, Work, meter_of
from holdfast.system.stopping import stop_if_asked

_LONGEST_NAME_SET_ASIDE = 240
_REPLACED = (errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)
_MEDDLED = (*_REPLACED, errno.EEXIST, errno.ENOENT, errno.ELOOP)


class Restored(msgspec.Struct):
    touched: dict[bytes, set[bytes]] = msgspec.field(default_factory=dict)
    """Directories and the names in them that were changed, which have to be scanned again."""
    proven: dict[bytes, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Files that were read back, and hold what they should, before they got their names; device and inode."""
    exchanged: list[bytes] = msgspec.field(default_factory=list)
    """Files that changed places with others that were made elsewhere, in that order."""
    dated: list[bytes] = msgspec.field(default_factory=list)
    """Directories of which nothing but the time was set, in that order, after that."""
    set_aside: list[tuple[bytes, Path]] = msgspec.field(default_factory=list)

    def touch(self, path: bytes) -> None:
        directory, name = split(path)
        self.touched.setdefault(directory, set()).add(name)


class RestoreOptions(msgspec.Struct, frozen=True):
    """Where and how a restore works: where it puts what it must not delete, and where it makes new files."""

    name: str
    """What the tree is called in reports of progress."""
    aside: Path
    staging: Callable[[], Staging] | None = None
    """Gives a directory on the same file system: files are made in it, and what they replace stays in it. Without one a
    file is made beside its target, and what it replaces is deleted."""
    is_real: bool = False
    """A sandbox can be made anew from its checkpoints, real files not: all is on the disk when the restore returns, and
    nothing is deleted that is not what the plan says was there."""
    owner: str = ""
    """Part of the names of temporary files: whose they are."""


def carry_out(
    plan: RestorePlan, reader: StateReader, descent: Descent, options: RestoreOptions, contents: Mapping[bytes, bytes]
) -> Restored:
    staging = None if options.staging is None else options.staging()
    work = Work.WRITING if options.is_real else Work.RESTORING
    with meter_of(work, options.name, lambda: _to_do(plan)) as meter:
        restorer = _Restorer(reader, descent, options, staging, contents, meter)
        try:
            restorer.run(plan)
        except OSError as error:
            if options.is_real and error.errno in _MEDDLED:
                raise Meddled(restorer.at) from error
            # The call itself knows only the last part of it, or a temporary name.
            error.filename, error.filename2 = restorer.at, None
            raise
    return restorer.restored


def _to_do(plan: RestorePlan) -> tuple[int, int]:
    return sum(each.is_of_file for each in plan.differences), sum(each.bytes_to_write for each in plan.differences)


def _unlink_or_return(temporary: bytes, name: bytes, parent: int) -> None:
    """Delete what a file was exchanged for; a directory that was put there meanwhile gets its place back."""
    try:
        os.unlink(temporary, dir_fd=parent)
    except IsADirectoryError:
        exchange(temporary, parent, name, parent)
        raise


class _Restorer:
    def __init__(
        self,
        reader: StateReader,
        descent: Descent,
        options: RestoreOptions,
        staging: Staging | None,
        contents: Mapping[bytes, bytes],
        meter: Metering,
    ) -> None:
        self._descent, self._aside, self._is_real = descent, options.aside, options.is_real
        self._meter, self._is_watched = meter, meter is not UNWATCHED
        self._files = NewFiles(reader, contents, meter, staging, owner=options.owner, is_real=options.is_real)
        self._guard = Guard(self._files.temporary_name)
        self._writable = descent.open if IS_ROOT else self._made_writable
        self._opened: dict[bytes, int] = {}
        self._shared: Set[bytes] = frozenset()
        """Files that have other names: what a program does that has one open by the name that goes must be reported in
        the sandbox, and not in the staging folder, which is not watched."""
        self.at = b""
        """The path that is being changed."""
        self.restored = Restored(proven=self._files.proven)
        self._touched = self.restored.touched

    def run(self, plan: RestorePlan) -> None:
        self._shared = plan.shared
        if plan.in_the_way:
            for path in plan.in_the_way:
                self.at = path
                self._move_aside(path)
            self._descent.forget()
        removals, makings, directories = _sorted_out(plan.differences)
        for difference in reversed(removals):
            self.at = difference.path
            self._remove(difference)
            if difference.new is None and difference.is_of_file:
                self._meter.advance(1)
        if removals:
            self._descent.forget()
        self._make_all(makings, plan)
        self._finish_directories(directories)

    def _make_all(self, makings: Sequence[tuple[bytes, Entry, Entry | None]], plan: RestorePlan) -> None:
        linked = {path for group in plan.links for path in group[1:]} if plan.links else ()
        for path, new, present in makings:
            stop_if_asked()
            self.at = path
            if new.kind == DIRECTORY:
                self._make_directory(path, new.mode)
                continue
            if path not in linked:
                self._make(path, new, present)
            if self._is_watched:
                self._meter.advance(1)
        old = {path: present for path, _, present in makings} if plan.links else {}
        for group in plan.links:
            self.at = group[0]
            self._link(group, old)

    def _made_writable(self, directory: bytes) -> int:
        """A descriptor of that directory, which its owner may write to until its own mode is set at the end."""
        descriptor = self._descent.open(directory)
        if directory not in self._opened:
            mode = self._descent.mode_of(directory, os.fstat(descriptor))
            if mode & 0o700 != 0o700:
                self._opened[directory] = mode
                self._descent.leave_open(directory)
                os.fchmod(descriptor, mode | 0o700)
        return descriptor

    def _finish_directories(self, directories: Sequence[Difference]) -> None:
        """What is in one comes before it: it may be closed to us afterwards."""
        finished = {difference.path for difference in directories}
        self._close_opened(self._opened.keys() - finished)
        self._sync(self.restored.touched.keys() - finished)
        for difference in sorted(directories, key=itemgetter(0), reverse=True):
            self.at = difference.path
            self._finish_directory(difference)
            if difference.path in self.restored.touched:
                self._sync((difference.path,))

    def _close_opened(self, directories: Iterable[bytes]) -> None:
        """Directories in which something was changed, but which are not to be changed themselves."""
        for directory in directories:
            with _unless_replaced():
                os.fchmod(self._descent.open(directory), self._opened[directory])

    def _sync(self, directories: Iterable[bytes]) -> None:
        for directory in directories if self._is_real else ():
            # One that was removed, or became a file, is durable with the directory it was in.
            with _unless_replaced():
                os.fsync(self._descent.open(directory))

    def _move_aside(self, path: bytes) -> None:
        directory, name = split(path)
        shelter = self._aside / os.fsdecode(directory)
        shelter.mkdir(parents=True, exist_ok=True)
        place = shelter / f"{os.fsdecode(name[:_LONGEST_NAME_SET_ASIDE])}.{secrets.token_hex(4)}"
        try:
            os.rename(name, place, src_dir_fd=self._writable(directory))
        except OSError:
            with suppress(OSError):  # something else may have been moved there before
                os.removedirs(shelter)
            raise
        self.restored.set_aside.append((path, place))
        self.restored.touch(path)

    def _remove(self, difference: Difference) -> None:
        directory, name = split(difference.path)
        assert difference.old is not None
        self.restored.touch(difference.path)
        try:
            parent = self._writable(directory)
            if difference.old.kind == DIRECTORY:
                os.rmdir(name, dir_fd=parent)
            elif self._is_real:
                self._guard.remove(difference.path, name, parent, difference.old)
            else:
                self._discard(difference.path, name, parent)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno in _REPLACED and not self._is_real:
                raise SandboxError(
                    f"{os.fsdecode(difference.path)!r} was changed while it was being restored.",
                    hint="Stop the program that works in the sandbox and roll back again.",
                ) from error
            raise

    def _make(self, path: bytes, new: Entry, present: Entry | None) -> None:
        directory, _, name = path.rpartition(b"/")
        self._touched.setdefault(directory, set()).add(name)
        parent = self._writable(directory)
        if present is not None and present.content == new.content and _can_keep_its_content(present, new, name, parent):
            if not IS_ROOT:
                chmod(name, parent, new.mode | 0o600)  # extended attributes of a read-only file cannot be set
            set_attributes(name, parent, new)
            if self._is_real:
                flush(name, parent)
        else:
            self._put(path, new, name, parent, present)

    def _put(self, path: bytes, entry: Entry, name: bytes, parent: int, present: Entry | None) -> None:
        """Make a file complete under a temporary name, then give it its own.

        A file that has the name already changes places with it: plain renaming over a file makes ext4 write the new
        one out at once, which costs milliseconds a file.
        """
        staging = self._files.staging
        temporary = self._files.make(path, entry, parent)
        if self._is_real:
            self._guard.replace(path, temporary, name, parent, present)
            return
        workplace = parent if staging is None else staging.descriptor
        try:
            if present is not None and path not in self._shared and exchange(temporary, workplace, name, parent):
                if staging is None:
                    _unlink_or_return(temporary, name, parent)
                else:
                    self.restored.exchanged.append(path)
            else:
                os.rename(temporary, name, src_dir_fd=workplace, dst_dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOENT) or staging is None:
                raise
            # Another file system is mounted inside the tree, or what lay ready was removed.
            self._files.staging = None
            self._put(path, entry, name, parent, present)

    def _discard(self, path: bytes, name: bytes, parent: int) -> None:
        """Remove a file; moving it out of the way is much cheaper than freeing its blocks now."""
        staging = self._files.staging
        if staging is not None and path not in self._shared:
            try:
                os.rename(name, staging.new_name(), src_dir_fd=parent, dst_dir_fd=staging.descriptor)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
            else:
                return
        os.unlink(name, dir_fd=parent)

    def _make_directory(self, path: bytes, mode: int) -> None:
        """With its mode, as far as the umask lets it: setting it later would take away a set-group-id bit that it has
        from the directory above, if this user is not in the group."""
        directory, name = split(path)
        os.mkdir(name, mode & 0o777 | 0o700, dir_fd=self._writable(directory))
        self.restored.touch(path)

    def _link(self, group: tuple[bytes, ...], present: Mapping[bytes, Entry | None]) -> None:
        """Make all names of the group one file: the first was restored, the others are linked to it."""
        first_directory, first_name = split(group[0])
        for path in group[1:]:
            directory, name = split(path)
            source = os.dup(self._descent.open(first_directory))
            try:
                parent = self._writable(directory)
                temporary = self._files.temporary_name()
                os.link(first_name, temporary, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
                if self._is_real:
                    self.at = path
                    self._guard.replace(path, temporary, name, parent, present[path])
                else:
                    os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
                    # Renaming one name of a file onto another of the same file does nothing and leaves both.
                    _unlink_if_there(temporary, parent)
            finally:
                os.close(source)
            self.restored.touch(path)

    def _finish_directory(self, difference: Difference) -> None:
        """Set what a directory itself is, if that differs or if making its entries changed it."""
        path, entry = difference.path, difference.new
        assert entry is not None
        if path not in self.restored.touched and _same_attributes(difference.old, entry):
            return
        descriptor = self._descent.open(path)
        was_opened = self._opened.pop(path, None)
        is_same = difference.old is entry or _differ_in_time_at_most(difference.old, entry)
        if is_same and was_opened is None:
            self.restored.dated.append(path)
        if is_same and was_opened is None and path:
            set_mtime(descriptor, entry.mtime_ns)
        else:
            self._descent.leave_open(path)
            mode = os.fstat(descriptor).st_mode
            if not IS_ROOT and not mode & stat.S_IWUSR:
                os.fchmod(descriptor, mode & 0o7777 | 0o700)  # extended attributes of one cannot be set otherwise
            set_attributes_through(descriptor, entry)
        self.restored.touched.setdefault(path, set())


def _sorted_out(
    differences: Iterable[Difference],
) -> tuple[list[Difference], list[tuple[bytes, Entry, Entry | None]], list[Difference]]:
    """What has to go; what has to be made, with what it takes the place of; and what directories there will be."""
    removals, makings, directories = [], [], []
    for difference in differences:
        path, old, new = difference
        present = old
        if old is not None and (new is None or (old.kind != new.kind and not have_same_shape(old, new))):
            removals.append(difference)
            present = None  # something of another kind is removed before
        if new is None:
            continue
        if new.kind == DIRECTORY:
            directories.append(difference)
        if new.kind != DIRECTORY or present is None:
            makings.append((path, new, present))
    return removals, makings, directories


@contextmanager
def _unless_replaced() -> Iterator[None]:
    """Skip a directory that is gone, or that something else has replaced."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        if error.errno != errno.ELOOP:  # a symlink is in its place
            raise


def _same_attributes(old: Entry | None, new: Entry) -> bool:
    return old is not None and old.mtime_ns == new.mtime_ns and _differ_in_time_at_most(old, new)


def _differ_in_time_at_most(old: Entry | None, new: Entry) -> bool:
    return old is not None and (
        (old.kind, old.mode, old.uid, old.gid, old.xattrs) == (new.kind, new.mode, new.uid, new.gid, new.xattrs)
    )


def _can_keep_its_content(old: Entry, new: Entry, name: bytes, parent: int) -> bool:
    """Whether setting attributes is enough; not if it has other names, which must keep theirs, or another owner."""
    if not (old.is_file and new.is_file):
        return False
    found = status(name, parent)
    return found.st_nlink == 1 and (IS_ROOT or found.st_uid == os.geteuid())


def _unlink_if_there(name: bytes, parent: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)
