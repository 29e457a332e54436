"""Garbage collection: removes the objects that no kept state needs, and returns their space to the disk."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.content.store import ObjectStore


def collect(objects: ObjectStore, reachable: Callable[[], set[bytes]], states: Callable[[], set[bytes]]) -> int:
    """Remove every object not in ``reachable()``; returns the number of bytes freed.

    Both functions are called while no process holds the store, so nothing is added after they have looked.
    """
    database, connection = objects.database, objects.database.connection
    with objects.holding.collecting():
        objects.unpack_parcels()
        keep, kept_states = reachable(), states()
        objects.damage.load()
        outdated = objects.damage.noted - keep
        orphans = objects.catalogue.orphans(kept_states)
        # The objects are listed in the transaction that deletes them: another process may unpack parcels at any moment.
        with database.writing():
            rows = connection.execute("SELECT digest, length(data) FROM object").fetchall()
            doomed: list[tuple[bytes, int]] = [(digest, size) for digest, size in rows if digest not in keep]
            if outdated:
                objects.damage.delete_notes(outdated)
            connection.executemany("DELETE FROM object WHERE digest = ?", [(digest,) for digest, _ in doomed])
            objects.catalogue.remove(orphans)
            freed_bytes = objects.parcels.thin_out(keep) + sum(size for _, size in doomed)
            objects.tally.collected(freed_bytes)
        objects.room.give_back()
        return freed_bytes
