from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from blake3 import blake3

from holdfast.app import Holdfast
from holdfast.doctor import examine
from holdfast.errors import DatabaseError
from holdfast.model import Plan
from holdfast.system import sqlite
from tests.support.workshop import Workshop, run

RECORDS = ("holdfast.db", "holdfast.db-wal", "holdfast.db-shm")


def ran(workshop: Workshop, marker: str) -> Plan:
    """A plan of one step whose content nothing else has."""
    plan = workshop.create(run(f"echo {marker} > {marker}.txt"))
    return workshop.open().execute(plan.plan_id).plan


def copied(workshop: Workshop, folder: Path) -> Path:
    """A backup of the records as they are now."""
    workshop.close()
    folder.mkdir()
    for name in RECORDS:
        if (workshop.home / name).exists():
            shutil.copy2(workshop.home / name, folder / name)
    return folder


def put_back(workshop: Workshop, backup: Path) -> None:
    workshop.close()
    for name in RECORDS:
        (workshop.home / name).unlink(missing_ok=True)
    shutil.copytree(backup, workshop.home, dirs_exist_ok=True)


def lose(workshop: Workshop, how: str) -> None:
    workshop.close()
    for name in RECORDS:
        (workshop.home / name).unlink(missing_ok=True)
    if how == "emptied":
        (workshop.home / "holdfast.db").touch()
    if how == "another home's":
        other = workshop.folder / "other home"
        with Holdfast.open(workshop.app, home=other) as holdfast:
            holdfast.create_plan(workshop.plan_file(run("true")))
        shutil.copy2(other / "holdfast.db", workshop.home / "holdfast.db")


def is_saved(workshop: Workshop, marker: str) -> bool:
    return workshop.open().service.manager.objects.has(blake3(f"{marker}\n".encode()).digest())


@pytest.mark.parametrize("how", ["missing", "emptied", "another home's"])
def test_lost_records_are_refused_by_every_command_and_nothing_is_made_in_their_place(
    workshop: Workshop, tmp_path: Path, how: str
) -> None:
    plan = ran(workshop, "precious")
    backup = copied(workshop, tmp_path / "backup")
    lose(workshop, how)
    before = [(name, (workshop.home / name).stat().st_size) for name in RECORDS if (workshop.home / name).exists()]
    for command in (
        lambda: workshop.open().list_plans(everywhere=True),
        lambda: workshop.create(run("true")),
        lambda: workshop.open().verify(),
        lambda: workshop.open().find_plan(plan.plan_id),
    ):
        with pytest.raises(DatabaseError, match="content for records") as caught:
            command()
        assert "backup" in caught.value.hint
        assert "HOLDFAST_HOME" in caught.value.hint
    after = [(name, (workshop.home / name).stat().st_size) for name in RECORDS if (workshop.home / name).exists()]
    if how != "another home's":
        assert after == before
    finding = {each.name: each for each in examine(workshop.open())}["database"]
    assert (finding.level, finding.exit_code) == ("problem", 8)
    put_back(workshop, backup)
    assert workshop.open().verify().is_sound
    assert workshop.open().find_plan(plan.plan_id) == plan


def test_a_home_without_saved_content_may_lose_its_records(workshop: Workshop) -> None:
    workshop.create(run("true"))
    lose(workshop, "missing")
    assert workshop.open().list_plans() == []
    ran(workshop, "new")


def test_records_may_be_lost_with_all_their_content(workshop: Workshop) -> None:
    ran(workshop, "old")
    lose(workshop, "missing")
    for path in workshop.home.glob("objects.db*"):
        path.unlink()
    assert workshop.open().list_plans() == []
    ran(workshop, "new")
    assert workshop.open().verify().is_sound


def test_s8_an_older_backup_of_the_records_does_not_lead_to_the_loss_of_newer_plans(
    workshop: Workshop, tmp_path: Path
) -> None:
    old = ran(workshop, "old")
    older = copied(workshop, tmp_path / "older")
    new = ran(workshop, "new")
    newer = copied(workshop, tmp_path / "newer")
    put_back(workshop, older)
    holdfast = workshop.open()
    assert [plan.plan_id for plan in holdfast.list_plans()] == [old.plan_id]
    third = ran(workshop, "third")
    holdfast.delete(third.plan_id)
    assert new.plan_id in (holdfast.unfreed() or "")
    put_back(workshop, newer)
    assert workshop.open().verify().is_sound
    assert is_saved(workshop, "new")


def test_s8_an_older_backup_does_not_lead_to_the_loss_of_newer_checkpoints_of_a_plan_it_knows(
    workshop: Workshop, tmp_path: Path
) -> None:
    plan = ran(workshop, "kept")
    older = copied(workshop, tmp_path / "older")
    (workshop.sandbox(plan) / "later.txt").write_text("later\n")
    workshop.open().create_checkpoint(plan.plan_id, "later")
    newer = copied(workshop, tmp_path / "newer")
    put_back(workshop, older)
    (workshop.sandbox(plan) / "later.txt").unlink()
    for _ in range(4):  # however often the plan is used by the older records meanwhile
        workshop.open().prune(plan.plan_id)
    holdfast = workshop.open()
    holdfast.prune(plan.plan_id)
    assert "older" in (holdfast.unfreed() or "")
    put_back(workshop, newer)
    assert workshop.open().verify().is_sound


def test_s8_what_an_older_backup_does_not_know_can_be_released(workshop: Workshop, tmp_path: Path) -> None:
    old = ran(workshop, "old")
    older = copied(workshop, tmp_path / "older")
    workshop.open().prune(old.plan_id)
    new = ran(workshop, "new")
    put_back(workshop, older)
    holdfast = workshop.open()
    assert {each.plan_id for each in holdfast.held_back()} == {old.plan_id, new.plan_id}
    holdfast.release(holdfast.held_back())
    assert (holdfast.unfreed(), holdfast.held_back()) == (None, [])
    assert not is_saved(workshop, "new")
    assert is_saved(workshop, "old")
    assert holdfast.verify().is_sound
    holdfast.prune(old.plan_id)
    assert holdfast.unfreed() is None


def test_s8_a_deleted_plan_is_released_also_if_the_process_dies_before_the_collection(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.checkpoints.garbage import Garbage

    stays, goes = ran(workshop, "stays"), ran(workshop, "goes")
    with monkeypatch.context() as patched:
        patched.setattr(Garbage, "collect", lambda *_: 0)
        workshop.open().delete(goes.plan_id)
    holdfast = workshop.open()
    holdfast.prune(stays.plan_id)
    assert holdfast.unfreed() is None
    assert not is_saved(workshop, "goes")
    assert holdfast.verify().is_sound


def test_s8_a_plan_whose_deletion_was_cut_short_is_kept(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.db.store import Store

    class Died(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Died

    stays, other = ran(workshop, "stays"), ran(workshop, "other")
    with monkeypatch.context() as patched:
        patched.setattr(Store, "delete", dies)
        with pytest.raises(Died):
            workshop.open().delete(stays.plan_id)
    workshop.open().delete(other.plan_id)
    assert workshop.open().verify().is_sound
    workshop.open().execute(stays.plan_id)
    assert (workshop.sandbox(stays) / "stays.txt").read_text() == "stays\n"


def test_a_content_store_of_the_version_before_is_taken_over(workshop: Workshop) -> None:
    stays, goes = ran(workshop, "stays"), ran(workshop, "goes")
    workshop.close()
    _as_the_version_before(workshop.home / "objects.db")
    holdfast = workshop.open()
    holdfast.delete(goes.plan_id)
    assert holdfast.unfreed() is None
    lose(workshop, "missing")
    with pytest.raises(DatabaseError, match="content for records"):
        workshop.open().find_plan(stays.plan_id)


def test_a_plan_that_goes_on_when_its_store_is_taken_over_does_not_count_as_put_back_from_a_backup(
    workshop: Workshop,
) -> None:
    plan = ran(workshop, "stays")
    workshop.close()
    _as_the_version_before(workshop.home / "objects.db")
    holdfast = workshop.open()
    holdfast.create_checkpoint(plan.plan_id)
    holdfast.prune(plan.plan_id, keep=2)
    assert holdfast.unfreed() is None
    assert holdfast.held_back() == []


def test_s8_what_no_records_know_when_a_store_of_the_version_before_is_taken_over_is_kept(
    workshop: Workshop, tmp_path: Path
) -> None:
    """Its records may be elsewhere, or lost: that version did not note whose content it was."""
    stranger = ran(workshop, "stranger")
    backup = copied(workshop, tmp_path / "backup")
    _as_the_version_before(workshop.home / "objects.db")
    lose(workshop, "missing")
    plan = ran(workshop, "here")
    holdfast = workshop.open()
    holdfast.delete(plan.plan_id)
    assert stranger.plan_id in (holdfast.unfreed() or "")
    put_back(workshop, backup)
    holdfast = workshop.open()
    assert holdfast.verify().is_sound
    holdfast.prune(stranger.plan_id)
    assert holdfast.unfreed() is None


def _as_the_version_before(path: Path) -> None:
    connection = sqlite.connect(path)
    for table in ("record_store", "kept_plan"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute("UPDATE meta SET value = '2' WHERE key = 'version'")
    connection.close()
