"""The content store: objects named by the digest of their content, in one SQLite file.

An object never changes; one that is found damaged or missing is noted, and stored anew when its content comes by again.

Whoever adds content holds the store (``holding``) until the record that names the content is committed; collecting
garbage waits for everybody who holds it, so it never removes what a checkpoint being taken needs.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import zstandard

from holdfast.errors import ContentError, HoldfastError, QuotaError
from holdfast.reserve import free_bytes, is_nearly_full
from holdfast.snapshot.format import digest_of
from holdfast.sqlite import Error, connect, database_error, is_damage, no_space, translated_errors

_RAW, _ZSTD = b"\x00", b"\x01"
_LEVEL = 1
_FLUSH_BYTES = 32 << 20
"""New content is committed in portions of this size: the memory in use and the write-ahead log stay bounded."""
_WAITING_BYTES = 4 << 20
_ASKED_AT_ONCE = 500
_FEWEST_PAGES = 64
"""As many are moved at once even where there seems to be no room."""
_SCHEMA_VERSION = 1
_NEWS_BYTES = 8
_CACHE_KB = 16_000
"""Names are random, so every question meets another page: those of a hundred thousand objects fit."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS object (digest BLOB PRIMARY KEY, size_bytes INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS snapshot (
    checkpoint_id TEXT PRIMARY KEY, sandbox_id TEXT NOT NULL, state BLOB NOT NULL, record TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS snapshot_by_sandbox ON snapshot (sandbox_id, checkpoint_id);
"""

_DAMAGED_SCHEMA = "CREATE TABLE IF NOT EXISTS damaged (digest BLOB PRIMARY KEY)"
"""Made when there is something to note in it."""


def pack(content: bytes, compressor: zstandard.ZstdCompressor) -> bytes:
    """Content as it is stored: compressed where that makes it smaller."""
    small = compressor.compress(content)
    return _ZSTD + small if len(small) < len(content) else _RAW + content


def new_compressor() -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=_LEVEL)


class ObjectStore:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_path = path.with_suffix(".lock")
        self._mutex = threading.RLock()
        self._lock = -1
        self._holders = 0
        self._holding_mutex = threading.Lock()
        self._news_seen: bytes | None = None
        self._sure: set[bytes] = set()
        """States found or put into the store since there was news of it."""
        self._found_damaged: set[bytes] = set()
        """Not noted yet."""
        self._damaged: set[bytes] = set()
        """Noted, by whomever; does not count as stored."""
        self.finding = ""
        """Another one whenever something more was found damaged."""
        self._is_malformed = False
        self._compressor = new_compressor()
        self._decompressor = zstandard.ZstdDecompressor()
        self._connection: Any = None
        with translated_errors(path):
            self._connection = connect(path, auto_vacuum=True)
            self._connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            self.store_id = self._prepare()

    def _prepare(self) -> str:
        found = self._row("SELECT count(*) FROM sqlite_master WHERE name = 'meta'")[0]
        if not found:
            with self._writing():
                for statement in _SCHEMA.split(";"):
                    self._connection.execute(statement)
                insert = "INSERT OR IGNORE INTO meta VALUES (?, ?)"
                self._connection.execute(insert, ("store_id", secrets.token_hex(8)))
                self._connection.execute(insert, ("version", str(_SCHEMA_VERSION)))
        meta = dict(self._rows("SELECT key, value FROM meta"))
        if int(meta["version"]) > _SCHEMA_VERSION:
            raise ContentError(
                f"{self.path} was written by a newer Holdfast (content format {meta['version']}).",
                hint="Upgrade holdfast to the version that wrote it, or newer.",
            )
        return str(meta["store_id"])

    def close(self) -> None:
        self._note_damaged()
        with self._mutex:
            self._connection.close()
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def _rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        with self._mutex, self._translated_errors():
            rows: list[Any] = self._connection.execute(sql, parameters).fetchall()
            return rows

    def _row(self, sql: str, parameters: tuple[Any, ...] = ()) -> Any:
        """The only row there can be, or None."""
        return next(iter(self._rows(sql, parameters)), None)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """A damaged file of content is damaged content, and not a database that somebody could make usable."""
        try:
            yield
        except Error as error:
            if not is_damage(error):
                raise database_error(error, self.path) from error
            self._is_malformed = True
            raise ContentError(
                f"The structure of {self.path.name} is damaged: {error}.",
                hint="Run `holdfast doctor` to see which checkpoints it affects.",
            ) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._mutex, self._translated_errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    # Reading

    def has(self, digest: bytes) -> bool:
        return self._row("SELECT 1 FROM object WHERE digest = ?", (digest,)) is not None

    def surely_has(self, digest: bytes) -> bool:
        """The same for whoever holds the store, without a question to the database if it was there before.

        Only collecting removes anything, and whoever holds the store knows whether that happened since.
        """
        if digest in self._sure:
            return True
        if digest in self._damaged or not self.has(digest):
            return False
        self._sure.add(digest)
        return True

    def known_among(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those that need not be stored again."""
        found: set[bytes] = set()
        for start in range(0, len(digests), _ASKED_AT_ONCE):
            asked = tuple(digests[start : start + _ASKED_AT_ONCE])
            sql = f"SELECT digest FROM object WHERE digest IN ({', '.join('?' * len(asked))})"
            found.update(row[0] for row in self._rows(sql, asked))
        return found - self._damaged

    def read(self, digest: bytes) -> bytes:
        """The content of that name, checked against it."""
        row = self._row("SELECT data, size_bytes FROM object WHERE digest = ?", (digest,))
        if row is None:
            raise self._missing(digest)
        return self._checked(digest, *row)

    def read_all(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """The contents of these names, each checked against it; all are in memory at once."""
        wanted = list(dict.fromkeys(digests))
        found: dict[bytes, bytes] = {}
        for start in range(0, len(wanted), _ASKED_AT_ONCE):
            asked = tuple(wanted[start : start + _ASKED_AT_ONCE])
            sql = f"SELECT digest, data, size_bytes FROM object WHERE digest IN ({', '.join('?' * len(asked))})"
            for digest, data, size in self._rows(sql, asked):
                found[digest] = self._checked(digest, data, size)
        for digest in wanted:
            if digest not in found:
                raise self._missing(digest)
        return found

    def _missing(self, digest: bytes) -> ContentError:
        self._found_damaged.add(digest)
        return ContentError(
            f"Saved content {digest.hex()[:16]} is missing from {self.path.name}.",
            hint="Run `holdfast doctor` to see which checkpoints it affects.",
        )

    def _checked(self, digest: bytes, data: object, size: int) -> bytes:
        content = self._unpacked(data, size)
        if content is None or digest_of(content) != digest:
            self._found_damaged.add(digest)
            raise ContentError(
                f"Saved content {digest.hex()[:16]} in {self.path.name} is damaged.",
                hint="Run `holdfast doctor` to see which checkpoints it affects.",
            )
        return content

    def _unpacked(self, data: object, size: int) -> bytes | None:
        if not isinstance(data, bytes):
            return None  # SQLite keeps whatever type it is given
        if data[:1] == _RAW:
            return data[1:]
        try:
            # zstd contexts are not safe to share between threads
            with self._mutex:
                return self._decompressor.decompress(data[1:], max_output_size=size)
        except zstandard.ZstdError:
            return None

    # Writing

    def packed(self, content: bytes) -> bytes:
        with self._mutex:
            return pack(content, self._compressor)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Nothing is collected from the store until this ends."""
        with self._holding_mutex:
            if not self._holders:
                self._hold()
            self._holders += 1
        try:
            yield
        finally:
            with self._holding_mutex:
                self._holders -= 1
                if not self._holders:
                    fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _hold(self) -> None:
        self._note_damaged()
        if self._lock < 0:
            self._lock = self._open_lock()
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        try:
            self._hear_news(os.pread(self._lock, _NEWS_BYTES, 0))
        except BaseException:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            raise

    def _hear_news(self, news: bytes) -> None:
        if news != self._news_seen:
            self._sure.clear()
            self._load_damaged()
            self._news_seen = news

    def _open_lock(self) -> int:
        return os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        """Nobody holds the store while this lasts, and who holds it next sees that something may be gone."""
        descriptor = self._open_lock()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _tell_news(descriptor)
            yield
        finally:
            os.close(descriptor)

    # What was found damaged

    def leave_as_it_is(self) -> None:
        """Note nothing: where the structure of the file is damaged, every write can make it worse."""
        self._is_malformed = True

    def _note_damaged(self) -> None:
        """As well as can be: what cannot be noted now is found again when it is next needed."""
        if not self._found_damaged or self._is_malformed:
            return
        found = tuple(self._found_damaged)
        with suppress(HoldfastError, OSError):
            with self._writing():
                self._connection.execute(_DAMAGED_SCHEMA)
                rows = [(digest,) for digest in found]
                if self._connection.executemany("INSERT OR IGNORE INTO damaged VALUES (?)", rows).rowcount:
                    finding = ("finding", secrets.token_hex(8))
                    self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", finding)
            self._found_damaged.difference_update(found)
            descriptor = self._open_lock()
            try:
                _tell_news(descriptor)
            finally:
                os.close(descriptor)

    def _load_damaged(self) -> None:
        row = self._row("SELECT value FROM meta WHERE key = 'finding'")
        self.finding = row[0] if row else ""
        self._damaged = {row[0] for row in self._rows("SELECT digest FROM damaged")} if row else set()

    # Adding

    def batch(self, limit_bytes: int | None = None) -> Batch:
        """New content; with a limit it refuses to let the whole store grow beyond that."""
        return Batch(self, limit_bytes)

    def insert(self, rows: list[tuple[bytes, int, bytes]], snapshots: list[tuple[str, str, bytes, str]]) -> None:
        """Everything in one durable transaction."""
        if not rows and not snapshots:
            return
        if rows:
            self._refuse_without_room_for(sum(len(data) for _, _, data in rows))
        healed = [row for row in rows if row[0] in self._damaged]
        with self._writing():
            if healed:
                self._connection.executemany("INSERT OR REPLACE INTO object VALUES (?, ?, ?)", healed)
                self._connection.executemany("DELETE FROM damaged WHERE digest = ?", [(row[0],) for row in healed])
            self._connection.executemany("INSERT OR IGNORE INTO object VALUES (?, ?, ?)", rows)
            self._connection.executemany("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?)", snapshots)
        self._damaged.difference_update(row[0] for row in healed)
        self._sure.update(state for _, _, state, _ in snapshots)

    # The catalogue of snapshots

    def snapshots_of(self, sandbox_id: str) -> list[str]:
        sql = "SELECT record FROM snapshot WHERE sandbox_id = ? ORDER BY checkpoint_id"
        return [row[0] for row in self._rows(sql, (sandbox_id,))]

    def find_snapshot(self, checkpoint_id: str) -> str | None:
        row = self._row("SELECT record FROM snapshot WHERE checkpoint_id = ?", (checkpoint_id,))
        return None if row is None else row[0]

    def delete_snapshots(self, checkpoint_ids: Iterable[str]) -> None:
        with self._writing():
            parameters = [(checkpoint_id,) for checkpoint_id in checkpoint_ids]
            self._connection.executemany("DELETE FROM snapshot WHERE checkpoint_id = ?", parameters)

    # Keeping house

    def collect(self, reachable: Callable[[], set[bytes]], states: Callable[[], set[bytes]]) -> int:
        """Remove every object not in ``reachable()`` and give the space back; the number of bytes freed.

        Both functions are asked after the lock is held: what they see then is all there is.
        """
        with self._collecting():
            keep, kept_states = reachable(), states()
            rows = self._rows("SELECT digest, length(data) FROM object")
            doomed = [(digest, size) for digest, size in rows if digest not in keep]
            orphans = [
                (row[0],)
                for row in self._rows("SELECT checkpoint_id, state FROM snapshot")
                if row[1] not in kept_states
            ]
            self._load_damaged()
            outdated = [(digest,) for digest in self._damaged - keep]
            if not doomed and not orphans and not outdated:
                return 0
            with self._writing():
                if outdated:
                    self._connection.executemany("DELETE FROM damaged WHERE digest = ?", outdated)
                self._connection.executemany("DELETE FROM object WHERE digest = ?", [(d,) for d, _ in doomed])
                self._connection.executemany("DELETE FROM snapshot WHERE checkpoint_id = ?", orphans)
            self._give_back()
            return sum(size for _, size in doomed)

    def _give_back(self) -> None:
        """Return free pages to the disk, in portions for whose way through the log it has room."""
        free_pages, page_bytes = self._pragma("freelist_count"), self._pragma("page_size")
        while free_pages:
            room_bytes = free_bytes(self.path.parent)
            self._rows(f"PRAGMA incremental_vacuum({max(_FEWEST_PAGES, room_bytes // 2 // page_bytes)})")
            if is_nearly_full(self.path.parent):
                self._copy_log_into_file()
            before, free_pages = free_pages, self._pragma("freelist_count")
            if free_pages >= before:
                return

    def _copy_log_into_file(self) -> None:
        """Only if all of it fits: a part of it would take up space and free none."""
        if self._growth_bytes() <= free_bytes(self.path.parent):
            self._rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def _growth_bytes(self, added_bytes: int = 0) -> int:
        """By how much the file grows when all that is in its log, and so much more, is copied into it."""
        size_bytes = self._pragma("page_count") * self._pragma("page_size") + added_bytes
        return max(0, size_bytes - self.path.stat().st_size)

    def _refuse_without_room_for(self, added_bytes: int) -> None:
        """What fits into the log but not from there into the file would hold the space of both, for good."""
        if self._has_room_for(added_bytes):
            return
        self._copy_log_into_file()
        if not self._has_room_for(added_bytes):
            raise no_space(self.path)

    def _has_room_for(self, added_bytes: int) -> bool:
        return free_bytes(self.path.parent) >= added_bytes + self._growth_bytes(added_bytes)

    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.path, self._wal_path()) if path.exists())

    def _wal_path(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    def content_bytes(self) -> int:
        pages, free, size = (self._pragma(name) for name in ("page_count", "freelist_count", "page_size"))
        return (pages - free) * size

    def _pragma(self, name: str) -> int:
        return int(self._row(f"PRAGMA {name}")[0])

    def damaged(self) -> list[bytes]:
        """The names of all objects whose content does not match them."""
        digests = [row[0] for row in self._rows("SELECT digest FROM object")]
        return [digest for digest in digests if not self._is_sound(digest)]

    def _is_sound(self, digest: bytes) -> bool:
        try:
            self.read(digest)
        except ContentError:
            return False
        return True


def _tell_news(lock: int) -> None:
    """Whoever holds the store next sees that something may be gone from it, or was found damaged."""
    os.pwrite(lock, secrets.token_bytes(_NEWS_BYTES), 0)


class Batch:
    """New content on its way into the store; durable after ``commit``.

    Content waits uncompressed until there is enough of it to ask the store in one question which of it is new.
    """

    def __init__(self, store: ObjectStore, limit_bytes: int | None) -> None:
        self._store = store
        self.finding = store.finding
        self._when_stored: list[Callable[[], None]] = []
        self._limit_bytes = limit_bytes
        self._room_bytes = 0 if limit_bytes is None else limit_bytes - store.content_bytes()
        self._waiting: dict[bytes, bytes] = {}
        self._waiting_bytes = 0
        self._rows: dict[bytes, tuple[bytes, int, bytes]] = {}
        self._rows_bytes = 0
        self._snapshots: list[tuple[str, str, bytes, str]] = []
        self._added_bytes = 0

    def add(self, content: bytes) -> bytes:
        digest = digest_of(content)
        if digest not in self._waiting and digest not in self._rows:
            self._waiting[digest] = content
            self._waiting_bytes += len(content)
            if self._waiting_bytes >= _WAITING_BYTES or len(self._waiting) >= _ASKED_AT_ONCE:
                self._pack()
        return digest

    def has(self, digest: bytes) -> bool:
        return digest in self._waiting or digest in self._rows or self._store.surely_has(digest)

    def add_packed(self, objects: Sequence[tuple[bytes, int, bytes]]) -> None:
        """Objects that somebody else has read and packed."""
        known = self._store.known_among([digest for digest, _, _ in objects])
        for digest, size, data in objects:
            if digest not in known and digest not in self._rows and digest not in self._waiting:
                self._queue(digest, size, data)

    def _pack(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        known = self._store.known_among(list(waiting))
        for digest, content in waiting.items():
            if digest not in known:
                self._queue(digest, len(content), self._store.packed(content))

    def _queue(self, digest: bytes, size: int, data: bytes) -> None:
        self._rows[digest] = (digest, size, data)
        self._rows_bytes += len(data)
        self._added_bytes += len(data)
        if self._limit_bytes is not None and self._added_bytes > self._room_bytes:
            raise QuotaError(
                f"Saved content would take more than the {self._limit_bytes} bytes it may "
                "(`sandbox.checkpoint.max-bytes`), and nothing more can be pruned.",
                hint="Raise the limit, delete plans that are done, or prune other plans' checkpoints. Then go on.",
            )
        if self._rows_bytes >= _FLUSH_BYTES:
            self._flush()

    def added_bytes(self) -> int:
        """How much new content has come so far."""
        self._pack()
        return self._added_bytes

    def catalogue(self, checkpoint_id: str, sandbox_id: str, state: bytes, record: str) -> None:
        self._snapshots.append((checkpoint_id, sandbox_id, state, record))

    def when_stored(self, action: Callable[[], None]) -> None:
        """Do this once all that has come so far is in the store; never, if the batch is given up."""
        self._when_stored.append(action)

    def commit(self) -> None:
        self._pack()
        self._flush()
        actions, self._when_stored = self._when_stored, []
        for action in actions:
            action()

    def _flush(self) -> None:
        self._store.insert(list(self._rows.values()), self._snapshots)
        self._rows, self._rows_bytes, self._snapshots = {}, 0, []
