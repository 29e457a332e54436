"""Locks real folders while they are changed or read as a whole: each by its inode, not by its name.

A lock is a flag on a descriptor of the directory itself. So nothing is written, the lock holds for every home and every
user of this machine, and it ends with the process. While a folder is changed, no other process can read or change it, a
folder around it or a folder inside it. Folders beside each other do not exclude each other, nor do several readers.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from holdfast.errors import ConflictError
from holdfast.names import name_text
from holdfast.system.progress import told_of_waiting
from holdfast.system.stopping import stop_if_asked

PATIENCE_SECONDS = 60.0
"""How long to wait for another process: copying a large folder takes that long."""
_PAUSE_SECONDS = (0.01, 0.05)

_READ_HERE, _CHANGED_HERE, _CHANGED_BELOW, _READ_BELOW = range(4)
_EXCLUDES = {
    _READ_HERE: (_CHANGED_HERE, _CHANGED_BELOW),
    _CHANGED_HERE: (_READ_HERE, _READ_BELOW),
    _CHANGED_BELOW: (_READ_HERE, _CHANGED_HERE),
    _READ_BELOW: (_CHANGED_HERE, _CHANGED_HERE),
}
"""For each flag the first and the last flag that no other process may have on the directory at the same time."""
_HERE = (_READ_HERE, _CHANGED_HERE)

_FLOCK = "@hhqqi0q"
_NO_FLAGS = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a kernel without locks of open file descriptions on ranges."""


def changing(folders: Iterable[Path]) -> AbstractContextManager[None]:
    """Keep other processes from reading or changing these folders, folders in them and folders around them."""
    return _locked(folders, _CHANGED_HERE, _CHANGED_BELOW)


def reading(folders: Iterable[Path]) -> AbstractContextManager[None]:
    """Keep other processes from changing these folders; they may read them."""
    return _locked(folders, _READ_HERE, _READ_BELOW)


@contextmanager
def _locked(folders: Iterable[Path], here: int, below: int) -> Iterator[None]:
    claims = _claims(folders, here, below)
    try:
        _wait_for(claims)
        yield
    finally:
        for claim in claims:
            claim.close()


def _claims(folders: Iterable[Path], here: int, below: int) -> list[_Claim]:
    """One for each folder and each folder around it, except those that are missing or that we may not open."""
    found: dict[tuple[int, int], _Claim] = {}
    for folder in (each.resolve() for each in folders):
        for place in (folder, *folder.parents):
            with suppress(OSError):
                claim = _Claim(place, here if place == folder else below)
                other = found.setdefault(claim.identity, claim)
                if other is not claim:
                    claim.close()
                    other.flag = min(other.flag, claim.flag, key=lambda flag: flag not in _HERE)
    return list(found.values())


def _wait_for(claims: list[_Claim]) -> None:
    """Take all of them or none: a process that waits holds no lock, so two never wait for each other."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with told_of_waiting() as waiting:
        while (taken := _first_taken(claims)) is not None:
            for claim in claims:
                claim.let_go()
            if time.monotonic() > deadline:
                raise _in_use(taken)
            stop_if_asked()
            waiting(f"for {taken.folder}")
            time.sleep(random.uniform(*_PAUSE_SECONDS))  # nosec B311 # so that two do not meet again and again


def _first_taken(claims: list[_Claim]) -> _Claim | None:
    """Set all flags, then look for those of others: if two processes do so at once, at least one sees the other."""
    for claim in claims:
        if not claim.take():
            return claim
    return next((claim for claim in claims if claim.is_excluded()), None)


class _Claim:
    """A flag on one directory, which this process sets and removes."""

    def __init__(self, folder: Path, flag: int) -> None:
        self.folder, self.flag = folder, flag
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.fstat(self._descriptor)
        self.identity = found.st_dev, found.st_ino
        self._has_flags = True

    def close(self) -> None:
        # A child that was forked meanwhile has the descriptor too: closing ours would not remove the lock.
        self.let_go()
        os.close(self._descriptor)

    def take(self) -> bool:
        if self._has_flags:
            try:
                self._ask(fcntl.F_OFD_SETLK, fcntl.F_RDLCK, self.flag, self.flag)
            except OSError as error:
                if error.errno not in _NO_FLAGS:
                    raise
                self._has_flags = False
        return self._has_flags or self._take_whole()

    def _take_whole(self) -> bool:
        """Use one lock in place of the flags; then readers exclude each other as well."""
        kind = fcntl.LOCK_EX if self.flag in _HERE else fcntl.LOCK_SH
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_excluded(self) -> bool:
        if not self._has_flags:
            return False
        # A directory cannot be opened to get a write lock, but the kernel tells what would conflict with one.
        answer = self._ask(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, *_EXCLUDES[self.flag])
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)

    def let_go(self) -> None:
        if self._has_flags:
            with suppress(OSError):
                self._ask(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, min(_EXCLUDES), max(_EXCLUDES))
        else:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _ask(self, command: int, kind: int, first: int, last: int) -> bytes:
        question = struct.pack(_FLOCK, kind, os.SEEK_SET, first, last - first + 1, 0)
        return fcntl.fcntl(self._descriptor, command, question)


# The process that holds a lock


def _in_use(taken: _Claim) -> ConflictError:
    by = " and ".join(_holders_of(taken.folder)) or "another process"
    return ConflictError(
        f"Another Holdfast process reads or changes {name_text(str(taken.folder))}, or a folder in it: {by}. "
        "Nothing was changed.",
        hint="Wait until it ends, then run the command again.",
    )


def _holders_of(folder: Path) -> list[str]:
    """The processes with a lock on that directory, as far as we may see them; the kernel has no call for it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) != os.getpid() and _has_lock_on(folder, process):
            with suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                program = b" ".join(words).decode(errors="replace").strip()
                found.append(f"process {process.name} (`{name_text(program)}`)")
    return found


def _has_lock_on(folder: Path, process: Path) -> bool:
    try:
        descriptors = os.listdir(process / "fd")
    except OSError:
        return False
    return any(_is_locked(process, each) for each in descriptors if _leads_to(folder, process / "fd" / each))


def _leads_to(folder: Path, descriptor: Path) -> bool:
    try:
        return os.readlink(descriptor) == str(folder)
    except OSError:
        return False


def _is_locked(process: Path, descriptor: str) -> bool:
    try:
        return "lock:" in (process / "fdinfo" / descriptor).read_text()
    except OSError:
        return False
