"""Turning a tree into a stored state: only what differs is touched, and everything may be interrupted and run again.

A file is never written in place (it may be hard-linked from elsewhere): it is made complete under a temporary name
beside its target and renamed. What no snapshot could hold is moved aside when it stands in the way, and never deleted.

A user may save a real file at any moment. So what takes the place of one, or of none, does so in one step, and what was
there is deleted only after a look at it, when nobody else can reach it any more.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import cached_property
from operator import itemgetter
from pathlib import Path

import msgspec

from holdfast.content.difference import Difference, StateReader, have_same_shape
from holdfast.content.format import (
    DIRECTORY,
    FILE,
    PIECE_BYTES,
    REGULAR,
    SYMLINK,
    Entry,
    State,
)
from holdfast.errors import SandboxError
from holdfast.sandbox.databases import Users
from holdfast.snapshot.restore.exchange import exchange, rename_to_free
from holdfast.snapshot.restore.staging import Spare, Staging, mark_of, temporary_names
from holdfast.snapshot.scan.entries import (
    Hasher,
    Moved,
    is_held_xattr,
    owner_to_set,
    read_entry,
)
from holdfast.system.calls import fill, set_mtime
from holdfast.system.directories import IS_ROOT, Descent, split
from holdfast.system.progress import UNWATCHED, Metering, Work, meter_of
from holdfast.system.stopping import stop_if_asked

_AS_IT_IS = (-1, -1)
_LONGEST_NAME_SET_ASIDE = 240
_KEPT_BYTES = 16 << 20
_REPLACED = (errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)
_MEDDLED = (*_REPLACED, errno.EEXIST, errno.ENOENT, errno.ELOOP)


class RestorePlan(msgspec.Struct, frozen=True):
    """What has to be done to get from one state to another; made without touching anything."""

    differences: tuple[Difference, ...]
    in_the_way: tuple[bytes, ...]
    """Paths that no snapshot holds and that must be moved aside."""
    links: tuple[tuple[bytes, ...], ...]
    """Groups of names that have to become one file again."""
    shared: Set[bytes] = frozenset()
    """Paths of files that have other names as well."""

    @property
    def changes_anything(self) -> bool:
        """The root is always listed, also when it is the same."""
        return bool(self.in_the_way) or len(self.differences) > 1 or any(old != new for _, old, new in self.differences)


class Restored(msgspec.Struct):
    touched: dict[bytes, set[bytes]] = msgspec.field(default_factory=dict)
    """Directories and the names in them that were changed, for looking again at exactly these."""
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


def plan_restore(
    reader: StateReader,
    present: State,
    target: State,
    unheld: Iterable[bytes],
    unheld_then: Collection[str] = (),
    shared: Set[bytes] = frozenset(),
) -> RestorePlan:
    """``unheld``: what no snapshot can hold now; ``unheld_then``: what the target's snapshot lists as not held;
    ``shared``: paths of files that have other names."""
    differences = {difference.path: difference for difference in reader.differences(present, target)}
    links = links_to_remake(reader, present, target, differences)
    in_the_way = [path for path in unheld if _stands_in_the_way(reader, target, path)]
    # It was there and could not be read; that the snapshot has no entry for it does not mean it has to go.
    in_the_way += [
        path for path, found in differences.items() if found.new is None and unheld_name(path) in unheld_then
    ]
    return RestorePlan(tuple(differences.values()), tuple(in_the_way), links, shared & differences.keys())


def unheld_name(path: bytes) -> str:
    """How records name a path that a snapshot could not hold: a path need not be text, but records are."""
    return path.decode(errors="backslashreplace")


def links_to_remake(
    reader: StateReader, present: State, target: State, differences: dict[bytes, Difference]
) -> tuple[tuple[bytes, ...], ...]:
    """Link groups that are not as they should be; their files, and those of groups to be parted, are written anew."""
    if not present.links and not target.links:
        return ()
    old, new = set(present.links), set(target.links)
    for path in {path for group in old ^ new for path in group}:
        if reader.find(target, path) is not None:
            # Making the file anew changes the time of its directory, which may differ in nothing else.
            for place in (split(path)[0], path):
                found = Difference(place, reader.find(present, place), reader.find(target, place))
                differences.setdefault(place, found)
    changed = {path for path in differences if path}
    return tuple(group for group in target.links if group not in old or changed.intersection(group))


def _stands_in_the_way(reader: StateReader, target: State, path: bytes) -> bool:
    if reader.find(target, path) is not None:
        return True
    directory = split(path)[0]
    holder = reader.find(target, directory)
    return holder is None or holder.kind != DIRECTORY


def check_content(reader: StateReader, plan: RestorePlan, name: str) -> dict[bytes, bytes]:
    """Read all content the restore needs, so that damage is found before a file is touched.

    What is not much is handed on, so that it need not be read again.
    """
    needed = [new for _, _, new in plan.differences if new is not None and new.kind in REGULAR]
    kept: list[Entry] = []
    room = _KEPT_BYTES
    with meter_of(Work.CHECKING, name, lambda: (len(needed), sum(entry.size for entry in needed))) as meter:
        for entry in meter.each(needed):
            if entry.kind == FILE and entry.size <= room:
                kept.append(entry)
                room -= entry.size
            else:
                for piece in reader.content(entry):
                    meter.advance(size_bytes=len(piece))
    return reader.small_contents(kept)


class Workshop(msgspec.Struct, frozen=True):
    """Where and how a restore works: where it puts what it must not delete, and where it makes new files."""

    name: str
    """What the tree is called when its progress is told."""
    aside: Path
    staging: Callable[[], Staging] | None = None
    """Gives a directory on the same file system: files are made in it, and what they replace stays in it. Without one a
    file is made beside its target, and what it replaces is deleted."""
    is_real: bool = False
    """A sandbox can be made anew from its checkpoints, real files not: all is on the disk when the restore returns, and
    nothing goes that is not what the plan says was there."""
    owner: str = ""
    """What the names of temporary files say whose they are."""


class Meddled(Exception):
    """Somebody else changed a real file while it was being changed; their work may be under a temporary name."""

    def __init__(self, path: bytes) -> None:
        super().__init__(path)
        self.path = path


class InUse(Meddled):
    """Some program has the database open that was to be replaced; it is in its place again."""

    def __init__(self, path: bytes, programs: Sequence[str]) -> None:
        super().__init__(path)
        self.programs = ", ".join(programs)


def carry_out(
    plan: RestorePlan, reader: StateReader, descent: Descent, workshop: Workshop, contents: Mapping[bytes, bytes]
) -> Restored:
    staging = None if workshop.staging is None else workshop.staging()
    work = Work.WRITING if workshop.is_real else Work.RESTORING
    with meter_of(work, workshop.name, lambda: _to_do(plan)) as meter:
        restorer = _Restorer(reader, descent, workshop, staging, contents, meter)
        try:
            restorer.run(plan)
        except OSError as error:
            if workshop.is_real and error.errno in _MEDDLED:
                raise Meddled(restorer.at) from error
            # The call itself knows only the last part of it, or a temporary name.
            error.filename, error.filename2 = restorer.at, None
            raise
    return restorer.restored


def _to_do(plan: RestorePlan) -> tuple[int, int]:
    return sum(each.is_of_file for each in plan.differences), sum(each.bytes_to_write for each in plan.differences)


def _unlink_or_return(temporary: bytes, name: bytes, parent: int) -> None:
    """Delete what a file was exchanged for; a directory that somebody put there meanwhile gets its place back."""
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
        workshop: Workshop,
        staging: Staging | None,
        contents: Mapping[bytes, bytes],
        meter: Metering,
    ) -> None:
        self._reader, self._descent, self._workshop, self._staging = reader, descent, workshop, staging
        self._contents, self._meter, self._is_watched = contents, meter, meter is not UNWATCHED
        self._writable = descent.open if IS_ROOT else self._made_writable
        self._opened: dict[bytes, int] = {}
        self._shared: Set[bytes] = frozenset()
        """Files that have other names: who has one open by the name that goes must be heard of in the sandbox, and not
        in the staging folder, where nobody listens."""
        self.at = b""
        """The path that is being changed."""
        self.restored = Restored()
        self._touched = self.restored.touched

    @cached_property
    def _names(self) -> Iterator[bytes]:
        return temporary_names(self._workshop.owner)

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
        for directory in directories if self._workshop.is_real else ():
            # One that was removed, or became a file, is durable with the directory it was in.
            with _unless_replaced():
                os.fsync(self._descent.open(directory))

    def _move_aside(self, path: bytes) -> None:
        directory, name = split(path)
        shelter = self._workshop.aside / os.fsdecode(directory)
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
            elif self._workshop.is_real:
                self._discard_carefully(name, parent, difference.old)
            else:
                self._discard(name, parent)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno in _REPLACED and not self._workshop.is_real:
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
                _chmod(name, parent, new.mode | 0o600)  # extended attributes of a read-only file cannot be set
            self._set_attributes(name, parent, new)
            if self._workshop.is_real:
                _flush(name, parent)
        else:
            self._put(new, name, parent, present)

    def _put(self, entry: Entry, name: bytes, parent: int, present: Entry | None) -> None:
        """Make a file complete under a temporary name, then give it its own.

        A file that has the name already changes places with it: plain renaming over a file makes ext4 write the new
        one out at once, which costs milliseconds a file.
        """
        staging = self._staging
        workplace = parent if staging is None else staging.descriptor
        spare = staging.spare() if staging is not None and entry.kind in REGULAR else None
        temporary = self._make_temporary(entry, workplace) if spare is None else self._refilled(spare, entry)
        if self._workshop.is_real:
            self._place_carefully(temporary, name, parent, present)
            return
        try:
            if present is not None and self.at not in self._shared and exchange(temporary, workplace, name, parent):
                if self._staging is None:
                    _unlink_or_return(temporary, name, parent)
                else:
                    self.restored.exchanged.append(self.at)
            else:
                os.rename(temporary, name, src_dir_fd=workplace, dst_dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOENT) or self._staging is None:
                raise
            # Another file system is mounted inside the tree, or somebody removed what lay ready.
            self._staging = None
            self._put(entry, name, parent, present)

    def _place_carefully(self, temporary: bytes, name: bytes, parent: int, present: Entry | None) -> None:
        """Give what was made its name, in the place of exactly what is expected there.

        First it gets a name that says so: what is found under that after a crash may be somebody's work.
        """
        marked = self._marked_name(name)
        os.rename(temporary, marked, src_dir_fd=parent, dst_dir_fd=parent)
        if present is not None and exchange(marked, parent, name, parent):
            self._refuse_open_database(marked, name, parent, lambda: exchange(marked, parent, name, parent))
            self._delete_if(present, marked, parent)
            return
        if present is not None:
            self._discard_carefully(name, parent, present)
        rename_to_free(marked, name, parent)

    def _discard_carefully(self, name: bytes, parent: int, expected: Entry) -> None:
        marked = self._marked_name(name)
        os.rename(name, marked, src_dir_fd=parent, dst_dir_fd=parent)
        self._refuse_open_database(marked, name, parent, lambda: rename_to_free(marked, name, parent))
        self._delete_if(expected, marked, parent)

    def _refuse_open_database(self, marked: bytes, name: bytes, parent: int, put_back: Callable[[], object]) -> None:
        """From now on no program can open it by its name, and one that did before would write to what is gone."""
        programs = Users().of_moved(parent, marked, name)
        if programs:
            put_back()
            raise InUse(self.at, programs)

    def _delete_if(self, expected: Entry, marked: bytes, parent: int) -> None:
        """Delete what was in a file's place; if it is somebody's work, it stays for the undoing to put it back."""
        if not _is_still(expected, marked, parent):
            raise Meddled(self.at)
        os.unlink(marked, dir_fd=parent)

    def _marked_name(self, name: bytes) -> bytes:
        return next(self._names) + b"-" + mark_of(name)

    def _discard(self, name: bytes, parent: int) -> None:
        """Remove a file; moving it out of the way is much cheaper than freeing its blocks now."""
        if self._staging is not None and self.at not in self._shared:
            try:
                temporary = self._staging.new_name()
                os.rename(name, temporary, src_dir_fd=parent, dst_dir_fd=self._staging.descriptor)
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

    def _make_temporary(self, entry: Entry, parent: int) -> bytes:
        if entry.is_file:
            return self._written_file(parent, entry)
        name = self._new_name()
        if entry.kind == SYMLINK:
            os.symlink(entry.content, name, dir_fd=parent)
        else:
            os.mkfifo(name, 0o600, dir_fd=parent)
        self._set_attributes(name, parent, entry)
        return name

    def _new_name(self) -> bytes:
        return next(self._names) if self._staging is None else self._staging.new_name()

    def _written_file(self, parent: int, entry: Entry) -> bytes:
        name = self._new_name()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, entry.mode & 0o777 | 0o600, dir_fd=parent)
        try:
            self._write(descriptor, entry, self._contents.get(entry.content))
            _set_attributes_through(descriptor, entry)
            if self._workshop.is_real:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return name

    def _refilled(self, spare: Spare, entry: Entry) -> bytes:
        """Fill a file that lay ready, and see that it holds what it should while nobody else can reach it."""
        name, descriptor, inode, attributes, status = spare
        try:
            content = self._contents.get(entry.content) if entry.size else b""
            is_plain = entry.size < PIECE_BYTES and not entry.xattrs
            if is_plain and content is not None and fill(descriptor, content, entry.mtime_ns):
                self.restored.proven[self.at] = inode
                if self._is_watched:
                    self._meter.advance(size_bytes=entry.size)
                if attributes != (entry.mode, entry.uid, entry.gid):
                    _set_attributes_of(descriptor, entry, status)
            else:
                self._write(descriptor, entry, content)
                _set_attributes_of(descriptor, entry, status)
        finally:
            os.close(descriptor)
        return name

    def _write(self, descriptor: int, entry: Entry, known: bytes | None) -> None:
        """``known``: what is to be in it, if that has been read already."""
        for piece in self._reader.content(entry) if known is None else (known,):
            stop_if_asked()
            _write_sparsely(descriptor, piece)
            self._meter.advance(size_bytes=len(piece))
        if entry.size >= PIECE_BYTES:
            os.ftruncate(descriptor, entry.size)  # it may end in a hole

    def _set_attributes(self, name: bytes, parent: int, entry: Entry) -> None:
        owner = (entry.uid, entry.gid) if IS_ROOT else owner_to_set(entry, _status(name, parent))
        if owner != _AS_IT_IS:
            os.chown(name, *owner, dir_fd=parent, follow_symlinks=False)
        _set_xattrs(f"/proc/self/fd/{parent}/".encode() + name, entry)
        if entry.kind != SYMLINK:
            _chmod(name, parent, entry.mode)
        os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=parent, follow_symlinks=False)

    def _link(self, group: tuple[bytes, ...], present: Mapping[bytes, Entry | None]) -> None:
        """Make all names of the group one file: the first was restored, the others are linked to it."""
        first_directory, first_name = split(group[0])
        for path in group[1:]:
            directory, name = split(path)
            source = os.dup(self._descent.open(first_directory))
            try:
                parent = self._writable(directory)
                temporary = next(self._names)
                os.link(first_name, temporary, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
                if self._workshop.is_real:
                    self.at = path
                    self._place_carefully(temporary, name, parent, present[path])
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
            _set_attributes_through(descriptor, entry)
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
    """A directory that is none any more needs no care of its own."""
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


def _set_attributes_through(descriptor: int, entry: Entry) -> None:
    """Of a new file or a directory: only what is not so already."""
    _set_attributes_of(descriptor, entry, os.fstat(descriptor))


def _set_attributes_of(descriptor: int, entry: Entry, found: os.stat_result) -> None:
    """``found``: what it has been until now."""
    owner = owner_to_set(entry, found)
    if owner == (found.st_uid, found.st_gid):
        owner = _AS_IT_IS
    if owner != _AS_IT_IS:
        os.fchown(descriptor, *owner)
    # These take bits of the mode away, or add some.
    is_changed = _set_xattrs(descriptor, entry) or owner != _AS_IT_IS
    if is_changed or stat.S_IMODE(found.st_mode) != entry.mode:
        os.fchmod(descriptor, entry.mode)
    set_mtime(descriptor, entry.mtime_ns)


def _flush(name: bytes, parent: int) -> None:
    """Have what was set on a file on the disk; one that we may not open goes there with all the others."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except PermissionError:
        os.sync()
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _can_keep_its_content(old: Entry, new: Entry, name: bytes, parent: int) -> bool:
    """Whether setting attributes is enough; not for a file with other names, which must keep theirs, or not ours."""
    if not (old.is_file and new.is_file):
        return False
    found = _status(name, parent)
    return found.st_nlink == 1 and (IS_ROOT or found.st_uid == os.geteuid())


def _is_still(expected: Entry, name: bytes, parent: int) -> bool:
    """Whether it holds what the entry says; where size and time are the same nobody wrote to it since."""
    found = _status(name, parent)
    if stat.S_ISREG(found.st_mode):
        if expected.is_file and (found.st_size, found.st_mtime_ns) == (expected.size, expected.mtime_ns):
            return True
    elif stat.S_IFMT(found.st_mode) not in (stat.S_IFLNK, stat.S_IFIFO):
        return False
    try:
        present = read_entry(parent, name, Hasher())[0]
    except Moved:  # somebody is writing to it
        return False
    return (present.kind, present.content) == (expected.kind, expected.content)


def _status(name: bytes, parent: int) -> os.stat_result:
    return os.stat(name, dir_fd=parent, follow_symlinks=False)


def _chmod(name: bytes, parent: int, mode: int) -> None:
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)


def _unlink_if_there(name: bytes, parent: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def _write_sparsely(descriptor: int, piece: bytes) -> None:
    """Zeros become a hole."""
    size = len(piece)
    if size == PIECE_BYTES and not piece.strip(b"\0"):
        os.lseek(descriptor, size, os.SEEK_CUR)
        return
    written = os.write(descriptor, piece)
    while written < size:
        written += os.write(descriptor, memoryview(piece)[written:])


def _set_xattrs(target: int | bytes, entry: Entry) -> bool:
    """Whether there was anything to do."""
    follow = isinstance(target, int)
    try:
        present = os.listxattr(target, follow_symlinks=follow)
    except OSError:
        present = []  # this file system has none
    if not present and not entry.xattrs:
        return False
    wanted = dict(entry.xattrs)
    for name in set(map(os.fsencode, present)) - wanted.keys():
        if is_held_xattr(name):
            os.removexattr(target, name, follow_symlinks=follow)
    # An access list may take the right to set the others away.
    for name, value in sorted(wanted.items(), key=lambda each: each[0].startswith(b"system.")):
        os.setxattr(target, name, value, follow_symlinks=follow)
    return True
