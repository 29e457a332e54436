"""Garbage collection: removes the objects that no needed state needs, and returns their space to the disk.

It costs what was added and given up since the last one. If the counts that this relies on are in doubt, everything that
is needed is read and counted again.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Protocol

from holdfast.content.counts import CountsInDoubt, Node
from holdfast.content.difference import StateReader
from holdfast.content.recount import Recount, nothing_counted
from holdfast.content.store import ObjectStore
from holdfast.errors import ContentError, DatabaseError, DatabaseFullError


class Claims(Protocol):
    """What the records need. It is asked while no process holds the store, so nothing is added meanwhile."""

    def refuse_others(self) -> None:
        """Raise ``CountsInDoubt`` if the records may be others than those that the last collection asked."""

    def begin(self) -> None:
        """Mark the records, so that they can be recognized by the next collection."""

    def given_up(self) -> set[bytes]:
        """The states that records have given up since the last collection.

        Refuses if something is kept for records that cannot be asked.
        """

    def needed_among(self, states: Collection[bytes]) -> set[bytes]:
        """Those of these states that some records need."""

    def needed(self) -> set[bytes]:
        """Every state that some records need; refuses like ``given_up``."""

    def note_collected(self) -> None:
        """Note in the content store which records were asked, in the transaction of the collection."""

    def end(self) -> None:
        """Forget, in the records, what was given up."""


def collect(objects: ObjectStore, reader: StateReader, claims: Claims) -> int:
    """Remove what no record needs; returns the number of bytes freed."""
    with objects.holding.collecting():
        objects.unpack_parcels()
        objects.damage.load()
        freed_bytes = _collect(objects, reader, claims)
        objects.room.give_back()
        return freed_bytes


def _collect(objects: ObjectStore, reader: StateReader, claims: Claims) -> int:
    try:
        try:
            freed_bytes = _by_counts(objects, reader, claims)
        except DatabaseFullError:
            raise
        except (CountsInDoubt, ContentError, DatabaseError):  # something that should be counted cannot be read
            freed_bytes = _counting_all(objects, reader, claims)
    except DatabaseFullError:
        return _without_counts(objects, reader, claims)
    with suppress(DatabaseError):  # the next collection then asks again about what was given up
        claims.end()
    return freed_bytes


def _by_counts(objects: ObjectStore, reader: StateReader, claims: Claims) -> int:
    counts = objects.counts
    counts.refuse_invalid()
    claims.refuse_others()
    claims.begin()
    new, given_up = _new_states(objects), claims.given_up()
    needed = claims.needed_among(new | given_up)
    recount = Recount(reader, counts.of)
    recount.add(new & needed)
    recount.remove(given_up - needed)
    changed = recount.counts()
    with objects.database.writing():
        counts.put(changed)
        fallen = [digest for (digest, _), count in changed.items() if not count]
        freed_bytes = _delete(objects, {*counts.uncounted_among(fallen), *counts.uncounted_since()})
        objects.catalogue.remove_of((new | given_up) - needed)
        objects.damage.delete_notes(_uncounted(objects, objects.damage.noted))
        in_parcels = objects.parcels.numbers().keys()
        freed_bytes += objects.parcels.thin_out(in_parcels - _uncounted(objects, in_parcels))
        _finish(objects, claims, freed_bytes)
    return freed_bytes


def _new_states(objects: ObjectStore) -> set[bytes]:
    found = objects.counts.new_states()
    if not all(map(objects.has, found)):
        raise CountsInDoubt("a new state is not in the store, or its name is damaged")
    return found


def _uncounted(objects: ObjectStore, digests: Collection[bytes]) -> set[bytes]:
    return set(digests) - objects.counts.counted_among(list(digests))


def _counting_all(objects: ObjectStore, reader: StateReader, claims: Claims) -> int:
    """Read and count everything that is needed, and remove the rest."""
    claims.begin()
    needed = claims.needed()
    counted = _counted(reader, needed)
    with objects.database.writing():
        freed_bytes = _keep_only(objects, counted, needed)
        objects.counts.replace(counted)
        _finish(objects, claims, freed_bytes)
    return freed_bytes


def _without_counts(objects: ObjectStore, reader: StateReader, claims: Claims) -> int:
    """The same on a disk that has no space for the counts; the next collection counts everything."""
    needed = claims.needed()
    counted = _counted(reader, needed)
    with objects.database.writing():
        freed_bytes = _keep_only(objects, counted, needed)
        objects.counts.give_up()
        objects.tally.collected(freed_bytes)
    return freed_bytes


def _counted(reader: StateReader, states: Collection[bytes]) -> dict[Node, int]:
    recount = Recount(reader, nothing_counted)
    recount.add(states)
    return recount.counts()


def _keep_only(objects: ObjectStore, counted: Collection[Node], states: set[bytes]) -> int:
    keep = {digest for digest, _ in counted}
    # The objects are listed in the transaction that deletes them: another process may unpack parcels at any moment.
    rows = objects.database.connection.execute("SELECT digest, length(data) FROM object").fetchall()
    freed_bytes = _delete(objects, [(digest, size) for digest, size in rows if digest not in keep])
    objects.catalogue.remove(objects.catalogue.orphans(states))
    objects.damage.delete_notes(objects.damage.noted - keep)
    return freed_bytes + objects.parcels.thin_out(keep)


def _delete(objects: ObjectStore, doomed: Collection[tuple[bytes, int]]) -> int:
    sql = "DELETE FROM object WHERE digest = ?"
    objects.database.connection.executemany(sql, [(digest,) for digest, _ in doomed])
    return sum(size for _, size in doomed)


def _finish(objects: ObjectStore, claims: Claims, freed_bytes: int) -> None:
    objects.counts.finish()
    claims.note_collected()
    objects.tally.collected(freed_bytes)
