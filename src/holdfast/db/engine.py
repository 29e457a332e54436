"""One connection to the records, shared by the threads of a process, over SQLite or PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import SEE_DOCTOR, DatabaseError, DoctorHint
from holdfast.system import sqlite

if TYPE_CHECKING:
    import sqlalchemy

Stored = str | int | float | None
Row = tuple[Any, ...]


class Dialect(Protocol):
    """What differs between the two databases; statements are written once, with ``?`` for each parameter."""

    begin: str
    row_lock: str
    """Ends a SELECT whose rows must stay as they are until the transaction ends."""
    schema_lock: str
    """The statement, if any, that lets one transaction at a time work on the schema."""
    table_names: str
    clock: str
    """The statement that asks the database for the time; empty if its clock is that of this machine."""
    errors: tuple[type[Exception], ...]

    @property
    def is_read_only(self) -> bool: ...

    def connect(self) -> Any: ...

    def place(self, connection: Any) -> str:
        """Where the database is, for a person and without a password."""

    def statement(self, sql: str) -> str: ...

    def translated(self, error: Exception) -> DatabaseError: ...

    def sqlalchemy_engine(self) -> sqlalchemy.Engine:
        """For Alembic only."""


class Engine:
    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._lock = threading.RLock()
        self._connection = dialect.connect()
        self._depth = 0
        self._failed = False

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @property
    def place(self) -> str:
        with self._lock:
            return self.dialect.place(self._connection)

    def execute(self, sql: str, parameters: Sequence[Stored] = ()) -> list[Row]:
        with self._lock:
            # After a failed statement PostgreSQL answers COMMIT with a silent rollback, and SQLite may already have
            # rolled back, so that the following statements would be committed one by one.
            if self._depth and self._failed:
                raise DatabaseError(
                    "A statement of this transaction failed, so nothing of it is saved.",
                    hint=DoctorHint("Run the command again; if it happens again, run `holdfast doctor`."),
                )
            return self._run(sql, parameters)

    def _run(self, sql: str, parameters: Sequence[Stored] = ()) -> list[Row]:
        try:
            cursor = self._connection.execute(self.dialect.statement(sql), parameters)
            return cursor.fetchall() if cursor.description else []
        except self.dialect.errors as error:
            self._failed = True
            raise self.dialect.translated(error) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, while other threads wait; inside another transaction it becomes a part of that one."""
        with self._lock:
            begin, commit, undo = self._boundaries()
            self._failed = self._failed and self._depth > 0
            self._depth += 1
            try:
                self.execute(begin)
                yield
                self.execute(commit)
            except BaseException:
                self._undo(undo)
                raise
            finally:
                self._depth -= 1

    def _boundaries(self) -> tuple[str, str, tuple[str, ...]]:
        if not self._depth:
            return self.dialect.begin, "COMMIT", ("ROLLBACK",)
        point = f"level_{self._depth}"
        release = f"RELEASE SAVEPOINT {point}"
        return f"SAVEPOINT {point}", release, (f"ROLLBACK TO SAVEPOINT {point}", release)

    def _undo(self, statements: Sequence[str]) -> None:
        # The caller must get the first error; and if undoing fails here, the database has undone it itself.
        with suppress(DatabaseError):
            for statement in statements:
                self._run(statement)
            self._failed = False

    def lock_schema(self) -> None:
        if self.dialect.schema_lock:
            self.execute(self.dialect.schema_lock)

    def now(self) -> datetime:
        """The time by the one clock that is common to all processes that share the records."""
        if not self.dialect.clock:
            return datetime.now(UTC)
        at: datetime = self.execute(self.dialect.clock)[0][0]
        return at.astimezone(UTC)

    def table_names(self) -> set[str]:
        return {row[0] for row in self.execute(self.dialect.table_names)}


class SqliteDialect:
    # A transaction that begins as a reader cannot always become a writer; one that begins as a writer waits for others.
    begin = "BEGIN IMMEDIATE"
    # SQLite allows one writer at a time for the whole file, so BEGIN IMMEDIATE locks every row.
    row_lock = ""
    schema_lock = ""
    table_names = "SELECT name FROM sqlite_master WHERE type = 'table'"
    clock = ""
    errors: tuple[type[Exception], ...] = (sqlite.Error,)

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def is_read_only(self) -> bool:
        return sqlite.is_read_only(self._path)

    def connect(self) -> Any:
        return sqlite.connect(self._path)

    def place(self, connection: Any) -> str:  # noqa: ARG002 - the path is enough
        return self._path.name

    def statement(self, sql: str) -> str:
        return sql

    def translated(self, error: Exception) -> DatabaseError:
        return sqlite.database_error(error, self._path)

    def sqlalchemy_engine(self) -> sqlalchemy.Engine:
        return _sqlalchemy_engine("sqlite://", self, module=sqlite.module)


_LOCK_TIMEOUT_SECONDS = 30
_RETRY = "Run the command again."
_POSTGRES_MEANINGS = {
    "55P03": (
        f"PostgreSQL: another process held a lock for {_LOCK_TIMEOUT_SECONDS} s",
        "Wait for the other holdfast command to end, then run this one again.",
    ),
    "40": ("PostgreSQL gave another transaction precedence; nothing of this change was saved", _RETRY),
    "53100": ("PostgreSQL's disk is full; nothing of this change was saved", "Free some space on the server."),
    "533": ("PostgreSQL accepts no more connections", "Try again later, or raise max_connections."),
    "42501": ("PostgreSQL refused: permission denied", "Grant Holdfast's role all rights on its database and schema."),
    "3F": ("PostgreSQL has no schema that Holdfast may use", "Create one, and grant Holdfast's role all rights on it."),
    "25006": ("PostgreSQL is read-only", "Connect to the primary server."),
    "28": ("PostgreSQL refused the user or password", "Check the database URL in the configuration."),
    "3D": ("PostgreSQL has no such database", "Create it, or check the database URL in the configuration."),
    "XX": ("PostgreSQL reports damage", DoctorHint("Look into the server's log, then run `holdfast doctor`.")),
    "57P": ("PostgreSQL ended the connection", "Check that the server is running, then run the command again."),
    "08": ("The connection to PostgreSQL was lost", "Check that the server is running, then run the command again."),
}


class PostgresDialect:
    begin = "BEGIN"
    # The lock that an UPDATE takes itself: other transactions may still insert rows that refer to this one.
    row_lock = " FOR NO KEY UPDATE"
    schema_lock = "SELECT pg_advisory_xact_lock(5230428764)"
    table_names = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema()"
    clock = "SELECT clock_timestamp()"

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise DatabaseError(
                "The records are configured to be in PostgreSQL, but the package psycopg is not installed.",
                hint="Install it: pip install 'holdfast[postgres]'",
            ) from error
        self._url = url
        self._psycopg = psycopg
        self.errors: tuple[type[Exception], ...] = (psycopg.Error,)

    is_read_only = False

    def connect(self) -> Any:
        psycopg = self._psycopg
        try:
            connection = psycopg.connect(
                self._url, autocommit=True, client_encoding="UTF8", fallback_application_name="holdfast"
            )
            connection.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT_SECONDS}s'")
            return connection
        except psycopg.ProgrammingError as error:
            # Not the driver's message, which may quote a part of the password.
            raise DatabaseError(
                "PostgreSQL does not understand the database URL.",
                hint="Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, special characters percent-encoded.",
            ) from error
        except psycopg.OperationalError as error:
            raise DatabaseError(
                f"Cannot connect to PostgreSQL: {_first_line(error)}",
                hint="Check that the server is running, and the database URL in the configuration.",
            ) from error

    def place(self, connection: Any) -> str:
        at = connection.info
        schema = connection.execute("SELECT current_schema()").fetchone()[0]
        return f"PostgreSQL at {at.host}:{at.port}/{at.dbname}" + ("" if schema == "public" else f", schema {schema}")

    def statement(self, sql: str) -> str:
        return sql.replace("?", "%s")

    def translated(self, error: Exception) -> DatabaseError:
        # An error the server did not send comes from a broken connection.
        state = getattr(error, "sqlstate", None) or "08"
        for prefix, (message, hint) in _POSTGRES_MEANINGS.items():
            if state.startswith(prefix):
                return DatabaseError(f"{message}: {_first_line(error)}", hint=hint)
        return DatabaseError(
            f"PostgreSQL refused a statement: {_first_line(error)}",
            hint=SEE_DOCTOR,
        )

    def sqlalchemy_engine(self) -> sqlalchemy.Engine:
        return _sqlalchemy_engine("postgresql+psycopg://", self)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _sqlalchemy_engine(url: str, dialect: Dialect, **options: Any) -> sqlalchemy.Engine:
    import sqlalchemy

    engine = sqlalchemy.create_engine(url, creator=dialect.connect, poolclass=sqlalchemy.NullPool, **options)

    # Our connections do not begin transactions themselves, so without this every statement of a migration would commit.
    @sqlalchemy.event.listens_for(engine, "begin")
    def begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql(dialect.begin)

    return engine
