"""A SQLite database comes into a copy whole: as of one moment if a program uses it, byte for byte if none does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import SandboxError
from holdfast.sandbox import databases
from holdfast.sandbox.copying import TreeCopy
from tests.support.databases import TOTAL, busy_writer, change, make_database, open_connection, sum_in
from tests.support.moments import just_before
from tests.support.trees import compare, describe, write
from tests.support.unprivileged import folder_for_nobody, run_as_a_user

JOURNALS = ["wal", "delete"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    return source


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def copy(source: Path, target: Path) -> TreeCopy:
    return TreeCopy(source, target, name="app").run()


def check_a_copy_beside_a_busy_writer(folder: str, journal: str) -> list[int]:
    """Returns the sums found in three copies that were made while another process wrote."""
    database = make_database(Path(folder, "source", "shop.db"), journal)
    found = []
    with busy_writer(database):
        for number in range(3):
            copied = Path(folder, f"copy{number}")
            assert copy(database.parent, copied).left_out == []
            assert os.listdir(copied) == ["shop.db"]
            found.append(sum_in(copied / "shop.db"))
    return found


@pytest.mark.parametrize("journal", JOURNALS)
def test_beside_a_busy_writer_a_database_is_copied_as_of_one_moment(tmp_path: Path, journal: str):
    assert check_a_copy_beside_a_busy_writer(str(tmp_path), journal) == [TOTAL] * 3


@pytest.mark.parametrize("journal", JOURNALS)
def test_so_it_is_for_a_user_who_is_not_root(journal: str):
    with folder_for_nobody() as folder:
        found = run_as_a_user(check_a_copy_beside_a_busy_writer, str(folder), journal)
    assert found == [TOTAL] * 3


@pytest.mark.parametrize("journal", JOURNALS)
def test_what_an_idle_connection_has_committed_is_in_the_copy(source: Path, target: Path, journal: str):
    database = make_database(source / "deep" / "shop.db", journal)
    with open_connection(database) as program:
        program.execute("UPDATE account SET amount = amount + 7 WHERE id = 3")
        before = describe(source)
        copy(source, target)
        # The index of the log is memory that all who read share.
        assert all("-shm" in each for each in compare(before, describe(source)))
        assert os.listdir(target / "deep") == ["shop.db"]
        assert sum_in(target / "deep" / "shop.db") == TOTAL + 7
        program.execute("UPDATE account SET amount = amount + 1 WHERE id = 3")
    assert sum_in(database) == TOTAL + 8


def test_what_is_not_committed_is_not_in_the_copy(source: Path, target: Path):
    database = make_database(source / "shop.db")
    with open_connection(database) as program:
        program.execute("BEGIN IMMEDIATE")
        program.execute("UPDATE account SET amount = amount + 7 WHERE id = 3")
        copy(source, target)
        program.execute("COMMIT")
    assert os.listdir(target) == ["shop.db"]
    assert (sum_in(target / "shop.db"), sum_in(database)) == (TOTAL, TOTAL + 7)


def test_the_last_one_to_close_is_never_the_copy(source: Path, target: Path):
    """It would write the log into the original and remove it."""
    database = make_database(source / "shop.db", "wal")
    with open_connection(database) as program:
        program.execute("UPDATE account SET amount = amount + 7 WHERE id = 3")
        copy(source, target)
        program.kill()
    assert (source / "shop.db-wal").stat().st_size > 0
    assert sum_in(database) == TOTAL + 7


def test_a_database_that_is_open_and_has_no_log_yet_gets_none_by_being_copied(source: Path, target: Path):
    database = make_database(source / "shop.db", "wal")
    with database.open("r+b"):
        copy(source, target)
    assert os.listdir(source) == os.listdir(target) == ["shop.db"]
    assert (target / "shop.db").read_bytes() == database.read_bytes()


def test_a_log_that_goes_in_the_moment_of_copying_is_not_made_again(source: Path, target: Path):
    database = make_database(source / "shop.db", "wal")
    with open_connection(database) as program, just_before("subprocess.Popen", "python*", program.close):
        copy(source, target)
    assert os.listdir(source) == os.listdir(target) == ["shop.db"]
    assert sum_in(target / "shop.db") == TOTAL


@pytest.mark.parametrize("journal", JOURNALS)
def test_a_database_that_nobody_has_open_is_copied_byte_for_byte_with_its_logs(
    source: Path, target: Path, journal: str
):
    database = make_database(source / "shop.db", journal)
    with open_connection(database) as program:
        program.execute("PRAGMA cache_size = 1")  # so that the journal is needed: pages are written before the commit
        program.execute("BEGIN IMMEDIATE")
        program.execute("UPDATE account SET amount = amount + 7")
        if journal == "wal":
            program.execute("COMMIT")
        program.kill()
    write(source / "notes-wal", "not of a database")
    before = describe(source)
    copy(source, target)
    log = "shop.db-wal" if journal == "wal" else "shop.db-journal"
    assert (target / log).stat().st_size > 0
    assert not compare(before, describe(target))
    assert sum_in(target / "shop.db") == (TOTAL + 7 * 400 if journal == "wal" else TOTAL)
    assert not compare(before, describe(source))


def test_a_journal_that_a_dead_program_left_is_copied_too_while_another_has_the_database_open(
    source: Path, target: Path
):
    database = make_database(source / "shop.db")
    with open_connection(database):
        with open_connection(database) as writer:
            writer.execute("PRAGMA cache_size = 1")
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("UPDATE account SET amount = amount + 7")
            writer.kill()
        before = describe(source)
        copy(source, target)
        assert not compare(before, describe(source))
    assert sum_in(target / "shop.db") == TOTAL


def test_the_logs_of_a_database_go_with_it_also_if_they_are_to_be_skipped(source: Path, target: Path):
    database = make_database(source / "shop.db", "wal")
    with open_connection(database) as program:
        program.execute("UPDATE account SET amount = amount + 7 WHERE id = 3")
        program.kill()
    TreeCopy(source, target, name="app", skip={b"shop.db-wal", b"shop.db-shm"}).run()
    assert sum_in(target / "shop.db") == TOTAL + 7


def test_the_copy_keeps_mode_times_attributes_and_links(source: Path, target: Path):
    database = make_database(source / "shop.db")
    os.link(database, source / "again.db")
    os.setxattr(database, "user.note", b"mine")
    with open_connection(database):
        database.chmod(0o640)
        os.utime(database, ns=(10**18, 10**18))
        copy(source, target)
    one, other = (target / "shop.db").stat(), (target / "again.db").stat()
    assert (one.st_mode & 0o7777, one.st_mtime_ns, one.st_ino) == (0o640, 10**18, other.st_ino)
    assert os.getxattr(target / "shop.db", "user.note") == b"mine"


def test_one_that_is_written_to_while_its_bytes_are_copied_is_copied_again(source: Path, target: Path):
    database = make_database(source / "shop.db", "persist")
    assert (source / "shop.db-journal").stat().st_size > 0
    with just_before("open", "shop.db-journal", lambda: change(database)):
        copy(source, target)
    assert sum_in(target / "shop.db") == TOTAL + 1
    assert (target / "shop.db").read_bytes()[24:28] != database.read_bytes()[24:28]  # SQLite made the second copy


def test_one_that_stays_locked_is_refused(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch):
    database = make_database(source / "shop.db")
    monkeypatch.setattr(databases, "PATIENCE_SECONDS", 0.5)
    with open_connection(database) as program:
        program.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SandboxError, match=r"shop\.db is in use.*stayed locked"):
            copy(source, target)
