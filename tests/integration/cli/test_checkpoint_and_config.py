"""`checkpoint list|show` and `config list|get|set|unset`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.project import Project

STEPS = """\
  - {name: bump, tool: edit_file, args: {path: version.txt, find: "1", replace: "2"}}
  - {name: note, tool: write_file, resource: data, args: {path: note.txt, content: "done\\n"}}
"""


@pytest.fixture
def ran(project: Project) -> Project:
    project.json("plan", "execute", str(project.plan(STEPS)))
    return project


def test_checkpoints_are_listed_oldest_first_with_all_their_fields(ran: Project) -> None:
    data = ran.json("checkpoint", "list")
    listed = data["checkpoints"]
    assert data["plan_id"] == ran.json("plan", "status")["plan_id"]
    assert [each["created_at"] for each in listed] == sorted(each["created_at"] for each in listed)
    assert all(
        each.keys()
        == {
            "checkpoint_id", "display_id", "group_id", "resource_id", "triggers", "step_index", "step", "decision_id",
            "title", "label", "source", "git", "state_hash", "size_bytes", "created_at", "superseded", "damaged",
        }
        for each in listed
    )  # fmt: skip
    assert listed[0]["triggers"] == ["pre_execute"]
    assert listed[-1]["triggers"] == ["post_execute"]
    assert listed[-1]["checkpoint_id"] == ran.json("plan", "status")["last_checkpoint_id"]
    assert all(f"cp_{each['checkpoint_id']}".startswith(each["display_id"]) for each in listed)
    assert not any(each["superseded"] for each in listed)


def test_the_list_tells_people_the_moments_and_what_was_undone(ran: Project) -> None:
    ran.json("plan", "rollback", "-y", "latest", ran.checkpoint_before(1))
    assert any(each["superseded"] for each in ran.checkpoints())
    shown = ran.call("checkpoint", "list").stdout
    assert "before step 1: bump" in shown
    assert "after step 2: note (undone)" in shown
    assert "back at step 2: note" in shown
    assert "holdfast plan rollback" in shown


def test_a_plan_without_checkpoints_says_so(project: Project) -> None:
    project.json("plan", "create", str(project.plan(STEPS)))
    assert project.json("checkpoint", "list")["checkpoints"] == []
    assert "no checkpoints yet" in project.call("checkpoint", "list").stdout


def test_a_checkpoint_is_shown_with_what_changed_since_the_one_before(ran: Project) -> None:
    after = next(each for each in ran.checkpoints() if each["triggers"] == ["on_tool_write_complete"])
    data = ran.json("checkpoint", "show", after["checkpoint_id"])
    assert data["checkpoint_id"] == after["checkpoint_id"]
    assert data["plan_id"] == ran.json("plan", "status")["plan_id"]
    assert data["states"].keys() == {"app", "data"}
    assert [(each["file"], each["status"]) for each in data["changes"]] == [("app/version.txt", "changed")]
    assert data["unheld"] == []
    shown = ran.call("checkpoint", "show", after["display_id"]).stdout
    assert after["checkpoint_id"] in shown
    assert "M  app/version.txt  +1 -1" in shown


def test_the_first_checkpoint_has_none_before_it(ran: Project) -> None:
    first = ran.checkpoints()[0]["checkpoint_id"]
    assert ran.json("checkpoint", "show", first)["changes"] == []
    assert "first checkpoint of the plan" in ran.call("checkpoint", "show", first).stdout


def test_what_a_checkpoint_could_not_hold_is_named_with_the_reason(project: Project) -> None:
    script = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('s.sock')"
    project.json("plan", "execute", str(project.plan(f'  - {{name: listen, run: python3 -c "{script}"}}\n')))
    last = project.checkpoints()[-1]["checkpoint_id"]
    assert [(each["resource"], each["path"]) for each in project.json("checkpoint", "show", last)["unheld"]] == [
        ("app", "s.sock")
    ]
    shown = project.call("checkpoint", "show", last).stdout
    assert "Left out of app" in shown
    assert "s.sock" in shown


def test_a_checkpoint_is_looked_for_in_the_named_plan(ran: Project) -> None:
    target = ran.checkpoint_before(1)
    plan_id = ran.json("plan", "status")["plan_id"]
    ran.json("plan", "create", str(ran.plan(STEPS)))
    assert ran.json("checkpoint", "show", target)["plan_id"] == plan_id
    assert ran.json("checkpoint", "show", target[:14], "--plan", plan_id)["checkpoint_id"] == target
    assert ran.json("checkpoint", "show", target, "--plan", "latest", exit_code=4)["error"]["type"] == "StateError"


# Settings

KEY = "sandbox.checkpoint.max-checkpoints-per-plan"
TRIGGERS = "sandbox.checkpoint.auto-create-on"


def test_settings_are_listed_with_where_they_come_from(project: Project) -> None:
    (project.folder / "holdfast.toml").write_text("[step]\ntimeout = 5\n")
    data = {each["key"]: each for each in project.json("config", "list")["settings"]}
    assert (data[KEY]["value"], data[KEY]["origin"]) == (50, "default")
    assert (data["step.timeout"]["value"], data["step.timeout"]["origin"]) == (5.0, "project")
    shown = project.call("config", "list").stdout
    assert "step.timeout = 5\n" in shown
    assert "holdfast.toml" in shown


def test_a_setting_is_changed_and_forgotten(project: Project) -> None:
    changed = project.json("config", "set", KEY, "9")
    assert (changed["value"], changed["origin"], changed["file"]) == (9, "user", str(project.home / "config.toml"))
    assert project.call("config", "get", KEY).stdout == "9\n"
    forgotten = project.json("config", "unset", KEY)
    assert (forgotten["value"], forgotten["was_set"]) == (50, True)
    assert "was not set" in project.run("config", "unset", KEY).stdout


@pytest.mark.parametrize("value", ["on_error,on_decision", "[]"])
def test_what_get_prints_is_what_set_takes(project: Project, value: str) -> None:
    project.json("config", "set", TRIGGERS, value)
    assert project.call("config", "get", TRIGGERS).stdout == f"{value}\n"


def test_a_project_has_a_file_of_its_own(project: Project) -> None:
    changed = project.json("config", "set", "--scope", "project", "step.timeout", "60")
    assert changed["file"] == str(project.folder / "holdfast.toml")
    assert Path(changed["file"]).read_text().strip().endswith("timeout = 60")
    assert project.run("config", "set", "--scope", "project", "database.url", "postgresql://x/y").exit_code == 9


def test_a_setting_that_something_else_overrides_is_not_passed_off_as_changed(project: Project) -> None:
    variables = {"HOLDFAST_STEP_TIMEOUT": "7"}
    shown = project.run("config", "set", "step.timeout", "60", variables=variables).stdout
    assert "Not in force: environment (HOLDFAST_STEP_TIMEOUT)" in shown


def test_a_wrong_value_is_refused_with_what_was_expected(project: Project) -> None:
    refused = project.json("config", "set", TRIGGERS, "on_nothing", exit_code=9)["error"]
    assert "on_tool_write" in refused["message"]
    assert not (project.home / "config.toml").exists()
