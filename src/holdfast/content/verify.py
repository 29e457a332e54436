"""Finds which of the objects that a saved state needs are missing or damaged, by reading them."""

from __future__ import annotations

from holdfast.content.difference import StateReader
from holdfast.content.format import DIRECTORY, FILE, PIECES, Entry
from holdfast.content.store import ObjectStore
from holdfast.errors import ContentError

_NONE: frozenset[bytes] = frozenset()


class Verifier:
    """Reads every object once, however many states need it, and remembers which are bad."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        # Not the manager's reader, which may have a directory in its cache that is damaged on the disk.
        self._reader = StateReader(objects)
        self._bad: dict[bytes, frozenset[bytes]] = {}
        self.missing: set[bytes] = set()
        """The bad objects that are not in the store at all."""

    @property
    def objects_read(self) -> int:
        return len(self._bad)

    def bad_objects_of(self, state_hash: str) -> frozenset[bytes]:
        """The digests of all missing or damaged objects that the state needs."""
        name = bytes.fromhex(state_hash)
        if self._object(name):
            return frozenset((name,))
        return self._below(self._reader.state(state_hash).root)

    def _object(self, digest: bytes) -> frozenset[bytes]:
        """The object, if it is bad; the objects that it names are not checked."""
        known = self._bad.get(digest)
        if known is None:
            try:
                self._objects.read(digest)
            except ContentError:
                known = frozenset((digest,))
                if not self._is_there(digest):
                    self.missing.add(digest)
            else:
                known = _NONE
            self._bad[digest] = known
        return known

    def _is_there(self, digest: bytes) -> bool:
        try:
            return self._objects.has(digest)
        except ContentError:
            return True  # the place where it should be cannot be read

    def _below(self, root: Entry) -> frozenset[bytes]:
        """The bad objects below a directory. Without recursion, because trees can be deeper than Python's stack."""
        pending = [root]
        finished: dict[bytes, frozenset[bytes]] = {}
        while pending:
            entry = pending[-1]
            if entry.content in finished:
                pending.pop()
                continue
            if self._object(entry.content):
                finished[entry.content] = self._object(entry.content)
                continue
            held = [each for each in self._reader.directory(entry).values() if each.kind == DIRECTORY]
            missing = [each for each in held if each.content not in finished]
            if missing:
                pending.extend(missing)
                continue
            files = (self._file(each) for each in self._reader.directory(entry).values() if each.kind in (FILE, PIECES))
            finished[entry.content] = _NONE.union(*(finished[each.content] for each in held), *files)
        return finished[root.content]

    def _file(self, entry: Entry) -> frozenset[bytes]:
        if not entry.content:
            return _NONE
        bad = self._object(entry.content)
        if bad or entry.kind == FILE:
            return bad
        return _NONE.union(*(self._object(digest) for digest in self._reader.pieces(entry)))
