"""Parcels: the new content of one small checkpoint, packed together and written as one row.

A row for each object would write a page of the index of digests for each of them, all over the file. A parcel is
appended to its table. Its objects get rows of their own later, together with those of many parcels, ordered by digest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import zstandard

from holdfast.content.database import ContentDatabase
from holdfast.content.format import DIGEST_BYTES, digest_of
from holdfast.content.packing import new_compressor, pack, unpack

MOST_OBJECTS, MOST_BYTES = 256, 512 << 10
"""Content that exceeds this gets rows of its own at once."""
_MOST_HEADERS_BYTES = 5 * (MOST_OBJECTS + 1)

Parcel = tuple[bytes, bytes]
"""The digests of its objects, one after the other, and their contents packed together."""
Row = tuple[bytes, int, bytes]
"""Digest, size and packed content of an object that has a row of its own."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


class ParcelTable:
    """All parcels of a store."""

    def __init__(self, database: ContentDatabase) -> None:
        self._database = database
        self._compressor, self._thorough_compressor = new_compressor(), new_compressor(is_thorough=True)
        self._decompressor = zstandard.ZstdDecompressor()

    def pack(self, contents: Mapping[bytes, bytes]) -> Parcel:
        with self._database.mutex:
            return _packed(contents, self._compressor)

    def add(self, parcels: Sequence[Parcel]) -> None:
        """Add parcels, in a transaction that the caller has begun."""
        for parcel in parcels:
            sql = "INSERT INTO parcel (digests, data) VALUES (?, ?)"
            self._database.connection.execute(sql, tuple(map(bytearray, parcel)))

    def is_empty(self) -> bool:
        return self._database.row("SELECT 1 FROM parcel LIMIT 1") is None

    def numbers(self) -> dict[bytes, list[int]]:
        """By digest, the numbers of the parcels that hold the object.

        If an object had no row, and then is in no parcel either, it may have got its row in between: check again.
        """
        found: dict[bytes, list[int]] = {}
        for digests, number in self._database.rows("SELECT digests, number FROM parcel"):
            for digest in _split(digests):
                found.setdefault(digest, []).append(number)
        return found

    def sound_among(self, digests: Sequence[bytes], number: int) -> dict[bytes, bytes]:
        """The contents of those objects of one parcel that match their digests."""
        row = self._database.row("SELECT digests, data FROM parcel WHERE number = ?", (number,))
        with self._database.mutex:
            contents = {} if row is None else _unpacked(row[0], row[1], self._decompressor)
        found = {digest: contents[digest] for digest in digests if digest in contents}
        return {digest: content for digest, content in found.items() if digest_of(content) == digest}

    def all_objects(self) -> tuple[list[Row], list[bytes]]:
        """Rows for all objects in parcels, ordered by digest; and the digests of those in damaged parcels only.

        Called in a transaction that the caller has begun, as are the next two.
        """
        rows: dict[bytes, Row] = {}
        lost: set[bytes] = set()
        for digests, data in self._database.connection.execute("SELECT digests, data FROM parcel").fetchall():
            contents = _unpacked(digests, data, self._decompressor)
            for digest in _split(digests):
                content = contents.get(digest)
                if content is None or digest_of(content) != digest:
                    lost.add(digest)
                elif digest not in rows:
                    rows[digest] = (digest, len(content), pack(content, self._thorough_compressor))
        return [rows[digest] for digest in sorted(rows)], sorted(lost - rows.keys())

    def delete_all(self) -> int:
        """Delete all parcels; returns how many bytes their contents took."""
        packed_bytes = int(self._database.row("SELECT total(length(data)) FROM parcel")[0])
        self._database.connection.execute("DELETE FROM parcel")
        return packed_bytes

    def thin_out(self, keep: Collection[bytes]) -> int:
        """Remove what is not needed from parcels that could not be unpacked for lack of space; returns the bytes freed.

        A state that stayed in a parcel would still count as stored after the content it needs is gone.
        """
        freed_bytes, execute = 0, self._database.connection.execute
        for number, digests, data, size in execute("SELECT number, digests, data, length(data) FROM parcel").fetchall():
            named = _split(digests)
            kept = [digest for digest in named if digest in keep]
            if len(kept) == len(named):
                continue
            contents = _unpacked(digests, data, self._decompressor)
            sound = {digest: contents[digest] for digest in kept if digest in contents}
            names, packed = _packed(sound, self._compressor)
            # The digests of lost objects come last: no content follows for them.
            names += b"".join(digest for digest in kept if digest not in sound)
            execute("DELETE FROM parcel WHERE number = ?", (number,))
            if names:
                execute("INSERT INTO parcel VALUES (?, ?, ?)", (number, names, packed))
            freed_bytes += int(size) - (len(packed) if names else 0)
        return freed_bytes


def _packed(contents: Mapping[bytes, bytes], compressor: zstandard.ZstdCompressor) -> Parcel:
    return b"".join(contents), pack(_encode(list(contents.values())), compressor)


def _split(digests: object) -> list[bytes]:
    if not isinstance(digests, bytes):
        return []
    return [digests[start : start + DIGEST_BYTES] for start in range(0, len(digests), DIGEST_BYTES)]


def _unpacked(digests: object, data: object, decompressor: zstandard.ZstdDecompressor) -> dict[bytes, bytes]:
    """The contents by digest, unchecked; those missing from a damaged parcel are left out."""
    packed = unpack(data, MOST_BYTES + _MOST_HEADERS_BYTES, decompressor)
    try:
        contents = [] if packed is None else _decode(packed)
    except msgspec.DecodeError:
        contents = []
    return dict(zip(_split(digests), contents, strict=False))
