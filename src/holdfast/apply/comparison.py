"""The plan's change as a change of the real files of one resource: what fits, what is merged, and what is in conflict.

The start of the sandboxes, their end, and the real files as they are now are compared. What only the plan changed is
taken, text in which both changed different lines is merged, and everything else that both changed is a conflict.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.apply.real_change import with_folders
from holdfast.apply.real_folders import refuse_half_changed_below
from holdfast.content.batch import Batch
from holdfast.content.difference import Difference, StateReader
from holdfast.content.format import FILE, PIECES_FROM_BYTES, Entry, State
from holdfast.git.merging import merge_texts
from holdfast.git.repository import GitRepository
from holdfast.git.work_tree import merges_by_lines
from holdfast.model import Resource
from holdfast.snapshot.database_changes import are_same_database, databases_with_changed_logs, holds_database
from holdfast.snapshot.selection import (
    access_list,
    merged_xattrs,
    same,
    same_but_for_xattrs,
    same_content,
    select,
)

_LABELS = ("your file", "when the plan started", "the plan")


class Comparison:
    """The plan's change as a change of the real files of one resource."""

    def __init__(
        self, reader: StateReader, resource: Resource, repository: GitRepository | None, result: State, batch: Batch
    ) -> None:
        self._reader, self._repository, self._result, self._batch = reader, repository, result, batch
        self._root = Path(resource.path).resolve()
        self._linked = {path for group in result.links for path in group}
        self.todo: list[Difference] = []
        self.there_already: list[Difference] = []
        """What the plan changed, and the real files hold already."""
        self.merged: dict[bytes, bytes] = {}
        self.conflicts: list[bytes] = []

    def compare(self, wanted: Sequence[Difference]) -> None:
        logged = databases_with_changed_logs(wanted)
        paths = [*(difference.path for difference in wanted), *logged]
        refuse_half_changed_below(self._root, paths)
        real = select(self._root, paths, self._batch)
        # A merge reads again what is stored of the real files.
        self._batch.commit()
        for difference in wanted:
            self._take(self._from_the_real_database(difference, real.get(difference.path)), real.get(difference.path))
        self.conflicts += [path for path in logged if not self._fits_its_log(path, real.get(path))]
        self.todo, in_the_way = with_folders(
            self._root, self.todo, real, lambda path: self._reader.find(self._result, path)
        )
        self.conflicts = sorted({*self.conflicts, *in_the_way})

    def _take(self, difference: Difference, present: Entry | None) -> None:
        path, old, new = difference
        if same(present, new):
            self.there_already.append(difference)
            return
        if present is None or new is None:
            fits, wanted = _is_as_it_was(present, old), new
        else:
            together = self._together(path, old, present, new)
            fits, wanted = together is not None, together or new
        if not fits:
            self.conflicts.append(path)
        elif same(present, wanted):
            return
        self.todo.append(Difference(path, present, _with_owner_of(present, wanted)))

    def _from_the_real_database(self, difference: Difference, present: Entry | None) -> Difference:
        """The plan may have started with a copy that SQLite made, in which only its counters differ."""
        path, old, new = difference
        if old is None or present is None or not are_same_database(self._reader, old, present):
            return difference
        return Difference(path, msgspec.structs.replace(old, content=present.content), new)

    def _fits_its_log(self, path: bytes, present: Entry | None) -> bool:
        """Whether a database that the plan has not changed is still the one that the plan's log belongs to."""
        known = self._reader.find(self._result, path)
        if not any(holds_database(self._reader, each) for each in (known, present)):
            return True
        return same_content(present, known) or are_same_database(self._reader, present, known)

    def _together(self, path: bytes, old: Entry | None, present: Entry, new: Entry) -> Entry | None:
        """The present entry with the plan's change; None if the two do not fit together."""
        is_same_kind = present.is_same_kind(new)
        xattrs = merged_xattrs(old, present, new) if is_same_kind else new.xattrs
        are_attributes_all = same_but_for_xattrs(old, new) and is_same_kind and path not in self._linked
        found: Entry | None
        if same_but_for_xattrs(present, new) or are_attributes_all:
            found = present
        else:
            found = new if same_but_for_xattrs(present, old) else self._merge(path, old, present, new)
        if found is None or xattrs is None:
            return None
        together = msgspec.structs.replace(found, xattrs=xattrs)
        # Setting a mode changes the access list, and the other way round: both must come from one side.
        is_of_one_piece = present.mode == new.mode or access_list(together) == access_list(found)
        return together if is_of_one_piece else None

    def _merge(self, path: bytes, old: Entry | None, present: Entry | None, new: Entry | None) -> Entry | None:
        """The file with both changes in it; None if they do not fit together, or are not of text alone."""
        sides = [each for each in (old, present, new) if each is not None and each.kind == FILE]
        if old is None or present is None or new is None or len(sides) < 3:
            return None
        if present.mode != old.mode or path in self._linked:
            return None
        if self._repository is not None and not merges_by_lines(self._repository, path):
            return None
        base, ours, theirs = (b"".join(self._reader.content(each)) for each in (old, present, new))
        text = merge_texts(base, ours, theirs, labels=_LABELS)
        if text is None or text.conflicts or len(text.content) >= PIECES_FROM_BYTES:
            return None
        digest = self._batch.add(text.content) if text.content else b""
        self.merged[path] = text.content
        return msgspec.structs.replace(new, content=digest, size=len(text.content), mtime_ns=time.time_ns())


def _is_as_it_was(present: Entry | None, old: Entry | None) -> bool:
    """Whether the user left it alone; the copy may lack an attribute that only the real file has."""
    if present is None or old is None:
        return present is old
    before = dict(old.xattrs)
    return same_but_for_xattrs(present, old) and all(before.get(name, value) == value for name, value in present.xattrs)


def _with_owner_of(present: Entry | None, new: Entry | None) -> Entry | None:
    """A changed file keeps its owner."""
    if present is None or new is None:
        return new
    return msgspec.structs.replace(new, uid=present.uid, gid=present.gid)
