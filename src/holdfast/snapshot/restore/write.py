"""Carries out a restore: only what differs is touched, and an interrupted restore can be run again.

A file is never written in place (it may be hard-linked from elsewhere): it is made complete under a temporary name and
renamed. A file that no snapshot could hold is moved aside if it stands in the way, and never deleted.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path

import msgspec

from holdfast.content.difference import Difference, StateReader
from holdfast.content.format import DIRECTORY, Entry
from holdfast.errors import SandboxError
from holdfast.snapshot.restore.decide import RestorePlan
from holdfast.snapshot.restore.exchange import exchange
from holdfast.snapshot.restore.file_attributes import chmod, flush, set_attributes, set_attributes_through, status
from holdfast.snapshot.restore.guarded import ChangedMeanwhile, Guard
from holdfast.snapshot.restore.new_files import NewFiles
from holdfast.snapshot.restore.staging import Staging
from holdfast.system.calls import set_mtime
from holdfast.system.directories import IS_ROOT, Descent, split
from holdfast.system.progress import UNWATCHED, Metering, Work, meter_of
from holdfast.system.stopping import stop_if_asked

_LONGEST_NAME_SET_ASIDE = 240
_REPLACED = (errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)
_CHANGED = (*_REPLACED, errno.EEXIST, errno.ENOENT, errno.ELOOP)


class Restored(msgspec.Struct):
    touched: dict[bytes, set[bytes]] = msgspec.field(default_factory=dict)
    """Directories and the names in them that were changed and must be scanned again."""
    proven: dict[bytes, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Files that were read back and found right before they got their names; device and inode."""
    exchanged: list[bytes] = msgspec.field(default_factory=list)
    """Files that were exchanged with new ones from the staging folder, in that order."""
    dated: list[bytes] = msgspec.field(default_factory=list)
    """Directories of which only the time was set, in that order, after all exchanges."""
    set_aside: list[tuple[bytes, Path]] = msgspec.field(default_factory=list)

    def touch(self, path: bytes) -> None:
        directory, name = split(path)
        self.touched.setdefault(directory, set()).add(name)


class RestoreOptions(msgspec.Struct, frozen=True):
    """Where and how a restore works."""

    name: str
    """What the tree is called in progress reports."""
    aside: Path
    """Where files go that stand in the way and must not be deleted."""
    staging: Callable[[], Staging] | None = None
    """Gives a directory on the same file system: files are made in it, and those they replace stay in it. Without one,
    a file is made beside its target, and the one it replaces is deleted."""
    is_real: bool = False
    """The tree holds real files, which checkpoints cannot re-create as they can a sandbox. So everything is on the disk
    when the restore returns, and a file is deleted only if it is what the plan says."""
    owner: str = ""
    """Part of the names of temporary files, which tells whose they are."""


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
            if options.is_real and error.errno in _CHANGED:
                raise ChangedMeanwhile(restorer.at) from error
            # The system call knows only the last part of the path, or a temporary name.
            error.filename, error.filename2 = restorer.at, None
            raise
    return restorer.restored


def _to_do(plan: RestorePlan) -> tuple[int, int]:
    return sum(each.is_of_file for each in plan.differences), sum(each.bytes_to_write for each in plan.differences)


def _unlink_or_return(temporary: bytes, name: bytes, parent: int) -> None:
    """Delete the file that was exchanged; if it became a directory meanwhile, exchange it back."""
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
        """Files that have other names. They do not go into the staging folder, which is not watched: if a program has
        one open, its writes must still be reported in the sandbox."""
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
        """A descriptor of that directory, made writable for its owner until its own mode is set at the end."""
        descriptor = self._descent.open(directory)
        if directory not in self._opened:
            mode = self._descent.mode_of(directory, os.fstat(descriptor))
            if mode & 0o700 != 0o700:
                self._opened[directory] = mode
                self._descent.leave_open(directory)
                os.fchmod(descriptor, mode | 0o700)
        return descriptor

    def _finish_directories(self, directories: Sequence[Difference]) -> None:
        """Finish inner directories first: the mode of an outer one may lock us out."""
        finished = {difference.path for difference in directories}
        self._close_opened(self._opened.keys() - finished)
        self._sync(self.restored.touched.keys() - finished)
        for difference in sorted(directories, key=itemgetter(0), reverse=True):
            self.at = difference.path
            self._finish_directory(difference)
            if difference.path in self.restored.touched:
                self._sync((difference.path,))

    def _close_opened(self, directories: Iterable[bytes]) -> None:
        """Give directories that do not change themselves, but in which something was changed, their modes back."""
        for directory in directories:
            with _unless_replaced():
                os.fchmod(self._descent.open(directory), self._opened[directory])

    def _sync(self, directories: Iterable[bytes]) -> None:
        for directory in directories if self._is_real else ():
            # A directory that was removed, or replaced by a file, is durable with the directory above it.
            with _unless_replaced():
                os.fsync(self._descent.open(directory))

    def _move_aside(self, path: bytes) -> None:
        directory, name = split(path)
        shelter = self._aside / os.fsdecode(directory)
        shelter.mkdir(parents=True, exist_ok=True)
        place = shelter / f"{os.fsdecode(name[:_LONGEST_NAME_SET_ASIDE])}.{os.urandom(4).hex()}"
        try:
            os.rename(name, place, src_dir_fd=self._writable(directory))
        except OSError:
            with suppress(OSError):  # it may hold something that was moved there before
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
        """Make a complete file under a temporary name, then give it its own.

        It is exchanged with the file that has the name: a plain rename over a file makes ext4 write out the new one at
        once, which costs milliseconds a file.
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
            # Another file system is mounted inside the tree, or the spare file was removed.
            self._files.staging = None
            self._put(path, entry, name, parent, present)

    def _discard(self, path: bytes, name: bytes, parent: int) -> None:
        """Remove a file, by moving it if possible: that is much cheaper than freeing its blocks now."""
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
        """Create a directory with its mode, as far as the umask allows: setting the mode later would clear a
        set-group-id bit that it inherits from the directory above, if this user is not in the group."""
        directory, name = split(path)
        os.mkdir(name, mode & 0o777 | 0o700, dir_fd=self._writable(directory))
        self.restored.touch(path)

    def _link(self, group: tuple[bytes, ...], present: Mapping[bytes, Entry | None]) -> None:
        """Link the other names of the group to the first one, which was restored."""
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
                    with suppress(FileNotFoundError):
                        os.unlink(temporary, dir_fd=parent)
            finally:
                os.close(source)
            self.restored.touch(path)

    def _finish_directory(self, difference: Difference) -> None:
        """Set the attributes of a directory, if they differ or if changes inside it changed its time."""
        path, old, entry = difference
        assert entry is not None
        keeps_attributes = old is entry or (
            old is not None and old.kind == entry.kind and old.attributes == entry.attributes
        )
        if keeps_attributes and old is not None and old.mtime_ns == entry.mtime_ns and path not in self._touched:
            return
        descriptor = self._descent.open(path)
        needs_time_only = self._opened.pop(path, None) is None and keeps_attributes
        if needs_time_only:
            self.restored.dated.append(path)
        if needs_time_only and path:
            set_mtime(descriptor, entry.mtime_ns)
        else:
            self._descent.leave_open(path)
            mode = os.fstat(descriptor).st_mode
            if not IS_ROOT and not mode & stat.S_IWUSR:
                os.fchmod(descriptor, mode & 0o7777 | 0o700)  # extended attributes cannot be set otherwise
            set_attributes_through(descriptor, entry)
        self.restored.touched.setdefault(path, set())


def _sorted_out(
    differences: Iterable[Difference],
) -> tuple[list[Difference], list[tuple[bytes, Entry, Entry | None]], list[Difference]]:
    """What to remove; what to make, each with the entry it replaces; and the directories that will exist."""
    removals, makings, directories = [], [], []
    for difference in differences:
        path, old, new = difference
        present = old
        if old is not None and (new is None or not old.is_same_kind(new)):
            removals.append(difference)
            present = None  # an entry of another kind is removed first
        if new is None:
            continue
        if new.kind == DIRECTORY:
            directories.append(difference)
        if new.kind != DIRECTORY or present is None:
            makings.append((path, new, present))
    return removals, makings, directories


@contextmanager
def _unless_replaced() -> Iterator[None]:
    """Skip a directory that was removed or replaced."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        if error.errno != errno.ELOOP:  # a symlink is in its place
            raise


def _can_keep_its_content(old: Entry, new: Entry, name: bytes, parent: int) -> bool:
    """Whether setting attributes is enough: not if the file belongs to another user, or has other names, which must
    keep their attributes."""
    if not (old.is_file and new.is_file):
        return False
    found = status(name, parent)
    return found.st_nlink == 1 and (IS_ROOT or found.st_uid == os.geteuid())
