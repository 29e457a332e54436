"""Trackers: one for each sandbox that is watched, which collects what the kernel reports of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.snapshot.scan.watching import ChangeTracker, TrackerGroup


class Trackers:
    def __init__(self) -> None:
        self._group = TrackerGroup()
        self._by_sandbox: dict[Path, ChangeTracker] = {}

    @contextmanager
    def watching(self, sandboxes: Iterable[Path]) -> Iterator[list[Path]]:
        """Watch these sandboxes meanwhile. Yields those that the kernel can watch."""
        watched: list[Path] = []
        try:
            for sandbox in sandboxes:
                tracker = ChangeTracker(sandbox, self._group)
                if tracker.start():
                    self._by_sandbox[sandbox] = tracker
                    watched.append(sandbox)
            yield watched
        finally:
            for sandbox in watched:
                self._by_sandbox.pop(sandbox).stop()

    def find(self, sandbox: Path) -> ChangeTracker | None:
        return self._by_sandbox.get(sandbox)

    def watch_new(self, sandbox: Path, directory: str) -> None:
        """Watch a directory that our own process has made this moment, if the sandbox is watched."""
        if (tracker := self.find(sandbox)) is not None:
            tracker.watch_new(os.fsencode(directory))

    def event_bytes(self, sandbox: Path) -> int | None:
        """A number that grows with every change of a sandbox that is watched; None if it is not."""
        tracker = self.find(sandbox)
        return tracker.event_bytes() if tracker else None
