"""Real files replaced and removed only if they are what is expected: a user may save one at any moment.

What takes the place of a file does so in one step. What was there is deleted only after a look at it, when no program
can reach it by its name any longer.
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


class Guard:
    """``path`` is always that of the real file, ``name`` its name in the directory ``parent``."""

    def __init__(self, temporary_name: Callable[[], bytes]) -> None:
        self._temporary_name = temporary_name

    def replace(self, path: bytes, temporary: bytes, name: bytes, parent: int, present: Entry | None) -> None:
        """Give what was made its name, in the place of exactly what is expected there.

        First it gets a name that says so: what is found under that after a crash may be the user's work.
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
    """From now on no program can open it by its name, and one that did before would write to what is gone."""
    programs = Users().of_moved(parent, marked, name)
    if programs:
        undo()
        raise InUse(path, programs)


def _delete_if(expected: Entry, path: bytes, marked: bytes, parent: int) -> None:
    """Delete what was in a file's place; if it is the user's work, it stays, and undoing puts it back."""
    if not _is_still(expected, marked, parent):
        raise Meddled(path)
    os.unlink(marked, dir_fd=parent)


def _is_still(expected: Entry, name: bytes, parent: int) -> bool:
    """Whether it holds what the entry says; if size and time are the same, nothing was written to it since."""
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
