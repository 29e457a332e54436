"""Folders of ours: removes trees of any depth, flushes directories to the disk, makes temporary folders."""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import SandboxError
from holdfast.system.directories import open_directory, with_ancestors

_TEMPORARY = "holdfast-of-"
# O_PATH: going through a directory above takes no permission to list it.
_WAY_UP = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def remove_tree(path: Path, *, most_entries: float = math.inf) -> int:
    """Remove a tree of ours, however deep it is, even with directories in it that we may not enter.

    No symlink is followed, not even one that replaces a directory meanwhile. Returns how many entries were removed;
    after ``most_entries`` the rest stays.
    """
    try:
        removal = _Removal(path, most_entries)
    except FileNotFoundError:
        return 0
    with removal:
        removal.run()
    return removal.count


class _Removal:
    """Walks down a tree and up again by ``..``, so that only one directory is open at a time."""

    def __init__(self, path: Path, most_entries: float) -> None:
        self._path, self._most_entries = path, most_entries
        self.count = 0
        self._here = os.open(path.parent, _WAY_UP)
        self._levels = [_Level(_identity(self._here), [os.fsencode(path.name)])]

    def __enter__(self) -> _Removal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._here)

    @property
    def _has_done_enough(self) -> bool:
        return self.count >= self._most_entries

    def run(self) -> None:
        while not self._has_done_enough:
            if self._levels[-1].directories:
                self._go_down()
            elif len(self._levels) > 1:
                self._go_up()
            else:
                return

    def _go_down(self) -> None:
        """Enter the next directory and remove everything but the directories in it."""
        directories = self._levels[-1].directories
        try:
            self._move_to(open_directory(directories[-1], self._here))
        except FileNotFoundError:
            directories.pop()
        except NotADirectoryError:
            self._unlink(directories.pop())
        else:
            self._levels.append(_Level(_identity(self._here), self._emptied_but_for_directories()))

    def _emptied_but_for_directories(self) -> list[bytes]:
        """Remove everything but directories from the directory we are in; returns the names of those."""
        if not os.access(b".", os.R_OK | os.W_OK | os.X_OK, dir_fd=self._here):
            os.fchmod(self._here, 0o700)
        with os.scandir(self._here) as listing:
            entries = list(listing)
        directories = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                directories.append(os.fsencode(entry.name))
            elif not self._has_done_enough:
                self._unlink(os.fsencode(entry.name))
        return directories

    def _unlink(self, name: bytes) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._here)
        self.count += 1

    def _go_up(self) -> None:
        """Leave a directory that is empty now, and remove it."""
        self._levels.pop()
        above = self._levels[-1]
        self._move_to(os.open(b"..", _WAY_UP, dir_fd=self._here))
        if _identity(self._here) != above.identity:
            # The directory above it now may not be ours.
            raise SandboxError(
                f"{self._path} was moved while it was being removed.",
                hint="Stop the program that works in it, then run the command again.",
            )
        os.rmdir(above.directories.pop(), dir_fd=self._here)
        self.count += 1

    def _move_to(self, descriptor: int) -> None:
        os.close(self._here)
        self._here = descriptor


class _Level(NamedTuple):
    identity: tuple[int, int]
    """Device and inode of a directory on the way down."""
    directories: list[bytes]
    """The directories in it that are left; the last one is being removed."""


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def sync_directory(path: Path) -> None:
    """Flush the new and removed names of a directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_place() -> Path:
    """Where temporary folders are made; Python's own function writes a test file there, which a kill would leave."""
    return Path(os.environ.get("TMPDIR") or "/tmp")  # nosec B108 # mkdtemp makes what comes there


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A private temporary folder; those of processes that were killed are removed first."""
    remove_abandoned_folders()
    with tempfile.TemporaryDirectory(prefix=f"{_TEMPORARY}{os.getpid()}-", dir=temporary_place()) as folder:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_SH)
            yield Path(folder).resolve()
        finally:
            os.close(held)


def remove_abandoned_folders() -> None:
    """Remove the temporary folders of processes that were killed."""
    for leftover in temporary_place().glob(f"{_TEMPORARY}*-*"):
        owner = leftover.name.removeprefix(_TEMPORARY).partition("-")[0]
        is_gone = owner.isdigit() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists()
        if is_gone and not _is_held(leftover):
            shutil.rmtree(leftover, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    """Whether a process uses it, perhaps one in another container, which has another number there."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def make_folders(root: Path, folders: Iterable[bytes]) -> None:
    """Make these folders, and those they lie in, in a tree of our own."""
    for folder in sorted(with_ancestors(folders)):
        (root / os.fsdecode(folder)).mkdir(exist_ok=True)
