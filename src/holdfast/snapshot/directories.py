"""Directories read or written lately, so that comparing states does not decode them again and again."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.snapshot.format import Entry

_MOST_ENTRIES = 200_000


class RecentDirectories:
    """By digest; never wrong, because what a digest names never changes."""

    def __init__(self) -> None:
        self._known: dict[bytes, Mapping[bytes, Entry]] = {}
        self._entries = 0

    def get(self, digest: bytes) -> Mapping[bytes, Entry] | None:
        return self._known.get(digest)

    def keep(self, digest: bytes, entries: Mapping[bytes, Entry]) -> None:
        if self._entries + len(entries) > _MOST_ENTRIES:
            self._known.clear()
            self._entries = 0
        if digest not in self._known:
            self._known[digest] = entries
            self._entries += len(entries)
