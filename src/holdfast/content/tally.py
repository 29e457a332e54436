"""Counts how much a garbage collection could free, in the content store, for the next process.

All content stored for a sandbox is counted once: as unnamed when it is stored, with a checkpoint as soon as one names
it, and as given up when that checkpoint is deleted. The counts are written in the transaction that stores the content,
or before the record of a checkpoint is deleted. So after a kill they may be too high, which a collection corrects, but
never too low.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.content.database import ContentDatabase

_UNNAMED = "unnamed/"
_GIVEN_UP = "given_up_bytes"
_CHECKPOINTS = "given_up_checkpoints"
_STILL_NEEDED = "still_needed_bytes"

_COLLECT_AFTER_BYTES = 16 << 20
"""A collection makes all other processes wait, so none begins before it may free this much."""
_COLLECT_AFTER_CHECKPOINTS = 64
"""Content may be given up while other checkpoints need it, and nothing notes when they no longer do. So a collection is
tried after this many checkpoints were given up."""

_ADD = (
    "INSERT INTO meta VALUES (?1, ?2) "
    "ON CONFLICT (key) DO UPDATE SET value = max(0, CAST(value AS INTEGER) + CAST(?2 AS INTEGER))"
)


class Tally:
    """The counts, which are rows of ``meta``; a damaged number counts as what can still be read of it.

    ``add_unnamed``, ``add_uncounted`` and ``collected`` are called in a transaction that the caller has begun.
    """

    def __init__(self, database: ContentDatabase) -> None:
        self._database = database
        self._is_asked = False
        """Whether it was asked since this process last noted something that is given up."""

    def add_unnamed(self, added: Mapping[str, int]) -> None:
        """Add bytes by sandbox: positive for content that is stored, negative if a checkpoint names it from now on."""
        for sandbox, size_bytes in added.items():
            self._add(_UNNAMED + sandbox, size_bytes)
            if size_bytes < 0:
                sql = "DELETE FROM meta WHERE key = ? AND CAST(value AS INTEGER) = 0"
                self._database.connection.execute(sql, (_UNNAMED + sandbox,))

    def unnamed_bytes(self, sandbox: str) -> int:
        """How much content that was stored for that sandbox no checkpoint names yet."""
        return self._number(_UNNAMED + sandbox)

    def note_given_up(self, checkpoints: int, size_bytes: int) -> None:
        """Note that this many checkpoints, for which this many bytes were stored, are about to be given up."""
        with self._database.writing_unsynced():
            self._add(_CHECKPOINTS, checkpoints)
            self._add(_GIVEN_UP, size_bytes)
        self._is_asked = False

    def add_uncounted(self, size_bytes: int) -> None:
        """Note that content takes more space than was counted; it is unknown which checkpoint needs it."""
        if size_bytes > 0:
            self._add(_STILL_NEEDED, size_bytes)

    def postpone(self) -> None:
        """Note that nothing could be freed: do not try again before more is given up."""
        with self._database.writing_unsynced():
            given_up = self._number(_GIVEN_UP)
            self._database.connection.execute("DELETE FROM meta WHERE key IN (?, ?)", (_GIVEN_UP, _CHECKPOINTS))
            self._add(_STILL_NEEDED, given_up)

    def given_up_bytes(self) -> int:
        """How much was given up, even if something still needed it at the last collection.

        What no checkpoint names counts as given up: it is that of a plan that was killed before its first checkpoint,
        and is never noted otherwise, or soon gets its checkpoint.
        """
        return self._number(_GIVEN_UP) + self._number(_STILL_NEEDED) + self._all_unnamed()

    def is_worth_collecting(self) -> bool:
        """Whether enough is given up. A process that asks again before it has noted more is told no."""
        if self._is_asked:
            return False
        self._is_asked = True
        given_up = self._number(_GIVEN_UP)
        if given_up >= _COLLECT_AFTER_BYTES:
            return True
        is_due = self._number(_CHECKPOINTS) >= _COLLECT_AFTER_CHECKPOINTS
        return is_due and given_up + self._number(_STILL_NEEDED) >= _COLLECT_AFTER_BYTES

    def collected(self, freed_bytes: int) -> None:
        """Note a collection: a checkpoint names and needs everything that is left in the store."""
        given_up = self._number(_GIVEN_UP) + self._number(_STILL_NEEDED)
        still_needed = max(0, given_up - max(0, freed_bytes - self._all_unnamed()))
        sql = "DELETE FROM meta WHERE key GLOB ? OR key IN (?, ?, ?)"
        self._database.connection.execute(sql, (f"{_UNNAMED}*", _GIVEN_UP, _CHECKPOINTS, _STILL_NEEDED))
        if still_needed:
            self._add(_STILL_NEEDED, still_needed)

    def _all_unnamed(self) -> int:
        sql = "SELECT total(CAST(value AS INTEGER)) FROM meta WHERE key GLOB ?"
        return int(self._database.row(sql, (f"{_UNNAMED}*",))[0])

    def _add(self, key: str, number: int) -> None:
        self._database.connection.execute(_ADD, (key, str(number)))

    def _number(self, key: str) -> int:
        row = self._database.row("SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?", (key,))
        return 0 if row is None else int(row[0])
