"""The process that has SQLite copy a database writes nothing but the copy, and its exit code says what went wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.databases import TOTAL, make_database, open_connection, sum_in
from tests.support.measuring import measured_in

CANNOT_BE_READ, IS_BUSY = 3, 4


def copy(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    target.parent.mkdir()
    with measured_in(target.parent) as measuring:
        return subprocess.run(
            [sys.executable, "-P", "-m", "holdfast.sandbox.databases", source, target, "0.2"],
            # As developers set it: then a warning ends the process, and the database could not be copied.
            env={**os.environ, **measuring, "PYTHONWARNINGS": "error"},
            capture_output=True,
            text=True,
            check=False,
        )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_it_copies_what_is_committed_into_one_file(tmp_path: Path, journal: str) -> None:
    database = make_database(tmp_path / "source" / "shop.db", journal)
    with open_connection(database) as program:
        program.execute("BEGIN IMMEDIATE")
        program.execute("UPDATE account SET amount = amount + 7 WHERE id = 3")
        done = copy(database, tmp_path / "target" / "copy.db")
    assert (done.returncode, done.stderr) == (0, "")
    assert [each.name for each in (tmp_path / "target").iterdir()] == ["copy.db"]
    assert sum_in(tmp_path / "target" / "copy.db") == TOTAL


def test_it_gives_up_on_one_that_stays_locked(tmp_path: Path) -> None:
    database = make_database(tmp_path / "source" / "shop.db")
    with open_connection(database) as program:
        program.execute("BEGIN EXCLUSIVE")
        done = copy(database, tmp_path / "target" / "copy.db")
    assert (done.returncode, last_line(done)) == (IS_BUSY, "database is locked")


def test_it_makes_no_database_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    done = copy(tmp_path / "source" / "shop.db", tmp_path / "target" / "copy.db")
    assert (done.returncode, last_line(done)) == (CANNOT_BE_READ, "unable to open database file")
    assert list((tmp_path / "source").iterdir()) == []


def test_it_says_what_sqlite_says_of_a_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "shop.db").write_bytes(b"SQLite format 3\0" + bytes(4096))
    done = copy(tmp_path / "source" / "shop.db", tmp_path / "target" / "copy.db")
    assert (done.returncode, last_line(done)) == (CANNOT_BE_READ, "file is not a database")
