"""Reading stored states, and finding what differs between two by walking only where digests differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from holdfast.content.directory_cache import RecentDirectories
from holdfast.content.format import (
    DIRECTORY,
    FILE,
    FORMAT_VERSION,
    PIECES,
    Entry,
    State,
    decode_pieces,
    decode_state,
    digest_of,
    encode_directory,
)
from holdfast.content.store import ObjectStore
from holdfast.errors import ContentError
from holdfast.system.directories import join


class Difference(NamedTuple):
    """One path that differs between two states; a directory is listed even if only something below it differs."""

    path: bytes
    old: Entry | None
    new: Entry | None

    @property
    def is_of_file(self) -> bool:
        """Whether it is about a file, a symlink or a fifo, not a directory."""
        entry = self.new or self.old
        return entry is not None and entry.kind != DIRECTORY

    @property
    def bytes_to_write(self) -> int:
        has_them = self.old is not None and self.new is not None and self.old.content == self.new.content
        return 0 if self.new is None or has_them else self.new.size


if TYPE_CHECKING:
    difference_of: Callable[[tuple[bytes, Entry | None, Entry | None]], Difference]
else:
    difference_of = partial(tuple.__new__, Difference)
"""Makes a ``Difference`` from a tuple, in a third of the time."""


_MOST_READ_AHEAD = 500


class StateReader:
    """Reads stored states; every object is checked against its digest."""

    def __init__(self, objects: ObjectStore, recent: RecentDirectories | None = None) -> None:
        self._objects = objects
        self._recent = recent or RecentDirectories()

    def state(self, state_hash: str) -> State:
        state = decode_state(self._objects.read(bytes.fromhex(state_hash)))
        if state.version > FORMAT_VERSION:
            raise ContentError(
                f"State {state_hash[:16]} was written by a newer Holdfast (format {state.version}).",
                hint="Upgrade holdfast to the version that wrote it, or newer.",
            )
        return state

    def directory(self, entry: Entry | None) -> Mapping[bytes, Entry]:
        if entry is None or entry.kind != DIRECTORY:
            return {}
        return self._listed(entry.content)

    def _listed(self, digest: bytes) -> Mapping[bytes, Entry]:
        known = self._recent.get(digest)
        if known is None:
            self._recent.keep(digest, self._objects.read(digest))
            known = self._recent.get(digest)
            assert known is not None
        return known

    def find(self, state: State, path: bytes) -> Entry | None:
        entry: Entry | None = state.root
        for name in path.split(b"/") if path else ():
            entry = self.directory(entry).get(name)
        return entry

    def pieces(self, entry: Entry) -> list[bytes]:
        return decode_pieces(self._objects.read(entry.content))

    def content(self, entry: Entry) -> Iterator[bytes]:
        """The content of a file, piece by piece."""
        if entry.size == 0:
            return
        for digest in self.pieces(entry) if entry.kind == PIECES else [entry.content]:
            yield self._objects.read(digest)

    def small_contents(self, entries: Iterable[Entry]) -> dict[bytes, bytes]:
        """The contents of files that are not stored in pieces, by digest."""
        return self._objects.read_all([entry.content for entry in entries if entry.size])

    def differences(self, old: State | None, new: State | None) -> Iterator[Difference]:
        """All paths that differ, directories before their entries; hard links do not count."""
        return self._between(b"", old.root if old else None, new.root if new else None)

    def read_ahead(self, pairs: Iterable[tuple[Entry | None, Entry | None]]) -> bool:
        """Read these directories at once if they are not many, so that they need not be read one by one.

        False if they are not all read: one that is damaged is found when it is needed.
        """
        wanted = {each.content for pair in pairs for each in pair if each is not None and each.kind == DIRECTORY}
        missing = self._recent.unknown_among(wanted)
        if not missing or len(missing) > _MOST_READ_AHEAD:
            return not missing
        try:
            found = self._objects.read_all(missing)
        except ContentError:
            return False
        for digest, content in found.items():
            self._recent.keep(digest, content)
        return True

    def differences_at_once(self, old: State, new: State) -> list[Difference]:
        """The same as a list, for which the directories of one depth are read together."""
        pairs: list[tuple[Entry | None, Entry | None]] = [(old.root, new.root)]
        while pairs and self.read_ahead(pairs):
            listed = [(self.directory(one), self.directory(other)) for one, other in pairs]
            named = [(before.get(name), after.get(name)) for before, after in listed for name in {**before, **after}]
            pairs = [(one, other) for one, other in named if one != other and _is_of_directory(one, other)]
        return list(self.differences(old, new))

    def _between(self, top: bytes, old: Entry | None, new: Entry | None) -> Iterator[Difference]:
        pending = [Difference(top, old, new)]
        while pending:
            difference = pending.pop()
            path, old, new = difference
            yield difference
            if (old and old.kind == DIRECTORY) or (new and new.kind == DIRECTORY):
                if old and new and old.content == new.content and old.kind == new.kind:
                    continue
                before, after = self.directory(old), self.directory(new)
                pending.extend(
                    Difference(join(path, name), before.get(name), after.get(name))
                    for name in sorted(before.keys() | after.keys(), reverse=True)
                    if before.get(name) != after.get(name)
                )

    def walk(self, state: State, top: bytes = b"") -> Iterator[tuple[bytes, Entry]]:
        """Every path and its entry, from ``top`` down."""
        for difference in self._between(top, None, self.find(state, top)):
            assert difference.new is not None
            yield difference.path, difference.new

    def named_by(self, digest: bytes, kind: int) -> list[tuple[bytes, int]]:
        """The objects that a directory or a list of pieces names, each with its kind, once for each time."""
        if kind == PIECES:
            return [(piece, FILE) for piece in decode_pieces(self._objects.read(digest))]
        return [(each.content, each.kind) for each in self._listed(digest).values() if _has_object(each)]


def _has_object(entry: Entry) -> bool:
    return bool(entry.content) and entry.kind in _WITH_OBJECT


def _is_of_directory(one: Entry | None, other: Entry | None) -> bool:
    return any(each is not None and each.kind == DIRECTORY for each in (one, other))


_WITH_OBJECT = frozenset((FILE, PIECES, DIRECTORY))
_EMPTY_DIRECTORY = digest_of(encode_directory({}))


def visible(differences: Iterable[Difference]) -> list[Difference]:
    """The differences to show: no directory that is listed only for what it holds, no file that was only touched."""
    return [difference for difference in differences if _is_visible(difference)]


def _is_visible(difference: Difference) -> bool:
    old, new = difference.old, difference.new
    if old is None or new is None:
        present = old or new
        assert present is not None
        return present.kind != DIRECTORY or present.content == _EMPTY_DIRECTORY
    if old.attributes != new.attributes or old.kind != new.kind:
        return True
    return old.kind != DIRECTORY and old.content != new.content
