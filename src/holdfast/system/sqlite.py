"""SQLite as Holdfast uses it: the safest module available, one set of pragmas, and its errors as ours."""

from __future__ import annotations

import ctypes
import importlib
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from holdfast.errors import (
    HOW_TO_FREE_SPACE,
    SEE_DOCTOR,
    DatabaseDamagedError,
    DatabaseError,
    DatabaseFullError,
    DoctorHint,
)
from holdfast.system.reserve import is_nearly_full

SAFE_VERSION = (3, 51, 3)
"""In earlier versions several processes that checkpoint the write-ahead log can lose committed changes."""
BUSY_TIMEOUT_SECONDS = 30
_INCREMENTAL = 2


def _chosen_module() -> Any:
    if sqlite3.sqlite_version_info >= SAFE_VERSION:
        return sqlite3
    try:
        packaged = importlib.import_module("pysqlite3.dbapi2")
    except ImportError:
        return sqlite3
    return packaged if packaged.sqlite_version_info >= SAFE_VERSION else sqlite3


module: Any = _chosen_module()
sqlite_version: str = module.sqlite_version
Error: type[Exception] = module.Error
C = TypeVar("C", bound=sqlite3.Connection)
_CONNECTION: type[sqlite3.Connection] = module.Connection

_MEANINGS = {
    sqlite3.SQLITE_BUSY: (
        f"The database {{path}} stayed locked by another process for {BUSY_TIMEOUT_SECONDS} s.",
        "Wait for the other holdfast command to end, then run this one again.",
    ),
    sqlite3.SQLITE_FULL: (
        "There is no space left for the database {path}; nothing of this change was saved.",
        HOW_TO_FREE_SPACE,
    ),
    sqlite3.SQLITE_CORRUPT: ("The database {path} is damaged: {error}.", SEE_DOCTOR),
    sqlite3.SQLITE_NOTADB: (
        "The file {path} is not a SQLite database.",
        "Move it away, or set HOLDFAST_HOME to another folder.",
    ),
    sqlite3.SQLITE_READONLY: (
        "The database {path} cannot be written: it is read-only, or closed to you.",
        "Make the file and its folder readable and writable for you, or set HOLDFAST_HOME to another folder.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "The database {path} cannot be opened.",
        "Check that it is a file, and that you may write into its folder.",
    ),
    sqlite3.SQLITE_IOERR: (
        "The disk failed while the database {path} was read or written: {error}.",
        DoctorHint("Check the disk and the space left on it, then run `holdfast doctor`."),
    ),
}
_SAME_MEANING = {sqlite3.SQLITE_LOCKED: sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PERM: sqlite3.SQLITE_READONLY}
_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL)
_NOT_WHAT_WAS_WRITTEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NOT_FOR_A_READER = (
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, *_NOT_WHAT_WAS_WRITTEN,
)  # fmt: skip
_UNREADABLE = (
    sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS,
)  # fmt: skip


def sqlite_is_safe() -> bool:
    return bool(module.sqlite_version_info >= SAFE_VERSION)


def connect(path: Path, *, auto_vacuum: bool = False) -> sqlite3.Connection:
    """Open or create a database file in an existing folder; the caller begins (``BEGIN IMMEDIATE``) and commits.

    If this user cannot write the file, it is opened for reading, and only statements that write are refused.
    """
    if is_read_only(path):
        return connect_to_look(path)
    _make_private(path)
    with translated_errors(path):
        connection: sqlite3.Connection = module.connect(
            path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            patiently(lambda: _configure(connection, path, auto_vacuum))
        except BaseException:
            _abandon(connection)
            raise
        return connection


def connect_to_look(path: Path) -> sqlite3.Connection:
    """Open a database file only for reading: closing it copies nothing from its write-ahead log."""
    with translated_errors(path):
        if not is_read_only(path) or _has_log(path):
            return _connect_to_look(path, "mode=ro", _CONNECTION)
        connection = _connect_to_look(path, "mode=ro&immutable=1", _Unlocked)
        connection.look_at(path)
        return connection


def _connect_to_look(path: Path, how: str, kind: type[C]) -> C:
    connection: C = module.connect(
        f"file:{quote(os.fsencode(path))}?{how}",
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        uri=True,
        check_same_thread=False,
        factory=kind,
    )
    return connection


def is_read_only(path: Path) -> bool:
    """Whether this user can read the database file, but not write it or its folder, where SQLite writes too."""
    if not os.access(path, os.R_OK):
        return False
    return not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK))


def _has_log(path: Path) -> bool:
    """Whether it has a write-ahead log that can be read: one with its index, which has the locks of a database in use.

    Without an index SQLite cannot read the log in a folder that it cannot write to.
    """
    log, index = (path.with_name(path.name + ending) for ending in ("-wal", "-shm"))
    if index.exists():
        return log.exists()
    if is_empty(log):
        return False
    raise DatabaseError(
        f"The database {path} was not closed; its last changes cannot be read in a folder that you cannot write to.",
        hint=f"Copy the folder {path.parent} to a place that you can write to, and set HOLDFAST_HOME to the copy.",
    )


class _Unlocked(_CONNECTION):  # type: ignore[valid-type, misc]  # the module is chosen when the program starts
    """To a file that has no write-ahead log, in a place where none can be made: nothing locks it.

    Another user may be able to write it. What is in the log does not matter; but if the file itself was changed
    meanwhile, what was read may be of two moments.
    """

    _path: Path | None = None
    _seen: tuple[int, ...] = ()

    def look_at(self, path: Path) -> None:
        self._path, self._seen = path, _state_of(path)

    def close(self) -> None:
        super().close()
        path, self._path = self._path, None
        if path is not None and _state_of(path) != self._seen:
            raise DatabaseError(f"The database {path} was changed while it was read.", hint="Run the command again.")


def _state_of(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _abandon(connection: sqlite3.Connection) -> None:
    """Leave an unusable connection open until the process ends.

    SQLite cleans up when the last connection closes. If it could not read the write-ahead log on a full disk, it may
    then treat the log as empty and remove it, with all that a killed process has committed to it.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def is_empty(path: Path) -> bool:
    """Whether a database file is missing or has no bytes."""
    try:
        return not path.stat().st_size
    except FileNotFoundError:
        return True


def damage_in(path: Path) -> list[str]:
    """What SQLite finds wrong with the structure of a database file; nothing if it is sound."""
    try:
        connection = connect(path)
    except DatabaseError as error:
        return [error.message]
    try:
        said = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(10)").fetchall()]
    except Error as error:
        return [str(error)]
    finally:
        connection.close()
    # One row can have many lines, below a heading that names one of the attached databases.
    return [] if said == ["ok"] else [line for row in said for line in row.splitlines() if not line.startswith("***")]


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except Error as error:
        raise database_error(error, path) from error


def no_space(path: Path) -> DatabaseError:
    return _meaning(sqlite3.SQLITE_FULL, path)


def database_error(error: Exception, path: Path) -> DatabaseError:
    return _meaning(_code(error), path, error)


def _meaning(code: int, path: Path, error: Exception | None = None) -> DatabaseError:
    unknown = ("The database {path} cannot be used: {error}.", SEE_DOCTOR)
    message, hint = _MEANINGS.get(_SAME_MEANING.get(code, code), unknown)
    return _kind(code, error)(message.format(path=path, error=error), hint=hint)


def _kind(code: int, error: Exception | None) -> type[DatabaseError]:
    if code == sqlite3.SQLITE_FULL:
        return DatabaseFullError
    # The file is not what was written, or the disk cannot read it.
    is_damage = code in _NOT_WHAT_WAS_WRITTEN or getattr(error, "sqlite_errorcode", 0) in _UNREADABLE
    return DatabaseDamagedError if is_damage else DatabaseError


def _code(error: Exception) -> int:
    # The low byte is the kind of error, the rest its variant.
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF


def is_busy(error: Exception) -> bool:
    """Whether another connection has it locked, so that a later attempt may succeed."""
    return _code(error) in (*_PASSING, sqlite3.SQLITE_LOCKED)


def cannot_be_read(error: Exception) -> bool:
    """Whether the file cannot be read without writing, or is not a database."""
    return _code(error) in _NOT_FOR_A_READER


def _make_private(path: Path) -> None:
    try:
        # Only a new file is opened here: closing a descriptor of a database in use would remove SQLite's locks on it.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise DatabaseError(
            f"The database {path} cannot be created: {error.strerror}.",
            hint="Check that its folder exists, is yours, and has space left.",
        ) from error
    if not os.access(path, os.R_OK):
        raise _meaning(sqlite3.SQLITE_READONLY, path)


def _configure(connection: sqlite3.Connection, path: Path, auto_vacuum: bool) -> None:
    # Both are stored in the file: checking first means that later openings take no lock and write nothing.
    if auto_vacuum and connection.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != "wal":
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise DatabaseError(
            f"The file system of {path} cannot hold SQLite's write-ahead log.",
            hint="Set HOLDFAST_HOME to a folder on a local disk.",
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    if is_nearly_full(path.parent):
        # Copying only part of the log into the file would use up the space that is left, and free none.
        connection.execute("PRAGMA wal_autocheckpoint = 0")


@contextmanager
def connected_alone(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection in one transaction, while no other has the file open; if one has, an error that ``is_busy``.

    SQLite gives up the write-ahead log only for the last connection. A new one takes it up again (``_configure``)
    before it reads anything, and cannot while the transaction lasts. The connection must be new: one that has read a
    page before would go on with it, although another may have changed it in the log before that was given up.
    """
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        connection.execute("BEGIN EXCLUSIVE")
        if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            raise _taken_up()
        yield connection
        connection.execute("COMMIT")


def _taken_up() -> Exception:
    error = Error("another connection has taken up the write-ahead log")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY  # type: ignore[attr-defined]
    return error


def patiently(action: Callable[[], object], seconds: float = BUSY_TIMEOUT_SECONDS) -> None:
    """Repeat an action that collides: SQLite's busy timeout does not cover processes that switch to WAL at once."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            action()
            return
        except Error as error:
            if _code(error) not in _PASSING or time.monotonic() >= deadline:
                raise
            time.sleep(random.uniform(0.001, 0.02))  # nosec B311 # it only spreads the tries
