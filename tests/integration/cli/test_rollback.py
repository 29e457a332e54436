"""`plan rollback`: what it does, what it says, and everything it refuses with nothing changed."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.integration.cli.damage import damage_content
from tests.integration.cli.project import Project, wait_until

STEPS = """\
  - {name: bump, tool: edit_file, args: {path: version.txt, find: "1", replace: "2"}}
  - {name: note, run: 'echo n > note.txt; echo d > "$HOLDFAST_RESOURCE_DATA/note.txt"; rm src/main.py'}
  - {name: look, run: cat version.txt, writes: false}
"""


@pytest.fixture
def ran(project: Project) -> Project:
    project.json("plan", "execute", str(project.plan(STEPS)))
    return project


def everything(project: Project) -> tuple[dict[str, bytes], Any, Any]:
    return project.files(), project.json("plan", "status"), project.checkpoints()


def test_a_rollback_restores_the_files_and_tells_all_of_it(ran: Project) -> None:
    plan_id = ran.json("plan", "status")["plan_id"]
    target = ran.checkpoint_before(1)
    data = ran.json("plan", "rollback", "--yes", "latest", target, in_process=False)
    assert data["rollback_summary"] == {"plan": plan_id, "checkpoint": target, "label": None, "files_reverted": 3}
    assert data["changes_reverted"] == [
        {"file": "app/note.txt", "action": "removed", "resource": "app"},
        {"file": "app/src/main.py", "action": "restored", "resource": "app"},
        {"file": "data/note.txt", "action": "removed", "resource": "data"},
    ]
    assert data["impact"].keys() == {
        "child_plans_invalidated", "sandbox", "decisions_after_cp", "tool_calls_after_cp", "side_effects_not_undone",
        "compensated", "effects_gone", "child_plans_applied",
    }  # fmt: skip
    assert data["impact"]["decisions_after_cp"] == 2
    assert data["post_rollback_state"] == {
        "phase": "execute",
        "state": "queued",
        "checkpoints_remaining": len(ran.checkpoints()),
    }
    assert (ran.sandbox() / "src" / "main.py").exists()
    assert not (ran.sandbox() / "note.txt").exists()
    assert not (ran.sandbox("data") / "note.txt").exists()
    status = ran.json("plan", "status")
    assert (status["phase"], status["state"], status["last_completed_step"]) == ("execute", "queued", 0)
    assert [each["state"] for each in status["steps"]] == ["succeeded", "pending", "pending"]


def test_the_command_that_undoes_a_rollback_undoes_it(ran: Project) -> None:
    before = ran.files()
    data = ran.json("plan", "rollback", "--yes", "latest", ran.checkpoint_before(0))
    assert ran.files() != before
    undo = next(command for command in data["next_commands"] if "rollback" in command)
    ran.json(*undo.split()[1:], "--yes")
    assert ran.files() == before


def test_the_plan_goes_on_from_where_it_was_taken_back_to(ran: Project) -> None:
    result = ran.files()
    ran.json("plan", "rollback", "--yes", "latest", ran.checkpoint_before(0))
    shown = ran.run("plan", "execute", "latest")
    assert "[1/3] bump" in shown.stdout
    assert ran.files() == result


def test_a_rollback_is_shown_in_four_parts(ran: Project) -> None:
    shown = ran.run("plan", "rollback", "-y", "latest", ran.checkpoint_before(1)).stdout
    places = [shown.index(title) for title in _TITLES]
    assert places == sorted(places)
    assert "removed   app/note.txt" in shown
    assert "execute / queued, at step 2, note" in shown


_TITLES = ("Rollback Summary", "Changes Reverted", "Impact", "Post-Rollback State")


def test_timing_and_messages_of_a_rollback_are_told_in_every_format(ran: Project) -> None:
    before, words = ran.checkpoint_before(1), ["plan", "rollback", "--yes", "latest"]
    told = ran.call(*words, before, "--format", "json").envelope
    assert told["timing"].keys() == {"started", "duration_ms"}
    (message,) = told["messages"]
    assert re.fullmatch(r"Rolled back to cp_\w+; 3 files restored or removed\.", message)
    lines = [r"timing    started \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, took \d.*s"]
    lines.append(message.replace("3 files", "0 files").replace(".", r"\."))
    for shown in (ran.call(*words, before).stdout, ran.on_terminal(*words, before, variables={"NO_COLOR": "1"}).stdout):
        found = [line.rstrip() for line in shown.splitlines() if line.startswith(("timing", "messages"))]
        assert len(found) == 2
        assert re.fullmatch(lines[0], found[0])
        assert re.fullmatch(f"messages  {lines[1]}", found[1])
    tried = ran.call(*words[:2], "--dry-run", "latest", before)
    assert "\nmessages  Nothing was changed.\n" in tried.stdout
    tried = ran.call(*words[:2], "--dry-run", "latest", before, "--format", "yaml")
    assert yaml.safe_load(tried.stdout)["messages"] == ["Nothing was changed."]


def test_a_terminal_gets_panels(ran: Project) -> None:
    shown = ran.on_terminal("plan", "rollback", "-y", "latest", ran.checkpoint_before(1), columns=70).stdout
    assert all(f" {title} " in shown for title in _TITLES)
    assert shown.count("╭") == 4


@pytest.mark.parametrize("length", [26, 14])
def test_a_checkpoint_answers_to_its_id_and_to_its_beginning(ran: Project, length: int) -> None:
    target = ran.checkpoint_before(1)
    data = ran.json("plan", "rollback", "-y", "latest", target[:length].lower())
    assert data["checkpoint_id"] == target


# Refusals


def applied(project: Project) -> str:
    project.json("plan", "apply", "--yes", "latest")
    return project.checkpoint_before(1)


def sandbox_is_missing(project: Project) -> str:
    """With what a step did since the only checkpoint."""
    steps = "  - {name: one, run: echo 1 > one}\n  - {name: two, run: exit 3}\n"
    file = project.plan(steps, header="policy: {auto_create_on: []}\n")
    project.json("plan", "execute", str(file), exit_code=1)
    shutil.rmtree(project.sandbox("data"))
    return str(project.checkpoints()[0]["checkpoint_id"])


def of_another_plan(project: Project) -> str:
    target = project.checkpoint_before(1)
    project.json("plan", "execute", str(project.plan(STEPS)))
    return target


def unknown(project: Project) -> str:
    return "cp_nosuchcheckpoint"


def ambiguous(project: Project) -> str:
    return project.checkpoint_before(1)[:4]


@pytest.mark.parametrize(
    ("situation", "exit_code", "kind"),
    [
        (applied, 4, "StateError"),
        (sandbox_is_missing, 6, "SandboxError"),
        (of_another_plan, 4, "StateError"),
        (unknown, 3, "CheckpointNotFoundError"),
        (ambiguous, 3, "AmbiguousError"),
    ],
)
def test_a_refused_rollback_changes_nothing(
    ran: Project, situation: Callable[[Project], str], exit_code: int, kind: str
) -> None:
    target = situation(ran)
    before = everything(ran)
    refused = ran.json("plan", "rollback", "--yes", "latest", target, exit_code=exit_code, in_process=False)["error"]
    assert refused["type"] == kind
    assert refused["message"]
    assert refused["hint"]
    assert everything(ran) == before


def test_a_rollback_of_a_plan_that_forbids_it_changes_nothing(project: Project) -> None:
    file = project.plan(STEPS, header="policy: {rollback_enabled: false}\n")
    project.json("plan", "execute", str(file))
    before = everything(project)
    assert project.run("plan", "rollback", "-y", "latest", project.checkpoint_before(1)).exit_code == 4
    assert everything(project) == before


def test_a_rollback_with_damaged_content_changes_nothing(ran: Project) -> None:
    target = ran.checkpoint_before(1)
    damage_content(ran.home / "objects.db")
    before = ran.files()
    assert ran.run("plan", "rollback", "-y", "latest", target).exit_code == 7
    assert ran.files() == before


def test_without_a_terminal_only_yes_is_a_yes(ran: Project) -> None:
    target = ran.checkpoint_before(1)
    before = everything(ran)
    refused = ran.run("plan", "rollback", "latest", target)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "hint: Add --yes" in refused.stderr
    assert everything(ran) == before


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04"])
def test_a_no_changes_nothing(ran: Project, answer: str) -> None:
    target = ran.checkpoint_before(1)
    before = everything(ran)
    declined = ran.on_terminal("plan", "rollback", "latest", target, answer=answer)
    assert declined.exit_code == 4
    assert "(before step 2: note): 3 files will be restored or removed" in " ".join(declined.stdout.split())
    assert "nothing was changed" in declined.stdout
    assert everything(ran) == before


def test_a_yes_goes_back(ran: Project) -> None:
    assert ran.on_terminal("plan", "rollback", "latest", ran.checkpoint_before(1), answer="y\n").exit_code == 0
    assert not (ran.sandbox() / "note.txt").exists()


def test_a_plan_that_is_executed_elsewhere_is_left_alone(project: Project) -> None:
    steps = "  - {name: first, run: echo 1 > one}\n  - {name: slow, run: sleep 60}\n"
    running = project.start("plan", "execute", str(project.plan(steps)))
    try:
        wait_until(lambda: any(each["step_index"] == 1 for each in _checkpoints_so_far(project)))
        target = project.checkpoint_before(0)
        refused = project.json("plan", "rollback", "--yes", "latest", target, exit_code=5)["error"]
        assert refused["type"] == "ConflictError"
        assert str(running.pid) in refused["message"]
        status = project.json("plan", "status")
        assert status["state"] == "processing"
        assert status["holder"]["pid"] == running.pid
        assert f"process {running.pid}" in project.call("plan", "status").stdout
        assert (project.sandbox() / "one").exists()
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)


def _checkpoints_so_far(project: Project) -> list[dict[str, Any]]:
    ended = project.call("checkpoint", "list", "--format", "json")
    return ended.data["checkpoints"] if ended.exit_code == 0 else []


def test_going_back_to_where_the_plan_is_reverts_nothing(ran: Project) -> None:
    last = ran.json("plan", "status")["last_checkpoint_id"]
    assert "no file was different" in ran.call("plan", "rollback", "-y", "latest", last).stdout


def test_both_arguments_are_required(project: Project) -> None:
    refused = project.run("plan", "rollback", "--yes", "latest")
    assert refused.exit_code == 2
    assert "CHECKPOINT_ID" in refused.stderr
    assert os.listdir(project.folder).count("home") == 0
