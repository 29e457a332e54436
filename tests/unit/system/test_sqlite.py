from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.db.store import open_store
from holdfast.errors import DatabaseError
from holdfast.system import sqlite
from tests.support.unprivileged import folder_for_nobody


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.db"


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def read(connection: sqlite3.Connection, path: Path, table: str) -> None:
    with sqlite.translated_errors(path):
        connection.execute(f"SELECT * FROM {table}").fetchall()


# Whoever it was in between, it ends as the user it began as: a measurement is saved at the end.
_APART = """
import os, sys
from pathlib import Path
from holdfast.system import sqlite
path = Path(sys.argv[1])
try:
    exec(sys.argv[2])
finally:
    os.setresuid(-1, os.getresuid()[2], -1)
"""


def run_apart(code: str, path: Path) -> str:
    """Run it in another process; what that says."""
    environment = {**os.environ, "PYTHONPATH": str(Path(holdfast.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", _APART, path, code], env=environment, text=True, capture_output=True)
    return done.stdout + done.stderr


def test_commits_are_durable_and_writers_wait_for_each_other(path: Path) -> None:
    with closing(sqlite.connect(path)) as connection:
        assert pragma(connection, "journal_mode") == "wal"
        assert pragma(connection, "synchronous") == 2
        assert pragma(connection, "busy_timeout") == 30_000
        assert pragma(connection, "foreign_keys") == 1
        assert connection.isolation_level is None


def test_space_can_be_given_back_where_that_is_asked_for(tmp_path: Path) -> None:
    with closing(sqlite.connect(tmp_path / "plain")) as connection:
        assert pragma(connection, "auto_vacuum") == 0
    for _ in range(2):
        with closing(sqlite.connect(tmp_path / "vacuumed", auto_vacuum=True)) as connection:
            assert pragma(connection, "auto_vacuum") == 2


@pytest.mark.parametrize("auto_vacuum", [True, False])
def test_a_file_is_opened_and_read_while_somebody_writes_to_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, auto_vacuum: bool
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_SECONDS", 0)
    with closing(sqlite.connect(path, auto_vacuum=auto_vacuum)) as writing:
        writing.execute("CREATE TABLE t (x)")
        writing.execute("BEGIN IMMEDIATE")
        with closing(sqlite.connect(path, auto_vacuum=auto_vacuum)) as reading:
            read(reading, path, "t")


def test_nobody_else_may_read_the_files(path: Path) -> None:
    with closing(sqlite.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
        files = list(path.parent.iterdir())
        assert len(files) == 3
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_second_opening_in_this_process_leaves_the_locks_of_the_first(path: Path) -> None:
    with closing(sqlite.connect(path)) as first:
        first.execute("CREATE TABLE t (x)")
        sqlite.connect(path).close()
        # The bytes that SQLite locks shared as long as a database is open; who can lock them exclusively believes that
        # nobody else uses it.
        take = "import fcntl; fcntl.lockf(open(path, 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)"
        assert "BlockingIOError" in run_apart(take, path)
    assert run_apart(take, path) == ""


def test_opening_waits_for_a_process_that_is_making_the_same_file(path: Path) -> None:
    with closing(sqlite.module.connect(path, isolation_level=None, check_same_thread=False)) as maker:
        maker.execute("CREATE TABLE t (x)")
        maker.execute("BEGIN EXCLUSIVE")
        timer = threading.Timer(0.3, maker.execute, ["COMMIT"])
        timer.start()
        with closing(sqlite.connect(path)) as connection:
            assert pragma(connection, "journal_mode") == "wal"
        timer.join()


def test_the_switch_to_wal_is_tried_again_while_somebody_reads(path: Path) -> None:
    with closing(sqlite.module.connect(path, isolation_level=None, check_same_thread=False)) as reader:
        reader.execute("CREATE TABLE t (x)")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM t").fetchall()
        timer = threading.Timer(0.3, reader.execute, ["COMMIT"])
        timer.start()
        with closing(sqlite.connect(path)) as connection:
            assert pragma(connection, "journal_mode") == "wal"
        timer.join()


def test_a_collision_is_tried_again_and_any_other_error_is_not(path: Path) -> None:
    # What older versions of SQLite do to processes that make the same file WAL at once, which the two tests above show
    # only where such a version is in use.
    attempts: list[int] = []
    with closing(sqlite.connect(path)) as holder, closing(sqlite.module.connect(path, timeout=0)) as impatient:
        holder.execute("BEGIN IMMEDIATE")

        def collide() -> None:
            attempts.append(1)
            if len(attempts) == 3:
                holder.execute("COMMIT")
            impatient.execute("BEGIN IMMEDIATE")

        sqlite.patiently(collide)
        assert len(attempts) == 3
        with pytest.raises(sqlite.Error, match="within a transaction"):
            sqlite.patiently(collide)
        assert len(attempts) == 4


def test_a_file_system_without_wal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatabaseError, match="write-ahead log") as caught:
        sqlite.connect(Path(":memory:"))
    assert "local disk" in caught.value.hint


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    content = b"my diary\n" * 1000
    (tmp_path / "holdfast.db").write_bytes(content)
    with pytest.raises(DatabaseError, match="not a SQLite database") as caught:
        open_store(None, tmp_path)
    assert "HOLDFAST_HOME" in caught.value.hint
    assert (tmp_path / "holdfast.db").read_bytes() == content


def test_a_folder_in_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(DatabaseError, match="cannot be opened"):
        sqlite.connect(path)


def test_a_missing_folder_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="No such file or directory") as caught:
        sqlite.connect(tmp_path / "nowhere" / "records.db")
    assert "folder exists" in caught.value.hint


def test_a_full_disk_is_said_to_be_full_and_nothing_is_half_saved(path: Path) -> None:
    with closing(sqlite.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("PRAGMA max_page_count = 3")
        with pytest.raises(DatabaseError, match="no space left"), sqlite.translated_errors(path):
            connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_a_damaged_file_is_said_to_be_damaged(path: Path) -> None:
    with closing(sqlite.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [(f"{number:0900}",) for number in range(50)])
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with closing(sqlite.connect(path)) as connection, pytest.raises(DatabaseError, match="is damaged") as caught:
        read(connection, path, "t")
    assert "holdfast doctor" in caught.value.hint


def test_any_other_error_is_ours_too_and_keeps_its_words(path: Path) -> None:
    with closing(sqlite.connect(path)) as connection, pytest.raises(DatabaseError, match="no such table: nowhere"):
        read(connection, path, "nowhere")


@pytest.fixture
def closed() -> Iterator[Path]:
    """A database with one row that this user, or nobody in the place of root, can read and not write."""
    with folder_for_nobody() as folder:
        path = folder / "records.db"
        with closing(sqlite.connect(path)) as connection:
            connection.execute("CREATE TABLE t (a)")
            connection.execute("INSERT INTO t VALUES (1)")
        path.chmod(0o444)
        folder.chmod(0o555)
        yield path


BECOME_NOBODY = "os.geteuid() or os.setresuid(65534, 65534, 0)"


def test_a_file_that_may_not_be_written_is_read_and_refuses_to_be_written(closed: Path) -> None:
    opened = f"{BECOME_NOBODY}; connection = sqlite.connect(path)"
    assert run_apart(f"{opened}; print(connection.execute('SELECT a FROM t').fetchall())", closed) == "[(1,)]\n"
    writing = "\nwith sqlite.translated_errors(path): connection.execute('INSERT INTO t VALUES (2)')"
    assert "records.db cannot be written: it is read-only" in run_apart(opened + writing, closed)


def test_a_file_that_was_changed_while_it_was_read_without_locks_is_told(closed: Path) -> None:
    looking = f"{BECOME_NOBODY}; connection = sqlite.connect(path); connection.execute('SELECT * FROM t')"
    changing = "os.setresuid(-1, os.getresuid()[2], -1); os.utime(path)"
    assert "was changed while it was read" in run_apart(f"{looking}; {changing}; connection.close()", closed)


def test_a_log_that_cannot_be_read_where_nothing_can_be_written_is_told(closed: Path) -> None:
    closed.parent.chmod(0o755)
    closed.with_name("records.db-wal").write_bytes(b"a log")
    closed.parent.chmod(0o555)
    assert "was not closed" in run_apart(f"{BECOME_NOBODY}; sqlite.connect(path)", closed)


def test_the_standard_module_is_used_where_it_is_new_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", sqlite.SAFE_VERSION)
    assert sqlite._chosen_module() is sqlite3


def test_the_packaged_module_is_used_where_the_standard_one_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = pytest.importorskip("pysqlite3.dbapi2")
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    assert sqlite._chosen_module() is packaged
    monkeypatch.setattr(packaged, "sqlite_version_info", (3, 51, 2))
    assert sqlite._chosen_module() is sqlite3


def test_the_standard_module_serves_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    monkeypatch.setitem(sys.modules, "pysqlite3.dbapi2", None)
    assert sqlite._chosen_module() is sqlite3


def test_whether_sqlite_is_safe_follows_from_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sqlite.sqlite_version == sqlite.module.sqlite_version
    monkeypatch.setattr(sqlite.module, "sqlite_version_info", (3, 51, 2))
    assert not sqlite.sqlite_is_safe()
    monkeypatch.setattr(sqlite.module, "sqlite_version_info", (3, 51, 3))
    assert sqlite.sqlite_is_safe()


def test_alone_is_only_the_last_connection(path: Path) -> None:
    with closing(sqlite.connect(path)) as other:
        other.execute("CREATE TABLE kept (number)")
        with pytest.raises(sqlite.Error) as refused, sqlite.connected_alone(path):
            pass
        assert sqlite.is_busy(refused.value)
        other.execute("INSERT INTO kept VALUES (1)")
    with sqlite.connected_alone(path) as alone:
        alone.execute("INSERT INTO kept VALUES (2)")
    with closing(sqlite.connect(path)) as other:
        assert other.execute("SELECT number FROM kept").fetchall() == [(1,), (2,)]
        assert pragma(other, "journal_mode") == "wal"


def test_what_was_written_just_before_one_was_alone_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite does not look for it in the pages that the connection knows already."""
    other = sqlite.connect(path)
    other.execute("CREATE TABLE kept (number)")
    other.execute("INSERT INTO kept VALUES (1)")
    connect = sqlite.connect

    def connect_first(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        other.execute("INSERT INTO kept VALUES (2)")
        other.close()
        return connection

    monkeypatch.setattr(sqlite, "connect", connect_first)
    with sqlite.connected_alone(path) as alone:
        alone.execute("INSERT INTO kept VALUES (3)")
    with closing(connect(path)) as other:
        assert other.execute("SELECT number FROM kept").fetchall() == [(1,), (2,), (3,)]


def test_one_that_comes_between_is_not_overlooked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was made after the log was given up, and before the transaction began."""
    sqlite.connect(path).close()
    connect, others = sqlite.connect, []

    class Overtaken:
        def __init__(self, connection: sqlite3.Connection) -> None:
            self._connection = connection
            self.close = connection.close

        def execute(self, sql: str) -> sqlite3.Cursor:
            if sql.startswith("BEGIN"):
                others.append(connect(path))
            return self._connection.execute(sql)

    monkeypatch.setattr(sqlite, "connect", lambda path: Overtaken(connect(path)))
    with pytest.raises(sqlite.Error) as refused, sqlite.connected_alone(path):
        pass
    assert sqlite.is_busy(refused.value)
    others[0].close()


def test_alone_nothing_is_changed_if_it_fails(path: Path) -> None:
    def fail() -> None:
        with sqlite.connected_alone(path) as alone:
            alone.execute("CREATE TABLE kept (number)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with closing(sqlite.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == []
