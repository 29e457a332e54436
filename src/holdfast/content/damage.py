"""Objects found damaged or missing: noted in the store, so that every process stores their content anew."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress

from holdfast.content.database import SOME_IS_LOST, ContentDatabase
from holdfast.errors import ContentError, HoldfastError

_SCHEMA = "CREATE TABLE IF NOT EXISTS damaged (digest BLOB PRIMARY KEY)"
"""Made when there is something to note in it."""


class Damage:
    def __init__(self, database: ContentDatabase) -> None:
        self._database = database
        self.found: set[bytes] = set()
        """Found by this process and not noted yet."""
        self.noted: set[bytes] = set()
        """Noted by any process; does not count as stored."""
        self.finding = ""
        """Another one whenever something more was found damaged."""

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
        """Write down what was found, if possible, and say so: what cannot be noted now is found again when needed."""
        database = self._database
        if not self.found or database.is_malformed or database.is_read_only:
            return False
        found = tuple(self.found)
        with suppress(HoldfastError, OSError):
            with database.writing():
                database.connection.execute(_SCHEMA)
                rows = [(digest,) for digest in found]
                if database.connection.executemany("INSERT OR IGNORE INTO damaged VALUES (?)", rows).rowcount:
                    finding = ("finding", secrets.token_hex(8))
                    database.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", finding)
            self.found.difference_update(found)
            return True
        return False

    def load(self) -> None:
        row = self._database.row("SELECT value FROM meta WHERE key = 'finding'")
        self.finding = row[0] if row else ""
        self.noted = {row[0] for row in self._database.rows("SELECT digest FROM damaged")} if row else set()

    def includes_any(self, digests: Iterable[bytes]) -> bool:
        """Whether one of these is noted as damaged, so that its row has to be replaced."""
        return bool(self.noted) and not self.noted.isdisjoint(digests)

    def delete_notes(self, digests: Iterable[bytes]) -> None:
        """In the transaction that makes them outdated."""
        if self.noted:  # if not, there may be no table
            rows = [(digest,) for digest in digests]
            self._database.connection.executemany("DELETE FROM damaged WHERE digest = ?", rows)

    def forget(self, healed: Iterable[bytes]) -> None:
        self.noted.difference_update(healed)
        self.found.difference_update(healed)
