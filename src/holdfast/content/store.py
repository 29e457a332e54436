"""The content store: objects named by the digest of their content, in one SQLite file.

An object never changes; one that is found damaged or missing is noted, and stored anew when its content comes by again.

What many questions ask for, and rows bring, is given to SQLite as a bytearray: for bytes the module looks each time
whether somebody has told it how to adapt them, which takes longer than finding or writing a small object.

Whoever adds content holds the store (``hold``) until the record that names the content is committed; collecting
garbage waits for everybody who holds it, so it never removes what a checkpoint being taken needs.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import zstandard

from holdfast.content import keeping
from holdfast.content.format import digest_of
from holdfast.content.packing import new_compressor, pack, unpack
from holdfast.content.parcels import Parcel, digests_in, pack_parcel, unpack_parcel
from holdfast.content.tally import Tally
from holdfast.errors import ContentError, DatabaseDamagedError, HoldfastError
from holdfast.system.reserve import free_bytes, is_nearly_full
from holdfast.system.sqlite import Error, connect, database_error, is_read_only, no_space

_ASKED_AT_ONCE = 500
_UNPACK_FROM_BYTES = 512 << 10
"""So much in parcels is given rows of its own."""
_ROOM_FOR_A_PAGE = 4
"""In pages: who moves one writes it, what leads to it, and what lists the places and the free pages."""
_SCHEMA_VERSION = 3
_NEWS_BYTES = 8
_SOME_IS_LOST = "Run `holdfast doctor` to see which checkpoints it affects."
_ALL_IS_LOST = (
    "It holds the content of all checkpoints; your own files and the sandboxes are not affected. Copy it, then put it "
    "back from a backup. Without one, copy what you need out of the sandboxes, then move `objects.db*` away: new plans "
    "can run then."
)
_CACHE_KB = 16_000
"""Names are random, so every question meets another page: those of a hundred thousand objects fit."""

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS object (digest BLOB PRIMARY KEY, size_bytes INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS snapshot (
    checkpoint_id TEXT PRIMARY KEY, sandbox_id TEXT NOT NULL, state BLOB NOT NULL, record TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS snapshot_by_sandbox ON snapshot (sandbox_id, checkpoint_id);
CREATE TABLE IF NOT EXISTS parcel (number INTEGER PRIMARY KEY, digests BLOB NOT NULL, data BLOB NOT NULL);
{keeping.SCHEMA}"""
"""Version 1 had no parcels, version 2 did not note for which plans content is kept."""

_INSERT = "INSERT OR IGNORE INTO object VALUES (?, ?, ?)"
_DAMAGED_SCHEMA = "CREATE TABLE IF NOT EXISTS damaged (digest BLOB PRIMARY KEY)"
"""Made when there is something to note in it."""


class ObjectStore:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder, self._log = os.fspath(path.parent), f"{path}-wal"
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
        self._parcelled_bytes = 0
        """What came in parcels since they were last unpacked."""
        self.is_read_only = is_read_only(path)
        self._is_malformed = False
        self._compressor, self._thorough_compressor = new_compressor(), new_compressor(is_thorough=True)
        self._decompressor = zstandard.ZstdDecompressor()
        self._connection: Any = None
        self.store_id = ""
        with self._translated_errors():
            self._connection = connect(path, auto_vacuum=True)
            self._connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            # One bit makes bytes a text, which need not be one.
            self._connection.text_factory = _any_text
            self.store_id = self._prepare()
        self._tally = Tally(self._connection)
        self.keeping = keeping.Keeping(self._rows, self._connection.execute, self._writing, self._keeping_house)

    def _prepare(self) -> str:
        found = self._row("SELECT count(*) FROM sqlite_master WHERE name = 'meta'")[0]
        if not found:
            self._make_tables()
        meta = dict(self._rows("SELECT key, value FROM meta"))
        version = int(meta["version"])
        if version > _SCHEMA_VERSION:
            raise ContentError(
                f"{self.path} was written by a newer Holdfast (content format {version}).",
                hint="Upgrade holdfast to the version that wrote it, or newer.",
            )
        if version < _SCHEMA_VERSION and self.is_read_only:
            raise ContentError(
                f"{self.path} is read-only, and of an earlier version ({version}) than this Holdfast.",
                hint="Copy the home to where you can write, and set HOLDFAST_HOME to the copy.",
            )
        if version < _SCHEMA_VERSION:
            self._make_tables()
        return str(meta["store_id"])

    def _make_tables(self) -> None:
        """Those that are not there, as in a new store or in one of an earlier version."""
        with self._writing():
            for statement in _SCHEMA.split(";"):
                self._connection.execute(statement)
            self._connection.execute("INSERT OR IGNORE INTO meta VALUES ('store_id', ?)", (secrets.token_hex(8),))
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('version', ?)", (str(_SCHEMA_VERSION),))

    def close(self) -> None:
        if self._parcelled_bytes:
            self.unpack_parcels()
        self._note_damaged()
        with self._mutex:
            self._connection.close()
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def _rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        with self._mutex:
            try:
                rows: list[Any] = self._connection.execute(sql, parameters).fetchall()
            except Error as error:
                raise self._translated(error) from error
            return rows

    def _row(self, sql: str, parameters: tuple[Any, ...] = ()) -> Any:
        """The only row there can be, or None."""
        return next(iter(self._rows(sql, parameters)), None)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """A damaged file of content is damaged content, and not a database that somebody could make usable."""
        try:
            yield
        except (Error, DatabaseDamagedError) as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> HoldfastError:
        ours = error if isinstance(error, DatabaseDamagedError) else database_error(error, self.path)
        if not isinstance(ours, DatabaseDamagedError):
            return ours
        self._is_malformed = True
        return ContentError(ours.message, hint=_SOME_IS_LOST if self.store_id else _ALL_IS_LOST)

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

    @contextmanager
    def _keeping_house(self) -> Iterator[None]:
        """For what a power cut may undo, though no kill does: it does not wait for the disk."""
        with self._mutex:
            try:
                self._rows("PRAGMA synchronous = NORMAL")
                with self._writing():
                    yield
            finally:
                self._rows("PRAGMA synchronous = FULL")

    # Reading

    def has(self, digest: bytes) -> bool:
        return self._has_row(digest) or digest in self._parcelled() or self._has_row(digest)

    def _has_row(self, digest: bytes) -> bool:
        return self._row("SELECT 1 FROM object WHERE digest = ?", (digest,)) is not None

    def _parcelled(self) -> dict[bytes, list[int]]:
        """The numbers of the parcels of all objects that may have no row of their own yet.

        Whoever finds an object neither here nor before in a row looks for its row again: it may just have got it.
        """
        found: dict[bytes, list[int]] = {}
        for digests, number in self._rows("SELECT digests, number FROM parcel"):
            for digest in digests_in(digests):
                found.setdefault(digest, []).append(number)
        return found

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

    def is_sure_of(self, state: bytes) -> bool:
        """Whether that state was found or put here before; no is not an answer."""
        return state in self._sure

    def known_among(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those that need not be stored again; one that is in a parcel only is not among them."""
        found: set[bytes] = set()
        for start in range(0, len(digests), _ASKED_AT_ONCE):
            asked = tuple(map(bytearray, digests[start : start + _ASKED_AT_ONCE]))
            sql = f"SELECT digest FROM object WHERE digest IN ({', '.join('?' * len(asked))})"
            found.update(row[0] for row in self._rows(sql, asked))
        return found - self._damaged

    def read(self, digest: bytes) -> bytes:
        """The content of that name, checked against it."""
        content = self._sound_row(digest)
        return self._read_parcelled([digest])[digest] if content is None else content

    def _sound_row(self, digest: bytes) -> bytes | None:
        rows = self._rows("SELECT digest, data, size_bytes FROM object WHERE digest = ?", (digest,))
        return self._sound(rows).get(digest)

    def _read_parcelled(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """The contents of objects that had no row of their own, or a damaged one, a moment ago."""
        numbers = self._parcelled()
        wanted: dict[int, list[bytes]] = {}
        for digest in digests:
            for number in numbers.get(digest, ()):
                wanted.setdefault(number, []).append(digest)
        found: dict[bytes, bytes] = {}
        for number, inside in wanted.items():
            contents = self._parcel(number)
            found.update((digest, contents[digest]) for digest in inside if _is(digest, contents.get(digest)))
        for digest in digests:
            if digest not in found:
                content = self._sound_row(digest)
                if content is None:
                    is_there = digest in numbers or self._has_row(digest)
                    raise self._damage(digest) if is_there else self._missing(digest)
                found[digest] = content
        return found

    def _parcel(self, number: int) -> dict[bytes, bytes]:
        row = self._row("SELECT digests, data FROM parcel WHERE number = ?", (number,))
        with self._mutex:
            return {} if row is None else unpack_parcel(row[0], row[1], self._decompressor)

    def read_all(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """The contents of these names, each checked against it; all are in memory at once."""
        wanted = list(dict.fromkeys(digests))
        found: dict[bytes, bytes] = {}
        for start in range(0, len(wanted), _ASKED_AT_ONCE):
            asked = tuple(map(bytearray, wanted[start : start + _ASKED_AT_ONCE]))
            sql = f"SELECT digest, data, size_bytes FROM object WHERE digest IN ({', '.join('?' * len(asked))})"
            found.update(self._sound(self._rows(sql, asked)))
        if len(found) < len(wanted):
            found.update(self._read_parcelled([digest for digest in wanted if digest not in found]))
        return found

    def unsound_among(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those that are missing or damaged; the contents of all are in memory at once."""
        try:
            self.read_all(digests)
        except ContentError:
            return {digest for digest in digests if not self._is_sound(digest)}
        return set()

    def _missing(self, digest: bytes) -> ContentError:
        self._found_damaged.add(digest)
        return ContentError(
            f"Saved content {digest.hex()[:16]} is missing from {self.path.name}.",
            hint=_SOME_IS_LOST,
        )

    def _damage(self, digest: bytes) -> ContentError:
        self._found_damaged.add(digest)
        return ContentError(
            f"Saved content {digest.hex()[:16]} in {self.path.name} is damaged.",
            hint=_SOME_IS_LOST,
        )

    def _sound(self, rows: Iterable[tuple[bytes, object, object]]) -> dict[bytes, bytes]:
        """The contents of those rows that hold what their names say."""
        found = {}
        with self._mutex:  # zstd contexts are not safe to share between threads
            for digest, data, size in rows:
                content = unpack(data, size, self._decompressor)
                if content is not None and digest_of(content) == digest:
                    found[digest] = content
                else:
                    self._found_damaged.add(digest)
        return found

    # Writing

    def packed(self, content: bytes) -> bytes:
        with self._mutex:
            return pack(content, self._compressor)

    def packed_parcel(self, contents: Mapping[bytes, bytes]) -> Parcel:
        with self._mutex:
            return pack_parcel(contents, self._compressor)

    def hold(self) -> None:
        """Nothing is collected from the store until it is released as often as it was held."""
        with self._holding_mutex:
            if not self._holders:
                self._lock_for_holding()
            self._holders += 1

    def release(self) -> None:
        with self._holding_mutex:
            self._holders -= 1
            if not self._holders:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _lock_for_holding(self) -> None:
        if self._found_damaged:
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

    def note_damaged(self) -> None:
        """Have what was found damaged stored anew by whoever meets it next, also while the store is held."""
        self._note_damaged()
        with self._holding_mutex:
            if self._holders:
                self._hear_news(os.pread(self._lock, _NEWS_BYTES, 0))

    def _note_damaged(self) -> None:
        """As well as can be: what cannot be noted now is found again when it is next needed."""
        if not self._found_damaged or self._is_malformed or self.is_read_only:
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

    def is_any_damaged(self, digests: Iterable[bytes]) -> bool:
        """Whether one of these is noted as damaged, so that its row has to be replaced."""
        return bool(self._damaged) and not self._damaged.isdisjoint(digests)

    def insert(
        self,
        rows: Sequence[Row],
        parcels: Sequence[Parcel],
        snapshots: Sequence[Snapshot],
        unnamed: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Everything in one durable transaction; ``unnamed`` is what it changes of the bytes that nothing names."""
        if rows or parcels:
            added_bytes = sum(len(row[2]) for row in rows) + sum(len(data) for _, data in parcels)
            self._refuse_without_room_for(added_bytes)
        with self._writing():
            healed = self._put_rows(rows) if rows else []
            for parcel in parcels:
                self._connection.execute(
                    "INSERT INTO parcel (digests, data) VALUES (?, ?)", tuple(map(bytearray, parcel))
                )
            for snapshot in snapshots:
                self._connection.execute("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?)", snapshot)
            self._tally.add_unnamed(unnamed)
        self._forget_damage(healed)
        self._sure.update(state for _, _, state, _ in snapshots)
        self._parcelled_bytes += sum(len(data) for _, data in parcels)

    def _put_rows(self, rows: Sequence[Row]) -> list[bytes]:
        """The names of those that were damaged and are sound now."""
        damaged = self._damaged | self._found_damaged
        healed = [row for row in rows if row[0] in damaged] if damaged else []
        self._connection.executemany("INSERT OR REPLACE INTO object VALUES (?, ?, ?)", healed)
        if self._damaged:  # else there may be no table for them
            self._connection.executemany("DELETE FROM damaged WHERE digest = ?", [(row[0],) for row in healed])
        self._connection.executemany(_INSERT, ((bytearray(name), size, bytearray(data)) for name, size, data in rows))
        return [row[0] for row in healed]

    def _forget_damage(self, healed: list[bytes]) -> None:
        self._damaged.difference_update(healed)
        self._found_damaged.difference_update(healed)

    @property
    def has_full_parcels(self) -> bool:
        """Whether so much has come in parcels that it is time to unpack them."""
        return self._parcelled_bytes >= _UNPACK_FROM_BYTES

    def unpack_parcels(self) -> None:
        """Give what came in parcels rows of its own, as well as can be: until then it is read from the parcels."""
        if self._is_malformed or self.is_read_only:
            return
        with suppress(HoldfastError, OSError):
            if self._row("SELECT 1 FROM parcel LIMIT 1") is None:
                return
            with self._writing():
                rows, lost = self._rows_from_parcels()
                if not self._has_room_for(sum(len(data) for _, _, data in rows)):
                    raise no_space(self.path)
                self._load_damaged()
                for digest in self.known_among([row[0] for row in rows]):
                    self._sound_row(digest)  # or what is sound would be dropped for it
                packed_bytes = int(self._row("SELECT total(length(data)) FROM parcel")[0])
                # First, so that the rows find their pages free.
                self._connection.execute("DELETE FROM parcel")
                healed = self._put_rows(rows)
                self._tally.add_uncounted(sum(len(data) for _, _, data in rows) - packed_bytes)
                # The names of what is lost stay, and are noted: its content is stored anew when it comes by again.
                unknown = [digest for digest in lost if not self._has_row(digest)]
                self._connection.executemany(_INSERT, [(digest, 0, b"") for digest in unknown])
            self._forget_damage(healed)
            self._found_damaged.update(unknown)
            self._parcelled_bytes = 0

    def _rows_from_parcels(self) -> tuple[list[Row], list[bytes]]:
        """What is in parcels, in the order of names; and the names of what is in damaged ones only."""
        rows: dict[bytes, Row] = {}
        lost: set[bytes] = set()
        for digests, data in self._connection.execute("SELECT digests, data FROM parcel").fetchall():
            contents = unpack_parcel(digests, data, self._decompressor)
            for digest in digests_in(digests):
                content = contents.get(digest)
                if content is None or not _is(digest, content):
                    lost.add(digest)
                elif digest not in rows:
                    rows[digest] = (digest, len(content), pack(content, self._thorough_compressor))
        return [rows[digest] for digest in sorted(rows)], sorted(lost - rows.keys())

    # The catalogue of snapshots

    def snapshots_of(self, sandbox_id: str) -> list[str]:
        sql = "SELECT record FROM snapshot WHERE sandbox_id = ? ORDER BY checkpoint_id"
        return [row[0] for row in self._rows(sql, (sandbox_id,))]

    def find_snapshot(self, checkpoint_id: str) -> str | None:
        row = self._row("SELECT record FROM snapshot WHERE checkpoint_id = ?", (checkpoint_id,))
        return None if row is None else row[0]

    def latest_snapshot(self, sandbox_id: str) -> tuple[str, str] | None:
        """Id and record of the one that was catalogued last, whatever the clock said."""
        sql = "SELECT checkpoint_id, record FROM snapshot WHERE sandbox_id = ? ORDER BY rowid DESC LIMIT 1"
        row = self._row(sql, (sandbox_id,))
        return None if row is None else (str(row[0]), str(row[1]))

    def disown_snapshot(self, checkpoint_id: str, sandbox: str, size_bytes: int) -> None:
        """Forget a snapshot that no record names; what came with it is unnamed again."""
        with self._writing():
            self._connection.execute("DELETE FROM snapshot WHERE checkpoint_id = ?", (checkpoint_id,))
            self._tally.add_unnamed({sandbox: size_bytes})

    def delete_snapshots(self, checkpoint_ids: Iterable[str]) -> None:
        with self._keeping_house():
            parameters = [(checkpoint_id,) for checkpoint_id in checkpoint_ids]
            self._connection.executemany("DELETE FROM snapshot WHERE checkpoint_id = ?", parameters)

    # Keeping house

    def unnamed_bytes(self, sandbox: str) -> int:
        """How much was stored of what is in that sandbox, or was, that no checkpoint names yet."""
        with self._mutex, self._translated_errors():
            return self._tally.unnamed_bytes(sandbox)

    def note_given_up(self, checkpoints: int, size_bytes: int) -> None:
        """So many checkpoints, with which so much had come, are about to be given up."""
        with self._keeping_house():
            self._tally.add_given_up(checkpoints, size_bytes)

    def postpone_collecting(self) -> None:
        """Nothing could be freed, and it is not worth trying again before more was given up."""
        with self._keeping_house():
            self._tally.postpone()

    def is_worth_collecting(self) -> bool:
        with self._mutex, self._translated_errors():
            return self._tally.is_worth_collecting()

    def collect(self, reachable: Callable[[], set[bytes]], states: Callable[[], set[bytes]]) -> int:
        """Remove every object not in ``reachable()`` and give the space back; the number of bytes freed.

        Both functions are asked after the lock is held: what they see then is all there is.
        """
        with self._collecting():
            self.unpack_parcels()
            keep, kept_states = reachable(), states()
            self._load_damaged()
            outdated = [(digest,) for digest in self._damaged - keep]
            orphans = [
                (row[0],)
                for row in self._rows("SELECT checkpoint_id, state FROM snapshot")
                if row[1] not in kept_states
            ]
            # Looked for in the same transaction: another process may unpack parcels at any moment.
            with self._writing():
                rows = self._connection.execute("SELECT digest, length(data) FROM object").fetchall()
                doomed: list[tuple[bytes, int]] = [(digest, size) for digest, size in rows if digest not in keep]
                if outdated:
                    self._connection.executemany("DELETE FROM damaged WHERE digest = ?", outdated)
                self._connection.executemany("DELETE FROM object WHERE digest = ?", [(d,) for d, _ in doomed])
                self._connection.executemany("DELETE FROM snapshot WHERE checkpoint_id = ?", orphans)
                freed_bytes = self._thin_parcels(keep) + sum(size for _, size in doomed)
                self._tally.collected(freed_bytes)
            self._give_back()
            return freed_bytes

    def _thin_parcels(self, keep: set[bytes]) -> int:
        """Take what nobody needs out of parcels for which there was no room to unpack them; the bytes freed.

        A state that stayed in one would still count as stored after what lies below it is gone.
        """
        freed_bytes = 0
        sql = "SELECT number, digests, data, length(data) FROM parcel"
        for number, digests, data, size in self._connection.execute(sql).fetchall():
            named = digests_in(digests)
            kept = [digest for digest in named if digest in keep]
            if len(kept) == len(named):
                continue
            contents = unpack_parcel(digests, data, self._decompressor)
            sound = {digest: contents[digest] for digest in kept if digest in contents}
            names, packed = pack_parcel(sound, self._compressor)
            # The names of what was lost come last: there is nothing for them.
            names += b"".join(digest for digest in kept if digest not in sound)
            self._connection.execute("DELETE FROM parcel WHERE number = ?", (number,))
            if names:
                self._connection.execute("INSERT INTO parcel VALUES (?, ?, ?)", (number, names, packed))
            freed_bytes += int(size) - (len(packed) if names else 0)
        return freed_bytes

    def _give_back(self) -> None:
        """Return free pages to the disk, in portions for whose way through the log it has room."""
        free_pages, page_bytes = self._pragma("freelist_count"), self._pragma("page_size")
        self._make_room_in_log()
        while free_pages:
            portion = max(1, free_bytes(self.path.parent) // page_bytes // _ROOM_FOR_A_PAGE)
            try:
                self._rows(f"PRAGMA incremental_vacuum({portion})")
            finally:
                self._make_room_in_log()  # also where there was too little: others have to write as well
            before, free_pages = free_pages, self._pragma("freelist_count")
            if free_pages >= before:
                return

    def _make_room_in_log(self) -> None:
        if is_nearly_full(self.path.parent):
            self._copy_log_into_file()

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
        room_bytes = free_bytes(self._folder)
        # By more than its log the file cannot grow, and how large that is costs less to ask.
        if room_bytes >= 2 * added_bytes + self._log_bytes():
            return True
        return room_bytes >= added_bytes + self._growth_bytes(added_bytes)

    def _log_bytes(self) -> int:
        try:
            return os.stat(self._log).st_size
        except FileNotFoundError:
            return 0

    def content_bytes(self) -> int:
        pages, free, size = (self._pragma(name) for name in ("page_count", "freelist_count", "page_size"))
        return (pages - free) * size

    def _pragma(self, name: str) -> int:
        return int(self._row(f"PRAGMA {name}")[0])

    def damaged(self) -> list[bytes]:
        """The names of all objects whose content does not match them."""
        # What is no digest any more names nothing, and what it named is missing.
        rows = self._rows("SELECT digest FROM object WHERE typeof(digest) = 'blob'")
        digests = {row[0] for row in rows} | self._parcelled().keys()
        return [digest for digest in digests if not self._is_sound(digest)]

    def _is_sound(self, digest: bytes) -> bool:
        try:
            self.read(digest)
        except ContentError:
            return False
        return True


Row = tuple[bytes, int, bytes]
"""Digest, size and packed content of an object."""
Snapshot = tuple[str, str, bytes, str]


def _any_text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _is(digest: bytes, content: bytes | None) -> bool:
    """Whether that is the content of that name."""
    return content is not None and digest_of(content) == digest


def _tell_news(lock: int) -> None:
    """Whoever holds the store next sees that something may be gone from it, or was found damaged."""
    os.pwrite(lock, secrets.token_bytes(_NEWS_BYTES), 0)
