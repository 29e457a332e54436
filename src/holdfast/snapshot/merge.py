"""Bringing two lines of work on one state together: text line by line, attributes one by one, the rest by whole file.

If the later one wins, it wins only what both changed: those lines, that attribute, a file that is no text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from holdfast.content.batch import Batch
from holdfast.content.difference import Difference, StateReader, visible
from holdfast.content.format import DIRECTORY, Entry, State
from holdfast.content.grafting import grafted
from holdfast.git.merging import MergedText, merge_texts
from holdfast.snapshot.attributes import merged_attributes
from holdfast.snapshot.scan.entries import stored_content
from holdfast.snapshot.selection import same_content, same_kind
from holdfast.system.directories import join

Labels = tuple[str, str, str]
"""What ours, the base and theirs are called in the marks around lines that conflict."""
_MOST_MERGED_BYTES = 64 << 20
"""Larger texts are not merged: all three are held in memory."""


@dataclass(frozen=True)
class PathConflict:
    """One path that both changed, each in its own way."""

    path: bytes
    reason: str
    is_marked: bool
    """The merged file holds both versions of the lines, between marks; otherwise it is ours."""
    is_of_folders: bool = False
    """It is a folder on both sides: they disagree on the folder itself, not on what it holds."""


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
    """What ``theirs`` changed since ``base``, done to ``ours``; all are state hashes, and so is what comes out.

    Where only they changed anything, all of their state is taken, with what ``hides`` says is not the user's.
    """
    if ours == base:
        return Merged(theirs)
    merging = _Merging(reader, batch, reader.state(ours), reader.state(theirs), labels, theirs_wins)
    differences = reader.differences(reader.state(base), reader.state(theirs))
    for difference in differences:
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
        """Whether a folder above it is one on one side only, so that nothing in it can be brought together."""
        return any(above in self.conflicts and not self._is_folder_of_both(above) for above in _above(path))

    def _is_folder_of_both(self, path: bytes) -> bool:
        return all(_is_directory(self.reader.find(side, path)) for side in (self.ours, self.theirs))

    def _is_untouched(self, present: Entry | None, old: Entry | None) -> bool:
        """Whether we left it as it was; of a directory that is to be something else, with all it holds."""
        if _is_directory(present) and _is_directory(old):
            return present is not None and old is not None and present.content == old.content
        return _alike(present, old)

    def _take_folder(self, path: bytes, old: Entry | None, present: Entry | None, new: Entry | None) -> None:
        if present is None:
            if old is None:
                self.changes[path] = new
            return  # we removed it; it comes back if something new of theirs is in it
        if old is None and not self.theirs_wins:
            return
        assert new is not None
        attributes = merged_attributes(_if_like(old, new), present, new, theirs_wins=self.theirs_wins)
        if attributes.conflicts and not self.theirs_wins:
            self._conflict(path, "both changed the folder's mode or attributes")
        elif not _alike(present, attributes.of(new)):
            self.changes[path] = attributes.of(new)

    def _take_file(self, path: bytes, old: Entry | None, present: Entry | None, new: Entry | None) -> None:
        if present is None or new is None or not same_kind(present, new):
            self._take_whole(path, old, present, new)
            return
        base = _if_like(old, new)
        attributes = merged_attributes(base, present, new, theirs_wins=self.theirs_wins)
        holder, conflicts = self._merged_content(base, present, new)
        if not self.theirs_wins and (holder is None or attributes.conflicts):
            self._conflict(path, _reason(old, present, new))
            return
        merged = attributes.of(holder or new)
        if not _alike(merged, present):
            self.changes[path] = merged
        if conflicts:
            self._conflict(path, "both changed the same lines", is_marked=True)

    def _take_whole(self, path: bytes, old: Entry | None, present: Entry | None, new: Entry | None) -> None:
        """It is removed, or something else, on one side: there is nothing to bring together."""
        if self.theirs_wins:
            self.changes[path] = new
        else:
            self._conflict(path, _reason(old, present, new))

    def _merged_content(self, old: Entry | None, present: Entry, new: Entry) -> tuple[Entry | None, int]:
        """An entry with the content of both, and in how many places they conflict; None if they do as a whole."""
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
        """Of the names of one file of theirs, those that came out as one."""
        found: dict[Entry, list[bytes]] = {}
        for path in group:
            entry = self.changes.get(path)
            if entry is not None:
                found.setdefault(msgspec.structs.replace(entry, name=b""), []).append(path)
        yield from map(tuple, found.values())

    def _make_way(self) -> None:
        """Folders that what we take lies in, and that we removed or made something else."""
        for path in [path for path, entry in self.changes.items() if entry is not None]:
            for above in _above(path):
                present = self.changes.get(above, self.reader.find(self.ours, above))
                if present is None or (self.theirs_wins and not _is_directory(present)):
                    self.changes[above] = self.reader.find(self.theirs, above)
                elif not _is_directory(present):
                    del self.changes[path]
                    self._conflict(path, "the folder it lies in is something else now")
                    break

    def _remove_folders(self) -> None:
        """Folders they removed go if nothing of ours is left in them; those inside others first."""
        needed = {above for path, entry in self.changes.items() if entry is not None for above in _above(path)}
        for path in sorted(self._folders_going, reverse=True):
            held = self.reader.directory(self.reader.find(self.ours, path))
            stays = any(self.changes.get(join(path, name), held[name]) is not None for name in held)
            if not stays and path not in needed:
                self.changes[path] = None


def _above(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def _is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == DIRECTORY


def _if_like(old: Entry | None, new: Entry) -> Entry | None:
    """What it was before, if that is the same kind of thing."""
    return old if old is not None and same_kind(old, new) else None


def _attributes(entry: Entry) -> tuple[object, ...]:
    return (entry.mode, entry.uid, entry.gid, entry.xattrs)


def _alike(one: Entry | None, other: Entry | None) -> bool:
    """Whether they differ in nothing but their times; a directory stands for itself, not for what it holds."""
    if one is None or other is None:
        return one is other
    if _attributes(one) != _attributes(other):
        return False
    if one.kind == other.kind == DIRECTORY:
        return True
    same_kind = one.kind == other.kind or (one.is_file and other.is_file)
    return same_kind and (one.size, one.content) == (other.size, other.content)


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
