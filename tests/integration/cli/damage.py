"""Bit rot, made to order."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def damage_content(database: Path) -> None:
    """Change what every object of the content store holds, behind its back."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE object SET data = CAST(x'00' || 'rotten' AS BLOB)")


def damage_records(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE step_run SET step = 'something else'")
