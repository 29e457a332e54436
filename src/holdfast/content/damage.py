"""Objects found damaged or missing: noted in the store, so that every process stores their content again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from holdfast.content.database import SOME_IS_LOST, ContentDatabase
from holdfast.errors import ContentError, HoldfastError

_SCHEMA = "CREATE TABLE IF NOT EXISTS damaged (digest BLOB PRIMARY KEY)"
"""Created when the first damage is noted."""


class Damage:
    def __init__(self, database: ContentDatabase) -> None:
        self._database = database
        self.found: set[bytes] = set()
        """Digests that this process found damaged and has not noted yet."""
        self.noted: set[bytes] = set()
        """Digests that any process noted; they do not count as stored."""
        self.finding = ""
        """A random text that changes whenever more damage is noted."""

    def error_about(self, digest: bytes, *, is_there: bool) -> ContentError:
        self.found.add(digest)
        name, file = digest.hex()[:16], self._database.path.name
        what = (
            f"Saved content {name} in {file} is damaged."
            if is_there
            else f"Saved content {name} is missing from {file}."
        )
        return ContentError(what, hint=SOME_IS_LOST)

    def note(self) -> bool:
        """Note what was found, if possible, and return whether it was; otherwise the next read finds it again."""
        database = self._database
        if not self.found or database.is_malformed or database.is_read_only:
            return False
        found = tuple(self.found)
        with suppress(HoldfastError, OSError):
            with database.writing():
                database.connection.execute(_SCHEMA)
                rows = [(digest,) for digest in found]
                if database.connection.executemany("INSERT OR IGNORE INTO damaged VALUES (?)", rows).rowcount:
                    finding = ("finding", os.urandom(8).hex())
                    database.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", finding)
            self.found.difference_update(found)
            return True
        return False

    def load(self) -> None:
        row = self._database.row("SELECT value FROM meta WHERE key = 'finding'")
        self.finding = row[0] if row else ""
        self.noted = {row[0] for row in self._database.rows("SELECT digest FROM damaged")} if row else set()

    def includes_any(self, digests: Iterable[bytes]) -> bool:
        """Whether one of these is noted as damaged, so that its row must be replaced."""
        return bool(self.noted) and not self.noted.isdisjoint(digests)

    def delete_notes(self, digests: Iterable[bytes]) -> None:
        """Delete notes, in the transaction that makes them outdated."""
        if self.noted:  # otherwise the table may not exist
            rows = [(digest,) for digest in digests]
            self._database.connection.executemany("DELETE FROM damaged WHERE digest = ?", rows)

    def forget(self, healed: Iterable[bytes]) -> None:
        self.noted.difference_update(healed)
        self.found.difference_update(healed)
