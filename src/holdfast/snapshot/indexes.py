"""Indexes: what is known of each sandbox, in this process and, in index files, for the next one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from holdfast.content.directory_cache import RecentDirectories
from holdfast.content.format import digest_of
from holdfast.snapshot.scan.exclusion import NOTHING_EXCLUDED, Exclusion
from holdfast.snapshot.scan.index import TreeIndex
from holdfast.system.place import is_ours, is_there

_NAME_BYTES = 16


class Indexes:
    def __init__(self, folder: Path, recent: RecentDirectories, exclusion: Exclusion = NOTHING_EXCLUDED) -> None:
        """``folder``: where the index files are. ``exclusion``: what is left out of snapshots of real folders."""
        self._exclusion = exclusion
        self.folder = folder
        self._recent = recent
        self._loaded: dict[Path, TreeIndex] = {}
        self.real: set[Path] = set()
        """The folders that are no sandboxes but the user's own."""

    def of(self, sandbox: Path) -> TreeIndex:
        """The index of a sandbox, loaded if this process has not used it yet. Refused if the sandbox is missing."""
        index = self._loaded.get(sandbox)
        if index is None:
            # A real folder is never changed by looking at it.
            is_real = sandbox in self.real
            exclusion = self._exclusion if is_real else NOTHING_EXCLUDED
            index = TreeIndex(sandbox, self._recent, opens_up=not is_real, exclusion=exclusion)
            if not is_there(sandbox):
                raise index.missing()
            index.load(self.file_of(sandbox))
            self._loaded[sandbox] = index
        return index

    def file_of(self, sandbox: Path) -> Path:
        """A real folder can have any name, so its index is named by a digest."""
        if is_ours(sandbox):
            return self.folder / f"{sandbox.parent.name}-{sandbox.name}.index"
        key = digest_of(os.fsencode(sandbox))[:_NAME_BYTES].hex()
        return self.folder / f"in-place-{key}{self._exclusion.name}.index"

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
