"""The trash: trees of ours that are no longer needed, renamed out of the way and removed when there is time.

It is a folder beside the sandboxes, on the same file system, and exists only while something waits in it. The process
that removes has it locked; if that process is killed, or cannot remove something, the next command tries again.
"""

from __future__ import annotations

import fcntl
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.system.detached import start_detached
from holdfast.system.directories import made_accessible
from holdfast.system.reserve import is_short_of_space
from holdfast.system.trees import remove_tree

TRASH = ".trash"
_AT_ONCE = 1_000
"""Removing this many entries takes less time than starting a process that removes them."""
_NICENESS = 19
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 5


class Trash:
    """The trash of one folder of sandboxes."""

    def __init__(self, sandboxes: Path) -> None:
        self._sandboxes, self._folder = sandboxes, sandboxes / TRASH

    def put(self, path: Path) -> None:
        """Take a tree away at once, and remove it as far as that is quick.

        If space is short, or the tree cannot be renamed, all of it is removed before this returns.
        """
        try:
            os.lstat(path)
        except FileNotFoundError:
            return
        if is_short_of_space(self._sandboxes):
            self.empty()
            remove_tree(path)
        elif self.take(path):
            self._remove(_AT_ONCE, waits=False)
        else:
            remove_tree(path)

    def take(self, path: Path) -> bool:
        """Take a tree away without removing anything yet; whether that was possible."""
        name = f"{path.name}-{os.urandom(8).hex()}"
        for _ in range(_TRIES):
            try:
                with suppress(FileExistsError):
                    self._folder.mkdir(mode=0o700)
                with _opened(self._folder) as folder:
                    _rename(path, name, folder)
            except FileNotFoundError:
                continue  # another process has just emptied and removed the trash
            except OSError:
                return False  # a mount, for example, or no room for another name
            return True
        return False

    def tidy(self) -> None:
        """Remove what waits as far as that is quick, and start a process that removes the rest."""
        if self._remove(_AT_ONCE, waits=False):
            start_detached("holdfast.system.trash", os.fspath(self._sandboxes))

    def empty(self) -> None:
        """Remove everything before this returns; wait for a process that is removing already."""
        self._remove(math.inf, waits=True)

    def waiting(self) -> list[Path]:
        try:
            return sorted(self._folder.iterdir())
        except OSError:
            return []

    def _remove(self, most_entries: float, *, waits: bool) -> bool:
        """Remove what waits, up to ``most_entries``; whether another process should continue."""
        try:
            with _opened(self._folder) as folder:
                fcntl.flock(folder, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
                tried: set[str] = set()
                while names := set(os.listdir(folder)) - tried:
                    tried |= names
                    for name in names:
                        most_entries -= _removed_in(folder, name, most_entries)
                        if most_entries <= 0:
                            return True
                self._folder.rmdir()
        except OSError:
            pass  # nothing waits, another process is removing, or what is left cannot be removed now
        return False


def trash_for(sandbox: Path) -> Trash:
    """The trash for a sandbox, or for something beside it in the folder of its plan."""
    return Trash(sandbox.parent.parent)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _rename(path: Path, name: str, folder: int) -> None:
    try:
        os.rename(path, name, dst_dir_fd=folder)
    except PermissionError:
        # A directory that moves gets another parent, which takes the permission to write to it.
        with _opened(path.parent) as parent, made_accessible(os.fsencode(path.name), parent, 0o700):
            os.rename(path, name, dst_dir_fd=folder)


def _removed_in(folder: int, name: str, most_entries: float) -> int:
    """Remove one tree of the trash, up to ``most_entries``; how many were removed."""
    # Through the descriptor: what another program puts in the place of the trash is not ours.
    place = Path(f"/proc/self/fd/{folder}")
    try:
        return remove_tree(place / name, most_entries=most_entries)
    except (OSError, HoldfastError):
        return 0


if __name__ == "__main__":
    os.nice(_NICENESS)
    Trash(Path(sys.argv[1])).empty()
