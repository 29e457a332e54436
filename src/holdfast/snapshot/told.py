"""What a restore has to do, found from what the kernel told, without naming anew what is there now.

The tree was known exactly, and a few names in it were told to have changed. What has to be done is what differs between
the state that was known and the one that is wanted, and these names. A file of another size than the wanted one need
not even be read. Whatever is not as simple as a file among files takes a closer look, as without anything told.
"""

from __future__ import annotations

import errno
import os
import stat

from holdfast.descent import IS_ROOT, Descent, join, split
from holdfast.errors import ContentError
from holdfast.snapshot.changes import Told
from holdfast.snapshot.difference import Difference, StateReader
from holdfast.snapshot.entries import Hasher, Moved, directory_entry, read_entry
from holdfast.snapshot.format import DIRECTORY, FILE, Entry, State
from holdfast.snapshot.index import TreeIndex
from holdfast.snapshot.restore import RestorePlan, links_to_remake

_MOST_NAMES = 1000
_UNREAD = b"?"
"""Stands for content that was not read; it is equal to nothing."""


class _CloserLook(Exception):
    """This is not simple."""


def plan_from_changes(
    index: TreeIndex, reader: StateReader, descent: Descent, told: Told, target: State
) -> RestorePlan | None:
    """None if it takes a closer look. The index is not changed: it knows the tree as it was before the changes."""
    known = index.known_state()
    if known is None or index.unheld or index.links.with_names_outside():
        return None
    if sum(_MOST_NAMES if names is None else len(names) for names in told.changes.values()) >= _MOST_NAMES:
        return None
    try:
        differences = {difference.path: difference for difference in reader.differences(known, target)}
        _Changes(index, descent, differences).look(told)
    except (_CloserLook, ContentError, Moved, FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a symlink was put in the place of a directory
            return None
        raise
    links = links_to_remake(reader, known, target, differences)
    return RestorePlan(tuple(map(differences.__getitem__, sorted(differences))), (), links)


class _Changes:
    """Adds to the differences between two states what was changed since the first."""

    def __init__(self, index: TreeIndex, descent: Descent, differences: dict[bytes, Difference]) -> None:
        self._index, self._descent, self._differences = index, descent, differences

    def look(self, told: Told) -> None:
        for directory, names in told.changes.items():
            node = self._index.node_at(directory)
            if node is None or node.head is None or names is None:
                raise _CloserLook
            difference = self._differences.get(directory)
            wanted = node.head if difference is None else difference.new
            if wanted is None or wanted.kind != DIRECTORY:
                raise _CloserLook
            descriptor, known, went = self._descent.open(directory), node.entries, told.went.get(directory, ())
            differs = [
                self._differs(descriptor, join(directory, name), name, known.get(name), is_gone=name in went)
                for name in names
            ]
            # Whatever it is now: what a directory is gets set once all in it is restored.
            present = node.head if any(differs) else self._present_head(directory, node.head, descriptor)
            if any(differs) or present != wanted:
                self._differences[directory] = Difference(directory, present, wanted)

    def _present_head(self, directory: bytes, known: Entry, descriptor: int) -> Entry:
        found = os.fstat(descriptor)
        mode = self._descent.mode_of(directory, found)
        return directory_entry(split(directory)[1], descriptor, found=found, mode=mode, content=known.content)

    def _differs(self, descriptor: int, path: bytes, name: bytes, known: Entry | None, *, is_gone: bool) -> bool:
        """Whether that name is not what it should be; ``is_gone``: whether it was seen to go."""
        difference = self._differences.get(path)
        wanted = known if difference is None else difference.new
        if (known is not None and known.kind == DIRECTORY) or (wanted is not None and wanted.kind == DIRECTORY):
            raise _CloserLook
        present = self._present(descriptor, path, name, wanted)
        if present is None and known is None and not is_gone:
            raise _CloserLook  # it was told of a file that is open without that name
        if present == wanted:
            if present is None and known is None:
                return False  # it came and went
            # There is nothing to do, but the index does not know it as it is now, and nothing done would tell it.
            raise _CloserLook
        self._differences[path] = Difference(path, present, wanted)
        return True

    def _present(self, descriptor: int, path: bytes, name: bytes, wanted: Entry | None) -> Entry | None:
        if path in self._index.links.by_path or path in self._index.links.left:
            raise _CloserLook
        try:
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise _CloserLook
        if not IS_ROOT and (found.st_uid != os.geteuid() or not found.st_mode & stat.S_IRUSR):
            raise _CloserLook
        if wanted is not None and wanted.is_file and wanted.size == found.st_size:
            return read_entry(descriptor, name, Hasher(), is_file=True)[0]
        return Entry(name, FILE, stat.S_IMODE(found.st_mode), found.st_mtime_ns, 0, 0, found.st_size, _UNREAD)
