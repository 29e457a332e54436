"""Space kept aside on the disk of the home, so that what frees space works also where none is left."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import HOW_TO_FREE_SPACE, DatabaseFullError, HoldfastError, SandboxError

RESERVE_BYTES = 512 << 10
"""The indexes of two write-ahead logs, and the pages that deleting the records of a large plan changes."""
_LEAST_BYTES = 128 << 10
NEARLY_FULL_BYTES = 16 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """A file that is there to be removed. Anybody may remove it at any time; whoever opens the home makes it again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / "reserve"

    def keep(self) -> None:
        """Make it as large as it should be, as far as there is room: never more than half of what is left."""
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
            # Not zeros, and not only promised: a file system that compresses would keep nothing aside for those.
            os.pwrite(descriptor, os.urandom(wanted - there), there)
        finally:
            os.close(descriptor)

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """For whoever frees space: while this lasts, the reserve is room to work in.

        All that is left is kept aside again, before closing the databases can use it up without freeing any.
        """
        self._remove()
        self._remove_caches_if_full()
        try:
            yield
        finally:
            self._make(share=1)

    @contextmanager
    def given_up_if_full(self) -> Iterator[None]:
        """The same for whoever needs a little room and may free some; as long as there is room, nothing is done."""
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
        """Where there was no reserve, as in a home that was full before there was one: what is only read again then."""
        with suppress(OSError):
            if free_bytes(self._home) < _LEAST_BYTES:
                for cache in (self._home / "indexes").iterdir():
                    cache.unlink(missing_ok=True)

    def give_up_if_full(self) -> bool:
        """Whether the disk was full and is a little less so now."""
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
        """Whether there is less of it than would do any good."""
        try:
            return self._size_bytes() < _LEAST_BYTES
        except OSError:
            return True


def free_bytes(folder: Path | str) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def is_nearly_full(folder: Path) -> bool:
    return free_bytes(folder) < NEARLY_FULL_BYTES


def full_disk(error: BaseException, home: Path) -> HoldfastError | None:
    """What to tell if the error, or what it came from, is that a disk is full; which one, as far as that is known."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, DatabaseFullError):
            return at
        if isinstance(at, OSError) and at.errno in _FULL:
            # The operating system names no file when writing fails.
            place = os.fsdecode(at.filename) if isinstance(at.filename, str | bytes) else home
            return SandboxError(f"There is no space left on the disk of {place}.", hint=HOW_TO_FREE_SPACE)
        at = at.__cause__
    return None
