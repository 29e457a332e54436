"""A program that is at work on a SQLite database: many small transfers, so that every commit leaves the same sum."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.system.sqlite import module

ROWS = 400
TOTAL = ROWS * 100
_WRITER = """
import os, random, sys, time
from holdfast.system.sqlite import module
connection = module.connect(sys.argv[1], timeout=60, isolation_level=None)
connection.execute("PRAGMA synchronous = OFF")
count = 0
while True:
    one, other = random.sample(range(400), 2)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE account SET amount = amount - 1, filler = ? WHERE id = ?", (os.urandom(500), one))
    connection.execute("UPDATE account SET amount = amount + 1, filler = ? WHERE id = ?", (os.urandom(500), other))
    connection.execute("COMMIT")
    count += 1
    if count == 20:
        print("busy", flush=True)
"""
_HOLDER = """
import sys
from holdfast.system.sqlite import module
connection = module.connect(sys.argv[1], isolation_level=None)
connection.execute("SELECT count(*) FROM account").fetchone()
print("open", flush=True)
for line in sys.stdin:
    connection.execute(line.strip())
    print("done", flush=True)
connection.close()
"""


def make_database(path: Path, journal: str = "delete") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = module.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, amount INTEGER, filler BLOB)")
    connection.executemany("INSERT INTO account VALUES (?, 100, ?)", [(row, os.urandom(500)) for row in range(ROWS)])
    connection.execute("COMMIT")
    connection.close()
    return path


def sum_in(path: Path) -> int:
    """The sum of all amounts in a database that is sound."""
    connection = module.connect(path, isolation_level=None)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return int(connection.execute("SELECT sum(amount) FROM account").fetchone()[0])
    finally:
        connection.close()


def change(path: Path, statement: str = "UPDATE account SET amount = amount + 1 WHERE id = 0") -> None:
    connection = module.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


@contextmanager
def busy_writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that commits as often as it can."""
    with _program(_WRITER, path, "busy") as process:
        yield process
        assert process.poll() is None, "the writer has failed"


@contextmanager
def open_connection(path: Path) -> Iterator[Holder]:
    """Another process that has the database open, and does what it is told."""
    with _program(_HOLDER, path, "open") as process:
        yield Holder(process)


class Holder:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def execute(self, statement: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(statement + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == "done"

    def close(self) -> None:
        """Let it close its connection and end."""
        self.process.communicate(timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@contextmanager
def _program(code: str, path: Path, first_word: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == first_word
            yield process
        finally:
            process.kill()
