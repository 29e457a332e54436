"""Counts what is asked of the records: statements, the rows they return, and on SQLite the work they take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from holdfast.db.engine import Engine, Row, Stored

_INSTRUCTIONS_COUNTED = 20
"""SQLite reports every so many instructions of its virtual machine."""


@dataclass
class Counts:
    statements: int = 0
    rows: int = 0
    work: int = 0
    """It grows with the rows that a statement looks at, also if it returns none of them."""

    def since(self, before: Counts) -> Counts:
        return Counts(self.statements - before.statements, self.rows - before.rows, self.work - before.work)

    def now(self) -> Counts:
        return Counts(self.statements, self.rows, self.work)


@contextmanager
def counted_statements() -> Iterator[Counts]:
    """What all records that are open, or are opened meanwhile, are asked."""
    counts, original = Counts(), Engine._run

    def work() -> None:
        counts.work += 1

    def counted(engine: Engine, sql: str, parameters: Sequence[Stored] = ()) -> list[Row]:
        if hasattr(engine._connection, "set_progress_handler"):
            engine._connection.set_progress_handler(work, _INSTRUCTIONS_COUNTED)
        rows = original(engine, sql, parameters)
        counts.statements += 1
        counts.rows += len(rows)
        return rows

    with patch.object(Engine, "_run", counted):
        yield counts
