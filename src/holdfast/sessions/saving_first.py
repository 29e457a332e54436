"""What a call is about to touch, saved while the first checkpoint of a large folder is still being taken.

The files are read at once, so that the call need not wait until everything else is. When that is done, the state
before the call is the one that was read, with these files as they were. It is exact, because the call itself said that
it writes nothing else. If the process dies before that, the call was not recorded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.content.batch import Batch
from holdfast.content.format import Entry
from holdfast.content.grafting import grafted
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.selection import UNHELD, Selection, select
from holdfast.system.directories import with_ancestors

MOST_BYTES = 64 << 20
"""A call that touches more waits for the first checkpoint: it is all held in memory until then."""


class TooMuch(Exception):
    """The files are too large to be saved first."""


class SavedFirst:
    """The files at some paths as they were, in memory: nothing in the store is held meanwhile."""

    def __init__(self, folder: Path, paths: Iterable[str]) -> None:
        self.paths = frozenset(_inside(folder, paths))
        self._content = _Content()
        self._present: Selection = select(folder, self.paths, self._content)

    def state_before(self, manager: CheckpointManager, batch: Batch, read: str) -> str:
        """The state that was read, with these files and the folders above them as they were; stored with the batch."""
        for digest, content in self._content.items():
            batch.add_named(digest, content)
        state = manager.reader.state(read)
        changes: dict[bytes, Entry | None] = {}
        for path in with_ancestors(self.paths):
            then, now = self._present.get(path), manager.reader.find(state, path)
            if then is not None and then.kind == UNHELD:
                continue  # no checkpoint can hold it, and none touches it
            if path in self.paths or then is None or (now is not None and then.mtime_ns != now.mtime_ns):
                changes[path] = then
        return grafted(manager.reader, batch, state, {path: each for path, each in changes.items() if path or each})


class _Content(dict[bytes, bytes]):
    """Content by its digest."""

    def __init__(self) -> None:
        super().__init__()
        self._room = MOST_BYTES

    def add_named(self, digest: bytes, content: bytes) -> None:
        self._room -= len(content)
        if self._room < 0:
            raise TooMuch
        self[digest] = content


def _inside(folder: Path, paths: Iterable[str]) -> Iterable[bytes]:
    for path in paths:
        place = Path(os.path.normpath(folder / path))
        if place != folder and place.is_relative_to(folder):
            yield os.fsencode(place.relative_to(folder))
