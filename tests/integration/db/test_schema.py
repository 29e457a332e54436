from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

import holdfast.db
from holdfast.db import schema
from holdfast.db.store import open_store
from holdfast.db.tables import TABLES
from holdfast.errors import ConfigError, DatabaseError
from tests.integration.db.children import (
    Child,
    killed_while_creating,
    killed_while_migrating,
    opening,
    run_at_once,
)
from tests.integration.db.database import Database, PostgresDatabase, Schema, SqliteDatabase
from tests.integration.db.samples import saved_plan
from tests.postgres import PostgresServer

BASE = "base"


def revisions() -> list[str]:
    """All there are, oldest first, by Alembic's own account."""
    config = Config()
    config.set_main_option("script_location", str(Path(holdfast.db.__file__).parent / "migrations"))
    return [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()][::-1]


def bring_to(database: Database, revision: str) -> None:
    """Make the database what the migrations up to that revision make of it."""
    engine = database.engine()
    try:
        if revision == BASE:
            engine.execute(schema.VERSION_TABLE)
        else:
            schema.upgrade(engine, revision)
    finally:
        engine.close()


@pytest.fixture
def made_anew(database: Database, tmp_path: Path, request: pytest.FixtureRequest) -> Schema:
    """The schema of another database of the same kind that was made in one go."""
    fresh: Database
    if database.url is None:
        (tmp_path / "fresh").mkdir()
        fresh = SqliteDatabase(tmp_path / "fresh")
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        fresh = PostgresDatabase(server.new_database(), tmp_path)
    fresh.open().close()
    return fresh.schema()


def test_the_revisions_known_without_alembic_are_those_alembic_finds() -> None:
    assert list(schema.REVISIONS) == revisions()


@pytest.mark.parametrize("revision", [BASE, *revisions()])
@pytest.mark.unmeasured
def test_migrating_from_every_version_gives_what_making_anew_gives(
    database: Database, made_anew: Schema, revision: str
) -> None:
    bring_to(database, revision)
    with database.open() as store:
        saved_plan(store)
    assert database.schema() == made_anew
    assert database.sql("SELECT version_num FROM alembic_version") == [(schema.HEAD,)]


def test_the_descriptions_compared_hold_tables_columns_references_and_indexes(made_anew: Schema) -> None:
    named = {"named_state", "given_up_state", "collected"}
    assert set(made_anew) == {"alembic_version", "record_store", *named, *(table.name for table in TABLES)}
    for table in TABLES:
        described = repr(made_anew[table.name])
        assert all(f"'{name}'" in described for name in table.names)
        assert all(index.split(" ON ")[0].split()[-1] in described for index in table.indexes)
        assert described.count("CASCADE") == sum("CASCADE" in constraint for constraint in table.constraints)


def test_opening_again_changes_nothing(database: Database) -> None:
    with database.open() as store:
        plan = saved_plan(store)
    before = database.schema()
    with database.open() as store:
        assert store.plans.of_project(None) == [plan]
    assert database.schema() == before


def test_a_newer_database_is_refused_and_left_alone(database: Database) -> None:
    database.open().close()
    database.sql("UPDATE alembic_version SET version_num = '9999'")
    before = database.schema()
    with pytest.raises(DatabaseError, match="newer Holdfast: its version is 9999") as caught:
        database.open()
    assert "Upgrade holdfast" in caught.value.hint
    assert database.schema() == before


def test_tables_of_another_program_are_not_touched(database: Database) -> None:
    database.sql("CREATE TABLE plan (something TEXT)")
    before = database.schema()
    with pytest.raises(DatabaseError, match="did not make: plan") as caught:
        database.open()
    assert "of its own" in caught.value.hint
    assert database.schema() == before


def test_a_migration_that_fails_leaves_everything_as_it_was_and_gives_our_error(database: Database) -> None:
    bring_to(database, BASE)
    # In the way of the last statements of the first migration.
    database.sql("CREATE TABLE lease (something TEXT)")
    before = database.schema()
    with pytest.raises(DatabaseError, match="lease"):
        database.open()
    assert database.schema() == before
    database.sql("DROP TABLE lease")
    database.open().close()


def test_eight_processes_open_a_fresh_home_at_once(database: Database, made_anew: Schema) -> None:
    assert run_at_once(8, opening, database.url, database.home) == [(0, None)] * 8
    assert database.schema() == made_anew


def test_eight_processes_migrate_an_old_database_at_once(database: Database, made_anew: Schema) -> None:
    bring_to(database, BASE)
    assert run_at_once(8, opening, database.url, database.home) == [(0, None)] * 8
    assert database.schema() == made_anew


def test_records_have_an_id_of_their_own_that_stays(database: Database, tmp_path: Path) -> None:
    with database.open() as store:
        first = store.records_id
    with database.open() as store:
        assert store.records_id == first
    (tmp_path / "other").mkdir()
    with SqliteDatabase(tmp_path / "other").open() as other:
        assert other.records_id != first


def test_records_of_a_version_without_an_id_get_one_that_stays(database: Database) -> None:
    bring_to(database, "0004")
    with database.open() as store:
        first = store.records_id
    with database.open() as store:
        assert (len(first), store.records_id) == (26, first)


KILLED_AT = ["CREATE TABLE project", "CREATE TABLE step_run", "CREATE INDEX operation", "INSERT INTO alembic", "COMMIT"]


@pytest.mark.parametrize("statement", KILLED_AT)
def test_a_kill_while_the_tables_are_made_is_completed_by_the_next_opening(
    database: Database, made_anew: Schema, statement: str
) -> None:
    child = Child(killed_while_creating, database.url, database.home, statement)
    assert child.end() == (-signal.SIGKILL, None)
    assert database.schema() == {}
    database.open().close()
    assert database.schema() == made_anew


@pytest.mark.parametrize("statement", KILLED_AT)
def test_a_kill_in_the_middle_of_a_migration_is_completed_by_the_next_opening(
    database: Database, made_anew: Schema, statement: str
) -> None:
    bring_to(database, BASE)
    at_first = database.schema()
    child = Child(killed_while_migrating, database.url, database.home, statement)
    assert child.end() == (-signal.SIGKILL, None)
    assert database.schema() == at_first
    database.open().close()
    assert database.schema() == made_anew


def test_neither_opening_nor_creating_imports_what_only_migrations_need(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from holdfast.db.store import open_store;"
        "[open_store(None, Path(sys.argv[1])).close() for _ in range(2)];"
        "print(sorted({'alembic', 'sqlalchemy', 'psycopg'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(holdfast.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], env=environment, text=True, capture_output=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("url", ["mysql://me:secret@host/db", "secret@host", "sqlite:///file"])
def test_a_url_of_no_known_database_is_refused_without_repeating_its_password(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url, tmp_path)
    assert "postgresql://" in caught.value.hint
    assert "secret" not in caught.value.message + caught.value.hint
    assert list(tmp_path.iterdir()) == []
