"""Finds SQLite databases that a change of real files would replace, and the reasons not to.

A program that has a database open would go on writing to a deleted file. A log beside a database belongs to it: the
next program that opens the database would write that log into whatever file took its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.content.difference import Difference, StateReader
from holdfast.content.format import PIECES, Entry
from holdfast.sandbox.databases import (
    PAGE_BYTES,
    Users,
    begins_as_database,
    database_of,
    is_database,
    logs_beside,
    without_counters,
)
from holdfast.system.directories import Descent, join, split


def holds_database(reader: StateReader, entry: Entry | None) -> bool:
    """Whether a stored file is a database; it is read only if its size allows that."""
    if entry is None or not entry.is_file or not entry.size or entry.size % PAGE_BYTES:
        return False
    return begins_as_database(next(reader.content(entry)))


def are_same_database(reader: StateReader, one: Entry | None, other: Entry | None) -> bool:
    """Whether two files hold the same database, one of them being a copy that SQLite made of the other."""
    if one is None or other is None or (one.kind, one.size) != (other.kind, other.size):
        return False
    if not holds_database(reader, one) or (one.kind == PIECES and reader.pieces(one)[1:] != reader.pieces(other)[1:]):
        return False
    first, second = (without_counters(next(reader.content(each))) for each in (one, other))
    return first == second


def databases_with_changed_logs(differences: Iterable[Difference]) -> set[bytes]:
    """Paths of possible databases that do not change themselves while their logs do."""
    paths = {each.path for each in differences}
    return {path for path in map(database_of, paths) if path is not None} - paths


def databases_in_use(root: Path, reader: StateReader, differences: Sequence[Difference]) -> list[tuple[bytes, str]]:
    """Real databases that would be replaced or removed, or whose logs would, and the programs that have them open."""
    users, found = Users(), []
    with Descent(root) as descent:
        for path in _databases_changed(descent, reader, differences):
            directory, name = split(path)
            programs = users.of_database(descent.open(directory), name)
            if programs:
                found.append((path, ", ".join(programs)))
    return found


def unknown_logs(root: Path, reader: StateReader, differences: Sequence[Difference]) -> list[bytes]:
    """Logs with content that lie beside databases which are to change, and that do not change with them."""
    changed = {each.path for each in differences}
    found = []
    with Descent(root) as descent:
        for path in _databases_changed(descent, reader, differences):
            directory, name = split(path)
            logs = [join(directory, log) for log in logs_beside(descent.open(directory), name)]
            found += [log for log in logs if log not in changed]
    return found


def _databases_changed(descent: Descent, reader: StateReader, differences: Sequence[Difference]) -> list[bytes]:
    """Paths at which a database or its log is created, removed or replaced, in folders that exist."""
    found = set()
    for difference in differences:
        path, old, new = difference
        if old is not None and new is not None and (old.kind, old.content) == (new.kind, new.content):
            continue
        directory, _ = split(path)
        try:
            parent = descent.open(directory)
        except OSError:
            continue
        database = database_of(path)
        if database is not None and is_database(parent, split(database)[1]):
            found.add(database)
        elif holds_database(reader, old) or holds_database(reader, new):
            found.add(path)
    return sorted(found)
