"""How much a collection of garbage could free, noted in the content store for the next process.

All content that came for a sandbox is counted once: as unnamed when it is stored, with a checkpoint as soon as that
names it, and as given up when the checkpoint is deleted. Notes are made in the transaction that stores the content, or
before the record of a checkpoint is deleted: after a kill they say too much, which a collection corrects, and never
too little.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.content.database import ContentDatabase

_UNNAMED = "unnamed/"
_GIVEN_UP = "given_up_bytes"
_CHECKPOINTS = "given_up_checkpoints"
_STILL_NEEDED = "still_needed_bytes"

_COLLECT_AFTER_BYTES = 16 << 20
"""Collecting reads every directory that is kept, so it waits until there is so much that may be freed."""
_COLLECT_AFTER_CHECKPOINTS = 64
"""Content that was given up while others needed it is not noted when they no longer do: after so many, try."""

_ADD = (
    "INSERT INTO meta VALUES (?1, ?2) "
    "ON CONFLICT (key) DO UPDATE SET value = max(0, CAST(value AS INTEGER) + CAST(?2 AS INTEGER))"
)


class Tally:
    """Rows of ``meta``; a damaged one counts as what is left of it.

    ``add_unnamed``, ``add_uncounted`` and ``collected`` are called in a transaction that the caller has begun.
    """

    def __init__(self, database: ContentDatabase) -> None:
        self._database = database

    def add_unnamed(self, added: Mapping[str, int]) -> None:
        """Bytes by sandbox: more if they are stored, fewer if a checkpoint names them from now on."""
        for sandbox, size_bytes in added.items():
            self._add(_UNNAMED + sandbox, size_bytes)
            if size_bytes < 0:
                sql = "DELETE FROM meta WHERE key = ? AND CAST(value AS INTEGER) = 0"
                self._database.connection.execute(sql, (_UNNAMED + sandbox,))

    def unnamed_bytes(self, sandbox: str) -> int:
        """How much was stored of what is in that sandbox, or was, that no checkpoint names yet."""
        return self._number(_UNNAMED + sandbox)

    def note_given_up(self, checkpoints: int, size_bytes: int) -> None:
        """So many checkpoints, with which so much came, are about to be given up."""
        with self._database.writing_unsynced():
            self._add(_CHECKPOINTS, checkpoints)
            self._add(_GIVEN_UP, size_bytes)

    def add_uncounted(self, size_bytes: int) -> None:
        """What content takes more than it was counted with; with which checkpoint it goes is not known."""
        if size_bytes > 0:
            self._add(_STILL_NEEDED, size_bytes)

    def postpone(self) -> None:
        """Nothing could be freed, and it is not worth trying again before more was given up."""
        with self._database.writing_unsynced():
            given_up = self._number(_GIVEN_UP)
            self._database.connection.execute("DELETE FROM meta WHERE key IN (?, ?)", (_GIVEN_UP, _CHECKPOINTS))
            self._add(_STILL_NEEDED, given_up)

    def is_worth_collecting(self) -> bool:
        given_up = self._number(_GIVEN_UP)
        if given_up >= _COLLECT_AFTER_BYTES:
            return True
        is_due = self._number(_CHECKPOINTS) >= _COLLECT_AFTER_CHECKPOINTS
        return is_due and given_up + self._number(_STILL_NEEDED) >= _COLLECT_AFTER_BYTES

    def collected(self, freed_bytes: int) -> None:
        """Everything that is in the store now is named, and needed."""
        sql = "SELECT total(CAST(value AS INTEGER)) FROM meta WHERE key GLOB ?"
        unnamed = int(self._database.row(sql, (f"{_UNNAMED}*",))[0])
        given_up = self._number(_GIVEN_UP) + self._number(_STILL_NEEDED)
        still_needed = max(0, given_up - max(0, freed_bytes - unnamed))
        sql = "DELETE FROM meta WHERE key GLOB ? OR key IN (?, ?, ?)"
        self._database.connection.execute(sql, (f"{_UNNAMED}*", _GIVEN_UP, _CHECKPOINTS, _STILL_NEEDED))
        if still_needed:
            self._add(_STILL_NEEDED, still_needed)

    def _add(self, key: str, number: int) -> None:
        self._database.connection.execute(_ADD, (key, str(number)))

    def _number(self, key: str) -> int:
        row = self._database.row("SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?", (key,))
        return 0 if row is None else int(row[0])
