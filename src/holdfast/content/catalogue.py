"""The catalogue of the content store: the snapshots of each sandbox, and the state each of them holds."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.content.database import ContentDatabase
from holdfast.content.tally import Tally

_MOST_GOING = 32
Snapshot = tuple[str, str, bytes, str]
"""Id of the checkpoint, id of the sandbox, state, record."""


class Catalogue:
    def __init__(self, database: ContentDatabase, tally: Tally) -> None:
        self._database, self._tally = database, tally
        self._going: list[str] = []
        """Ids of snapshots that are still to be deleted: a step prunes a few, and each transaction costs time."""

    def records_of(self, sandbox_id: str) -> list[str]:
        sql = "SELECT checkpoint_id, record FROM snapshot WHERE sandbox_id = ? ORDER BY checkpoint_id"
        return [record for each, record in self._database.rows(sql, (sandbox_id,)) if each not in self._going]

    def find(self, checkpoint_id: str) -> str | None:
        row = self._database.row("SELECT record FROM snapshot WHERE checkpoint_id = ?", (checkpoint_id,))
        return None if row is None or checkpoint_id in self._going else row[0]

    def latest(self, sandbox_id: str) -> tuple[str, str] | None:
        """Id and record of the snapshot that was added last; the clock may have been set back since."""
        sql = "SELECT checkpoint_id, record FROM snapshot WHERE sandbox_id = ? ORDER BY rowid DESC LIMIT ?"
        rows = self._database.rows(sql, (sandbox_id, 1 + len(self._going)))
        return next(((str(each), str(record)) for each, record in rows if each not in self._going), None)

    def remove_of(self, states: Iterable[bytes]) -> None:
        """Remove the snapshots with these states, in a transaction that the caller has begun."""
        parameters = [(state,) for state in states]
        self._database.connection.executemany("DELETE FROM snapshot WHERE state = ?", parameters)

    def orphans(self, kept_states: set[bytes]) -> list[str]:
        """Ids of the snapshots whose states are not among these."""
        rows = self._database.rows("SELECT checkpoint_id, state FROM snapshot")
        return [checkpoint_id for checkpoint_id, state in rows if state not in kept_states]

    def add(self, snapshots: Iterable[Snapshot]) -> None:
        """Add snapshots, in the transaction that stores their content."""
        for snapshot in snapshots:
            self._database.connection.execute("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?)", snapshot)

    def disown(self, checkpoint_id: str, sandbox: str, size_bytes: int) -> None:
        """Remove a snapshot that no record names; the content stored for it is unnamed again."""
        with self._database.writing():
            self.remove([checkpoint_id])
            self._tally.add_unnamed({sandbox: size_bytes})

    def delete(self, checkpoint_ids: Iterable[str] = ()) -> None:
        """Delete these snapshots, and those that were to be deleted soon."""
        with self._database.mutex:
            going = [*self._going, *checkpoint_ids]
            if going:
                with self._database.writing_unsynced():
                    self.remove(going)
            self._going = []

    def delete_soon(self, checkpoint_ids: Iterable[str]) -> None:
        """Delete these snapshots, many at a time; from now on they are not found.

        Dies: the catalogue lists them until their states are collected.
        """
        with self._database.mutex:
            self._going += checkpoint_ids
            if len(self._going) >= _MOST_GOING:
                self.delete()

    def remove(self, checkpoint_ids: Iterable[str]) -> None:
        """Remove snapshots, in a transaction that the caller has begun."""
        parameters = [(checkpoint_id,) for checkpoint_id in checkpoint_ids]
        self._database.connection.executemany("DELETE FROM snapshot WHERE checkpoint_id = ?", parameters)
