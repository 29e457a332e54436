"""Copying a tree exactly: its directories, hard links and databases; ``entries`` copies what each directory holds.

A SQLite database that a program uses is copied as of one moment, without its logs. A database that is not in use is
copied like any other file, and so are its logs.

Both trees are walked by descriptors of their directories, so no path is too long, and a symlink that replaces a file or
a directory meanwhile leads nowhere else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from holdfast.errors import SandboxError
from holdfast.model import Unheld
from holdfast.names import name_text
from holdfast.sandbox.attributes import Attributes, attributes_of, entry_in
from holdfast.sandbox.bulk import BulkCopy, CopySink, Done
from holdfast.sandbox.databases import (
    COMPANIONS,
    Users,
    copy_as_of_one_moment,
    database_of,
    moment_of,
    settled_moment_of,
)
from holdfast.sandbox.entries import EntryCopy, IsDatabase, Moved, can_be_copied, unless_moved
from holdfast.sandbox.listing import ListedTree
from holdfast.system import folder_mark
from holdfast.system.directories import Descent, encoded, join, shown, split
from holdfast.system.progress import Totals, Work, meter_of
from holdfast.system.stopping import stop_if_asked

_UNREADABLE = "not readable for this user"


class TreeCopy:
    """One copy of ``source`` into ``target``, which must not exist; ``skip`` names paths that are left out.

    ``is_ours``: the source is a sandbox; what we have no permission for is made accessible for a moment.

    ``name`` is shown with the progress, and ``sink`` what is in the copy; ``tree``: lists of the source, for the totals
    of the progress. Afterwards ``left_out`` has what could not be copied, and why. The target itself is never copied,
    even if a mount makes it appear inside the source. An entry that vanishes before it is copied counts as if it had
    never been there.
    """

    _from: Descent
    _to: Descent
    _bulk: BulkCopy

    def __init__(
        self,
        source: Path,
        target: Path,
        *,
        name: str,
        skip: Collection[bytes] = (),
        is_ours: bool = False,
        sink: CopySink | None = None,
        tree: ListedTree | None = None,
    ) -> None:
        self._source, self._target, self._is_ours, self._sink = source, target, is_ours, sink
        self._tree = tree or ListedTree(source, opens_up=is_ours)
        self._name, self._skip = name, skip
        self._entries = EntryCopy(is_ours=is_ours)
        self._target_is = (-1, -1)
        self._links: dict[tuple[int, int], bytes] = {}
        self._made: list[tuple[bytes, Attributes]] = []
        self._databases: list[bytes] = []
        self._companions: list[bytes] = []
        """Files with the name of a database's log or index; databases and companions are copied after all others."""
        self.has_databases = False
        self.left_out: list[Unheld] = []
        self.not_byte_for_byte: set[bytes] = set()
        """Databases that SQLite copied as of one moment."""

    def run(self) -> TreeCopy:
        os.mkdir(self._target, 0o700)
        self._target_is = _identity(os.stat(self._target))
        with self._at_work(lambda: self._tree.totals(self._skip)):
            directories = [b""]
            while directories:
                directories.extend(self._copy_directory(directories.pop()))
        return self

    @contextmanager
    def _at_work(self, totals: Totals) -> Iterator[None]:
        """Opens both trees; at the end the new directories get their attributes."""
        source = Descent(self._source, opens_up=self._is_ours, is_sandbox=self._is_ours)
        with source as self._from, Descent(self._target) as self._to:
            with meter_of(Work.COPYING, self._name, totals) as self._entries.meter:
                self._bulk = BulkCopy(self._sink)
                with closing(self._bulk):
                    yield
                    self._copy_rest(self._bulk.last_results())
                self._copy_databases()
            # Deepest first, and after everything below: making an entry changes the time of its directory.
            while self._made:
                directory, attributes = self._made.pop()
                attributes.give_to(self._to.open(directory))

    def _copy_directory(self, directory: bytes) -> list[bytes]:
        """Make a directory and copy the entries in it, except directories, whose paths are returned."""
        below: list[bytes] = []
        try:
            source = self._make_directory(directory)
        except Moved:
            self._tell_if_replaced(directory)
            return below
        if source is None:
            return below
        self._note(directory)
        with os.scandir(source) as listing:
            entries = {encoded(entry.name): entry for entry in listing}
        small: list[bytes] = []
        on_their_own = _of_databases(entries)
        for name, entry in entries.items():
            path = join(directory, name)
            if path in self._skip:
                continue
            if name not in on_their_own and _is_file(entry):
                small.append(name)
            elif self._is_directory_to_copy(path, source, entry):
                below.append(path)
        if small:
            self._bulk.add(directory, source, self._to.open(directory), small)
        self._copy_rest(self._bulk.results())
        return below

    def _is_directory_to_copy(self, path: bytes, source: int, entry: os.DirEntry[str]) -> bool:
        """Whether the entry is a directory; anything else is copied."""
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        except PermissionError:
            self._leave_out(path, _UNREADABLE)
            return False
        if _identity(found) == self._target_is:
            self._leave_out(path, "the sandbox that is being made")
        elif stat.S_ISDIR(found.st_mode):
            return True
        else:
            self._copy_entry(path, source, found)
        return False

    def _note(self, directory: bytes) -> None:
        if self._sink is not None:
            self._sink.note_directory(directory, os.fstat(self._to.open(directory)).st_ino)

    def _copy_rest(self, results: Iterable[Done]) -> None:
        """Copy what the copying of many files left to be copied one by one."""
        for files, size_bytes, directory, rest in results:
            stop_if_asked()
            self._entries.meter.advance(files, size_bytes)
            for name in rest:
                self._copy_named(join(directory, name), is_file=True)

    def _copy_named(self, path: bytes, *, is_file: bool = False) -> None:
        """Copy an entry into a directory that was made; ``is_file``: it was listed as a regular file."""
        directory, name = split(path)
        try:
            with unless_moved():
                source = self._from.open(directory)
                found = os.stat(name, dir_fd=source, follow_symlinks=False)
            if is_file and not stat.S_ISREG(found.st_mode):
                raise Moved
        except PermissionError:
            self._leave_out(path, _UNREADABLE)
        except Moved:
            self._tell_if_replaced(path)
        else:
            self._copy_entry(path, source, found)

    def _make_directory(self, directory: bytes) -> int | None:
        """Make one directory; the descriptor of its original, or None if we may not read that."""
        source = None
        with unless_moved():
            try:
                source = self._from.open(directory)
                self._refuse_half_changed(directory, source)
                attributes = attributes_of(source, os.fstat(source), self._from.closed_modes.get(directory))
            except PermissionError:
                above, name = split(directory)
                around = self._from.open(above)
                found = os.stat(name, dir_fd=around, follow_symlinks=False)
                attributes = attributes_of(entry_in(around, name), found)
                self._leave_out(directory, _UNREADABLE)
        if directory:
            above, name = split(directory)
            os.mkdir(name, 0o700, dir_fd=self._to.open(above))
        self._made.append((directory, attributes))
        return source

    def _refuse_half_changed(self, directory: bytes, source: int) -> None:
        """Refuse a directory whose change was cut short.

        The root and the folders around it were checked before, and are locked.
        """
        mark = folder_mark.find_on(source) if directory else None
        if mark is not None:
            raise folder_mark.half_changed(self._source / os.fsdecode(directory), mark)

    def _copy_entry(self, path: bytes, source: int, found: os.stat_result) -> None:
        """Copy an entry that is not a directory; ``source`` is the directory it lies in."""
        stop_if_asked()
        self._entries.meter.advance(1)
        if not can_be_copied(found):
            self._leave_out(path, "a socket or a device")
            return
        name = split(path)[1]
        database = database_of(name)
        if database is not None and _is_file_in(source, database):
            self._companions.append(path)
            return
        try:
            is_exact = self._is_copied_to_its_place(path, source, found)
        except IsDatabase:
            self._databases.append(path)
        else:
            if is_exact and self._sink is not None:
                self._sink.note_entry(path)

    def _is_copied_to_its_place(
        self, path: bytes, source: int, found: os.stat_result, *, also_databases: bool = False
    ) -> bool:
        """Copy an entry; False if it is gone or not readable, or if its copy is not byte for byte the same."""
        if self._is_linked(path, found):
            return path not in self.not_byte_for_byte
        directory, name = split(path)
        try:
            target = self._to.open(directory)
            copied = self._entries.copy(name, source, target, found, also_databases=also_databases)
        except PermissionError:
            self._leave_out(path, _UNREADABLE)
        except Moved:
            self._tell_if_replaced(path)
        else:
            self._remember(path, copied)
            return True
        return False

    def _is_linked(self, path: bytes, found: os.stat_result) -> bool:
        """Whether the file was already copied under another name; then the copy gets a hard link."""
        first = self._links.get(_identity(found)) if found.st_nlink > 1 else None
        if first is None:
            return False
        first_directory, first_name = split(first)
        directory, name = split(path)
        above = os.dup(self._to.open(first_directory))  # opening the other directory may close this one
        try:
            os.link(first_name, name, src_dir_fd=above, dst_dir_fd=self._to.open(directory), follow_symlinks=False)
        finally:
            os.close(above)
        if first in self.not_byte_for_byte:
            self.not_byte_for_byte.add(path)
        self._entries.meter.advance(size_bytes=found.st_size)
        return True

    def _remember(self, path: bytes, copied: os.stat_result) -> None:
        if copied.st_nlink > 1:
            self._links[_identity(copied)] = path

    def _tell_if_replaced(self, path: bytes) -> None:
        """Leave out an entry that was replaced after it was listed: the new one was not examined."""
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
        self.has_databases = bool(databases or companions)
        users = Users()
        for path in databases:
            try:
                self._copy_database(path, users)
            except Moved:
                self._tell_if_replaced(path)
        for path in companions:
            if database_of(path) not in databases:
                with suppress(Moved):
                    self._copy_plainly(path)

    def _copy_database(self, path: bytes, users: Users) -> None:
        """Copy a database byte for byte, with its logs; if a program uses it, as of one moment and without them."""
        directory, name = split(path)
        for has_moved in (False, True, True):
            with unless_moved():
                source = self._from.open(directory)
            if (has_moved or users.of_database(source, name)) and self._is_copied_by_sqlite(path):
                return
            before = settled_moment_of(source, name)
            if before is None:
                continue
            parts = [path, *(path + suffix for suffix in COMPANIONS if _is_file_in(source, name + suffix))]
            for part in parts:
                self._copy_plainly(part)
            with unless_moved():
                source = self._from.open(directory)
            if moment_of(source, name) == before:
                return
            for part in parts:
                self._remove_copy_of(part)
        raise SandboxError(
            f"The database {name_text(shown(path))} keeps changing while it is copied.",
            hint="Close the programs that use it, then run the command again.",
        )

    def _copy_plainly(self, path: bytes) -> None:
        directory, name = split(path)
        with unless_moved():
            source = self._from.open(directory)
            found = os.stat(name, dir_fd=source, follow_symlinks=False)
        if not can_be_copied(found):
            raise Moved
        self._is_copied_to_its_place(path, source, found, also_databases=True)

    def _is_copied_by_sqlite(self, path: bytes) -> bool:
        directory, name = split(path)
        source = self._from.open(directory)
        with self._entries.open_file(name, source) as original:
            if self._is_linked(path, os.fstat(original)):
                return True
            place = self._target / f".holdfast-{os.urandom(8).hex()}"
            if not copy_as_of_one_moment(source, name, place):
                return False
            with unless_moved():
                copied, opened = os.fstat(original), os.stat(name, dir_fd=source, follow_symlinks=False)
            if not os.path.samestat(copied, opened):
                place.unlink()
                raise Moved
            attributes_of(original, copied).give_to(os.fsencode(place))
        os.rename(place, name, dst_dir_fd=self._to.open(directory))
        self.not_byte_for_byte.add(path)
        self._remember(path, copied)
        self._entries.meter.advance(size_bytes=copied.st_size)
        return True

    def _remove_copy_of(self, path: bytes) -> None:
        directory, name = split(path)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._to.open(directory))
        self._links = {inode: first for inode, first in self._links.items() if first != path}


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return False


def _of_databases(names: Collection[bytes]) -> set[bytes]:
    """The names among these of logs of databases, and of the databases."""
    companions = {name for name in names if name.endswith(COMPANIONS)}
    return companions | {database for name in companions if (database := database_of(name))}


def _is_file_in(directory: int, name: bytes) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
