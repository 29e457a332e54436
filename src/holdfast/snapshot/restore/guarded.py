"""Replaces and removes real files only if they are as expected: a user may save one at any moment.

A file is replaced in one step. The old file is checked, and then deleted, after it has lost its name, so that no
program can open it by that name in between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from holdfast.content.format import Entry
from holdfast.sandbox.databases import Users
from holdfast.snapshot.restore.exchange import exchange, rename_to_free
from holdfast.snapshot.restore.file_attributes import status
from holdfast.snapshot.restore.staging import mark_of
from holdfast.snapshot.scan.entries import Hasher, Moved, read_entry


class ChangedMeanwhile(Exception):
    """The user changed a real file while we were changing it; their version may have a temporary name now."""

    def __init__(self, path: bytes) -> None:
        super().__init__(path)
        self.path = path


class InUse(ChangedMeanwhile):
    """A program has the database open that was to be replaced; the database has its name again."""

    def __init__(self, path: bytes, programs: Sequence[str]) -> None:
        super().__init__(path)
        self.programs = ", ".join(programs)


class Guard:
    """``path`` is always that of the real file, ``name`` its name in the directory ``parent``."""

    def __init__(self, temporary_name: Callable[[], bytes]) -> None:
        self._temporary_name = temporary_name

    def replace(self, path: bytes, temporary: bytes, name: bytes, parent: int, present: Entry | None) -> None:
        """Give a new file its name, replacing exactly the file that is expected there.

        First it gets a temporary name with the mark of ``name``: after a crash, the file with that temporary name may
        be the user's work.
        """
        marked = self._marked_name(name)
        os.rename(temporary, marked, src_dir_fd=parent, dst_dir_fd=parent)
        if present is not None and exchange(marked, parent, name, parent):
            _refuse_open_database(path, marked, name, parent, lambda: exchange(marked, parent, name, parent))
            _delete_if(present, path, marked, parent)
            return
        if present is not None:
            self.remove(path, name, parent, present)
        rename_to_free(marked, name, parent)

    def remove(self, path: bytes, name: bytes, parent: int, expected: Entry) -> None:
        marked = self._marked_name(name)
        os.rename(name, marked, src_dir_fd=parent, dst_dir_fd=parent)
        _refuse_open_database(path, marked, name, parent, lambda: rename_to_free(marked, name, parent))
        _delete_if(expected, path, marked, parent)

    def _marked_name(self, name: bytes) -> bytes:
        return self._temporary_name() + b"-" + mark_of(name)


def _refuse_open_database(path: bytes, marked: bytes, name: bytes, parent: int, undo: Callable[[], object]) -> None:
    """Called when no program can open it by its name; one that opened it before would write to a deleted file."""
    programs = Users().of_moved(parent, marked, name)
    if programs:
        undo()
        raise InUse(path, programs)


def _delete_if(expected: Entry, path: bytes, marked: bytes, parent: int) -> None:
    """Delete the old file if it is as expected; otherwise it is the user's work, stays, and is restored on undo."""
    if not _is_still(expected, marked, parent):
        raise ChangedMeanwhile(path)
    os.unlink(marked, dir_fd=parent)


def _is_still(expected: Entry, name: bytes, parent: int) -> bool:
    """Whether a file is as the entry says; if its size and time are the same, it was not written to."""
    found = status(name, parent)
    if stat.S_ISREG(found.st_mode):
        if expected.is_file and (found.st_size, found.st_mtime_ns) == (expected.size, expected.mtime_ns):
            return True
    elif stat.S_IFMT(found.st_mode) not in (stat.S_IFLNK, stat.S_IFIFO):
        return False
    try:
        present = read_entry(parent, name, Hasher())[0]
    except Moved:  # it is being written to
        return False
    return (present.kind, present.content) == (expected.kind, expected.content)
