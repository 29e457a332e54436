"""Indexes: what is known of each sandbox, in this process and, in index files, for the next one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from holdfast.content.directory_cache import RecentDirectories
from holdfast.snapshot.scan.index import TreeIndex
from holdfast.system.place import is_there


class Indexes:
    def __init__(self, folder: Path, recent: RecentDirectories) -> None:
        """``folder``: where the index files are."""
        self.folder = folder
        self._recent = recent
        self._loaded: dict[Path, TreeIndex] = {}

    def of(self, sandbox: Path) -> TreeIndex:
        """The index of a sandbox, loaded if this process has not used it yet. Refused if the sandbox is missing."""
        index = self._loaded.get(sandbox)
        if index is None:
            index = TreeIndex(sandbox, self._recent)
            if not is_there(sandbox):
                raise index.missing()
            index.load(self.file_of(sandbox))
            self._loaded[sandbox] = index
        return index

    def file_of(self, sandbox: Path) -> Path:
        return self.folder / f"{sandbox.parent.name}-{sandbox.name}.index"

    def take_over(self, sandbox: Path, file: Path) -> None:
        """Continue with the index of a tree that was moved here, if there is one."""
        with suppress(OSError):
            file.rename(self.file_of(sandbox))

    def forget(self, sandbox: Path) -> None:
        """Forget what is known of a sandbox that was removed or is being re-created."""
        self._loaded.pop(sandbox, None)
        self.file_of(sandbox).unlink(missing_ok=True)

    def save(self) -> None:
        for sandbox, index in self._loaded.items():
            if is_there(sandbox):
                index.save()
