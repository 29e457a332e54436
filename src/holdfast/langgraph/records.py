"""The records of graphs: their checkpoints, the values in them and the writes after them, in a database of the home.

A value is stored once, under its digest, however many checkpoints have it. Each checkpoint names the moments of the
folders that belong to it; a moment is recorded before the row that names it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import DatabaseError
from holdfast.system.sqlite import connect, patiently, translated_errors

FILE = "langgraph.db"
_VERSION = 1
_SCHEMA = (
    """CREATE TABLE checkpoint (
        thread_id TEXT NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
        parent_id TEXT, run_id TEXT,
        kind TEXT NOT NULL, body BLOB NOT NULL, metadata_kind TEXT NOT NULL, metadata BLOB NOT NULL,
        moments TEXT NOT NULL,
        PRIMARY KEY (thread_id, namespace, checkpoint_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX checkpoint_run ON checkpoint (run_id)",
    """CREATE TABLE channel (
        thread_id TEXT NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
        name TEXT NOT NULL, digest BLOB NOT NULL,
        PRIMARY KEY (thread_id, namespace, checkpoint_id, name)
    ) WITHOUT ROWID""",
    "CREATE INDEX channel_digest ON channel (digest)",
    "CREATE TABLE value (digest BLOB PRIMARY KEY, kind TEXT NOT NULL, data BLOB NOT NULL)",
    """CREATE TABLE write (
        thread_id TEXT NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
        task_id TEXT NOT NULL, number INTEGER NOT NULL, task_path TEXT NOT NULL,
        channel TEXT NOT NULL, kind TEXT NOT NULL, data BLOB NOT NULL,
        PRIMARY KEY (thread_id, namespace, checkpoint_id, task_id, number)
    ) WITHOUT ROWID""",
    "CREATE TABLE folder (path TEXT PRIMARY KEY, plan_id TEXT NOT NULL, moment TEXT NOT NULL)",
    "CREATE TABLE unnamed (path TEXT NOT NULL, moment TEXT NOT NULL, PRIMARY KEY (path, moment)) WITHOUT ROWID",
)
_OF_CHECKPOINT = ("checkpoint", "channel", "write")

Typed = tuple[str, bytes]
"""What a serializer makes of a value: the kind of its form, and the bytes."""
Moments = dict[str, str]
"""By folder, the moment whose files belong to a checkpoint."""


class Key(msgspec.Struct, frozen=True):
    thread_id: str
    namespace: str
    checkpoint_id: str


class GraphCheckpoint(msgspec.Struct, frozen=True):
    key: Key
    parent_id: str | None
    run_id: str | None
    body: Typed
    metadata: Typed
    moments: Moments


class Write(msgspec.Struct, frozen=True):
    task_id: str
    number: int
    task_path: str
    channel: str
    value: Typed


class GraphRecords:
    """One connection, which all threads of the process share; each change is one transaction."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.RLock()
        self._connection = connect(path)
        self._is_writing = False
        self._make_tables()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _make_tables(self) -> None:
        if self._rows("PRAGMA user_version")[0][0] == _VERSION:
            return
        with self.writing():
            (version,) = self._rows("PRAGMA user_version")[0]
            if version > _VERSION:
                raise DatabaseError(
                    f"The records of graphs in {self._path} were written by a newer Holdfast.",
                    hint="Upgrade holdfast to the version that wrote them, or newer.",
                )
            if version < _VERSION:
                for statement in _SCHEMA:
                    self._execute(statement)
                self._execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction, in which no other thread or process writes; inside of another one, a part of that."""
        with self._lock:
            if self._is_writing:
                yield
                return
            with translated_errors(self._path):
                patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"))
                self._is_writing = True
                try:
                    yield
                    self._connection.execute("COMMIT")
                except BaseException:
                    self._connection.execute("ROLLBACK")
                    raise
                finally:
                    self._is_writing = False

    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        with self._lock, translated_errors(self._path):
            return self._connection.execute(sql, parameters).fetchall()

    def _execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        self._connection.execute(sql, parameters)

    # Checkpoints

    def put(self, found: GraphCheckpoint, channels: dict[str, bytes], values: dict[bytes, Typed]) -> None:
        """``channels``: by name the digest of the value; ``values``: those that may be new."""
        key = msgspec.structs.astuple(found.key)
        moments = msgspec.json.encode(found.moments).decode()
        row = (*key, found.parent_id, found.run_id, *found.body, *found.metadata, moments)
        with self.writing():
            for digest, typed in values.items():
                self._execute("INSERT OR IGNORE INTO value VALUES (?, ?, ?)", (digest, *typed))
            self._execute("DELETE FROM channel WHERE thread_id = ? AND namespace = ? AND checkpoint_id = ?", key)
            for name, digest in channels.items():
                self._execute("INSERT INTO channel VALUES (?, ?, ?, ?, ?)", (*key, name, digest))
            self._execute("INSERT OR REPLACE INTO checkpoint VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def find(self, key: Key) -> GraphCheckpoint | None:
        where = "thread_id = ? AND namespace = ? AND checkpoint_id = ?"
        return next(self._checkpoints(where, msgspec.structs.astuple(key)), None)

    def latest(self, thread_id: str, namespace: str) -> GraphCheckpoint | None:
        where = "thread_id = ? AND namespace = ? ORDER BY checkpoint_id DESC LIMIT 1"
        return next(self._checkpoints(where, (thread_id, namespace)), None)

    def newest_first(
        self, thread_id: str | None, namespace: str | None, checkpoint_id: str | None, before: str | None
    ) -> Iterator[GraphCheckpoint]:
        """Those of these; None stands for any. ``before``: only with smaller ids."""
        wanted = (("thread_id = ?", thread_id), ("namespace = ?", namespace), ("checkpoint_id = ?", checkpoint_id))
        chosen = [(sql, value) for sql, value in (*wanted, ("checkpoint_id < ?", before)) if value is not None]
        where = " AND ".join(sql for sql, _ in chosen) or "TRUE"
        return self._checkpoints(f"{where} ORDER BY checkpoint_id DESC", [value for _, value in chosen])

    def _checkpoints(self, where: str, parameters: Sequence[Any]) -> Iterator[GraphCheckpoint]:
        for thread_id, namespace, checkpoint_id, parent_id, run_id, *typed, moments in self._rows(
            f"SELECT * FROM checkpoint WHERE {where}", parameters
        ):
            key = Key(thread_id, namespace, checkpoint_id)
            body, metadata = (typed[0], typed[1]), (typed[2], typed[3])
            yield GraphCheckpoint(key, parent_id, run_id, body, metadata, msgspec.json.decode(moments, type=Moments))

    def channels(self, key: Key) -> dict[str, bytes]:
        sql = "SELECT name, digest FROM channel WHERE thread_id = ? AND namespace = ? AND checkpoint_id = ?"
        return dict(self._rows(sql, msgspec.structs.astuple(key)))

    def values(self, key: Key) -> dict[str, Typed]:
        """The values of the channels, by name."""
        sql = (
            "SELECT name, kind, data FROM channel JOIN value USING (digest) "
            "WHERE thread_id = ? AND namespace = ? AND checkpoint_id = ?"
        )
        return {name: (kind, data) for name, kind, data in self._rows(sql, msgspec.structs.astuple(key))}

    # Writes

    def put_writes(self, key: Key, writes: Iterable[Write]) -> None:
        """A write that is there already stays, unless its number is negative: of these the last one counts."""
        with self.writing():
            for each in writes:
                verb = "INSERT OR REPLACE" if each.number < 0 else "INSERT OR IGNORE"
                values = (each.task_id, each.number, each.task_path, each.channel, *each.value)
                sql = f"{verb} INTO write VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                self._execute(sql, (*msgspec.structs.astuple(key), *values))

    def writes(self, key: Key) -> list[Write]:
        sql = (
            "SELECT task_id, number, task_path, channel, kind, data FROM write "
            "WHERE thread_id = ? AND namespace = ? AND checkpoint_id = ? ORDER BY task_path, task_id, number"
        )
        rows = self._rows(sql, msgspec.structs.astuple(key))
        return [
            Write(task_id, number, path, channel, (kind, data)) for task_id, number, path, channel, kind, data in rows
        ]

    # Deleting and copying

    def delete(self, keys: Iterable[Key]) -> None:
        """Delete checkpoints with all that belongs to them, and the values that no other has.

        Moments that no checkpoint names any more are noted in the same transaction, to be deleted afterwards.
        """
        with self.writing():
            before = self._named_moments()
            for key in keys:
                for table in _OF_CHECKPOINT:
                    sql = f"DELETE FROM {table} WHERE thread_id = ? AND namespace = ? AND checkpoint_id = ?"
                    self._execute(sql, msgspec.structs.astuple(key))
            self._execute("DELETE FROM value WHERE digest NOT IN (SELECT digest FROM channel)")
            for each in before - self._named_moments():
                self._execute("INSERT OR IGNORE INTO unnamed VALUES (?, ?)", each)

    def delete_thread(self, thread_id: str) -> None:
        with self.writing():
            self.delete([each.key for each in self.newest_first(thread_id, None, None, None)])
            # Writes of checkpoints that were never saved.
            self._execute("DELETE FROM write WHERE thread_id = ?", (thread_id,))

    def of_runs(self, run_ids: Collection[str]) -> list[Key]:
        sql = "SELECT thread_id, namespace, checkpoint_id FROM checkpoint WHERE run_id = ?"
        return [Key(*row) for run_id in run_ids for row in self._rows(sql, (run_id,))]

    def copy_thread(self, source_id: str, target_id: str) -> None:
        """The target gets all that the source has; what it has already under the same ids is replaced."""
        with self.writing():
            for table in _OF_CHECKPOINT:
                names = [row[1] for row in self._rows(f"PRAGMA table_info({table})") if row[1] != "thread_id"]
                listed = ", ".join(names)
                copied = f"SELECT ?, {listed} FROM {table} WHERE thread_id = ?"
                sql = f"INSERT OR REPLACE INTO {table} (thread_id, {listed}) {copied}"
                self._execute(sql, (target_id, source_id))

    # Folders

    def _named_moments(self) -> set[tuple[str, str]]:
        """By folder the moments that checkpoints name."""
        sql = "SELECT DISTINCT moment.key, moment.value FROM checkpoint, json_each(checkpoint.moments) AS moment"
        return {(str(path), str(moment)) for path, moment in self._rows(sql)}

    def unnamed(self, folder: str) -> list[str]:
        """The moments of a folder that checkpoints once named and no longer do, and that are not deleted yet."""
        named = self._named_moments()
        rows = self._rows("SELECT moment FROM unnamed WHERE path = ?", (folder,))
        return [moment for (moment,) in rows if (folder, moment) not in named]

    def note_deleted(self, folder: str, moment: str) -> None:
        with self.writing():
            self._execute("DELETE FROM unnamed WHERE path = ? AND moment = ?", (folder, moment))

    def folder(self, path: str) -> tuple[str, str] | None:
        """The plan that holds the folder's moments, and the moment that its files were last known to be at."""
        rows = self._rows("SELECT plan_id, moment FROM folder WHERE path = ?", (path,))
        return (str(rows[0][0]), str(rows[0][1])) if rows else None

    def set_folder(self, path: str, plan_id: str, moment: str) -> None:
        with self.writing():
            self._execute("INSERT OR REPLACE INTO folder VALUES (?, ?, ?)", (path, plan_id, moment))
