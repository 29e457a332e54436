"""The paths of a tree that no snapshot can hold, and why."""

from __future__ import annotations

from collections.abc import Mapping, Set

from holdfast.snapshot.scan.paths_by_directory import PathsByDirectory


class UnheldPaths(dict[bytes, str]):
    """Reasons by path; changed only by ``note`` and ``forget``."""

    def __init__(self, reasons: Mapping[bytes, str] | None = None) -> None:
        super().__init__(reasons or {})
        self._by_directory = PathsByDirectory(self)

    @property
    def directories(self) -> Set[bytes]:
        """Those that have such a path in them."""
        return self._by_directory.directories

    def inside(self, directory: bytes) -> list[bytes]:
        """Such paths in a directory, but not in those below it."""
        return self._by_directory.inside(directory)

    def note(self, path: bytes, reason: str) -> None:
        self[path] = reason
        self._by_directory.add(path)

    def forget(self, path: bytes) -> None:
        if self.pop(path, None) is not None:
            self._by_directory.discard(path)
