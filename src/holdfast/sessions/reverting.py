"""What a folder becomes if some of what happened in it had not happened: a pure merge of states, nothing is touched.

A call took the folder from one state to another. To take it out, the way back is merged into the present state, as text
line by line. So what others changed since stays, and what cannot be merged is a conflict. If nobody changed anything
since, the result is exactly the state before the call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from holdfast.content.batch import Batch
from holdfast.content.difference import StateReader
from holdfast.content.format import DIRECTORY, Entry, State
from holdfast.content.grafting import grafted
from holdfast.git.index_content import mean_the_same
from holdfast.snapshot.merge import PathConflict, merge_states
from holdfast.system.directories import split

_GIT, _HEAD, _INDEX, _LOCK = b".git", b"HEAD", b"index", b".lock"
_OBJECTS = re.compile(rb"(?:^|(?<=/))(?:lfs/)?objects/")
_NOTES = re.compile(rb"(?:^|(?<=/))logs/")
"""Where such folders begin in a path; before it is the repository, which may be inside of another one."""
_LABELS = ("now", "after", "before")


class Way(msgspec.Struct, frozen=True):
    """What changed a folder: from one state to another."""

    before: str
    after: str
    unheld: frozenset[str] = frozenset()
    """What the state before could not hold: it is no reason to delete what is there now."""


class Reverted(msgspec.Struct, frozen=True):
    state: str
    conflicts: tuple[PathConflict, ...]


def joined(ways: Sequence[Way]) -> list[Way]:
    """The same ways, oldest first, with those made one that follow each other directly."""
    found: list[Way] = []
    for way in ways:
        if way.before == way.after:
            continue
        if found and found[-1].after == way.before:
            found[-1] = Way(found[-1].before, way.after, found[-1].unheld)
        else:
            found.append(way)
    return found


def reverted(reader: StateReader, batch: Batch, present: str, ways: Sequence[Way], *, wins: bool = False) -> Reverted:
    """The present state without these ways, given oldest first. ``wins``: what cannot be merged is as before them."""
    conflicts: dict[bytes, PathConflict] = {}
    state = present
    for way in reversed(joined(ways)):
        after = _with_indexes_of(reader, batch, way.after, state)
        batch.commit()  # what is read must be stored
        before = reader.state(way.before)
        merged = merge_states(
            reader,
            batch,
            base=after,
            ours=state,
            theirs=way.before,
            labels=_LABELS,
            hides=lambda path, before=before: _only_grows(reader, before, path),  # type: ignore[misc]
            theirs_wins=wins,
        )
        conflicts |= {each.path: each for each in merged.conflicts}
        batch.commit()
        state = _with_times_of_folders(reader, batch, way, state, merged.state)
        batch.commit()
    state = _with_what_git_keeps(reader, batch, present, state)
    return Reverted(state, tuple(conflicts[path] for path in sorted(conflicts)))


# What is git's


def _only_grows(reader: StateReader, state: State, path: bytes) -> bool:
    """Whether a path is an object or a note of a repository that is there in that state."""
    return _is_object(reader, state, path) or _is_in_repository(reader, state, path, _NOTES)


def _is_object(reader: StateReader, state: State, path: bytes) -> bool:
    return _is_in_repository(reader, state, path, _OBJECTS)


def _is_in_repository(reader: StateReader, state: State, path: bytes, kind: re.Pattern[bytes]) -> bool:
    return any(reader.find(state, path[: found.start()] + _HEAD) is not None for found in kind.finditer(path))


def _is_lock(path: bytes) -> bool:
    """It belongs to a program that is running."""
    return path.endswith(_LOCK) and _GIT in path.split(b"/")


def _with_indexes_of(reader: StateReader, batch: Batch, state_hash: str, present_hash: str) -> str:
    """The state with the present indexes of git, where both say the same: git writes one anew when it only looks."""
    state, present = reader.state(state_hash), reader.state(present_hash)
    changes: dict[bytes, Entry | None] = {}
    for path, old, new in reader.differences(state, present):
        folder, name = split(path)
        is_index = name == _INDEX and _GIT in folder.split(b"/")
        if not (is_index and old is not None and new is not None and old.is_file and new.is_file):
            continue
        if mean_the_same(_content(reader, old), _content(reader, new)):
            changes[path] = new
            changes[folder] = reader.find(present, folder)  # its time changes with the index
    return grafted(reader, batch, state, changes) if changes else state_hash


def _content(reader: StateReader, entry: Entry) -> bytes:
    return b"".join(reader.content(entry))


def _with_what_git_keeps(reader: StateReader, batch: Batch, present_hash: str, wanted_hash: str) -> str:
    """The wanted state with all present objects of its repositories, too, and with the locks that there are now."""
    present, wanted = reader.state(present_hash), reader.state(wanted_hash)
    kept = {
        path: old
        for path, old, _ in reader.differences(present, wanted)
        if _is_lock(path) or (old is not None and _is_object(reader, wanted, path))
    }
    return grafted(reader, batch, wanted, kept) if kept else wanted_hash


# Times


def _with_times_of_folders(reader: StateReader, batch: Batch, way: Way, present_hash: str, merged_hash: str) -> str:
    """The merged state, in which folders have the time from before the way if only that had changed it."""
    present, merged = reader.state(present_hash), reader.state(merged_hash)
    changes: dict[bytes, Entry | None] = {}
    for path, after, before in reader.differences(reader.state(way.after), reader.state(way.before)):
        if after is None or before is None or not after.kind == before.kind == DIRECTORY:
            continue
        now, then = reader.find(present, path), reader.find(merged, path)
        if now is None or then is None or not now.kind == then.kind == DIRECTORY:
            continue
        if now.mtime_ns == after.mtime_ns and then.mtime_ns != before.mtime_ns:
            changes[path] = msgspec.structs.replace(then, mtime_ns=before.mtime_ns)
    return grafted(reader, batch, merged, changes) if changes else merged_hash
