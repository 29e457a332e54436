"""Attributes of a file, a folder or a symlink that two sides changed, each by itself: mode, owner, group, extended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.content.format import Entry

_ACCESS_LIST = b"system.posix_acl_access"
_ACCESS, _USER, _GROUP = "access", "user", "group"


@dataclass(frozen=True)
class MergedAttributes:
    mode: int
    uid: int
    gid: int
    xattrs: tuple[tuple[bytes, bytes], ...]
    conflicts: bool
    """Both sides changed one of them, each in its own way."""

    def of(self, entry: Entry) -> Entry:
        """That entry with these attributes."""
        return msgspec.structs.replace(entry, mode=self.mode, uid=self.uid, gid=self.gid, xattrs=self.xattrs)


def merged_attributes(old: Entry | None, ours: Entry, theirs: Entry, *, theirs_wins: bool) -> MergedAttributes:
    """Each attribute as the side has it that changed it; one that both changed as the side that wins."""
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
    xattrs = {**merged, _ACCESS_LIST: access_list}
    kept = tuple(sorted((name, value) for name, value in xattrs.items() if value is not None))
    return MergedAttributes(mode, uid, gid, kept, conflicts)


def _aspects(entry: Entry | None) -> dict[Any, Any]:
    """What can change by itself. Mode and access list are one: setting one of them changes the other."""
    if entry is None:
        return {}
    xattrs = dict(entry.xattrs)
    access = (entry.mode, xattrs.pop(_ACCESS_LIST, None))
    return {_ACCESS: access, _USER: entry.uid, _GROUP: entry.gid, **xattrs}
