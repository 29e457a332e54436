"""Brings the database to this version's schema: creates it, or migrates an older one, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.db.engine import Dialect, Engine
from holdfast.db.naming import NAMING_TABLES
from holdfast.db.tables import TABLES
from holdfast.errors import DatabaseError
from holdfast.system.ids import new_id

if TYPE_CHECKING:
    import sqlalchemy

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011")
"""The migrations in order, known without importing Alembic; the last is what ``tables.py`` says."""
HEAD = REVISIONS[-1]
ALEMBIC_INI = Path(__file__).with_name("alembic.ini")
"""For Alembic's own command: ``alembic -c``."""
_NOTHING_YET = ""

# As Alembic creates it.
VERSION_TABLE = """CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)"""

RECORD_STORE_TABLE = "CREATE TABLE record_store (records_id TEXT NOT NULL, PRIMARY KEY (records_id))"
"""It has one row: the id of these records, which never changes."""


def ensure_schema(engine: Engine, refuse_new: Callable[[], None] = lambda: None) -> None:
    """Create or migrate the tables if needed; ``refuse_new`` is called before they are created in an empty database."""
    version = _version(engine)
    if version == HEAD:
        return
    if version is not None:
        _refuse_newer(version)
    if engine.dialect.is_read_only:
        raise DatabaseError(
            f"The records are read-only, and of an earlier version ({version or 'none'}) than this Holdfast ({HEAD}).",
            hint="Copy the home to a place where you can write, and set HOLDFAST_HOME to the copy.",
        )
    with engine.transaction():
        engine.lock_schema()
        # Another process may have been faster.
        version = _version(engine)
        if version is None:
            refuse_new()
            _create(engine)
            version = HEAD
    _refuse_newer(version)
    if version != HEAD:
        upgrade(engine, HEAD)


def _refuse_newer(version: str) -> None:
    if version not in (_NOTHING_YET, *REVISIONS):
        raise DatabaseError(
            f"The database was written by a newer Holdfast: its version is {version}, this one knows up to {HEAD}.",
            hint="Upgrade holdfast. If another program owns this database, give Holdfast one of its own.",
        )


def upgrade(engine: Engine, revision: str) -> None:
    """Run the migrations up to that revision on a connection of their own, in one transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(ALEMBIC_INI.with_name("migrations")).replace("%", "%%"))
    with migrating(engine.dialect) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


@contextmanager
def migrating(dialect: Dialect) -> Iterator[sqlalchemy.Connection]:
    """A connection in one transaction, in which no other process changes the schema."""
    import sqlalchemy.exc

    try:
        with dialect.sqlalchemy_engine().begin() as connection:
            if dialect.schema_lock:
                connection.exec_driver_sql(dialect.schema_lock)
            yield connection
    except sqlalchemy.exc.DBAPIError as error:
        raise dialect.translated(error.orig or error) from error


def _version(engine: Engine) -> str | None:
    """The revision the database is at; None if it has no version table."""
    if "alembic_version" not in engine.table_names():
        return None
    rows = engine.execute("SELECT version_num FROM alembic_version")
    return rows[0][0] if rows else _NOTHING_YET


def _create(engine: Engine) -> None:
    ours = {"record_store", "named_state", "given_up_state", "collected", *(table.name for table in TABLES)}
    foreign = engine.table_names() & ours
    if foreign:
        raise DatabaseError(
            f"The database has tables that Holdfast did not make: {', '.join(sorted(foreign))}.",
            hint="Give Holdfast a database, or a schema, of its own.",
        )
    for table in TABLES:
        for statement in table.ddl:
            engine.execute(statement)
    for statement in (*NAMING_TABLES, RECORD_STORE_TABLE):
        engine.execute(statement)
    engine.execute("INSERT INTO record_store (records_id) VALUES (?)", (new_id(),))
    engine.execute(VERSION_TABLE)
    engine.execute("INSERT INTO alembic_version (version_num) VALUES (?)", (HEAD,))
