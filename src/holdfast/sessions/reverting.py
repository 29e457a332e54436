"""What a folder becomes if some of what happened in it had not happened: a pure merge of states, nothing is touched.

A call took the folder from one state to another. To take it out, the way back is merged into the present state, as text
line by line. So what others changed since stays, and what cannot be merged is a conflict. If nobody changed anything
since, the result is exactly the state before the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from holdfast.content.batch import Batch
from holdfast.content.difference import StateReader
from holdfast.content.format import DIRECTORY, Entry, State
from holdfast.content.grafting import grafted
from holdfast.git.index_content import mean_the_same
from holdfast.snapshot.merge import PathConflict, merge_states

_OBJECTS = (b".git/objects/", b".git/lfs/objects/")
_INDEX = b".git/index"
_LABELS = ("now", "after", "before")


class Way(msgspec.Struct, frozen=True):
    """What changed a folder: from one state to another."""

    before: str
    after: str


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
            found[-1] = Way(found[-1].before, way.after)
        else:
            found.append(way)
    return found


def reverted(
    reader: StateReader, batch: Batch, present: str, ways: Sequence[Way], *, has_git: bool, wins: bool = False
) -> Reverted:
    """The present state without these ways, given oldest first. ``wins``: what cannot be merged is as before them."""
    conflicts: dict[bytes, PathConflict] = {}
    state = present
    for way in reversed(joined(ways)):
        after = _with_index_of(reader, batch, way.after, state) if has_git else way.after
        batch.commit()  # what is read must be stored
        merged = merge_states(
            reader,
            batch,
            base=after,
            ours=state,
            theirs=way.before,
            labels=_LABELS,
            hides=_stays if has_git else lambda _: False,
            theirs_wins=wins,
        )
        conflicts |= {each.path: each for each in merged.conflicts}
        state = merged.state
        batch.commit()
    if has_git:
        state = _with_all_objects(reader, batch, present, state)
    return Reverted(state, tuple(conflicts[path] for path in sorted(conflicts)))


def _stays(path: bytes) -> bool:
    """Git's own notes of what happened only grow, and a lock belongs to a program that is running."""
    return path.startswith((b".git/logs/", *_OBJECTS)) or (path.startswith(b".git/") and path.endswith(b".lock"))


def _with_index_of(reader: StateReader, batch: Batch, state_hash: str, present_hash: str) -> str:
    """The state with the present index of git, if both say the same: git writes it anew when it only looks."""
    state, present = reader.state(state_hash), reader.state(present_hash)
    old, new = reader.find(state, _INDEX), reader.find(present, _INDEX)
    if old is None or new is None or old == new or not (old.is_file and new.is_file):
        return state_hash
    if not mean_the_same(_content(reader, old), _content(reader, new)):
        return state_hash
    changes: dict[bytes, Entry | None] = {_INDEX: new}
    folders = reader.find(state, b".git"), reader.find(present, b".git")
    if all(each is not None and each.kind == DIRECTORY for each in folders):
        changes[b".git"] = folders[1]  # its time changes with the index
    return grafted(reader, batch, state, changes)


def _content(reader: StateReader, entry: Entry) -> bytes:
    return b"".join(reader.content(entry))


def _with_all_objects(reader: StateReader, batch: Batch, present_hash: str, wanted_hash: str) -> str:
    """The wanted state with all present objects of git, too: none of them is ever deleted or replaced."""
    present, wanted = reader.state(present_hash), reader.state(wanted_hash)
    kept = {
        path: old for path, old, _ in _differing(reader, present, wanted, lambda path: path.startswith(_OBJECTS)) if old
    }
    if not kept:
        return wanted_hash
    return grafted(reader, batch, wanted, kept)


def _differing(
    reader: StateReader, old: State, new: State, chosen: Callable[[bytes], bool]
) -> Iterable[tuple[bytes, Entry | None, Entry | None]]:
    return [each for each in reader.differences(old, new) if chosen(each.path)]
