"""Directories beside sandboxes in which restores make files; the files they replaced are deleted in the background."""

from __future__ import annotations

import ctypes
import glob
import os
import queue
import shutil
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from holdfast.content.format import digest_of
from holdfast.snapshot.scan.entries import owner_of

_SPARES = 16
_RESERVED_BYTES = 4096
_KEEP_SIZE = 1
_allocate = getattr(ctypes.CDLL(None), "fallocate64", None)
TEMPORARY_PREFIX = b".holdfast-"
_MARK_BYTES = 8


class Staging:
    """A directory on the file system of a sandbox, with some empty files ready to be filled.

    Creating a file is the slowest part of restoring one, so some are created before they are needed. These spares are
    new files: a replaced file is never used again, because a program may still have it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._names = temporary_names()
        self._spares: deque[Spare] = deque()
        self._used: list[bytes] = []
        self._mutex = threading.Lock()
        self._is_closed = False

    @property
    def is_there(self) -> bool:
        return os.fstat(self.descriptor).st_nlink > 0

    def close(self) -> None:
        with self._mutex:  # another thread may be creating files in it
            self._is_closed = True
            while self._spares:
                os.close(self._spares.popleft().descriptor)
            os.close(self.descriptor)

    def new_name(self) -> bytes:
        """A free name; a file that has it after the restore is removed."""
        name = next(self._names)
        self._used.append(name)
        return name

    def spare(self) -> Spare | None:
        """An empty file, which the caller closes."""
        try:
            spare = self._spares.popleft()
        except IndexError:
            return None
        self._used.append(spare.name)
        return spare

    def clean(self) -> Callable[[], None]:
        """A function that removes all files that restores left here so far, and creates new spare files."""
        used, self._used = self._used, []
        return lambda: self._renew(used)

    def _renew(self, used: list[bytes]) -> None:
        with self._mutex:
            if self._is_closed:
                return
            for name in used:
                with suppress(OSError):  # the whole directory is removed in the end
                    os.unlink(name, dir_fd=self.descriptor)
            with suppress(OSError):
                while len(self._spares) < _SPARES:
                    self._spares.append(_new_spare(next(self._names), self.descriptor))


class Spare(NamedTuple):
    """An empty file, described as it was created; a program that finds it may have given it other attributes."""

    name: bytes
    descriptor: int
    inode: tuple[int, int]
    """Device and inode."""
    attributes: tuple[int, int, int]
    """Mode, user and group, as in an entry."""
    status: os.stat_result


def _new_spare(name: bytes, folder: int) -> Spare:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o644, dir_fd=folder)
    if _allocate is not None:
        # Finding a block takes a third of the time of a write. If that fails here, the write finds one.
        _allocate(descriptor, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(_RESERVED_BYTES))
    found = os.fstat(descriptor)
    return Spare(name, descriptor, (found.st_dev, found.st_ino), (stat.S_IMODE(found.st_mode), *owner_of(found)), found)


def temporary_names(owner: str = "") -> Iterator[bytes]:
    """Names that no other file has; with an owner they tell whose they are."""
    own = prefix_of(owner) + os.urandom(4).hex().encode()
    return map((own + b"%08x").__mod__, count())  # not a generator: two threads may ask at once


def prefix_of(owner: str) -> bytes:
    return TEMPORARY_PREFIX + (f"{owner}-".encode() if owner else b"")


def mark_of(name: bytes) -> bytes:
    """The end of the temporary name of a file that replaces ``name``; a digest, because a name may be too long."""
    return digest_of(name)[:_MARK_BYTES].hex().encode()


class Stagings:
    """One directory for each sandbox, created when it is first needed.

    Directories that a killed process left behind are removed by the next one.
    """

    def __init__(self) -> None:
        self._stagings: dict[Path, Staging] = {}
        self._swept: set[Path] = set()
        self._background = _Background()

    def staging_for(self, root: Path) -> Staging:
        staging = self._stagings.get(root)
        if staging is not None:
            if staging.is_there:
                os.fchmod(staging.descriptor, 0o700)  # a step may have closed it
                return staging
            self._stagings.pop(root).close()
        if root not in self._swept:
            self._swept.add(root)
            for leftover in root.parent.glob(glob.escape(f".staging-{root.name}-") + "[0-9a-f]" * 8):
                shutil.rmtree(leftover, ignore_errors=True)
        path = root.parent / f".staging-{root.name}-{os.urandom(4).hex()}"
        path.mkdir(mode=0o700)
        staging = self._stagings[root] = Staging(path)
        return staging

    def cleaning(self, root: Path) -> Callable[[], None] | None:
        """A function to call after a restore, when there is time."""
        staging = self._stagings.get(root)
        return None if staging is None else staging.clean()

    def remove(self, root: Path) -> None:
        staging = self._stagings.pop(root, None)
        if staging is not None:
            path = staging.path
            staging.close()
            self._background.do(lambda: shutil.rmtree(path, ignore_errors=True))

    def wait(self) -> None:
        """Wait until everything is removed."""
        self._background.wait()


class _Background:
    """One thread that calls functions in order; it starts with the first of them."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue()
        self._thread: threading.Thread | None = None

    def do(self, action: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-cleaning", daemon=True)
            self._thread.start()
        self._waiting.put(action)

    def wait(self) -> None:
        self._waiting.join()

    def _run(self) -> None:
        while True:
            action = self._waiting.get()
            try:
                action()
            finally:
                self._waiting.task_done()
