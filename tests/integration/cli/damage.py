"""Bit rot, made to order."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from holdfast.system.sqlite import module  # another library would drop the locks of this process


def damage_content(database: Path) -> None:
    """Change what every object of the content store holds, behind its back."""
    with closing(module.connect(database)) as connection, connection:
        connection.execute("UPDATE object SET data = CAST(x'00' || 'rotten' AS BLOB)")


def objects_in(database: Path) -> set[bytes]:
    with closing(module.connect(database)) as connection:
        return {row[0] for row in connection.execute("SELECT digest FROM object")}


def damage_objects(database: Path, digests: Collection[bytes]) -> None:
    """The same for objects of these names only, which must be there."""
    with closing(module.connect(database)) as connection, connection:
        rotten = "UPDATE object SET data = CAST(x'00' || 'rotten' AS BLOB) WHERE digest = ?"
        assert connection.executemany(rotten, [(digest,) for digest in digests]).rowcount == len(digests)


def damage_records(database: Path) -> None:
    with closing(module.connect(database)) as connection, connection:
        connection.execute("UPDATE step_run SET step = 'something else'")


def blank_page_of(database: Path, content: bytes) -> None:
    """Overwrite the page in which the middle of that content lies, which must be stored as it is, with zeros."""
    with closing(module.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    middle = len(content) // 2
    place = database.read_bytes().index(content[middle : middle + 64])
    with database.open("r+b") as file:
        file.seek(place // size * size)
        file.write(bytes(size))
