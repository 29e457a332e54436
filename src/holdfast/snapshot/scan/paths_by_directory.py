"""Some paths of a tree, so that those in one directory are found without looking at the others."""

from __future__ import annotations

from collections.abc import Iterable, Set

from holdfast.system.directories import split


class PathsByDirectory:
    def __init__(self, paths: Iterable[bytes] = ()) -> None:
        self._paths: dict[bytes, set[bytes]] = {}
        for path in paths:
            self.add(path)

    def add(self, path: bytes) -> None:
        self._paths.setdefault(split(path)[0], set()).add(path)

    def discard(self, path: bytes) -> None:
        directory = split(path)[0]
        paths = self._paths.get(directory, set())
        paths.discard(path)
        if not paths:
            self._paths.pop(directory, None)

    def inside(self, directory: bytes) -> list[bytes]:
        return list(self._paths.get(directory, ()))

    @property
    def directories(self) -> Set[bytes]:
        return self._paths.keys()
