"""Space kept aside on the disk of the home, so that commands that free space work even on a full disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import HOW_TO_FREE_SPACE, DatabaseFullError, HoldfastError, SandboxError

RESERVE_BYTES = 512 << 10
"""Enough for the indexes of two write-ahead logs, and the pages that change when a large plan is deleted."""
_LEAST_BYTES = 128 << 10
NEARLY_FULL_BYTES = 16 << 20
LITTLE_SPACE_BYTES = 1 << 30
_FEW_FILES = 100_000
"""As many as a large sandbox has."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """A file that exists to be removed. Any process may remove it at any time; opening the home makes it again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / "reserve"

    def keep(self) -> None:
        """Make the file as large as it should be, but take at most half of the space that is left."""
        self._make(share=2)

    def _make(self, share: int) -> None:
        with suppress(OSError):
            there = self._size_bytes()
            if there >= RESERVE_BYTES:
                return
            wanted = min(RESERVE_BYTES, (there + free_bytes(self._home)) // share)
            if wanted > there:
                self._extend(there, wanted)

    def _extend(self, there: int, wanted: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Random bytes: a file system that compresses would keep no space for zeros, or for space only promised.
            os.pwrite(descriptor, os.urandom(wanted - there), there)
        finally:
            os.close(descriptor)

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """Remove the reserve while space is freed, so that there is room to work in.

        Afterwards all space that is left is kept aside again, before closing the databases can use it up.
        """
        self._remove()
        self._remove_caches_if_full()
        try:
            yield
        finally:
            self._make(share=1)

    @contextmanager
    def given_up_if_full(self) -> Iterator[None]:
        """The same for work that needs a little room and may free some; nothing is done if there is room."""
        if not self._is_needed():
            yield
            return
        with self.given_up():
            yield

    def _is_needed(self) -> bool:
        try:
            return free_bytes(self._home) < RESERVE_BYTES
        except OSError:
            return False  # there is no home yet

    def _remove_caches_if_full(self) -> None:
        """Remove caches, which can be read again, if there was no reserve: the home was full before one was made."""
        with suppress(OSError):
            if free_bytes(self._home) < _LEAST_BYTES:
                for cache in (self._home / "indexes").iterdir():
                    cache.unlink(missing_ok=True)

    def give_up_if_full(self) -> bool:
        """Remove the reserve if the disk is full; whether that freed some space."""
        return free_bytes(self._home) < RESERVE_BYTES and self._remove()

    def _remove(self) -> bool:
        try:
            self._path.unlink()
        except OSError:
            return False
        return True

    def _size_bytes(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def is_missing(self) -> bool:
        """Whether the reserve is too small to help."""
        try:
            return self._size_bytes() < _LEAST_BYTES
        except OSError:
            return True


def free_bytes(folder: Path | str) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def is_nearly_full(folder: Path) -> bool:
    return free_bytes(folder) < NEARLY_FULL_BYTES


def is_short_of_space(folder: Path) -> bool:
    """Whether the next large sandbox may not fit, so that space must be freed before anything else is done."""
    found = os.statvfs(folder)
    # A file system without a fixed number of files says that it has none at all.
    has_few_files = found.f_files > 0 and found.f_favail < _FEW_FILES
    return found.f_bavail * found.f_frsize < LITTLE_SPACE_BYTES or has_few_files


def full_disk(error: BaseException, home: Path) -> HoldfastError | None:
    """The error to show if this one, or one of its causes, is a full disk; it names the disk as far as known."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, DatabaseFullError):
            return at
        if isinstance(at, OSError) and at.errno in _FULL:
            # The operating system names no file if writing fails.
            place = os.fsdecode(at.filename) if isinstance(at.filename, str | bytes) else home
            return SandboxError(f"There is no space left on the disk of {place}.", hint=HOW_TO_FREE_SPACE)
        at = at.__cause__
    return None
