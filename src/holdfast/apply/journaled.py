"""What the journal keeps of the real files: stored before they are changed, and read to put them back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.apply.real_change import Links, RealChange
from holdfast.apply.real_folders import refuse_half_changed_below
from holdfast.apply.refusals import changed_meanwhile
from holdfast.checkpoints.service import CheckpointService
from holdfast.content.batch import Batch
from holdfast.content.difference import StateReader
from holdfast.db.journal import BranchEntry, RealFilesEntry
from holdfast.git.branches import BranchMove
from holdfast.git.repository import GitRepository
from holdfast.model import Resource
from holdfast.snapshot.selection import Selection, links_among, load_selection, same, select, store_selection


class JournaledFiles(NamedTuple):
    """The files that an operation replaced, and their replacements."""

    old: Selection
    new: Selection
    links: Links
    """Old files that were one file under several names."""


def store_replaced(service: CheckpointService, changes: Sequence[RealChange]) -> dict[str, str]:
    """Store what is about to be replaced; damaged content is stored again. Refuses if it could not be restored."""
    states = _store(service, changes)
    for each in changes:
        old, new, _ = _keys(each.resource)
        if old in states:
            service.manager.ensure_recoverable(each.root, states[old], states[new], lambda: _store(service, changes))
    return states


def _store(service: CheckpointService, changes: Sequence[RealChange]) -> dict[str, str]:
    states: dict[str, str] = {}
    with service.manager.storing() as batch:
        for each in changes:
            states |= _stored(each, batch)
        batch.commit()
    return states


def _stored(each: RealChange, batch: Batch) -> dict[str, str]:
    states = {}
    old_key, new_key, index_key = _keys(each.resource)
    if each.differences:
        refuse_half_changed_below(each.root, each.paths)
        old = select(each.root, each.paths, batch)
        for path, expected, _ in each.differences:
            if not same(old.get(path), expected):
                raise changed_meanwhile(each.root, path)
        for content in each.merged.values():
            batch.add(content)
        replaced = set(each.paths)
        new = {path: entry for path, entry in old.items() if path not in replaced}
        new |= {path: entry for path, _, entry in each.differences if entry is not None}
        states[old_key] = store_selection(old, batch, links_among(each.root, each.paths))
        states[new_key] = store_selection(new, batch)
    if each.branch is not None and each.branch.is_checked_out and not each.branch.repository.index_path.exists():
        # One that is there is kept as a file (``index_before``).
        states[index_key] = store_selection(select(each.branch.repository.git_dir, [b"index"], batch), batch)
    return states


def _keys(resource: Resource) -> tuple[str, str, str]:
    """Under which keys an entry names the states of the files before, of those after, and of the index before."""
    return f"{resource.name}/old", f"{resource.name}/new", f"{resource.name}/index"


def files_in(entry: RealFilesEntry, resource: Resource, reader: StateReader) -> JournaledFiles | None:
    """None if no files of that resource were to be changed."""
    old, new, _ = _keys(resource)
    if old not in entry.states:
        return None
    return JournaledFiles(
        load_selection(reader, entry.states[old]),
        load_selection(reader, entry.states[new]),
        reader.state(entry.states[old]).links,
    )


def index_in(entry: RealFilesEntry, resource: Resource, reader: StateReader) -> Selection | None:
    """None if the index is kept as a file."""
    state = entry.states.get(_keys(resource)[2])
    return None if state is None else load_selection(reader, state)


def branch_entry(move: BranchMove) -> BranchEntry:
    return BranchEntry(ref=move.ref, old=move.old, new=move.new, is_checked_out=move.is_checked_out)


def branch_move(entry: RealFilesEntry, resource: Resource) -> BranchMove | None:
    """The move of a branch that an operation made, or was about to make, in that resource."""
    found = entry.branches.get(resource.name)
    if found is None:
        return None
    return BranchMove(GitRepository.at(Path(resource.path)), found.ref, found.old, found.new, found.is_checked_out)
