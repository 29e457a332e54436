"""How often the states, directories and lists of pieces in the store name each object, as the last collection found it.

Only collections change the counts. In between, new objects have none; what may be a new state is listed, so that the
next collection finds it without looking at everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from zlib import crc32

from holdfast.content.database import ContentDatabase
from holdfast.content.format import DIRECTORY, PIECES

STATE = 5
"""A kind of object, beside those of the format; no other object names a state, only records do."""
NAMING = (DIRECTORY, PIECES, STATE)
"""The kinds of objects that name others."""

Node = tuple[bytes, int]
"""An object as one kind: a file can hold exactly the bytes that a directory is stored as, and names nothing."""

_COUNTED = "counted"
_NOTHING_IS = "0 nothing is counted"
_ASKED_AT_ONCE = 500
_NOT_COUNTED = "NOT EXISTS (SELECT 1 FROM reference WHERE reference.digest = object.digest)"


class CountsInDoubt(Exception):
    """The counts are damaged, or do not fit the store or its records; everything has to be counted again."""


class Counts:
    """The tables ``reference`` and ``new_state`` of the content store."""

    def __init__(self, database: ContentDatabase) -> None:
        self._database = database

    # While content is stored

    def has_state(self, state: bytes) -> bool:
        """Whether a collection has counted that state, or will look at it."""
        sql = (
            "SELECT 1 FROM reference WHERE digest = ?1 AND kind = ?2 UNION ALL SELECT 1 FROM new_state WHERE state = ?1"
        )
        return self._database.row(sql, (state, STATE)) is not None

    def list_states(self, states: Iterable[bytes]) -> None:
        """List states that records may be about to name, in a transaction that the caller has begun."""
        rows = [(bytearray(state),) for state in states]
        if rows:
            self._database.connection.executemany("INSERT OR IGNORE INTO new_state VALUES (?)", rows)

    def added(self) -> int:
        """How many objects a collection would have to look at, because they were added since the last one."""
        row = self._database.row("SELECT max(rowid) FROM object")
        return max(0, (row[0] if row and row[0] else 0) - self._last_counted()[0])

    # In a collection

    def refuse_invalid(self) -> None:
        """Refuse unless the object that was counted last is still in its place; those added since come after it."""
        number, digest = self._last_counted()
        row = self._database.row("SELECT hex(digest) FROM object WHERE rowid = ?", (number,))
        if (row[0].lower() if row else "") != digest:
            raise CountsInDoubt("not everything in the store is counted")

    def _last_counted(self) -> tuple[int, str]:
        row = self._database.row("SELECT CAST(value AS TEXT) FROM meta WHERE key = ?", (_COUNTED,))
        number, _, digest = (row[0] if row else _NOTHING_IS).partition(" ")
        return (int(number), digest) if number.isdecimal() else (0, _NOTHING_IS)

    def new_states(self) -> set[bytes]:
        """What may have become a state since the last collection; all of it is in the store."""
        return {row[0] for row in self._database.rows("SELECT state FROM new_state")}

    def of(self, nodes: Iterable[Node]) -> dict[Node, int]:
        """The counts of these; 0 for what is not counted, and so must be new."""
        found: dict[Node, int] = dict.fromkeys(nodes, 0)
        uncounted = {digest for digest, _ in found}
        for some in _portions(list(uncounted)):
            sql = f"SELECT digest, kind, count, checksum FROM reference WHERE digest IN ({_marks(some)})"
            for digest, kind, count, checksum in self._database.rows(sql, tuple(map(bytearray, some))):
                if checksum != _checksum(digest, kind, count):
                    raise CountsInDoubt("a count is damaged")
                uncounted.discard(digest)
                if (digest, kind) in found:
                    found[digest, kind] = count
        self._refuse_old(list(uncounted))
        return found

    def _refuse_old(self, uncounted: list[bytes]) -> None:
        last = self._last_counted()[0]
        for some in _portions(uncounted):
            sql = f"SELECT 1 FROM object WHERE digest IN ({_marks(some)}) AND rowid <= {last} LIMIT 1"
            if self._database.row(sql, tuple(map(bytearray, some))):
                raise CountsInDoubt("an object that was there before is not counted")

    def counted_among(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those that something names, or that are states."""
        found: set[bytes] = set()
        for some in _portions(list(digests)):
            sql = f"SELECT digest FROM reference WHERE digest IN ({_marks(some)})"
            found.update(row[0] for row in self._database.rows(sql, tuple(map(bytearray, some))))
        return found

    # In the transaction of a collection

    def put(self, counts: Mapping[Node, int]) -> None:
        """Write these counts; what counts 0 is no longer counted."""
        connection = self._database.connection
        present = ((*node, count, _checksum(*node, count)) for node, count in counts.items() if count)
        connection.executemany("INSERT OR REPLACE INTO reference VALUES (?, ?, ?, ?)", present)
        gone = (node for node, count in counts.items() if not count)
        connection.executemany("DELETE FROM reference WHERE digest = ? AND kind = ?", gone)

    def replace(self, counts: Mapping[Node, int]) -> None:
        """Write the counts of everything."""
        self._database.connection.execute("DELETE FROM reference")
        self.put(counts)

    def uncounted_among(self, digests: Sequence[bytes]) -> list[tuple[bytes, int]]:
        """Those of these objects that nothing names, each with its stored size."""
        found: list[tuple[bytes, int]] = []
        for some in _portions(list(digests)):
            sql = f"SELECT digest, length(data) FROM object WHERE digest IN ({_marks(some)}) AND {_NOT_COUNTED}"
            found += self._database.connection.execute(sql, tuple(map(bytearray, some))).fetchall()
        return found

    def uncounted_since(self) -> list[tuple[bytes, int]]:
        """The objects that were added since the last collection and that nothing names, each with its stored size."""
        sql = f"SELECT digest, length(data) FROM object WHERE rowid > ? AND {_NOT_COUNTED}"
        rows: list[tuple[bytes, int]] = self._database.connection.execute(sql, (self._last_counted()[0],)).fetchall()
        return rows

    def finish(self) -> None:
        """Note that all objects are counted, after those that nothing names were deleted."""
        connection = self._database.connection
        connection.execute("DELETE FROM new_state")
        row = connection.execute("SELECT rowid, digest FROM object ORDER BY rowid DESC LIMIT 1").fetchone()
        last = f"{row[0]} {bytes(row[1]).hex()}" if row else "0 "
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_COUNTED, last))

    def give_up(self) -> None:
        """Note that the counts are not valid: the next collection counts everything."""
        self._database.connection.execute("DELETE FROM meta WHERE key = ?", (_COUNTED,))


def _checksum(digest: bytes, kind: int, count: int) -> int:
    return crc32(digest + f" {kind} {count}".encode())  # a damaged number can have any type


def _portions(digests: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(digests), _ASKED_AT_ONCE):
        yield digests[start : start + _ASKED_AT_ONCE]


def _marks(asked: Sequence[bytes]) -> str:
    return ", ".join("?" * len(asked))
