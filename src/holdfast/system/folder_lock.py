"""Real folders while they are read as a whole or changed: a lock on each, by what it is and not by its name.

A lock is a flag on a descriptor of the directory itself. So nothing is written, it holds for every home and every user
of this machine, and it ends with the process. A folder that is changed excludes whatever reads or changes it, a folder
around it or a folder inside it; folders beside each other do not exclude each other, nor do several that only read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConflictError
from holdfast.names import name_text
from holdfast.system.progress import told_of_waiting
from holdfast.system.stopping import stop_if_asked

PATIENCE_SECONDS = 60.0
"""How long to wait for another process. A large folder takes that long to copy."""
_PAUSE_SECONDS = (0.01, 0.05)

_READ_HERE, _CHANGED_HERE, _CHANGED_BELOW, _READ_BELOW = range(4)
_EXCLUDES = {
    _READ_HERE: (_CHANGED_HERE, _CHANGED_BELOW),
    _CHANGED_HERE: (_READ_HERE, _READ_BELOW),
    _CHANGED_BELOW: (_READ_HERE, _CHANGED_HERE),
    _READ_BELOW: (_CHANGED_HERE, _CHANGED_HERE),
}
"""For each flag the first and the last of those that no other process may have there at the same time."""
_HERE = (_READ_HERE, _CHANGED_HERE)

_FLOCK = "@hhqqi0q"
_NO_FLAGS = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""What a kernel says that has no locks of open files on parts of them."""


@contextmanager
def changing(folders: Iterable[Path]) -> Iterator[None]:
    """Nothing else reads or changes these folders, what is in them or what they are in, as long as this lasts."""
    with _locked(folders, _CHANGED_HERE, _CHANGED_BELOW):
        yield


@contextmanager
def reading(folders: Iterable[Path]) -> Iterator[None]:
    """Nothing changes them meanwhile; others may read them too."""
    with _locked(folders, _READ_HERE, _READ_BELOW):
        yield


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
    """One for each folder and for each around it; those that are not there, or that we may not open, have none."""
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
    """Take all of them or none: whatever waits has nothing, so two never wait for each other."""
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
    """All flags are set before others are looked for: of two at once, at least one sees the other."""
    for claim in claims:
        if not claim.take():
            return claim
    return next((claim for claim in claims if claim.is_excluded()), None)


class _Claim:
    """A flag on one directory, ours while it is set."""

    def __init__(self, folder: Path, flag: int) -> None:
        self.folder, self.flag = folder, flag
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.fstat(self._descriptor)
        self.identity = found.st_dev, found.st_ino
        self._has_flags = True

    def close(self) -> None:
        # A child that was forked meanwhile has the descriptor too: closing ours would not let go.
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
        """One lock in place of the flags: then those that read exclude each other as well."""
        kind = fcntl.LOCK_EX if self.flag in _HERE else fcntl.LOCK_SH
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_excluded(self) -> bool:
        if not self._has_flags:
            return False
        # A directory cannot be opened for writing, but it can be asked what a lock for writing would meet.
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


# Who has it


@dataclass(frozen=True)
class _Holder:
    pid: int
    program: str


def _in_use(taken: _Claim) -> ConflictError:
    holders = [f"process {each.pid} (`{name_text(each.program)}`)" for each in _holders_of(taken.folder)]
    by = " and ".join(holders) or "another process"
    return ConflictError(
        f"Another Holdfast reads or changes {name_text(str(taken.folder))}, or a folder in it: {by}. "
        "Nothing was changed.",
        hint="Wait until it ends, then run the command again.",
    )


def _holders_of(folder: Path) -> list[_Holder]:
    """The processes with a lock on that directory, as far as we may see them; the kernel does not tell otherwise."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) != os.getpid() and _has_lock_on(folder, process):
            with suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                found.append(_Holder(int(process.name), b" ".join(words).decode(errors="replace").strip()))
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
