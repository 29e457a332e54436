"""Decides what a restore has to do from the changes that the kernel reported, without a scan of the present state.

The tree was known exactly, and a few names in it were reported to have changed. The restore must change these names,
and what differs between the known state and the wanted one. A file whose size is not the wanted one need not even be
read. Only plain files among plain files are handled; anything else needs a scan, as without a report.
"""

from __future__ import annotations

import errno
import os
import stat

from holdfast.content.difference import Difference, StateReader, difference_of
from holdfast.content.format import DIRECTORY, FILE, Entry, State
from holdfast.errors import ContentError
from holdfast.snapshot.restore.decide import RestorePlan, links_to_recreate
from holdfast.snapshot.scan.changes import ChangeReport
from holdfast.snapshot.scan.entries import Hasher, Moved, directory_entry, read_entry
from holdfast.snapshot.scan.index import TreeIndex
from holdfast.system.calls import status_of
from holdfast.system.directories import IS_ROOT, Descent, join, split

_MOST_NAMES = 1000
_KIND = stat.S_IFMT(0o177777)
_UNREAD = b"?"
"""Stands for content that was not read; it equals no digest."""


class _NeedsScan(Exception):
    """The case is not simple enough to be decided from events."""


def plan_from_changes(
    index: TreeIndex, reader: StateReader, descent: Descent, report: ChangeReport, target: State
) -> RestorePlan | None:
    """The plan, or None if a scan is needed. The index stays as it is: it knows the tree before the changes."""
    known = index.known_state()
    if known is None or index.known.unheld or index.known.links.with_names_outside():
        return None
    if sum(_MOST_NAMES if names is None else len(names) for names in report.changes.values()) >= _MOST_NAMES:
        return None
    try:
        differences = {difference.path: difference for difference in reader.differences(known, target)}
        _Changes(index, descent, differences).compare(report)
    except (_NeedsScan, ContentError, Moved, FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a symlink was put in the place of a directory
            return None
        raise
    links = links_to_recreate(reader, known, target, differences)
    return RestorePlan(tuple(map(differences.__getitem__, sorted(differences))), (), links)


class _Changes:
    """Adds the reported changes to the differences between the known state and the wanted one."""

    def __init__(self, index: TreeIndex, descent: Descent, differences: dict[bytes, Difference]) -> None:
        self._index, self._descent, self._differences = index, descent, differences
        self._linked, self._left = index.known.links.by_path, index.known.links.left

    def compare(self, report: ChangeReport) -> None:
        for directory, names in report.changes.items():
            node = self._index.known.node_at(directory)
            if node is None or node.head is None or names is None:
                raise _NeedsScan
            difference = self._differences.get(directory)
            wanted = node.head if difference is None else difference.new
            if wanted is None or wanted.kind != DIRECTORY:
                raise _NeedsScan
            descriptor, known, removed = self._descent.open(directory), node.entries, report.removed.get(directory, ())
            present = None
            for name in names:
                if self._differs(descriptor, join(directory, name), name, known.get(name), is_gone=name in removed):
                    present = node.head  # its present attributes do not matter: they are set at the end anyway
            if present is None:
                present = self._present_head(directory, node.head, descriptor)
                if present == wanted:
                    continue
            self._differences[directory] = difference_of((directory, present, wanted))

    def _present_head(self, directory: bytes, known: Entry, descriptor: int) -> Entry:
        found = os.fstat(descriptor)
        mode = self._descent.mode_of(directory, found)
        return directory_entry(split(directory)[1], descriptor, found=found, mode=mode, content=known.content)

    def _differs(self, descriptor: int, path: bytes, name: bytes, known: Entry | None, *, is_gone: bool) -> bool:
        """Whether that name is not as wanted; ``is_gone``: its removal was reported."""
        difference = self._differences.get(path)
        wanted = known if difference is None else difference.new
        if (known is not None and known.kind == DIRECTORY) or (wanted is not None and wanted.kind == DIRECTORY):
            raise _NeedsScan
        present = self._present(descriptor, path, name, wanted)
        if present is None and known is None and not is_gone:
            raise _NeedsScan  # the event was about an open file that no longer has that name
        if present == wanted:
            if present is None and known is None:
                return False  # it was created and removed
            # There is nothing to restore, so nothing would update the index, which does not know the present entry.
            raise _NeedsScan
        self._differences[path] = difference_of((path, present, wanted))
        return True

    def _present(self, descriptor: int, path: bytes, name: bytes, wanted: Entry | None) -> Entry | None:
        if path in self._linked or path in self._left:
            raise _NeedsScan
        try:
            mode, uid, _, mtime_ns, size, _, _, names, _, _ = status_of(descriptor, name)
        except FileNotFoundError:
            return None
        if mode & _KIND != stat.S_IFREG or names > 1:
            raise _NeedsScan
        if not IS_ROOT and (uid != os.geteuid() or not mode & stat.S_IRUSR):
            raise _NeedsScan
        if wanted is not None and wanted.size == size and wanted.is_file:
            return read_entry(descriptor, name, Hasher(), is_file=True)[0]
        return Entry(name, FILE, mode & ~_KIND, mtime_ns, 0, 0, size, _UNREAD)
