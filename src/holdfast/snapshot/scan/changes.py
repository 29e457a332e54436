"""The kernel's report of what changed in a tree since the last report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from holdfast.content.difference import Difference
from holdfast.system.directories import split

Changes = dict[bytes, "set[bytes] | None"]
"""Directories and the changed names in them (None: everything below the directory)."""
Names = Mapping[bytes, set[bytes]]
"""Directories and names in them."""


class ChangeReport(NamedTuple):
    changes: Changes
    is_complete: bool
    """Whether nothing else changed. If not, everything must be scanned, and these names must be read again whatever
    their timestamps say: a write through a memory mapping does not always change them."""
    is_written: bool = True
    """Whether the content or attributes of a file were, or may have been, changed; moving a file changes neither."""
    removed: Names = MappingProxyType({})
    """The changed names whose removal was reported, with no event while they did not exist. If a name does not exist
    and is not listed here, its event was about an open file that no longer has the name."""
    lost: Names = MappingProxyType({})
    """Names that a file may have lost without getting another one, because it was removed or replaced. A later event
    with such a name may be about that file, if a program has it open."""


NO_REPORT = ChangeReport({}, is_complete=False)
NOTHING_CHANGED = ChangeReport({}, is_complete=True)


def add_changes(changes: Changes, more: Changes) -> None:
    for directory, names in more.items():
        known = changes.setdefault(directory, set())
        changes[directory] = None if names is None or known is None else known | names


def names_in(differences: Iterable[Difference]) -> ChangeReport:
    """A report that exactly the names in these differences may have changed."""
    changes, missing = defaultdict[bytes, set[bytes]](set), defaultdict[bytes, set[bytes]](set)
    for path, old, _ in differences:
        directory, name = split(path)
        if path:
            changes[directory].add(name)
        if old is None:
            missing[directory].add(name)
    return ChangeReport(dict(changes), is_complete=True, removed=missing)
