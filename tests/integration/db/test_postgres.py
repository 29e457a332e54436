from __future__ import annotations

import sys
from pathlib import Path

import psycopg
import pytest

from holdfast.db.engine import PostgresDialect
from holdfast.db.store import Store, open_store
from holdfast.errors import DatabaseError
from tests.integration.db.database import PostgresDatabase
from tests.postgres import PostgresServer


@pytest.fixture
def database(postgres: PostgresServer, tmp_path: Path) -> PostgresDatabase:
    return PostgresDatabase(postgres.new_database(), tmp_path)


def drop_connections(database: PostgresDatabase) -> None:
    others = "application_name = 'holdfast'"
    database.sql(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {others}")


def work_without_connection(store: Store, database: PostgresDatabase) -> None:
    with store.transaction():
        store.plans.project_for("/src/app")
        drop_connections(database)
        store.plans.project_for("/elsewhere")


def test_a_dropped_connection_gives_our_error(database: PostgresDatabase) -> None:
    with database.open() as store:
        drop_connections(database)
        for _ in range(2):
            with pytest.raises(DatabaseError) as caught:
                store.plans.of_project(None)
            assert "server is running" in caught.value.hint


def test_a_connection_dropped_in_a_transaction_gives_the_first_error(database: PostgresDatabase) -> None:
    with database.open() as store, pytest.raises(DatabaseError) as caught:
        work_without_connection(store, database)
    assert "server is running" in caught.value.hint
    assert database.sql("SELECT * FROM project") == []


def test_a_server_that_is_not_there_is_said_to_be_unreachable(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="Cannot connect to PostgreSQL") as caught:
        open_store(f"postgresql://me:secret@/records?host={tmp_path}", tmp_path)
    assert "secret" not in caught.value.message


def test_a_database_that_does_not_exist_is_named(postgres: PostgresServer, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="nowhere"):
        open_store(postgres.url_of("nowhere"), tmp_path)


def test_a_malformed_url_is_refused_without_repeating_its_password(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="URL") as caught:
        open_store("postgresql://me:secret@[::1/records", tmp_path)
    assert "secret" not in caught.value.message + caught.value.hint
    assert "percent-encoded" in caught.value.hint


def test_a_missing_driver_is_named_with_the_way_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DatabaseError, match="psycopg is not installed") as caught:
        open_store("postgresql:///records", tmp_path)
    assert "holdfast[postgres]" in caught.value.hint


def test_a_role_without_rights_is_told_so(database: PostgresDatabase, tmp_path: Path) -> None:
    database.open().close()
    schema = database.sql("SELECT current_schema()")[0][0]
    database.sql("DROP ROLE IF EXISTS stranger")
    database.sql("CREATE ROLE stranger LOGIN")
    as_stranger = database.url.replace("postgres@", "stranger@")
    with pytest.raises(DatabaseError, match="no schema"):
        open_store(as_stranger, tmp_path)
    database.sql(f"GRANT USAGE ON SCHEMA {schema} TO stranger")
    with pytest.raises(DatabaseError, match="permission denied"):
        open_store(as_stranger, tmp_path)
    database.sql("DROP OWNED BY stranger")


def test_installations_in_two_schemas_do_not_see_each_other(
    database: PostgresDatabase, postgres: PostgresServer, tmp_path: Path
) -> None:
    with database.open() as store, open_store(postgres.new_database(), tmp_path) as other:
        store.plans.project_for("/src/app")
        assert other.plans.find_project_id("/src/app") is None


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("40P01", "precedence"),
        ("53100", "disk is full"),
        ("53300", "no more connections"),
        ("25006", "read-only"),
        ("28P01", "user or password"),
        ("XX001", "damage"),
        ("57P01", "ended the connection"),
        ("42601", "refused a statement"),
    ],
)
def test_what_the_server_reports_is_said_in_our_words(state: str, said: str) -> None:
    error = psycopg.errors.lookup(state)("in the server's words\nand more of them")
    translated = PostgresDialect("postgresql://").translated(error)
    assert said in translated.message
    assert translated.message.endswith("in the server's words")
    assert translated.hint
