"""`holdfast doctor`: finds what is wrong, says what to do, and changes nothing."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import doctor
from tests.integration.cli.damage import damage_content, damage_records
from tests.integration.cli.project import Project, kill_in_apply, wait_until
from tests.support.unprivileged import folder_for_nobody, run_unprivileged

STEPS = "  - {name: bump, tool: edit_file, args: {path: version.txt, find: '1', replace: '2'}}\n"


def findings(project: Project, exit_code: int = 0) -> dict[str, Any]:
    data = project.json("doctor", exit_code=exit_code)
    return {each["name"]: each for each in data["findings"]}


@pytest.fixture
def ran(project: Project) -> Project:
    project.json("plan", "execute", str(project.plan(STEPS)))
    return project


def test_a_sound_home_has_no_problem(ran: Project) -> None:
    found = findings(ran)
    assert {"python", "sqlite", "git", "home", "space", "database", "records", "plans", "sandboxes", "content"} <= set(
        found
    )
    assert {each["level"] for name, each in found.items() if name not in ("sqlite", "space")} == {"ok"}
    shown = ran.run("doctor")
    assert shown.exit_code == 0
    assert "0 problems" in shown.stdout


def test_it_says_whether_the_system_calls_are_compiled(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ARE_COMPILED", True)
    assert doctor._calls().detail == "compiled"
    assert "system calls" in findings(project)
    monkeypatch.setattr(doctor, "ARE_COMPILED", False)
    without = doctor._calls()
    assert without.level == "ok"
    assert "C compiler" in without.hint


def test_looking_at_a_home_that_does_not_exist_does_not_make_it(project: Project) -> None:
    assert "does not exist yet" in findings(project)["home"]["detail"]
    assert not project.home.exists()


def test_damaged_content_is_named_with_the_checkpoints_that_need_it(ran: Project) -> None:
    plan_id = ran.json("plan", "status")["plan_id"]
    checkpoints = [each["checkpoint_id"] for each in ran.checkpoints()]
    damage_content(ran.home / "objects.db")
    data = ran.json("doctor", exit_code=7)["findings"]
    said = " ".join(each["detail"] for each in data if each["name"] == "content")
    assert "is damaged" in said
    assert plan_id in said
    assert all(checkpoint in said for checkpoint in checkpoints)


def test_a_lost_content_store_is_a_problem(ran: Project) -> None:
    (ran.home / "objects.db").unlink()
    assert ran.json("doctor", exit_code=7)
    assert not (ran.home / "objects.db").exists()


def test_a_content_store_that_was_lost_and_made_anew_is_a_problem(ran: Project) -> None:
    for name in ("objects.db", "objects.db-wal", "objects.db-shm"):
        (ran.home / name).unlink(missing_ok=True)
    assert ran.call("plan", "rollback", "--yes", "latest", ran.checkpoints()[0]["checkpoint_id"]).exit_code == 7
    assert "not the one" in findings(ran, 7)["content"]["detail"]


@pytest.mark.parametrize(("name", "exit_code"), [("holdfast.db", 8), ("objects.db", 7)])
def test_a_page_of_a_database_that_went_bad_is_found(ran: Project, name: str, exit_code: int) -> None:
    with closing(sqlite3.connect(ran.home / name)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    with (ran.home / name).open("r+b") as file:
        file.seek(size)  # the second page: the first says that this is a database
        file.write(bytes(size))
    data = ran.json("doctor", exit_code=exit_code)["findings"]
    assert any(each["name"] == "structure" and f"{name} is damaged" in each["detail"] for each in data)


def test_records_that_are_gone_while_sandboxes_are_there_are_a_problem(ran: Project) -> None:
    for name in ("holdfast.db", "holdfast.db-wal", "holdfast.db-shm"):
        (ran.home / name).unlink(missing_ok=True)
    assert "holdfast.db is missing" in findings(ran, 8)["database"]["detail"]


def test_verify_says_that_the_content_is_gone(ran: Project) -> None:
    for name in ("objects.db", "objects.db-wal", "objects.db-shm"):
        (ran.home / name).unlink(missing_ok=True)
    assert ran.call("checkpoint", "verify").exit_code == 7


def test_a_content_store_that_is_no_database_is_a_problem(ran: Project) -> None:
    for name in ("objects.db-wal", "objects.db-shm"):
        (ran.home / name).unlink(missing_ok=True)
    (ran.home / "objects.db").write_bytes(b"not a database at all" * 100)
    assert findings(ran, 7)["content"]["level"] == "problem"


def test_a_damaged_record_is_a_problem(ran: Project) -> None:
    damage_records(ran.home / "holdfast.db")
    found = findings(ran, 8)
    assert found["records"]["level"] == "problem"
    assert "step_run" in found["records"]["detail"]


def test_a_database_that_cannot_be_opened_is_reported_with_all_that_can_be_said_without_it(ran: Project) -> None:
    for name in ("holdfast.db-wal", "holdfast.db-shm"):
        (ran.home / name).unlink(missing_ok=True)
    (ran.home / "holdfast.db").write_bytes(b"not a database at all" * 100)
    found = findings(ran, 8)
    assert found["database"]["level"] == "problem"
    assert found["git"]["level"] == "ok"
    assert "content" not in found


def test_an_open_home_is_a_warning(ran: Project) -> None:
    ran.home.chmod(0o755)
    assert findings(ran)["home"]["level"] == "warning"
    assert stat.S_IMODE(ran.home.stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("free", "level", "exit_code"), [(10**7, "problem", 6), (10**8, "warning", 0), (10**12, "ok", 0)]
)
def test_too_little_space_is_reported_before_it_runs_out(
    ran: Project, monkeypatch: pytest.MonkeyPatch, free: int, level: str, exit_code: int
) -> None:
    usage = shutil.disk_usage(ran.home)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert findings(ran, exit_code)["space"]["level"] == level


def test_missing_and_unknown_sandboxes_are_warnings(ran: Project) -> None:
    plan_id = ran.json("plan", "status")["plan_id"]
    shutil.rmtree(ran.sandbox("data"))
    (ran.home / "sandboxes" / "nobody").mkdir()
    found = findings(ran)
    assert found[f"plan {plan_id}"]["level"] == "warning"
    assert "data" in found[f"plan {plan_id}"]["detail"]
    assert "nobody" in found["sandboxes"]["detail"]
    assert (ran.home / "sandboxes" / "nobody").exists()
    assert "hint" not in ran.run("doctor").stdout
    assert "2 warnings" in ran.run("doctor").stdout


def test_something_else_in_the_place_of_a_sandbox_is_a_warning(ran: Project, tmp_path: Path) -> None:
    plan_id = ran.json("plan", "status")["plan_id"]
    shutil.rmtree(ran.sandbox("data"))
    ran.sandbox("data").symlink_to(tmp_path)
    found = findings(ran)[f"plan {plan_id}"]
    assert found["level"] == "warning"
    assert f"{ran.sandbox('data')} is a symlink now" in found["detail"]
    assert "Move it away" in found["hint"]


def test_a_plan_whose_process_died_is_a_warning(project: Project) -> None:
    process = project.start("plan", "execute", str(project.plan("  - {name: slow, run: sleep 60}\n")))
    wait_until(lambda: _is_running(project))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    plan_id = project.json("plan", "status")["plan_id"]
    assert "its process is dead" in findings(project)[f"plan {plan_id}"]["detail"]
    assert project.json("plan", "status")["interrupted"] is True
    assert "interrupted" in project.call("plan", "status").stdout


def test_an_interrupted_apply_is_a_warning(project: Project) -> None:
    made = project.plan("  - {run: echo 4 >> orders.csv; echo 5 > new.csv, resource: data}\n")
    plan_id = project.json("plan", "execute", str(made))["plan_id"]
    kill_in_apply(project, plan_id)
    data = project.json("doctor")["findings"]
    assert "The apply was cut short." in [e["detail"] for e in data if e["name"] == f"plan {plan_id}"]


def test_steps_that_are_not_confined_are_a_warning(project: Project) -> None:
    found = {each["name"]: each for each in project.json("doctor", "--config", "sandbox.confine=false")["findings"]}
    assert found["confinement"]["level"] == "warning"
    assert found["confinement"]["detail"] == "It is turned off: steps can write wherever you can."


def test_places_where_steps_may_write_are_named_and_impossible_ones_are_a_problem(project: Project) -> None:
    found = findings(project)["confinement"]
    if not found["detail"].startswith("Landlock"):
        pytest.skip("this system has no Landlock")
    data = project.json("doctor", "--config", f"sandbox.allow-write={project.data}")["findings"]
    assert f"; outside of rollback: {project.data}" in next(e["detail"] for e in data if e["name"] == "confinement")
    project.home.mkdir()
    data = project.json("doctor", "--config", f"sandbox.allow-write={project.home}", exit_code=9)["findings"]
    assert next(each["level"] for each in data if each["name"] == "confinement") == "problem"


def test_a_home_that_cannot_be_read_is_a_problem() -> None:
    with folder_for_nobody() as folder:
        assert run_unprivileged(examine_a_closed_home, str(folder)) == ["problem", 6]


def examine_a_closed_home(folder: str) -> list[str | int]:
    home = Path(folder, "home")
    home.mkdir(mode=0)
    found = next(each for each in doctor._home(home, is_read_only=False) if each.name == "home")
    return [found.level, found.exit_code]


def _is_running(project: Project) -> bool:
    ended = project.call("plan", "status", "--format", "json")
    return ended.exit_code == 0 and ended.data["steps"][0]["state"] == "running"


def test_a_git_that_is_too_old_or_missing_is_a_problem(project: Project, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    old = tools / "git"
    old.write_text("#!/bin/sh\necho git version 2.30.1\n")
    old.chmod(0o755)
    ended = project.run(
        "doctor", "--format", "json", variables={"PATH": f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin"}
    )
    assert ended.exit_code == 6
    assert "too old" in next(each for each in ended.data["findings"] if each["name"] == "git")["detail"]
    old.unlink()
    ended = project.run("doctor", "--format", "json", variables={"PATH": str(tools)})
    assert ended.exit_code == 6
    assert "not installed" in next(each for each in ended.data["findings"] if each["name"] == "git")["detail"]
