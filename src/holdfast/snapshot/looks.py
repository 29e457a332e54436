"""Looks: while a verb looks, each sandbox is scanned as a whole once, and later answers come from that scan.

A verb that decides, records and restores then means the same state all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.snapshot.scan.changes import NO_REPORT, NOTHING_CHANGED, ChangeReport


class Looks:
    def __init__(self) -> None:
        self._scanned: set[Path] | None = None
        """The sandboxes that were scanned since the look began; None outside of one."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        self._scanned = set()
        try:
            yield
        finally:
            self._scanned = None

    @property
    def is_looking(self) -> bool:
        return self._scanned is not None

    def note(self, path: Path) -> None:
        """Note that the sandbox was scanned."""
        if self._scanned is not None:
            self._scanned.add(path)

    def again(self, path: Path) -> None:
        """Have the sandbox scanned as a whole when it is asked for next."""
        if self._scanned is not None:
            self._scanned.discard(path)

    def report(self, path: Path) -> ChangeReport:
        """What counts as changed since the last scan: nothing, if that was in this look, otherwise perhaps all."""
        return NOTHING_CHANGED if self._scanned is not None and path in self._scanned else NO_REPORT
