from __future__ import annotations

import shutil

from tests.integration.cli.project import Project

STEPS = "  - {name: one, run: echo 1 > one}\n"


def test_without_its_records_every_command_says_what_to_do(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(STEPS)))
    for path in project.home.glob("holdfast.db*"):
        path.unlink()
    for words in (("plan", "list"), ("log",), ("run", "--", "true"), ("checkpoint", "release", "--yes")):
        refused = project.call(*words)
        assert (refused.exit_code, refused.stdout) == (8, ""), words
        assert "keeps content for records in holdfast.db" in refused.stderr
        assert "Put the records back from a backup" in refused.stderr
    assert project.call("doctor").exit_code == 8
    assert not (project.home / "holdfast.db").exists()


def test_what_an_older_backup_does_not_know_is_kept_until_a_person_releases_it(project: Project) -> None:
    old = project.json("plan", "execute", str(project.plan(STEPS)))["plan_id"]
    shutil.copy2(project.home / "holdfast.db", project.folder / "backup.db")
    new = project.json("plan", "execute", str(project.plan(STEPS.replace("echo 1", "echo 2"))))["plan_id"]
    for path in project.home.glob("holdfast.db*"):
        path.unlink()
    shutil.copy2(project.folder / "backup.db", project.home / "holdfast.db")
    pruned = project.call("checkpoint", "prune", old)
    assert pruned.exit_code == 0
    assert f"kept for plans that no records know ({new})" in pruned.stdout
    assert project.call("checkpoint", "release").exit_code == 2
    asked = project.on_terminal("checkpoint", "release", answer="n\n")
    assert asked.exit_code == 4
    assert new in asked.stdout + asked.stderr
    released = project.json("checkpoint", "release", "--yes")
    assert [each["plan_id"] for each in released["released"]] == [new]
    assert released["freed_bytes"] > 0
    assert project.call("checkpoint", "release", "--yes").stdout == "Nothing is held back.\n"
    assert project.json("checkpoint", "verify")["damaged"] == []
    assert "No saved content" not in project.call("checkpoint", "prune", old).stdout
