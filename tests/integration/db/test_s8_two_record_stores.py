from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from blake3 import blake3

from holdfast.errors import DatabaseError
from holdfast.model import Plan
from tests.postgres import PostgresServer
from tests.support.workshop import Workshop, run


class TwoStores(Workshop):
    """One home, used with records in SQLite and with records in PostgreSQL."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.url = url

    def ran(self, marker: str, **settings: str) -> Plan:
        """A plan of one step whose content nothing else has."""
        holdfast = self.open(**settings)
        plan = holdfast.create_plan(self.plan_file(run(f"echo {marker} > {marker}.txt")))
        return holdfast.execute(plan.plan_id).plan

    def is_saved(self, marker: str) -> bool:
        return self.open(database__url=self.url).service.manager.objects.has(blake3(f"{marker}\n".encode()).digest())

    def comes_back(self, plan: Plan, marker: str, **settings: str) -> bool:
        """Whether a rollback to the end brings the file back after it was removed."""
        holdfast = self.open(**settings)
        (self.sandbox(plan) / f"{marker}.txt").unlink()
        holdfast.rollback(plan.plan_id, holdfast.checkpoints(plan.plan_id)[-1].checkpoint.checkpoint_id)
        return (self.sandbox(plan) / f"{marker}.txt").read_text() == f"{marker}\n"


@pytest.fixture
def stores(tmp_path: Path, postgres: PostgresServer) -> Iterator[TwoStores]:
    workshop = TwoStores(tmp_path, postgres.new_database())
    yield workshop
    workshop.close()


def test_s8_deleting_a_plan_in_postgresql_keeps_what_plans_in_sqlite_need(stores: TwoStores) -> None:
    in_sqlite = stores.ran("first")
    in_postgres = stores.ran("second", database__url=stores.url)
    holdfast = stores.open(database__url=stores.url)
    holdfast.delete(in_postgres.plan_id)
    assert holdfast.unfreed() is None  # the records in the home can be asked from here
    assert not stores.is_saved("second")
    assert stores.open().verify().is_sound
    assert stores.comes_back(in_sqlite, "first")


def test_s8_nothing_is_collected_while_the_records_in_postgresql_cannot_be_asked(stores: TwoStores) -> None:
    in_sqlite = stores.ran("first")
    in_postgres = stores.ran("second", database__url=stores.url)
    holdfast = stores.open()
    holdfast.delete(in_sqlite.plan_id)
    assert "PostgreSQL" in (holdfast.unfreed() or "")
    assert "checkpoint release" in (holdfast.unfreed() or "")
    assert stores.open(database__url=stores.url).verify().is_sound
    assert stores.comes_back(in_postgres, "second", database__url=stores.url)


def test_s8_what_could_not_be_freed_is_freed_from_where_all_records_can_be_asked(stores: TwoStores) -> None:
    in_sqlite = stores.ran("first")
    in_postgres = stores.ran("second", database__url=stores.url)
    stores.open().delete(in_sqlite.plan_id)
    holdfast = stores.open(database__url=stores.url)
    holdfast.prune(in_postgres.plan_id)
    assert holdfast.unfreed() is None
    assert not stores.is_saved("first")
    assert holdfast.verify().is_sound


def test_s8_records_in_the_home_that_cannot_be_read_count_as_needing_everything(stores: TwoStores) -> None:
    stores.ran("first")
    in_postgres = stores.ran("second", database__url=stores.url)
    stores.close()
    kept = (stores.home / "holdfast.db").read_bytes()
    (stores.home / "holdfast.db").write_bytes(b"")
    holdfast = stores.open(database__url=stores.url)
    holdfast.delete(in_postgres.plan_id)
    assert "holdfast.db" in (holdfast.unfreed() or "")
    assert (stores.home / "holdfast.db").read_bytes() == b""
    (stores.home / "holdfast.db").write_bytes(kept)
    assert stores.open().verify().is_sound


def test_s8_what_is_kept_for_records_that_are_gone_for_ever_can_be_released(stores: TwoStores) -> None:
    in_sqlite = stores.ran("first")
    stores.ran("second", database__url=stores.url)
    holdfast = stores.open()
    (held,) = holdfast.held_back()
    assert "PostgreSQL" in held.place
    holdfast.release(holdfast.held_back())
    assert holdfast.unfreed() is None
    assert holdfast.held_back() == []
    assert not stores.is_saved("second")
    assert holdfast.verify().is_sound
    assert stores.comes_back(in_sqlite, "first")


def test_s8_what_was_counted_for_records_that_are_gone_for_ever_can_be_released(stores: TwoStores) -> None:
    in_sqlite = stores.ran("first")
    stores.ran("second", database__url=stores.url)
    stores.open(database__url=stores.url).service.garbage.collect()
    holdfast = stores.open()
    holdfast.release(holdfast.held_back())
    assert holdfast.unfreed() is None
    assert not stores.is_saved("second")
    assert holdfast.verify().is_sound
    assert stores.comes_back(in_sqlite, "first")


def test_the_content_store_does_not_learn_the_password(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.new_database().replace("postgres@/", "postgres:sesame@/")
    workshop = TwoStores(tmp_path, url)
    workshop.ran("first", database__url=url)
    workshop.close()
    assert b"sesame" not in (workshop.home / "objects.db").read_bytes()


def test_emptied_records_in_postgresql_are_refused(stores: TwoStores, postgres: PostgresServer) -> None:
    stores.ran("first", database__url=stores.url)
    stores.close()
    schema = stores.url.rpartition("%3D")[2]
    with psycopg.connect(postgres.url_of("postgres"), autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE")
        connection.execute(f"CREATE SCHEMA {schema}")
    for _ in range(2):
        with pytest.raises(DatabaseError, match="content for records") as caught:
            stores.open(database__url=stores.url).list_plans()
        assert "backup" in caught.value.hint


def test_a_home_used_with_postgresql_may_be_used_with_sqlite_as_well(stores: TwoStores) -> None:
    in_postgres = stores.ran("first", database__url=stores.url)
    assert stores.open().list_plans() == []
    in_sqlite = stores.ran("second")
    assert stores.comes_back(in_sqlite, "second")
    assert stores.comes_back(in_postgres, "first", database__url=stores.url)
