"""Alembic's own command on the records of a home, or of PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.db import schema
from holdfast.db.lease import leased
from holdfast.db.store import Store
from holdfast.model import Lease, Plan, PlanState, now
from tests.integration.db.database import Database, SqliteDatabase
from tests.integration.db.samples import a_decision, a_run, saved_plan
from tests.integration.db.test_schema import bring_to, revisions
from tests.support.warm import Output, run_warm


class Alembic:
    """The command, in a process of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __call__(self, *words: str, exit_code: int = 0) -> str:
        return self._ended(
            run_warm(["-c", str(schema.ALEMBIC_INI), *words], Path("/"), self._variables, program="alembic"), exit_code
        )

    def cold(self, *words: str, exit_code: int = 0) -> str:
        """The same, started as a user would start it."""
        command = [Path(sys.executable).with_name("alembic"), "-c", schema.ALEMBIC_INI, *words]
        done = subprocess.run(command, env=self._variables, cwd="/", capture_output=True, text=True, check=False)
        return self._ended(Output(done.returncode, done.stdout, done.stderr), exit_code)

    @property
    def _variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        url = {"HOLDFAST_DATABASE_URL": self._database.url} if self._database.url else {}
        return {**kept, "HOLDFAST_HOME": str(self._database.home), **url}

    def _ended(self, done: Output, exit_code: int) -> str:
        assert done.exit_code == exit_code, done
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def alembic(database: Database) -> Alembic:
    return Alembic(database)


def version(database: Database) -> str:
    return str(database.sql("SELECT version_num FROM alembic_version")[0][0])


def test_it_brings_old_records_up_to_date(alembic: Alembic, database: Database) -> None:
    bring_to(database, "0001")
    alembic("upgrade", "head")
    assert version(database) == schema.HEAD
    migrated = database.schema()
    with database.open() as store:
        saved_plan(store)
    assert database.schema() == migrated
    assert f"{schema.HEAD} (head)" in alembic("current")


@pytest.mark.parametrize("revision", [revisions()[0], revisions()[-2]])
def test_without_plans_it_goes_back_to_the_first_revision_or_the_last_but_one_and_up_again(
    alembic: Alembic, database: Database, revision: str
) -> None:
    bring_to(database, revision)
    expected = database.schema()
    alembic("upgrade", "head")
    alembic("downgrade", revision)
    assert database.schema() == expected
    with database.open() as store:
        plan = saved_plan(store)
        assert store.plans.of_project(None) == [plan]


def test_it_goes_back_a_step_and_no_record_is_lost_or_damaged(alembic: Alembic, database: Database) -> None:
    with database.open() as store:
        first, second = saved_plan(store, sequence=1), saved_plan(store, sequence=2)
        with leased(store, first.plan_id, "plan execute") as lease, store.transaction(lease):
            store.insert(a_decision(first, 1))
    alembic("downgrade", "-1")
    assert version(database) == revisions()[-2]
    alembic("downgrade", "-1")
    with database.open() as store:
        assert store.damaged.records() == []
        assert [each.plan_id for each in store.plans.of_project(None)] == [second.plan_id, first.plan_id]
        assert store.get(Lease, first.plan_id).token == lease.token
        assert len(store.decisions.of(first.plan_id)) == 1


def test_what_earlier_versions_found_out_from_texts_is_in_columns_after_a_migration(
    alembic: Alembic, database: Database
) -> None:
    with database.open() as store:
        plan = saved_plan(store, sequence=1)
        below: dict[str, Any] = {"parent_plan_id": plan.plan_id, "is_superseded": True, "state": PlanState.CANCELLED}
        records = [
            saved_plan(store, **below, error="its parent was rolled back", is_cancelled_by_rollback=True),
            saved_plan(store, **below, error="cancelled"),
            a_run(plan, 1, compensation="done", is_compensated=True),
            a_run(plan, 2, compensation="failed: exit code 1", is_compensated=False),
            a_run(plan, 3),
        ]
        with store.transaction():
            for run in records[2:]:
                store.insert(run)
    alembic("downgrade", "0009")
    assert "is_compensated" not in repr(database.schema()["step_run"])
    with database.open() as store:
        assert store.damaged.records() == []
        assert [store.get(Plan, each.plan_id) for each in records[:2]] == records[:2]
        assert store.runs.of(plan.plan_id) == records[2:]


def refused(alembic: Alembic, database: Database, *words: str) -> str:
    before = (database.schema(), version(database))
    said = alembic(*words, exit_code=255)
    assert (database.schema(), version(database)) == before
    return said


def test_it_refuses_to_lose_the_order_of_plans(alembic: Alembic, database: Database) -> None:
    with database.open() as store:
        saved_plan(store, sequence=2)
        saved_plan(store, sequence=1)
    assert "would lose sequence of 2 records in plan" in refused(alembic, database, "downgrade", "0006")


def test_it_refuses_to_lose_that_a_plan_is_newer_than_one_without_a_number(
    alembic: Alembic, database: Database
) -> None:
    with database.open() as store:
        saved_plan(store, created_at=now() + timedelta(hours=1))  # by an earlier version, before the clock was set back
        saved_plan(store, sequence=1)
    assert "would lose sequence of 1 records in plan" in refused(alembic, database, "downgrade", "0006")


def test_it_refuses_to_lose_what_an_earlier_version_has_no_column_for(alembic: Alembic, database: Database) -> None:
    with database.open() as store:
        saved_plan(store)
    said = refused(alembic, database, "downgrade", "0004")
    assert "would lose the id of the records" in said
    database.sql("DROP TABLE record_store")
    database.sql("UPDATE alembic_version SET version_num = '0004'")
    database.sql("UPDATE plan SET boot_id = 'this'")
    assert "would lose boot_id of 1 records in plan" in alembic("downgrade", "0002", exit_code=255)


def test_it_refuses_to_lose_all_plans(alembic: Alembic, database: Database) -> None:
    bring_to(database, "0001")
    database.sql("INSERT INTO project (project_id, root, created_at, checksum) VALUES ('x', 'x', 'x', 'x')")
    columns = (
        "plan_id, project_id, name, phase, state, resources, policy, validation, active_decisions, guidance,"
        " source_file, store_id, created_at, updated_at, checksum, attempt, revision, last_completed_step"
    )
    texts = ", ".join("'x'" for _ in range(15))
    database.sql(f"INSERT INTO plan ({columns}) VALUES ({texts}, 1, 1, 1)")
    assert "would lose all plans" in refused(alembic, database, "downgrade", "base")


def test_it_does_not_go_back_while_a_plan_is_in_use(
    alembic: Alembic, database: Database, store: Store, plan: Plan
) -> None:
    with leased(store, plan.plan_id, "plan execute"):
        said = refused(alembic, database, "downgrade", "-1")
    assert f"plan {plan.plan_id} is in use by process {os.getpid()}" in said


def test_damaged_records_are_left_as_they_are(alembic: Alembic, database: Database) -> None:
    with database.open() as store:
        plan = saved_plan(store, sequence=1)
    database.sql(f"UPDATE plan SET name = 'x' WHERE plan_id = '{plan.plan_id}'")
    assert "would lose sequence of 1 records" in refused(alembic, database, "downgrade", "0006")


def test_what_it_cannot_do_it_says_in_plain_words(tmp_path: Path) -> None:
    alembic = Alembic(SqliteDatabase(tmp_path)).cold
    assert "There are no records in" in alembic("upgrade", "head", exit_code=255)
    assert list(tmp_path.iterdir()) == []
    assert "cannot be written as SQL only" in alembic("upgrade", "head", "--sql", exit_code=255)
    (tmp_path / "config.toml").write_text("no = 'such setting'\n")
    assert "no" in alembic("upgrade", "head", exit_code=255)
