"""The SQLite file of the content store: tables, connection, transactions, and errors translated into ours."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.errors import ConflictError, ContentError, DatabaseDamagedError, DoctorHint, HoldfastError
from holdfast.system.sqlite import Error, connect, connected_alone, database_error, is_busy, is_read_only, patiently

_SCHEMA_VERSION = 4
SOME_IS_LOST = DoctorHint("Run `holdfast doctor` to see which checkpoints it affects.")
_ALL_IS_LOST = (
    "It holds the content of all checkpoints; your own files and the sandboxes are not affected. Copy it, then put it "
    "back from a backup. Without one, copy what you need out of the sandboxes, then move `objects.db*` away: new plans "
    "can run then."
)
_UPGRADE_SECONDS = 5
"""How long a process that finds a store of an earlier version waits for others that read it or upgrade it."""
_CACHE_KB = 16_000
"""Digests are random, so every query reads another page: the pages of a hundred thousand objects fit."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS object (digest BLOB PRIMARY KEY, size_bytes INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS snapshot (
    checkpoint_id TEXT PRIMARY KEY, sandbox_id TEXT NOT NULL, state BLOB NOT NULL, record TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS snapshot_by_sandbox ON snapshot (sandbox_id, checkpoint_id);
CREATE INDEX IF NOT EXISTS snapshot_by_state ON snapshot (state);
CREATE TABLE IF NOT EXISTS parcel (number INTEGER PRIMARY KEY, digests BLOB NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS record_store (records_id TEXT PRIMARY KEY, place TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS kept_plan (
    plan_id TEXT NOT NULL, records_id TEXT NOT NULL, token INTEGER NOT NULL, owner TEXT NOT NULL, mark TEXT NOT NULL,
    PRIMARY KEY (plan_id, records_id));
CREATE INDEX IF NOT EXISTS kept_plan_by_records ON kept_plan (records_id, mark);
CREATE TABLE IF NOT EXISTS unchecked_plan (
    plan_id TEXT NOT NULL, records_id TEXT NOT NULL, PRIMARY KEY (plan_id, records_id));
CREATE TABLE IF NOT EXISTS collection (records_id TEXT PRIMARY KEY, last TEXT NOT NULL, next TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS reference (
    digest BLOB NOT NULL, kind INTEGER NOT NULL, count INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (digest, kind)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS new_state (state BLOB PRIMARY KEY) WITHOUT ROWID;
"""
"""Version 1 had no parcels; version 2 did not record for which plans content is kept; version 3 counted nothing."""
_CHECK_ALL_PLANS = "INSERT OR IGNORE INTO unchecked_plan SELECT plan_id, records_id FROM kept_plan"


class ContentDatabase:
    """One connection, which several threads may use: each statement or transaction holds ``mutex``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mutex = threading.RLock()
        self.is_read_only = is_read_only(path)
        self.is_malformed = False
        """The structure of the file is damaged: every write can make it worse."""
        self.connection: Any = None
        self.store_id = ""
        try:
            patiently(self._open, _UPGRADE_SECONDS)
        except (Error, DatabaseDamagedError) as error:
            raise _in_use(path) if is_busy(error) else self._translated(error) from error

    def _open(self) -> None:
        self._connect()
        self.store_id = self._prepare()

    def _connect(self) -> None:
        self.connection = connect(self.path, auto_vacuum=True)
        self.connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        # A flipped bit can turn a text into bytes that are not UTF-8.
        self.connection.text_factory = _any_text

    def _prepare(self) -> str:
        found = self.row("SELECT count(*) FROM sqlite_master WHERE name = 'meta'")[0]
        if not found:
            with self.writing():
                _make_tables(self.connection)
        meta = dict(self.rows("SELECT key, value FROM meta"))
        version = int(meta["version"])
        if version > _SCHEMA_VERSION:
            raise ContentError(
                f"{self.path} was written by a newer Holdfast (content format {version}).",
                hint="Upgrade holdfast to the version that wrote it, or newer.",
            )
        if version < _SCHEMA_VERSION and self.is_read_only:
            raise ContentError(
                f"{self.path} is read-only, and an earlier version of Holdfast wrote it (content format {version}).",
                hint="Copy the home to a place where you can write, and set HOLDFAST_HOME to the copy.",
            )
        if version < _SCHEMA_VERSION:
            self._upgrade()
        return str(meta["store_id"])

    def _upgrade(self) -> None:
        """Bring a store of an earlier version to this one, while no other process has it open.

        A process of the earlier version would go on with it and not list the states that it stores (``Counts``).
        """
        self.connection.close()
        with connected_alone(self.path) as connection:
            _make_tables(connection)
        self._connect()

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        with self.mutex:
            try:
                rows: list[Any] = self.connection.execute(sql, parameters).fetchall()
            except Error as error:
                raise self._translated(error) from error
            return rows

    def row(self, sql: str, parameters: tuple[Any, ...] = ()) -> Any:
        """The first row, or None."""
        return next(iter(self.rows(sql, parameters)), None)

    def pragma(self, name: str) -> int:
        return int(self.row(f"PRAGMA {name}")[0])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction, durable when it ends."""
        with self.mutex:
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                try:
                    yield
                    self.connection.execute("COMMIT")
                except BaseException:
                    if self.connection.in_transaction:
                        self.connection.execute("ROLLBACK")
                    raise
            except (Error, DatabaseDamagedError) as error:
                raise self._translated(error) from error

    @contextmanager
    def writing_unsynced(self) -> Iterator[None]:
        """One transaction that does not wait for the disk: a power cut may undo it, a kill does not."""
        with self.mutex:
            try:
                self.rows("PRAGMA synchronous = NORMAL")
                with self.writing():
                    yield
            finally:
                self.rows("PRAGMA synchronous = FULL")

    def _translated(self, error: Exception) -> HoldfastError:
        """Our error; if the file is damaged, a ``ContentError``: a user cannot repair it as a database."""
        ours = error if isinstance(error, DatabaseDamagedError) else database_error(error, self.path)
        if not isinstance(ours, DatabaseDamagedError):
            return ours
        self.is_malformed = True
        return ContentError(ours.message, hint=SOME_IS_LOST if self.store_id else _ALL_IS_LOST)


def _make_tables(connection: Any) -> None:
    """Create the missing tables, in a new store or in one of an earlier version."""
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute(_CHECK_ALL_PLANS)
    # What an earlier version stored and collected is not counted.
    connection.execute("DELETE FROM meta WHERE key = 'counted'")
    connection.execute("DELETE FROM collection")
    if connection.execute("SELECT 1 FROM meta WHERE key = 'store_id'").fetchone() is None:
        connection.execute("INSERT INTO meta VALUES ('store_id', ?)", (os.urandom(8).hex(),))
        connection.execute("INSERT INTO meta VALUES ('counted', '0 ')")  # there is nothing to count yet
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('version', ?)", (str(_SCHEMA_VERSION),))


def _in_use(path: Path) -> ConflictError:
    return ConflictError(
        f"An earlier version of Holdfast wrote {path}, and another process has it open, perhaps of that version: it "
        "cannot be brought to this version meanwhile.",
        hint="Wait until the other holdfast commands have ended; then run this one again.",
    )


def _any_text(raw: bytes) -> str:
    return raw.decode(errors="replace")
