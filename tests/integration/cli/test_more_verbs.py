"""Resume, cancel and delete; checkpoints taken, deleted, pruned and verified by hand."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cli.damage import blank_page_of
from tests.integration.cli.project import Project

STEPS = "  - {name: one, run: echo 1 > one}\n  - {name: two, run: test -e allowed}\n"


def test_a_failed_plan_is_resumed_from_where_a_dry_run_said(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(STEPS)), exit_code=1)
    before = project.json("plan", "status")
    preview = project.json("plan", "resume", "--dry-run", "latest")
    assert (preview["step_index"], preview["step"], preview["operations"]) == (1, "two", [])
    assert project.json("plan", "status") == before
    assert "continues  2 two" in project.call("plan", "resume", "--dry-run", "latest").stdout
    (project.sandbox() / "allowed").touch()
    assert project.json("plan", "resume", "latest")["state"] == "complete"
    assert project.call("plan", "resume", "latest").exit_code == 4


def test_a_plan_is_cancelled_and_resumed(project: Project) -> None:
    project.json("plan", "create", str(project.plan("  - {name: one, run: echo 1 > one}\n")))
    assert project.json("plan", "cancel", "latest")["state"] == "cancelled"
    assert "holdfast plan resume" in project.call("plan", "cancel", "latest").stdout
    assert project.json("plan", "resume", "latest")["state"] == "complete"
    assert project.call("plan", "cancel", "latest").exit_code == 4


def test_a_deleted_plan_is_gone(project: Project) -> None:
    made = project.json("plan", "execute", str(project.plan("  - {name: one, run: echo 1 > one}\n")))
    refused = project.call("plan", "delete", "latest")
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert project.json("plan", "delete", "--yes", "latest")["plan_id"] == made["plan_id"]
    assert project.call("plan", "status", made["plan_id"]).exit_code == 3
    assert not (project.home / "sandboxes" / made["plan_id"]).exists()


def test_deleting_asks_and_takes_no_for_an_answer(project: Project) -> None:
    project.json("plan", "execute", str(project.plan("  - {name: one, run: echo 1 > one}\n")))
    assert project.on_terminal("plan", "delete", "latest", answer="n\n").exit_code == 4
    assert project.json("plan", "status")["state"] == "complete"
    checkpoint = project.checkpoints()[2]["checkpoint_id"]
    assert project.on_terminal("checkpoint", "delete", "latest", checkpoint, answer="n\n").exit_code == 4
    assert checkpoint in {each["checkpoint_id"] for each in project.checkpoints()}


def test_checkpoints_are_taken_deleted_and_pruned_by_hand(project: Project) -> None:
    project.json("plan", "execute", str(project.plan("  - {name: one, run: echo 1 > one}\n")))
    made = project.json("checkpoint", "create", "--label", "lunch", "latest")
    assert made["label"] == "lunch"
    assert project.call("checkpoint", "create", "--label", " ", "latest").exit_code == 2
    assert project.call("checkpoint", "create", "--label", "lunch", "latest").exit_code == 2
    ids = [project.checkpoints()[0][name] for name in ("checkpoint_id", "display_id", "group_id")]
    for label in (*ids, ids[0].lower(), "CP_mine", "two\nlines", "\x1b[31mred", "long " * 21):
        refused = project.call("checkpoint", "create", "--label", label, "latest")
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 2), refused
    assert project.json("checkpoint", "create", "--label", "é" * 100, "latest")["label"] == "é" * 100
    assert "roll back" in project.call("checkpoint", "create", "latest").stdout
    assert project.json("checkpoint", "delete", "--yes", "latest", "lunch")["deleted"] == 1
    assert project.call("checkpoint", "delete", "--yes", "latest", "lunch").exit_code == 3
    count = len(project.checkpoints())
    pruned = project.json("checkpoint", "prune", "--keep", "3", "latest")
    assert (pruned["deleted"], pruned["checkpoints_remaining"]) == (
        count - len(project.checkpoints()),
        len(project.checkpoints()),
    )
    assert "remain" in project.call("checkpoint", "prune", "latest").stdout
    assert "Deleted 1 checkpoint." in _deleted(project)


def _deleted(project: Project) -> str:
    first = project.json("checkpoint", "create", "latest")
    project.json("checkpoint", "create", "latest")
    return project.call("checkpoint", "delete", "--yes", "latest", first["checkpoint_id"]).stdout


def test_verify_reads_everything_back_and_names_what_is_damaged(project: Project) -> None:
    project.json("plan", "execute", str(project.plan("  - {name: one, run: printf 'thirteen char' > one}\n")))
    sound = project.json("checkpoint", "verify", "latest")
    assert sound["damaged"] == []
    assert sound["checkpoints"] == len(project.checkpoints())
    assert "0 problems" in project.call("checkpoint", "verify").stdout
    connection = sqlite3.connect(project.home / "objects.db")
    connection.execute("DELETE FROM object WHERE size_bytes = 13")
    connection.commit()
    connection.close()
    found = project.json("checkpoint", "verify", exit_code=7)["damaged"]
    assert [each["problem"] for each in found] == ["missing"]
    after = project.checkpoints()[-1]["checkpoint_id"]
    assert after in {each["checkpoint_id"] for each in found[0]["checkpoints"]}
    text = project.call("checkpoint", "verify").stdout
    assert "is missing" in text
    assert after in text


def test_pruning_and_deleting_say_once_that_damage_keeps_content_from_being_freed(project: Project) -> None:
    steps = "  - {name: one, run: mkdir folder; printf 'thirteen char' > folder/one}\n"
    rotten = project.json("plan", "execute", str(project.plan(steps)))["plan_id"]
    connection = sqlite3.connect(project.home / "objects.db")
    connection.execute("UPDATE object SET data = x'00' || 'rotten' WHERE size_bytes != 13")
    connection.commit()
    connection.close()
    project.json("plan", "execute", str(project.plan("  - {name: two, run: echo two > two}\n")))
    pruned = project.call("checkpoint", "prune", "--keep", "2", "latest")
    assert pruned.exit_code == 0
    assert pruned.stdout.count("holdfast checkpoint verify") == 1
    assert "remain" in pruned.stdout
    deleted = project.call("plan", "delete", "--yes", "latest", "--format", "json")
    assert deleted.exit_code == 0
    assert len(deleted.envelope["messages"]) == 1
    assert "is damaged" in deleted.envelope["messages"][0]
    assert project.call("plan", "delete", "--yes", rotten).stdout.count("verify") == 0


@pytest.fixture
def malformed(project: Project) -> Project:
    """The file of the store lost a page of what only the first of two plans holds, between its steps."""
    content = random.Random(1).randbytes(50_000)
    (project.folder / "content").write_bytes(content)
    steps = f"  - {{name: one, run: cp {project.folder}/content one}}\n  - {{name: two, run: rm one}}\n"
    project.json("plan", "execute", str(project.plan(steps)))
    project.json("plan", "execute", str(project.plan("  - {name: three, run: echo three > three}\n")))
    blank_page_of(project.home / "objects.db", content)
    return project


def test_verify_says_that_the_structure_of_the_store_is_damaged_and_whom_it_affects(malformed: Project) -> None:
    sound, hurt = (each["plan_id"] for each in malformed.json("plan", "list")["plans"])
    found = malformed.json("checkpoint", "verify", exit_code=7)
    assert found["structure"]
    assert [each["problem"] for each in found["damaged"]] == ["damaged"]
    affected = {each["checkpoint_id"] for each in found["damaged"][0]["checkpoints"]}
    assert affected == {malformed.checkpoint_before(1, hurt), _checkpoint_after_one(malformed, hurt)}
    text = malformed.call("checkpoint", "verify").stdout
    assert "structure of objects.db is damaged" in text
    assert all(each in text for each in affected)
    assert malformed.json("checkpoint", "verify", sound, exit_code=7)["damaged"] == []


def test_doctor_names_the_checkpoints_a_damaged_structure_affects(malformed: Project) -> None:
    found = malformed.json("doctor", exit_code=7)["findings"]
    said = [each["detail"] for each in found if each["name"] in ("structure", "content")]
    assert any("objects.db is damaged" in each for each in said)
    assert any("it affects the checkpoints" in each for each in said)


def test_a_damaged_structure_stops_only_the_checkpoints_that_need_what_is_lost(malformed: Project) -> None:
    hurt = malformed.json("plan", "list")["plans"][1]["plan_id"]
    before = malformed.files()
    assert malformed.call("plan", "rollback", "--yes", hurt, _checkpoint_after_one(malformed, hurt)).exit_code == 7
    assert malformed.files() == before
    assert malformed.call("plan", "rollback", "--yes", hurt, malformed.checkpoint_before(0, hurt)).exit_code == 0


def _cut_off(database: Path) -> None:
    os.truncate(database, database.stat().st_size // 2)


def _without_header(database: Path) -> None:
    with database.open("r+b") as file:
        file.write(bytes(100))


@pytest.mark.parametrize("ruin", [_cut_off, _without_header])
def test_a_store_that_cannot_be_opened_is_damaged_content_and_nothing_else_is_affected(
    project: Project, ruin: Callable[[Path], None]
) -> None:
    project.json("plan", "execute", str(project.plan("  - {name: one, run: head -c 300000 /dev/urandom > one}\n")))
    target, before = project.checkpoint_before(0), project.files()
    ruin(project.home / "objects.db")
    for words in (("checkpoint", "verify"), ("plan", "rollback", "--yes", "latest", target), ("plan", "diff")):
        refused = project.call(*words)
        assert refused.exit_code == 7, refused
        assert "sandboxes are not affected" in refused.stderr
        assert "backup" in refused.stderr
    assert project.call("doctor").exit_code == 7
    assert project.files() == before


def test_a_damaged_structure_does_not_stop_other_plans_from_being_pruned_and_deleted(project: Project) -> None:
    content = random.Random(2).randbytes(100)
    (project.folder / "content").write_bytes(content)
    project.json("plan", "execute", str(project.plan(f"  - {{name: one, run: cp {project.folder}/content one}}\n")))
    project.json("plan", "execute", str(project.plan("  - {name: two, run: echo two > two}\n")))
    blank_page_of(project.home / "objects.db", content)  # small objects share their page with others
    for words in (("checkpoint", "prune", "--keep", "2", "latest"), ("plan", "delete", "--yes", "latest")):
        ended = project.call(*words, "--format", "json")
        assert ended.exit_code == 0
        assert "holdfast checkpoint verify" in ended.envelope["messages"][0]
    assert len(project.json("plan", "list")["plans"]) == 1
    assert project.json("checkpoint", "verify", exit_code=7)["structure"]


def _checkpoint_after_one(project: Project, plan_id: str) -> str:
    return next(
        str(each["checkpoint_id"])
        for each in project.checkpoints(plan_id)
        if each["step_index"] == 0 and "on_tool_write_complete" in each["triggers"]
    )
