"""SQLite databases among a user's files: recognised, found in use, and copied while a program writes to them.

One database lies in up to four files: the database file, a write-ahead log with changes that are not in it yet, a
rollback journal with changes that may have to be undone in it, and an index of the log. Bytes that are read while a
program writes to these files are not a valid database. So SQLite itself makes the copy, in a process of its own: the
locks of SQLite belong to a process and are lost when that process closes any other descriptor of the file, as this one
does all the time.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.errors import SandboxError
from holdfast.names import name_text
from holdfast.process.confinement import landlock_abi, rules_for
from holdfast.process.supervisor import PR_SET_PDEATHSIG, confine, prctl
from holdfast.system.once import once
from holdfast.system.sqlite import BUSY_TIMEOUT_SECONDS, Error, cannot_be_read, is_busy, module, patiently
from holdfast.system.stopping import run_stoppable

HEADER = b"SQLite format 3\0"
PAGE_BYTES = 512
"""The size of every database is a multiple of this."""
WRITE_AHEAD_LOG, JOURNAL, LOG_INDEX = b"-wal", b"-journal", b"-shm"
LOGS = (WRITE_AHEAD_LOG, JOURNAL)
COMPANIONS = (*LOGS, LOG_INDEX)

_COUNTERS = (slice(24, 28), slice(40, 44), slice(92, 100))
"""In the header: the number of changes, the number of schema changes, and the version that counted. They start again in
a copy."""
_FORMS, _LOGGED_FORMS = slice(18, 20), b"\2\2"
_JOURNAL_BEGINS_BYTES = 8
_FLOCK = struct.Struct("hhqqi0q")
_LOCKED_BYTES = {b"": (0x40000000, 512), LOG_INDEX: (120, 9)}
"""The bytes of each file that SQLite locks."""
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
SETTLED_NS = 20_000_000
"""The clock of a file system may stand still for up to 10 ms: a write in that time does not change the file's times."""
_SETTLING_TRIES = 5
PATIENCE_SECONDS = BUSY_TIMEOUT_SECONDS
"""How long to wait for a program that writes."""
_CANNOT_BE_READ, _IS_BUSY, _FAILED = 3, 4, 5


def database_of(path: bytes) -> bytes | None:
    """The path of the database that a log or index at this path belongs to; None for any other name."""
    return next((path.removesuffix(suffix) for suffix in COMPANIONS if path.endswith(suffix)), None)


def begins_as_database(content: bytes) -> bool:
    return content.startswith(HEADER)


def is_database(directory: int, name: bytes) -> bool:
    """Whether that file is a database. An empty file with a log beside it is a database that is just being created."""
    try:
        descriptor = os.open(name, _LOOK, dir_fd=directory)
    except OSError:
        return False
    try:
        return is_open_database(descriptor, directory, name)
    finally:
        os.close(descriptor)


def is_open_database(descriptor: int, directory: int, name: bytes) -> bool:
    """The same for a file that is open for reading."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return False
    if found.st_size == 0:
        return any(_status(directory, name + suffix) for suffix in LOGS)
    return begins_as_database(os.pread(descriptor, len(HEADER), 0))


def without_counters(first_bytes: bytes) -> bytes:
    """The beginning of a database without the bytes that differ in a copy made by SQLite."""
    content = bytearray(first_bytes)
    for place in _COUNTERS:
        content[place] = bytes(place.stop - place.start)
    return bytes(content)


def logs_beside(directory: int, name: bytes) -> list[bytes]:
    """The names of its logs that hold changes, which the next program that opens the database will use."""
    return [name + suffix for suffix in LOGS if _holds_something(directory, name + suffix, suffix)]


def _holds_something(directory: int, log: bytes, suffix: bytes) -> bool:
    found = _status(directory, log)
    if found is None or found.st_size == 0:
        return False
    if suffix != JOURNAL or not stat.S_ISREG(found.st_mode):
        return True
    try:
        descriptor = os.open(log, _LOOK, dir_fd=directory)
    except OSError:
        return True
    try:
        # A journal that is kept for the next transaction begins with zeros.
        return any(os.pread(descriptor, _JOURNAL_BEGINS_BYTES, 0))
    finally:
        os.close(descriptor)


def _status(directory: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None


# Programs that use it


class Users:
    """The programs that have files open, found once; only root sees those of other users."""

    def of(self, directory: int, names: Iterable[bytes]) -> list[str]:
        """The programs that have one of these files open, by name and process id."""
        found: dict[str, None] = {}
        for name in names:
            status = _status(directory, name)
            if status is not None and stat.S_ISREG(status.st_mode):
                processes = self._by_file.get((status.st_dev, status.st_ino), ())
                found |= dict.fromkeys(map(_described, processes))
        return list(found)

    def of_database(self, directory: int, name: bytes) -> list[str]:
        """The programs that have the database or one of its companions open or locked."""
        names = [name, *(name + suffix for suffix in COMPANIONS)]
        found = dict.fromkeys(self.of(directory, names))
        for suffix, place in _LOCKED_BYTES.items():
            holder = _lock_holder(directory, name + suffix, place)
            if holder is not None:
                found[_described(holder)] = None
        return list(found)

    def of_moved(self, directory: int, moved: bytes, name: bytes) -> list[str]:
        """The same for a database or a companion that was just renamed from ``name`` to ``moved``."""
        database = database_of(name)
        if database is not None and is_database(directory, database):
            return list(dict.fromkeys([*self.of_database(directory, database), *self.of(directory, [moved])]))
        return self.of_database(directory, moved) if is_database(directory, moved) else []

    @once
    def _by_file(self) -> dict[tuple[int, int], set[int]]:
        by_file: dict[tuple[int, int], set[int]] = {}
        for process, file in _open_files():
            by_file.setdefault(file, set()).add(process)
        return by_file


def _open_files() -> Iterator[tuple[int, tuple[int, int]]]:
    """Every process with the device and inode of each file that it has open."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            descriptors = os.listdir(f"/proc/{process}/fd")
        except OSError:
            continue  # it has ended, or belongs to another user
        for descriptor in descriptors:
            link = f"/proc/{process}/fd/{descriptor}"
            with suppress(OSError, ValueError):
                # Sockets and pipes have no path.
                if os.readlink(link).startswith("/") and not _is_our_own_look(process, descriptor):
                    found = os.stat(link)
                    if stat.S_ISREG(found.st_mode):
                        yield int(process), (found.st_dev, found.st_ino)


def _is_our_own_look(process: str, descriptor: str) -> bool:
    """Whether the descriptor belongs to this process and only reads: one of its threads copies, compares or scans."""
    if int(process) != os.getpid():
        return False
    with open(f"/proc/self/fdinfo/{descriptor}") as facts:
        flags = next(line.split()[1] for line in facts if line.startswith("flags:"))
    return int(flags, 8) & os.O_ACCMODE == os.O_RDONLY


def _lock_holder(directory: int, name: bytes, place: tuple[int, int]) -> int | None:
    """The process that has a lock on these bytes; 0 if its number is unknown."""
    try:
        descriptor = os.open(name, _LOOK, dir_fd=directory)
    except OSError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, *place, 0)
        answer = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
    except OSError:
        return None  # this file system does not support locks
    finally:
        os.close(descriptor)
    return None if answer[0] == fcntl.F_UNLCK else max(int(answer[4]), 0)


def _described(process: int) -> str:
    if process == 0:
        return "a process that cannot be seen from here"
    try:
        name = Path(f"/proc/{process}/comm").read_text(errors="replace").strip()
    except OSError:
        return f"process {process}"
    return f"{name_text(name)} (process {process})"


# The copy


Moment = tuple[tuple[int, ...] | None, ...]
"""Inode, size and mtime of the files of a database; as long as they are the same, so is the content."""


def moment_of(directory: int, name: bytes) -> Moment:
    return tuple(_stamp(directory, name + suffix) for suffix in (b"", *LOGS))


def settled_moment_of(directory: int, name: bytes) -> Moment | None:
    """The same, taken when any later write will change the files' times; None if they keep changing."""
    for _ in range(_SETTLING_TRIES):
        moment = moment_of(directory, name)
        last_write_ns = max((stamp[-1] for stamp in moment if stamp is not None), default=0)
        if not 0 <= time.time_ns() - last_write_ns < SETTLED_NS:
            return moment
        time.sleep(SETTLED_NS / 1e9)
    return None


def _stamp(directory: int, name: bytes) -> tuple[int, ...] | None:
    found = _status(directory, name)
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


def copy_as_of_one_moment(directory: int, name: bytes, target: Path) -> bool:
    """Have SQLite copy a database that a program may write to meanwhile; the original is only read.

    False if SQLite would have to write to the original or its folder: there is a journal to be rolled back, or there is
    no log yet, and so no program that writes.
    """
    if not _can_be_shared(directory, name):
        return False
    source = Path(os.readlink(f"/proc/self/fd/{directory}"), os.fsdecode(name))
    completed = run_stoppable(
        # -P: nothing is imported from the current folder, where a project may have modules with the same names.
        [sys.executable, "-P", "-m", __name__, os.fspath(source), os.fspath(target), str(PATIENCE_SECONDS)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    if completed.returncode == _CANNOT_BE_READ:
        target.unlink(missing_ok=True)
        return False
    if completed.returncode != 0:
        raise _not_copied(source, completed)
    return True


def _can_be_shared(directory: int, name: bytes) -> bool:
    """Whether all files exist that SQLite would otherwise create to read it."""
    try:
        descriptor = os.open(name, _LOOK, dir_fd=directory)
    except OSError:
        return False
    try:
        is_logged = os.pread(descriptor, _FORMS.stop, 0)[_FORMS] == _LOGGED_FORMS
    finally:
        os.close(descriptor)
    return not is_logged or all(_status(directory, name + suffix) for suffix in (WRITE_AHEAD_LOG, LOG_INDEX))


def _not_copied(source: Path, completed: subprocess.CompletedProcess[bytes]) -> SandboxError:
    said = completed.stderr.decode(errors="replace").strip().splitlines()
    reason = said[-1] if said else f"the copying process ended with {completed.returncode}"
    if completed.returncode == _IS_BUSY:
        reason = f"it stayed locked for {PATIENCE_SECONDS} s"
    return SandboxError(
        f"The database {name_text(str(source))} is in use and could not be copied as of one moment: {reason}.",
        hint="Close the programs that use it, or leave it out with `--exclude` if git does not track it, and retry.",
    )


def _back_up(source: Path, target: Path, patience_seconds: float) -> None:
    # Read-only: otherwise the last connection that closes would copy the log into the database and remove it.
    reading = module.connect(f"{source.as_uri()}?mode=ro", uri=True, timeout=0, isolation_level=None)
    patiently(lambda: _begin_reading(reading), patience_seconds)
    writing = module.connect(target, isolation_level=None)
    writing.execute("PRAGMA journal_mode = OFF")
    writing.execute("PRAGMA synchronous = OFF")
    # All pages in one step: with several steps, every change of the database would restart the copy.
    reading.backup(writing)
    writing.close()
    reading.close()


def _begin_reading(connection: Any) -> None:
    if not connection.in_transaction:
        connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _main(source: Path, target: Path, patience_seconds: float) -> int:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    abi = landlock_abi()
    if abi:
        # If the log vanishes at this moment, SQLite would create another one and leave it there.
        index = source.with_name(source.name + os.fsdecode(LOG_INDEX))
        rules = rules_for([target.parent, *([index] if index.exists() else [])], abi)
        confine(rules.attributes, rules.beneath)
    try:
        _back_up(source, target, patience_seconds)
    except Error as error:
        sys.stderr.write(f"{error}\n")
        return _CANNOT_BE_READ if cannot_be_read(error) else _IS_BUSY if is_busy(error) else _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])))
