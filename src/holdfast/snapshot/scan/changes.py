"""What changed in a tree since the last report, as far as the kernel reported it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

Changes = dict[bytes, "set[bytes] | None"]
"""Directories and the changed names in them (None: all of it)."""
Names = Mapping[bytes, set[bytes]]
"""Directories, and names in them."""


class ChangeReport(NamedTuple):
    changes: Changes
    is_complete: bool
    """Whether nothing else changed. If not, everything has to be scanned, and these have to be read again whatever
    their time stamps say: a write through a memory mapping does not always move them."""
    is_written: bool = True
    """Whether a file was, or may have been, written to or got other attributes; moving one is neither."""
    removed: Names = MappingProxyType({})
    """Of the changed names those that were seen to go, and of which nothing was reported while they were not there. If
    a name that is not there is not among them, something happened to a file that was open without it."""
    lost: Names = MappingProxyType({})
    """Those that a file may have lost, without getting another, by being removed or by another taking its place: a
    later event of such a name may be of that file, if a program has it open."""


NO_REPORT = ChangeReport({}, is_complete=False)


def add_changes(changes: Changes, more: Changes) -> None:
    for directory, names in more.items():
        known = changes.setdefault(directory, set())
        changes[directory] = None if names is None or known is None else known | names
