"""The two databases as the tests see them from outside: by URL, by raw SQL, and as a description of the schema."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psycopg

from holdfast.db.engine import Engine, PostgresDialect, SqliteDialect
from holdfast.db.store import Store, open_store
from holdfast.system import sqlite

Schema = dict[str, list[tuple[Any, ...]]]


class Database(Protocol):
    url: str | None
    home: Path
    short_wait: str
    """A statement that makes the connection give up soon on what others hold."""

    def open(self) -> Store: ...

    def engine(self) -> Engine: ...

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run it behind Holdfast's back."""

    def schema(self) -> Schema:
        """Every table, column, key, constraint and index."""


class SqliteDatabase:
    short_wait = "PRAGMA busy_timeout = 50"

    def __init__(self, home: Path) -> None:
        self.url = None
        self.home = home
        self.path = home / "holdfast.db"

    def open(self) -> Store:
        return open_store(None, self.home)

    def engine(self) -> Engine:
        return Engine(SqliteDialect(self.path))

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite.connect(self.path)) as connection:
            return connection.execute(statement).fetchall()

    def schema(self) -> Schema:
        tables = [row[0] for row in self.sql("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {table: self._columns(table) + self._foreign_keys(table) + self._indexes(table) for table in tables}

    def _columns(self, table: str) -> list[tuple[Any, ...]]:
        return self.sql(f"PRAGMA table_info({table})")

    def _foreign_keys(self, table: str) -> list[tuple[Any, ...]]:
        return sorted(self.sql(f"PRAGMA foreign_key_list({table})"))

    def _indexes(self, table: str) -> list[tuple[Any, ...]]:
        indexes = sorted(row[1:] for row in self.sql(f"PRAGMA index_list({table})"))
        return [(*index, *self.sql(f"PRAGMA index_info({index[0]})")) for index in indexes]


class PostgresDatabase:
    short_wait = "SET lock_timeout = '50ms'"

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self.home = home

    def open(self) -> Store:
        return open_store(self.url, self.home)

    def engine(self) -> Engine:
        return Engine(PostgresDialect(self.url))

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def schema(self) -> Schema:
        columns = self.sql(
            "SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default,"
            " character_maximum_length FROM information_schema.columns"
            " WHERE table_schema = current_schema() ORDER BY 1, 3"
        )
        constraints = self.sql(
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2"
        )
        indexes = self.sql(
            "SELECT tablename, replace(indexdef, schemaname || '.', '') FROM pg_indexes"
            " WHERE schemaname = current_schema() ORDER BY 1, 2"
        )
        tables = sorted({row[0] for row in columns})
        return {table: [row for row in columns + constraints + indexes if row[0] == table] for table in tables}
