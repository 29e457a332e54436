"""What a call is about to touch, saved while the first checkpoint of a large folder is still being taken.

The files are stored at once, so that the call need not wait until everything else is read. When that is done, the state
before the call is the one that was read, with these files as they were. It is exact, because the call itself said that
it writes nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from holdfast.content.batch import Batch
from holdfast.content.format import Entry
from holdfast.content.grafting import grafted
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.selection import UNHELD, Selection, select
from holdfast.system.directories import with_ancestors


class SavedFirst:
    """The files at some paths as they were. Their content stays until ``close``: by then a record names it."""

    def __init__(self, manager: CheckpointManager, folder: Path, paths: Iterable[str]) -> None:
        """``manager``: one of the caller's own thread."""
        self._kept = ExitStack()
        self.paths = frozenset(_inside(folder, paths))
        with ExitStack() as opened:
            opened.callback(manager.objects.close)
            batch = opened.enter_context(manager.storing())
            self._present: Selection = select(folder, self.paths, batch)
            batch.commit()
            self._kept = opened.pop_all()

    def close(self) -> None:
        self._kept.close()

    def state_before(self, manager: CheckpointManager, batch: Batch, read: str) -> str:
        """The state that was read, with these files and the folders above them as they were."""
        state = manager.reader.state(read)
        changes: dict[bytes, Entry | None] = {}
        for path in with_ancestors(self.paths):
            then, now = self._present.get(path), manager.reader.find(state, path)
            if then is not None and then.kind == UNHELD:
                continue  # no checkpoint can hold it, and none touches it
            if path in self.paths or then is None or (now is not None and then.mtime_ns != now.mtime_ns):
                changes[path] = then
        return grafted(manager.reader, batch, state, {path: each for path, each in changes.items() if path or each})


def _inside(folder: Path, paths: Iterable[str]) -> Iterable[bytes]:
    for path in paths:
        place = Path(os.path.normpath(folder / path))
        if place != folder and place.is_relative_to(folder):
            yield os.fsencode(place.relative_to(folder))
