"""Merges two sets of changes to one state: text line by line, attributes one by one, everything else as whole files.

If the later side wins, it wins only what both sides changed: those lines, that attribute, a file that is not text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.content.batch import Batch
from holdfast.content.difference import Difference, StateReader, visible
from holdfast.content.format import DIRECTORY, Entry, State
from holdfast.content.grafting import grafted
from holdfast.git.merging import MergedText, merge_texts
from holdfast.snapshot.scan.entries import Xattrs, stored_content
from holdfast.snapshot.selection import ACCESS_LIST, same_content
from holdfast.system.directories import ancestors, join

Labels = tuple[str, str, str]
"""The names of ours, the base and theirs in conflict markers."""
_MOST_MERGED_BYTES = 64 << 20
"""Larger texts are not merged, because all three are held in memory."""
_ACCESS, _USER, _GROUP = "access", "user", "group"


@dataclass(frozen=True)
class PathConflict:
    """One path that both sides changed differently."""

    path: bytes
    reason: str
    is_marked: bool
    """The merged file holds both versions of the lines, between conflict markers; otherwise it is ours."""
    is_of_folders: bool = False
    """It is a folder on both sides: they disagree on its attributes, not on its entries."""


@dataclass(frozen=True)
class Merged:
    state: str
    conflicts: tuple[PathConflict, ...] = ()


def merge_states(
    reader: StateReader,
    batch: Batch,
    *,
    base: str,
    ours: str,
    theirs: str,
    labels: Labels,
    hides: Callable[[bytes], bool],
    theirs_wins: bool = False,
) -> Merged:
    """Apply to ``ours`` what ``theirs`` changed since ``base``; all three, and the result, are state hashes.

    Paths that ``hides`` selects are not the user's and are not merged. If only they changed anything, their whole state
    is taken, those paths included.
    """
    if ours == base:
        return Merged(theirs)
    merging = _Merging(reader, batch, reader.state(ours), reader.state(theirs), labels, theirs_wins)
    for difference in reader.differences(reader.state(base), reader.state(theirs)):
        if not hides(difference.path):
            merging.take(difference)
    return merging.result()


@dataclass
class _Merging:
    reader: StateReader
    batch: Batch
    ours: State
    theirs: State
    labels: Labels
    theirs_wins: bool
    changes: dict[bytes, Entry | None] = field(default_factory=dict)
    conflicts: dict[bytes, PathConflict] = field(default_factory=dict)
    _folders_going: list[bytes] = field(default_factory=list)
    _merged_at_ns: int = field(default_factory=time.time_ns)

    def take(self, difference: Difference) -> None:
        path, old, new = difference
        if self._lies_in_a_conflict(path):
            if new is not None and visible([difference]):
                self._conflict(path, "the folder it lies in is something else now")
            return
        present = self.reader.find(self.ours, path)
        if _is_directory(present) and _is_directory(old) and new is None:
            self._folders_going.append(path)
        elif _is_directory(new) and (present is None or _is_directory(present)):
            self._take_folder(path, old, present, new)
        elif self._is_untouched(present, old):
            self.changes[path] = new
        elif not _alike(present, new) and not (_alike(old, new) and not _is_directory(new)):
            self._take_file(path, old, present, new)

    def _lies_in_a_conflict(self, path: bytes) -> bool:
        """Whether a conflicting path above it is a folder on one side only, so that its entries cannot be merged."""
        return any(above in self.conflicts and not self._is_folder_of_both(above) for above in ancestors(path))

    def _is_folder_of_both(self, path: bytes) -> bool:
        return all(_is_directory(self.reader.find(side, path)) for side in (self.ours, self.theirs))

    def _is_untouched(self, present: Entry | None, old: Entry | None) -> bool:
        """Whether we left it as it was; a directory, which is to become something else, with all its entries."""
        if _is_directory(present) and _is_directory(old):
            return present is not None and old is not None and present.content == old.content
        return _alike(present, old)

    def _take_folder(self, path: bytes, old: Entry | None, present: Entry | None, new: Entry | None) -> None:
        if present is None:
            if old is None:
                self.changes[path] = new
            return  # we removed it; it is re-created if they put something new into it
        if old is None and not self.theirs_wins:
            return
        assert new is not None
        attributes = _merged_attributes(_if_same_kind(old, new), present, new, theirs_wins=self.theirs_wins)
        if attributes.conflicts and not self.theirs_wins:
            self._conflict(path, "both changed the folder's mode or attributes")
        elif not _alike(present, attributes.of(new)):
            self.changes[path] = attributes.of(new)

    def _take_file(self, path: bytes, old: Entry | None, present: Entry | None, new: Entry | None) -> None:
        if present is None or new is None or not present.is_same_kind(new):
            if self.theirs_wins:
                self.changes[path] = new
            else:
                self._conflict(path, _reason(old, present, new))
            return
        base = _if_same_kind(old, new)
        attributes = _merged_attributes(base, present, new, theirs_wins=self.theirs_wins)
        holder, conflicts = self._merged_content(base, present, new)
        if not self.theirs_wins and (holder is None or attributes.conflicts):
            self._conflict(path, _reason(old, present, new))
            return
        merged = attributes.of(holder or new)
        if not _alike(merged, present):
            self.changes[path] = merged
        if conflicts:
            self._conflict(path, "both changed the same lines", is_marked=True)

    def _merged_content(self, old: Entry | None, present: Entry, new: Entry) -> tuple[Entry | None, int]:
        """An entry with the merged content, and the number of conflicts in it; None if it cannot be merged."""
        if same_content(present, new) or (old is not None and same_content(old, new)):
            return present, 0
        if old is not None and same_content(old, present):
            return new, 0
        merged = self._merged_text(old, present, new)
        return (None, 0) if merged is None else (self._with_content(new, merged.content), merged.conflicts)

    def _merged_text(self, old: Entry | None, present: Entry, new: Entry) -> MergedText | None:
        sides = [entry for entry in (old, present, new) if entry is not None]
        if not new.is_file or max(entry.size for entry in sides) > _MOST_MERGED_BYTES:
            return None
        base = b"".join(self.reader.content(old)) if old else b""
        ours, theirs = b"".join(self.reader.content(present)), b"".join(self.reader.content(new))
        return merge_texts(base, ours, theirs, labels=self.labels, theirs_wins=self.theirs_wins)

    def _with_content(self, entry: Entry, content: bytes) -> Entry:
        kind, size, digest = stored_content(content, self.batch)
        return msgspec.structs.replace(entry, kind=kind, size=size, content=digest, mtime_ns=self._merged_at_ns)

    def _conflict(self, path: bytes, reason: str, *, is_marked: bool = False) -> None:
        self.conflicts[path] = PathConflict(path, reason, is_marked, self._is_folder_of_both(path))

    def result(self) -> Merged:
        self._make_way()
        self._remove_folders()
        links = tuple(links for group in self.theirs.links for links in self._still_linked(group))
        state = grafted(self.reader, self.batch, self.ours, self.changes, links)
        return Merged(state, tuple(self.conflicts[path] for path in sorted(self.conflicts)))

    def _still_linked(self, group: tuple[bytes, ...]) -> Iterator[tuple[bytes, ...]]:
        """Of the names that one file has in their state, the groups whose merged entries are equal."""
        found: dict[Entry, list[bytes]] = {}
        for path in group:
            entry = self.changes.get(path)
            if entry is not None:
                found.setdefault(msgspec.structs.replace(entry, name=b""), []).append(path)
        yield from map(tuple, found.values())

    def _make_way(self) -> None:
        """Re-create the folders above their changes that we removed or replaced by something else."""
        for path in [path for path, entry in self.changes.items() if entry is not None]:
            for above in ancestors(path):
                present = self.changes.get(above, self.reader.find(self.ours, above))
                if present is None or (self.theirs_wins and not _is_directory(present)):
                    self.changes[above] = self.reader.find(self.theirs, above)
                elif not _is_directory(present):
                    del self.changes[path]
                    self._conflict(path, "the folder it lies in is something else now")
                    break

    def _remove_folders(self) -> None:
        """Remove the folders that they removed, unless something of ours is left in them; inner folders first."""
        needed = {above for path, entry in self.changes.items() if entry is not None for above in ancestors(path)}
        for path in sorted(self._folders_going, reverse=True):
            held = self.reader.directory(self.reader.find(self.ours, path))
            stays = any(self.changes.get(join(path, name), held[name]) is not None for name in held)
            if not stays and path not in needed:
                self.changes[path] = None


@dataclass(frozen=True)
class _MergedAttributes:
    mode: int
    uid: int
    gid: int
    xattrs: Xattrs
    conflicts: bool
    """Both sides changed one of them differently."""

    def of(self, entry: Entry) -> Entry:
        """That entry with these attributes."""
        return msgspec.structs.replace(entry, mode=self.mode, uid=self.uid, gid=self.gid, xattrs=self.xattrs)


def _merged_attributes(old: Entry | None, ours: Entry, theirs: Entry, *, theirs_wins: bool) -> _MergedAttributes:
    """Each attribute from the side that changed it; one that both changed from the side that wins."""
    before, here, there = (_aspects(entry) for entry in (old, ours, theirs))
    merged: dict[Any, Any] = {}
    conflicts = False
    for aspect in before.keys() | here.keys() | there.keys():
        was, our, their = (side.get(aspect) for side in (before, here, there))
        is_conflict = our != their and was not in (our, their)
        conflicts = conflicts or is_conflict
        takes_theirs = theirs_wins if is_conflict else our == was
        merged[aspect] = their if takes_theirs else our
    mode, access_list = merged.pop(_ACCESS)
    uid, gid = merged.pop(_USER), merged.pop(_GROUP)
    xattrs = {**merged, ACCESS_LIST: access_list}
    kept = tuple(sorted((name, value) for name, value in xattrs.items() if value is not None))
    return _MergedAttributes(mode, uid, gid, kept, conflicts)


def _aspects(entry: Entry | None) -> dict[Any, Any]:
    """The attributes that change independently. Mode and access list are one: setting either changes the other."""
    if entry is None:
        return {}
    xattrs = dict(entry.xattrs)
    access = (entry.mode, xattrs.pop(ACCESS_LIST, None))
    return {_ACCESS: access, _USER: entry.uid, _GROUP: entry.gid, **xattrs}


def _is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == DIRECTORY


def _if_same_kind(old: Entry | None, new: Entry) -> Entry | None:
    return old if old is not None and old.is_same_kind(new) else None


def _alike(one: Entry | None, other: Entry | None) -> bool:
    """Whether they differ in nothing but their times; the entries of a directory do not count."""
    if one is None or other is None:
        return one is other
    return one.attributes == other.attributes and same_content(one, other)


def _reason(old: Entry | None, present: Entry | None, new: Entry | None) -> str:
    if present is None:
        return "one removed it, the other changed it"
    if new is None:
        return "one changed it, the other removed it"
    if _is_directory(present) != _is_directory(new):
        return "it is a folder for one and something else for the other"
    if old is None:
        return "both made it, each in its own way"
    return "both changed it, and it cannot be merged line by line"
