"""How much a collection of the content store could free, as it is noted in the store for whoever comes next.

All content that came for a sandbox is counted once: as unnamed when it is stored, with a checkpoint from when that
names it, and as given up when the checkpoint goes. Notes are made in the transaction that stores the content, or
before the record of a checkpoint is deleted: after a kill they say too much, which a collection sets right, and not
too little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_UNNAMED = "unnamed/"
_GIVEN_UP = "given_up_bytes"
_CHECKPOINTS = "given_up_checkpoints"
_STILL_NEEDED = "still_needed_bytes"

_COLLECT_AFTER_BYTES = 16 << 20
"""Collecting reads every directory that is kept, so it waits until there is so much that may be freed."""
_COLLECT_AFTER_CHECKPOINTS = 64
"""Of what was given up while others needed it nobody tells when they do not any more: after so many it is looked."""

_ADD = (
    "INSERT INTO meta VALUES (?1, ?2) "
    "ON CONFLICT (key) DO UPDATE SET value = max(0, CAST(value AS INTEGER) + CAST(?2 AS INTEGER))"
)


class Tally:
    """Rows of ``meta``. Whoever changes some has begun the transaction; a damaged one counts as what is left of it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def add_unnamed(self, added: Mapping[str, int]) -> None:
        """Bytes by sandbox: more where they are stored, fewer where a checkpoint names them from now on."""
        for sandbox, size_bytes in added.items():
            self._add(_UNNAMED + sandbox, size_bytes)
            if size_bytes < 0:
                sql = "DELETE FROM meta WHERE key = ? AND CAST(value AS INTEGER) = 0"
                self._connection.execute(sql, (_UNNAMED + sandbox,))

    def unnamed_bytes(self, sandbox: str) -> int:
        return self._number(_UNNAMED + sandbox)

    def add_given_up(self, checkpoints: int, size_bytes: int) -> None:
        self._add(_CHECKPOINTS, checkpoints)
        self._add(_GIVEN_UP, size_bytes)

    def add_uncounted(self, size_bytes: int) -> None:
        """What content takes more than it was counted with; with whom it goes is not known."""
        if size_bytes > 0:
            self._add(_STILL_NEEDED, size_bytes)

    def postpone(self) -> None:
        """As if a collection had freed nothing."""
        given_up = self._number(_GIVEN_UP)
        self._connection.execute("DELETE FROM meta WHERE key IN (?, ?)", (_GIVEN_UP, _CHECKPOINTS))
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
        unnamed = int(self._connection.execute(sql, (f"{_UNNAMED}*",)).fetchone()[0])
        given_up = self._number(_GIVEN_UP) + self._number(_STILL_NEEDED)
        still_needed = max(0, given_up - max(0, freed_bytes - unnamed))
        sql = "DELETE FROM meta WHERE key GLOB ? OR key IN (?, ?, ?)"
        self._connection.execute(sql, (f"{_UNNAMED}*", _GIVEN_UP, _CHECKPOINTS, _STILL_NEEDED))
        if still_needed:
            self._add(_STILL_NEEDED, still_needed)

    def _add(self, key: str, number: int) -> None:
        self._connection.execute(_ADD, (key, str(number)))

    def _number(self, key: str) -> int:
        row = self._connection.execute("SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?", (key,)).fetchone()
        return 0 if row is None else int(row[0])
