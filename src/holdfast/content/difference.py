"""What differs between two states, found by walking only where digests differ."""

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
    """One path that is not the same in both; a directory is listed also when only something below it differs."""

    path: bytes
    old: Entry | None
    new: Entry | None

    @property
    def is_of_file(self) -> bool:
        """Whether a file, or what else is no directory, comes of it or goes."""
        _, old, new = self
        entry = new or old
        return entry is not None and entry.kind != DIRECTORY

    @property
    def bytes_to_write(self) -> int:
        has_them = self.old is not None and self.new is not None and self.old.content == self.new.content
        return 0 if self.new is None or has_them else self.new.size


if TYPE_CHECKING:
    difference_of: Callable[[tuple[bytes, Entry | None, Entry | None]], Difference]
else:
    difference_of = partial(tuple.__new__, Difference)
"""The same, made of a tuple, in a third of the time."""


def have_same_shape(old: Entry, new: Entry) -> bool:
    """Whether one can take the place of the other in one step; if not, it has to go before."""
    return old.kind == new.kind or (old.is_file and new.is_file)


class StateReader:
    """Stored states as values; every object is checked against its name when it is read."""

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
        known = self._recent.get(entry.content)
        if known is None:
            self._recent.keep(entry.content, self._objects.read(entry.content))
            known = self._recent.get(entry.content)
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
        """What a file holds, piece by piece."""
        if entry.size == 0:
            return
        for digest in self.pieces(entry) if entry.kind == PIECES else [entry.content]:
            yield self._objects.read(digest)

    def small_contents(self, entries: Iterable[Entry]) -> dict[bytes, bytes]:
        """What these files hold, by its name; for files that are not stored in pieces."""
        return self._objects.read_all([entry.content for entry in entries if entry.size])

    def differences(self, old: State | None, new: State | None) -> Iterator[Difference]:
        """All paths that differ, parents before what they hold; links between names do not count as content."""
        yield from self._between(b"", old.root if old else None, new.root if new else None)

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
        """Everything that is there, from that path down."""
        for difference in self._between(top, None, self.find(state, top)):
            assert difference.new is not None
            yield difference.path, difference.new

    def reachable(self, state_hashes: set[str]) -> set[bytes]:
        """The names of all objects those states need."""
        found: set[bytes] = set()
        looked_into: set[tuple[int, bytes]] = set()
        for state_hash in state_hashes:
            found.add(bytes.fromhex(state_hash))
            self._mark(self.state(state_hash).root, found, looked_into)
        return found

    def _mark(self, root: Entry, found: set[bytes], looked_into: set[tuple[int, bytes]]) -> None:
        pending = [root]
        while pending:
            entry = pending.pop()
            if not entry.content or entry.kind not in _WITH_OBJECT:
                continue
            found.add(entry.content)
            # That its name is known does not mean that what it names is: a file can hold what a directory is stored as.
            if entry.kind == FILE or (entry.kind, entry.content) in looked_into:
                continue
            looked_into.add((entry.kind, entry.content))
            if entry.kind == DIRECTORY:
                pending.extend(self.directory(entry).values())
            else:
                found.update(self.pieces(entry))


_WITH_OBJECT = frozenset((FILE, PIECES, DIRECTORY))
_EMPTY_DIRECTORY = digest_of(encode_directory({}))


def visible(differences: Iterable[Difference]) -> list[Difference]:
    """The differences a person wants to hear of: not a directory that merely holds one, nor a file only touched."""
    return [difference for difference in differences if not _is_unremarkable(difference)]


def _is_unremarkable(difference: Difference) -> bool:
    old, new = difference.old, difference.new
    if old is None or new is None:
        present = old or new
        assert present is not None
        return present.kind == DIRECTORY and present.content != _EMPTY_DIRECTORY
    is_same = (old.mode, old.uid, old.gid, old.xattrs) == (new.mode, new.uid, new.gid, new.xattrs)
    return is_same and old.kind == new.kind and (old.kind == DIRECTORY or old.content == new.content)
