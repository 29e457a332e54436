"""The content store: objects named by the digest of their content, in one SQLite file.

An object never changes. One that is found damaged or missing is noted, and stored again when its content comes again.

Frequent queries and inserts pass bytearrays to SQLite: for bytes the module looks for an adapter each time, which takes
longer than finding or writing a small object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import zstandard

from holdfast.content.catalogue import Catalogue, Snapshot
from holdfast.content.counts import Counts
from holdfast.content.damage import Damage
from holdfast.content.database import ContentDatabase
from holdfast.content.format import digest_of
from holdfast.content.holding import Holding
from holdfast.content.keeping import Keeping
from holdfast.content.packing import new_compressor, pack, unpack
from holdfast.content.parcels import Parcel, ParcelTable, Row
from holdfast.content.room import Room
from holdfast.content.tally import Tally
from holdfast.errors import ContentError, HoldfastError
from holdfast.system.sqlite import no_space

_ASKED_AT_ONCE = 500
_UNPACK_FROM_BYTES = 512 << 10
"""Parcels are unpacked into rows once this much has been added to them."""
_INSERT = "INSERT OR IGNORE INTO object VALUES (?, ?, ?)"


class ObjectStore:
    """Reads and writes objects; its parts look after the rest of the store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = ContentDatabase(path)
        self.store_id = self.database.store_id
        self.damage = Damage(self.database)
        self.holding = Holding(path.with_suffix(".lock"), self.damage)
        self.room = Room(self.database)
        self.parcels = ParcelTable(self.database)
        self.tally = Tally(self.database)
        self.catalogue = Catalogue(self.database, self.tally)
        self.keeping = Keeping(self.database)
        self.counts = Counts(self.database)
        self._compressor, self._decompressor = new_compressor(), zstandard.ZstdDecompressor()
        self._parcelled_bytes = 0
        """Bytes added in parcels since they were last unpacked."""
        self.has_full_parcels = False
        """Whether it is time to unpack the parcels."""

    def close(self) -> None:
        if self._parcelled_bytes:
            self.unpack_parcels()
        if not self.database.is_malformed:
            with suppress(HoldfastError):  # the catalogue then lists these snapshots until their states are collected
                self.catalogue.delete()
        self.holding.note_damage()
        with self.database.mutex:
            self.database.connection.close()
            self.holding.close()

    def leave_as_it_is(self) -> None:
        """Write nothing to the file: if its structure is damaged, every write can make it worse."""
        self.database.is_malformed = True

    def content_bytes(self) -> int:
        pages, free, size = map(self.database.pragma, ("page_count", "freelist_count", "page_size"))
        return (pages - free) * size

    # Reading

    def has(self, digest: bytes) -> bool:
        return self._has_row(digest) or digest in self.parcels.numbers() or self._has_row(digest)

    def _has_row(self, digest: bytes) -> bool:
        return self.database.row("SELECT 1 FROM object WHERE digest = ?", (digest,)) is not None

    def has_state_while_held(self, state: bytes) -> bool:
        """Whether that state is there with all it needs; for a process that holds the store, usually without a query.

        Only garbage collection removes objects, and a process that holds the store knows whether it has run. A state
        that a collection removed can still be there as the content of a file.
        """
        if state in self.holding.present:
            return True
        if state in self.damage.noted or not self.has(state) or not self.counts.has_state(state):
            return False
        self.holding.present.add(state)
        return True

    def known_among(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those that have a sound row, and so need not be stored again; objects in parcels only are left out."""
        found: set[bytes] = set()
        for start in range(0, len(digests), _ASKED_AT_ONCE):
            asked = tuple(map(bytearray, digests[start : start + _ASKED_AT_ONCE]))
            sql = f"SELECT digest FROM object WHERE digest IN ({', '.join('?' * len(asked))})"
            found.update(row[0] for row in self.database.rows(sql, asked))
        return found - self.damage.noted

    def read(self, digest: bytes) -> bytes:
        """The content of an object, checked against its digest."""
        content = self._sound_row(digest)
        return self._read_parcelled([digest])[digest] if content is None else content

    def read_all(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """The contents of these objects, each checked against its digest; all are in memory at once."""
        wanted = list(dict.fromkeys(digests))
        found: dict[bytes, bytes] = {}
        for start in range(0, len(wanted), _ASKED_AT_ONCE):
            asked = tuple(map(bytearray, wanted[start : start + _ASKED_AT_ONCE]))
            sql = f"SELECT digest, data, size_bytes FROM object WHERE digest IN ({', '.join('?' * len(asked))})"
            found.update(self._sound(self.database.rows(sql, asked)))
        if len(found) < len(wanted):
            found.update(self._read_parcelled([digest for digest in wanted if digest not in found]))
        return found

    def _sound_row(self, digest: bytes) -> bytes | None:
        rows = self.database.rows("SELECT digest, data, size_bytes FROM object WHERE digest = ?", (digest,))
        return self._sound(rows).get(digest)

    def _sound(self, rows: Iterable[tuple[bytes, object, object]]) -> dict[bytes, bytes]:
        """The contents of those rows that match their digests."""
        found = {}
        with self.database.mutex:  # zstd contexts are not safe to share between threads
            for digest, data, size in rows:
                content = unpack(data, size, self._decompressor)
                if content is not None and digest_of(content) == digest:
                    found[digest] = content
                else:
                    self.damage.found.add(digest)
        return found

    def _read_parcelled(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """The contents of objects that had no row of their own, or a damaged one, a moment ago."""
        numbers = self.parcels.numbers()
        wanted: dict[int, list[bytes]] = {}
        for digest in digests:
            for number in numbers.get(digest, ()):
                wanted.setdefault(number, []).append(digest)
        found: dict[bytes, bytes] = {}
        for number, inside in wanted.items():
            found.update(self.parcels.sound_among(inside, number))
        for digest in digests:
            if digest not in found:
                content = self._sound_row(digest)
                if content is None:
                    raise self.damage.error_about(digest, is_there=digest in numbers or self._has_row(digest))
                found[digest] = content
        return found

    def unsound_among(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those that are missing or damaged; all contents are in memory at once."""
        try:
            self.read_all(digests)
        except ContentError:
            return {digest for digest in digests if not self._is_sound(digest)}
        return set()

    def damaged(self) -> list[bytes]:
        """The digests of all objects whose content does not match."""
        # A damaged key is no longer a blob; the object that it named counts as missing.
        rows = self.database.rows("SELECT digest FROM object WHERE typeof(digest) = 'blob'")
        digests = {row[0] for row in rows} | self.parcels.numbers().keys()
        return [digest for digest in digests if not self._is_sound(digest)]

    def _is_sound(self, digest: bytes) -> bool:
        try:
            self.read(digest)
        except ContentError:
            return False
        return True

    # Writing

    def packed(self, content: bytes) -> bytes:
        with self.database.mutex:
            return pack(content, self._compressor)

    def insert(
        self,
        rows: Sequence[Row],
        parcels: Sequence[Parcel],
        snapshots: Sequence[Snapshot],
        unnamed: Mapping[str, int] = MappingProxyType({}),
        states: Iterable[bytes] = (),
    ) -> None:
        """Write everything in one durable transaction.

        ``unnamed``: the change in bytes that no checkpoint names; ``states``: what records may be about to name.
        """
        if rows or parcels:
            added_bytes = sum(len(row[2]) for row in rows) + sum(len(data) for _, data in parcels)
            self.room.refuse_without(added_bytes)
        with self.database.writing():
            healed = self._put_rows(rows) if rows else []
            self.parcels.add(parcels)
            self.catalogue.add(snapshots)
            self.tally.add_unnamed(unnamed)
            self.counts.list_states(states)
        self.damage.forget(healed)
        self.holding.present.update(state for _, _, state, _ in snapshots)
        self._parcelled_bytes += sum(len(data) for _, data in parcels)
        self.has_full_parcels = self._parcelled_bytes >= _UNPACK_FROM_BYTES

    def _put_rows(self, rows: Sequence[Row]) -> list[bytes]:
        """Write rows; returns the digests of those that were damaged and are sound now."""
        connection = self.database.connection
        damaged = self.damage.noted | self.damage.found
        healed = [row for row in rows if row[0] in damaged] if damaged else []
        names = [row[0] for row in healed]
        connection.executemany("INSERT OR REPLACE INTO object VALUES (?, ?, ?)", healed)
        self.damage.delete_notes(names)
        connection.executemany(_INSERT, ((bytearray(name), size, bytearray(data)) for name, size, data in rows))
        return names

    def unpack_parcels(self) -> None:
        """Give objects in parcels rows of their own, if possible; until then they are read from the parcels."""
        if self.database.is_malformed or self.database.is_read_only:
            return
        with suppress(HoldfastError, OSError):
            if self.parcels.is_empty():
                return
            with self.database.writing():
                rows, lost = self.parcels.all_objects()
                rows_bytes = sum(len(data) for _, _, data in rows)
                if not self.room.is_enough_for(rows_bytes):
                    raise no_space(self.path)
                self.damage.load()
                for digest in self.known_among([row[0] for row in rows]):
                    self._sound_row(digest)  # finds a damaged row, which would win over the sound object otherwise
                # The parcels go first, so that the rows can use their pages.
                packed_bytes = self.parcels.delete_all()
                healed = self._put_rows(rows)
                self.tally.add_uncounted(rows_bytes - packed_bytes)
                # Lost objects keep their digests and are noted: their content is stored again when it comes again.
                unknown = [digest for digest in lost if not self._has_row(digest)]
                self.database.connection.executemany(_INSERT, [(digest, 0, b"") for digest in unknown])
            self.damage.forget(healed)
            self.damage.found.update(unknown)
            self._parcelled_bytes, self.has_full_parcels = 0, False
