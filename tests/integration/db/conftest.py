from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.db.store import Store
from holdfast.model import Plan
from tests.integration.db.database import Database, PostgresDatabase, SqliteDatabase
from tests.integration.db.samples import saved_plan
from tests.postgres import PostgresServer, running_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database of each kind: what is promised of the records is promised on both."""
    if request.param == "sqlite":
        return SqliteDatabase(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    return PostgresDatabase(server.new_database(), tmp_path)


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    with database.open() as store:
        yield store


@pytest.fixture
def plan(store: Store) -> Plan:
    return saved_plan(store)
