"""A cache of directories read or written lately, so that comparing states does not read them again."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.content.format import Entry, decode_directory

_MOST_BYTES = 16 << 20


class RecentDirectories:
    """By digest, so never outdated; each is decoded when it is first needed."""

    def __init__(self, *, most_bytes: int | None = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._known: dict[bytes, bytes | Mapping[bytes, Entry]] = {}
        self._bytes = 0

    def get(self, digest: bytes) -> Mapping[bytes, Entry] | None:
        known = self._known.get(digest)
        if isinstance(known, bytes):
            known = self._known[digest] = decode_directory(known)
        return known

    def unknown_among(self, digests: Collection[bytes]) -> list[bytes]:
        return [digest for digest in digests if digest not in self._known]

    def keep(self, digest: bytes, content: bytes) -> None:
        if digest not in self._known:
            if self._most_bytes is not None and self._bytes + len(content) > self._most_bytes:
                self._known.clear()
                self._bytes = 0
            self._known[digest] = content
            self._bytes += len(content)
