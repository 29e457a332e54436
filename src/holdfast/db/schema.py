"""Brings the database to this version's schema: made anew, or migrated from an older one, in one transaction."""

from __future__ import annotations

from pathlib import Path

from holdfast.db.engine import Engine
from holdfast.db.tables import TABLES
from holdfast.errors import DatabaseError

REVISIONS = ("0001", "0002", "0003", "0004")
"""The migrations in order, known without importing Alembic; the last is what ``tables.py`` says."""
HEAD = REVISIONS[-1]
_NOTHING_YET = ""

# As Alembic makes it.
VERSION_TABLE = """CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)"""


def ensure_schema(engine: Engine) -> None:
    if _version(engine) == HEAD:
        return
    with engine.transaction():
        engine.lock_schema()
        # Another process may have been faster.
        version = _version(engine)
        if version is None:
            _create(engine)
            version = HEAD
    if version not in (_NOTHING_YET, *REVISIONS):
        raise DatabaseError(
            f"The database was written by a newer Holdfast: its version is {version}, this one knows up to {HEAD}.",
            hint="Upgrade holdfast. If another program owns this database, give Holdfast one of its own.",
        )
    if version != HEAD:
        upgrade(engine, HEAD)


def upgrade(engine: Engine, revision: str) -> None:
    """Run the migrations up to that revision on a connection of their own, in one transaction."""
    import sqlalchemy.exc
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    try:
        with engine.dialect.sqlalchemy_engine().begin() as connection:
            if engine.dialect.schema_lock:
                connection.exec_driver_sql(engine.dialect.schema_lock)
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    except sqlalchemy.exc.DBAPIError as error:
        raise engine.dialect.translated(error.orig or error) from error


def _version(engine: Engine) -> str | None:
    """The revision the database is at; None if it has no version table."""
    if "alembic_version" not in engine.table_names():
        return None
    rows = engine.execute("SELECT version_num FROM alembic_version")
    return rows[0][0] if rows else _NOTHING_YET


def _create(engine: Engine) -> None:
    foreign = engine.table_names() & {table.name for table in TABLES}
    if foreign:
        raise DatabaseError(
            f"The database has tables that Holdfast did not make: {', '.join(sorted(foreign))}.",
            hint="Give Holdfast a database, or a schema, of its own.",
        )
    for table in TABLES:
        for statement in table.ddl:
            engine.execute(statement)
    engine.execute(VERSION_TABLE)
    engine.execute("INSERT INTO alembic_version (version_num) VALUES (?)", (HEAD,))
