"""Some paths of a tree that is not ours: read, stored, compared and changed without touching anything else in it.

This is how the result of a plan reaches the real files, and how they are put back.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.snapshot.descent import Descent, depth, join, split
from holdfast.snapshot.difference import Difference, StateReader
from holdfast.snapshot.entries import directory_entry, read_entry
from holdfast.snapshot.format import DIRECTORY, Entry, encode_directory, encode_state
from holdfast.snapshot.objects import Batch
from holdfast.snapshot.restore import TEMPORARY_PREFIX, RestorePlan, Workshop, carry_out, check_content

Selection = Mapping[bytes, Entry]
"""Entries by path. A directory stands for itself only: what it holds is selected by its own paths."""

UNHELD = 255
"""The kind of something that no snapshot can hold; it is equal to nothing a plan could want there."""

_TEMPORARY = re.compile(re.escape(TEMPORARY_PREFIX) + rb"[0-9a-f]{16}\Z")
_HELD = (stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO)


def select(root: Path, paths: Iterable[bytes], batch: Batch) -> dict[bytes, Entry]:
    """What is there now at these paths and on the way to them; the content of files is stored."""
    found: dict[bytes, Entry] = {}
    with Descent(root) as descent:
        for path in sorted(with_ancestors(paths)):
            entry = _entry_at(descent, path, batch)
            if entry is not None:
                found[path] = entry
    return found


def with_ancestors(paths: Iterable[bytes]) -> set[bytes]:
    wanted = {b""}
    for path in paths:
        while path not in wanted:
            wanted.add(path)
            path = split(path)[0]
    return wanted


def _entry_at(descent: Descent, path: bytes, batch: Batch) -> Entry | None:
    directory, name = split(path)
    try:
        parent = descent.open(directory)
        if not path:
            return directory_entry(b"", parent)
        kind = stat.S_IFMT(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        if kind == stat.S_IFDIR:
            return directory_entry(name, descent.open(path))
        if kind in _HELD:
            return read_entry(parent, name, batch)[0]
        return Entry(name, UNHELD, 0, 0, 0, 0, 0, b"")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise


def store_selection(selection: Selection, batch: Batch) -> str:
    """Keep a selection in the store; the hash of the state that holds exactly its entries."""
    listings: dict[bytes, dict[bytes, Entry]] = {b"": {}}
    for path, entry in selection.items():
        if entry.kind == DIRECTORY:
            listings.setdefault(path, {})
    for path in sorted(selection, key=depth, reverse=True):
        if not path:
            continue
        entry = selection[path]
        if entry.kind == DIRECTORY:
            entry = msgspec.structs.replace(entry, content=batch.add(encode_directory(listings[path])))
        directory, name = split(path)
        listings[directory][name] = entry
    root = msgspec.structs.replace(selection[b""], content=batch.add(encode_directory(listings[b""])))
    return batch.add(encode_state(root, ())).hex()


def load_selection(reader: StateReader, state_hash: str) -> dict[bytes, Entry]:
    return dict(reader.walk(reader.state(state_hash)))


def same(one: Entry | None, other: Entry | None) -> bool:
    """Whether a person would call them the same file: times and owner do not count, nor what a directory holds."""
    if one is None or other is None:
        return one is other
    if one.kind == other.kind == DIRECTORY:
        return one.mode == other.mode
    return ((one.is_file and other.is_file) or one.kind == other.kind) and (one.mode, one.size, one.content) == (
        other.mode, other.size, other.content,
    )  # fmt: skip


def change(
    root: Path,
    reader: StateReader,
    differences: Iterable[Difference],
    links: tuple[tuple[bytes, ...], ...] = (),
) -> None:
    """Carry out exactly these changes; a directory that still holds something else stays."""
    ordered = sorted(differences, key=lambda difference: difference.path)
    going = {difference.path for difference in ordered if difference.new is None}
    kept = _directories_in_use(root, going)
    wanted = tuple(difference for difference in ordered if difference.path not in kept)
    plan = RestorePlan(wanted, (), links)
    contents = check_content(reader, plan)
    carry_out(plan, reader, root, Workshop(aside=root, durable=True), contents)


def _directories_in_use(root: Path, going: set[bytes]) -> set[bytes]:
    """Directories to be removed that hold something which is not."""
    in_use: set[bytes] = set()
    with Descent(root) as descent:
        for path in sorted(going, key=depth, reverse=True):
            try:
                names = [os.fsencode(name) for name in os.listdir(descent.open(path))]
            except OSError:
                continue  # not a directory
            if any(join(path, name) not in going or join(path, name) in in_use for name in names):
                in_use.add(path)
    return in_use


def remove_temporaries(root: Path, directories: Iterable[bytes]) -> None:
    """Remove what a change that was cut short left beside the files it was making."""
    with Descent(root) as descent:
        for directory in directories:
            try:
                descriptor = descent.open(directory)
            except OSError:
                continue
            for name in map(os.fsencode, os.listdir(descriptor)):
                if _TEMPORARY.match(name):
                    os.unlink(name, dir_fd=descriptor)
