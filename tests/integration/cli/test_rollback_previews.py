"""`plan rollback --dry-run` and `plan rollback --only`: what they say, and what stays as it is."""

from __future__ import annotations

import pytest

from tests.integration.cli.project import Project
from tests.integration.cli.test_rollback import everything, sandbox_is_missing, unknown

STEPS = """\
  - {name: bump, tool: edit_file, args: {path: version.txt, find: "1", replace: "2"}}
  - name: note
    run: 'echo n > note.txt; echo d > "$HOLDFAST_RESOURCE_DATA/note.txt"; rm src/main.py'
    side_effects: true
  - {name: look, run: cat version.txt, writes: false}
"""
TITLES = ("Rollback Summary", "Changes Reverted", "Impact", "Post-Rollback State")


@pytest.fixture
def ran(project: Project) -> Project:
    project.json("plan", "execute", str(project.plan(STEPS)))
    return project


# --dry-run


def test_commits_branches_and_tags_that_go_back_are_told_too(project: Project) -> None:
    commands = ("git commit --quiet --allow-empty --message m", "git tag v1", "git status")
    project.json("plan", "execute", str(project.plan("".join(f"  - run: {each}\n" for each in commands))))
    expected = {0: ["app"], 1: ["app"], 2: []}
    for step, repositories in expected.items():
        preview = project.json("plan", "rollback", "--dry-run", "latest", project.checkpoint_before(step))
        assert (preview["changes_reverted"], preview["repositories_reverted"]) == ([], repositories)
    target = project.checkpoint_before(0)
    assert "HEAD, branches or tags of app" in project.run("plan", "rollback", "--dry-run", "latest", target).stdout
    assert project.json("plan", "rollback", "--yes", "latest", target)["repositories_reverted"] == ["app"]


def test_a_dry_run_says_what_the_rollback_then_says(ran: Project) -> None:
    target = ran.checkpoint_before(1)
    before = everything(ran)
    planned = ran.json("plan", "rollback", "--dry-run", "latest", target, in_process=False)
    assert everything(ran) == before
    done = ran.json("plan", "rollback", "--yes", "latest", target)
    assert planned.keys() == done.keys()
    parts = ("plan_id", "checkpoint_id", "rollback_summary", "changes_reverted", "impact", "post_rollback_state")
    assert {name: planned[name] for name in parts} == {name: done[name] for name in parts}
    assert (planned["dry_run"], done["dry_run"]) == (True, False)
    effects = planned["impact"]["side_effects_not_undone"]
    assert [(each["step"], each["step_index"]) for each in effects] == [("note", 1)]


def test_a_dry_run_shows_the_same_parts(ran: Project) -> None:
    target = ran.checkpoint_before(1)
    planned = ran.call("plan", "rollback", "--dry-run", "latest", target).stdout
    assert all(title in planned for title in TITLES)
    assert "not undone: step 2 (note)" in planned
    command = planned.splitlines()[-1]
    assert command.startswith("do it")
    done = ran.call(*command.split()[3:], "--yes").stdout
    panels = planned[: planned.index("timing ")]
    assert done.startswith(panels)


@pytest.mark.parametrize(("situation", "exit_code"), [(sandbox_is_missing, 6), (unknown, 3)])
def test_a_dry_run_is_refused_as_the_rollback_is(ran: Project, situation: object, exit_code: int) -> None:
    target = situation(ran)  # type: ignore[operator]
    refusals = [
        ran.json("plan", "rollback", extra, "latest", target, exit_code=exit_code) for extra in ("--dry-run", "--yes")
    ]
    assert refusals[0] == refusals[1]


def test_the_question_names_what_cannot_be_undone(ran: Project) -> None:
    asked = ran.on_terminal("plan", "rollback", "latest", ran.checkpoint_before(1), answer="n\n", columns=300)
    assert "Not undone: step 2 (note). Roll back?" in asked.stdout


# --only


def test_single_files_come_back_as_a_checkpoint_of_their_own(ran: Project) -> None:
    target = ran.checkpoint_before(1)
    before, decisions = ran.files(), ran.json("plan", "status")["decisions"]
    arguments = ["--only", "src", "--only", "data:note.txt", "latest", target]
    data = ran.json("plan", "rollback", "--yes", *arguments, in_process=False)
    assert data["only"] == ["app:src", "data:note.txt"]
    assert data["changes_reverted"] == [
        {"file": "app/src/main.py", "action": "restored", "resource": "app"},
        {"file": "data/note.txt", "action": "removed", "resource": "data"},
    ]
    assert data["post_rollback_state"] == {
        "phase": "execute",
        "state": "queued",
        "checkpoints_remaining": len(ran.checkpoints()),
    }
    assert (ran.sandbox() / "note.txt").exists()
    status = ran.json("plan", "status")
    assert (status["last_completed_step"], status["decisions"]) == (2, decisions)
    last = ran.checkpoints()[-1]
    assert (last["triggers"], last["checkpoint_id"]) == (["restore_paths"], data["last_checkpoint_id"])
    undo = next(command for command in data["next_commands"] if "rollback" in command)
    ran.json(*undo.split()[1:], "--yes")
    assert ran.files() == before


def test_what_happens_to_a_complete_plan_is_said(ran: Project) -> None:
    shown = ran.call("plan", "rollback", "--yes", "--only", "src", "latest", ran.checkpoint_before(1)).stdout
    assert all(title in shown for title in TITLES)
    assert "only            app:src" in shown
    assert "execute / queued, at its end" in shown
    assert "executing the plan validates it again and makes it complete" in shown
    assert ran.json("plan", "execute", "latest")["state"] == "complete"


def test_a_dry_run_of_it_changes_nothing_and_names_the_command(ran: Project) -> None:
    before = everything(ran)
    arguments = [
        "--dry-run",
        "--only",
        "app:src/main.py",
        "--only",
        "data:note.txt",
        "latest",
        ran.checkpoint_before(1),
    ]
    planned = ran.json("plan", "rollback", *arguments)
    assert "Nothing was changed." in ran.call("plan", "rollback", *arguments).stdout
    assert everything(ran) == before
    done = ran.json(*planned["next_commands"][0].split()[1:], "--yes")
    for name in ("only", "changes_reverted", "impact", "post_rollback_state", "rollback_summary"):
        assert planned[name] == done[name]


def test_it_asks_before_it_acts(ran: Project) -> None:
    before = everything(ran)
    arguments = ["plan", "rollback", "--only", "src", "latest", ran.checkpoint_before(1)]
    assert ran.run(*arguments).exit_code == 2
    declined = ran.on_terminal(*arguments, answer="n\n", columns=300)
    assert declined.exit_code == 4
    assert "1 file will be restored or removed in the sandboxes, everything else stays. Restore?" in declined.stdout
    assert everything(ran) == before


def test_paths_that_are_as_they_were_leave_the_plan_complete(ran: Project) -> None:
    before = everything(ran)
    shown = ran.call("plan", "rollback", "--yes", "--only", "version.txt", "latest", ran.checkpoint_before(1)).stdout
    assert "no file was different" in shown
    assert "execute / complete, at its end" in shown
    assert everything(ran) == before


@pytest.mark.parametrize(
    ("path", "exit_code", "words"),
    [
        ("nothing", 3, "app: .git, note.txt, src, version.txt; data: note.txt, orders.csv"),
        ("note.txt", 3, "app:note.txt, data:note.txt"),
        ("/etc/passwd", 2, "relative to the resource's root"),
    ],
)
def test_a_path_nobody_can_mean_is_refused(ran: Project, path: str, exit_code: int, words: str) -> None:
    before = everything(ran)
    target = ran.checkpoint_before(1)
    refused = ran.json("plan", "rollback", "--yes", "--only", path, "latest", target, exit_code=exit_code)["error"]
    assert words in refused["hint"]
    assert everything(ran) == before
