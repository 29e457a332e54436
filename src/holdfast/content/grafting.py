"""Makes a new state from a stored one by changing some of its paths, without touching any tree."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.content.batch import Batch
from holdfast.content.difference import StateReader
from holdfast.content.format import DIRECTORY, Entry, State, encode_directory, encode_state
from holdfast.system.directories import ancestors, join

LinkGroups = tuple[tuple[bytes, ...], ...]


def grafted(
    reader: StateReader, batch: Batch, state: State, changes: Mapping[bytes, Entry | None], links: LinkGroups = ()
) -> str:
    """The hash of the state that differs from ``state`` in these paths and in nothing else.

    None removes a path with all it holds. The entry of a directory stands for the directory alone: its own entries stay
    unless their paths are changed too. ``links``: groups of changed paths that share one file. A changed path no longer
    shares its file with the unchanged ones.
    """
    top = msgspec.structs.replace(changes.get(b"") or state.root, content=state.root.content)
    root = _changed(reader, batch, b"", top, _below(changes))
    kept = ((path for path in group if not _is_changed(path, changes)) for group in state.links)
    groups = [tuple(group) for group in (*kept, *links)]
    return batch.add_state(encode_state(root, tuple(sorted(group for group in groups if len(group) > 1)))).hex()


def _below(changes: Mapping[bytes, Entry | None]) -> dict[bytes, dict[bytes, Entry | None]]:
    """For every directory above a change, the names in it to change; ``_LEADS_ON`` for one that only leads further."""
    found: dict[bytes, dict[bytes, Entry | None]] = {}
    for path, entry in changes.items():
        directory, _, name = path.rpartition(b"/")
        if path:
            found.setdefault(directory, {})[name] = entry
        while directory and directory not in changes:
            directory, _, name = directory.rpartition(b"/")
            found.setdefault(directory, {}).setdefault(name, _LEADS_ON)
    return found


_LEADS_ON = Entry(b"", DIRECTORY, 0o755, 0, 0, 0, 0, b"")
"""Stands for a directory that does not change itself, while something below it does."""


def _changed(
    reader: StateReader, batch: Batch, path: bytes, entry: Entry, below: Mapping[bytes, Mapping[bytes, Entry | None]]
) -> Entry:
    listing = dict(reader.directory(entry)) if entry.content else {}
    for name, wanted in below.get(path, {}).items():
        present = listing.get(name)
        if wanted is None:
            listing.pop(name, None)
        elif wanted.kind != DIRECTORY:
            listing[name] = msgspec.structs.replace(wanted, name=name)
        else:
            is_there = present is not None and present.kind == DIRECTORY
            made = present if wanted is _LEADS_ON else wanted
            if made is None or made.kind != DIRECTORY:
                continue  # only a directory can hold something to change
            content = present.content if present is not None and is_there else b""
            made = msgspec.structs.replace(made, name=name, content=content)
            listing[name] = _changed(reader, batch, join(path, name), made, below)
    return msgspec.structs.replace(entry, content=batch.add(encode_directory(listing)))


def _is_changed(path: bytes, changes: Mapping[bytes, Entry | None]) -> bool:
    if path in changes:
        return True
    return any(above in changes and changes[above] is None for above in ancestors(path))
