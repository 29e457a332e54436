"""A plan from its file to the real files, with the real command."""

from __future__ import annotations

import json
import re
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from holdfast.model import now
from holdfast.system.ids import _Ids
from tests.integration.cli.project import Project

GOOD = """\
  - {name: bump, tool: edit_file, args: {path: version.txt, find: "1", replace: "2"}}
  - {name: note, tool: write_file, resource: data, args: {path: note.txt, content: "done\\n"}}
  - {name: look, run: cat version.txt, writes: false}
"""
BAD = """\
  - {name: bump, tool: edit_file, args: {path: version.txt, find: "1", replace: "2"}}
  - {name: break it, run: "rm -r src; seq 30; echo oh no >&2; exit 3"}
  - {name: look, run: cat version.txt, writes: false}
"""


def test_a_plan_is_made_run_looked_at_and_applied(project: Project) -> None:
    created = project.json("plan", "create", str(project.plan(GOOD)), in_process=False)
    assert (created["phase"], created["state"]) == ("strategize", "queued")
    assert created["last_checkpoint_id"] is None
    plan_id = created["plan_id"]

    executed = project.json("plan", "execute", plan_id, in_process=False)
    assert (executed["plan_id"], executed["state"], executed["last_completed_step"]) == (plan_id, "complete", 2)
    assert [(each["file"], each["action"]) for each in executed["changes"]] == [
        ("app/version.txt", "changed"),
        ("data/note.txt", "added"),
    ]
    assert executed["failed_step"] is None
    assert f"holdfast plan apply {plan_id}" in executed["next_commands"]
    assert (project.app / "version.txt").read_text() == "1\n"
    assert not (project.data / "note.txt").exists()

    applied = project.json("plan", "apply", "--yes", plan_id, in_process=False)
    assert (applied["state"], applied["files_changed"]) == ("applied", 2)
    assert (project.app / "version.txt").read_text() == "2\n"
    assert (project.data / "note.txt").read_text() == "done\n"
    assert project.git("rev-parse", "HEAD") == applied["commits"]["app"]


def test_creating_a_plan_shows_the_command_that_runs_it(project: Project) -> None:
    shown = project.call("plan", "create", str(project.plan(GOOD))).stdout
    assert "3 steps on app, data; nothing has run yet." in shown
    assert shown.splitlines()[-1].endswith(f"holdfast plan execute {project.json('plan', 'status')['plan_id']}")


def test_validation_is_shown_like_a_step(project: Project) -> None:
    file = project.plan(GOOD, header="validate: [test -e version.txt]\n")
    shown = project.call("plan", "execute", str(file)).stdout.splitlines()
    assert any(line.startswith("validate test -e version.txt") and " ok " in line for line in shown)


def test_executing_a_file_makes_the_plan_and_runs_it(project: Project) -> None:
    file = project.plan(GOOD)
    project.json("plan", "execute", str(file.relative_to(project.folder)), in_process=False)
    assert [each["state"] for each in project.json("plan", "list")["plans"]] == ["complete"]


def test_a_plan_file_needs_no_yaml_ending_to_be_executed(project: Project) -> None:
    assert project.json("plan", "execute", str(project.plan(GOOD, name="release-plan")))["state"] == "complete"


def test_executing_a_complete_plan_says_so_and_changes_nothing(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(GOOD)))
    before = project.files(), project.json("plan", "status")
    again = project.run("plan", "execute", "latest", "--format", "json")
    assert again.exit_code == 0
    assert "complete already" in again.envelope["messages"][0]
    assert (project.files(), project.json("plan", "status")) == before
    assert "complete already" in project.run("plan", "execute", "latest").stdout


def test_executing_shows_each_step_and_what_comes_next(project: Project) -> None:
    shown = project.run("plan", "execute", str(project.plan(GOOD))).stdout
    lines = shown.splitlines()
    assert any(line.startswith("[1/3] bump") and " ok " in line and "cp_" in line for line in lines)
    assert any(line.startswith("[3/3] look") for line in lines)
    assert "Complete. 2 files: 1 changed, 1 added; your own files are untouched." in lines
    plan_id = project.json("plan", "status")["plan_id"]
    assert lines[-1].endswith(f"holdfast plan apply {plan_id}")


def test_a_failed_step_ends_with_1_and_all_that_is_needed_to_go_on(project: Project) -> None:
    failed = project.json("plan", "execute", str(project.plan(BAD)), exit_code=1, in_process=False)
    assert (failed["state"], failed["last_completed_step"]) == ("errored", 0)
    assert failed["failed_step"]["index"] == 1
    assert failed["failed_step"]["name"] == "break it"
    assert failed["failed_step"]["exit_code"] == 3
    assert failed["output_tail"].splitlines()[-1] == "oh no"
    assert len(failed["output_tail"].splitlines()) == 20
    known = {each["checkpoint_id"]: each for each in project.checkpoints()}
    assert "on_error" in known[failed["failure_checkpoint_id"]]["triggers"]
    assert known[failed["restored_checkpoint_id"]]["step_index"] == 1
    assert [command.split()[:3] for command in failed["next_commands"]] == [
        ["holdfast", "plan", "status"],
        ["holdfast", "plan", "diff"],
        ["holdfast", "plan", "rollback"],
        ["holdfast", "plan", "correct"],
        ["holdfast", "plan", "execute"],
    ]


def test_the_commands_named_after_a_failure_work(project: Project) -> None:
    failed = project.json("plan", "execute", str(project.plan(BAD)), exit_code=1)
    _, diff, rollback, correct, _ = (command.split()[1:] for command in failed["next_commands"])
    assert [each["file"] for each in project.json(*diff)["files"]] == ["app/src/main.py"]
    assert project.json(*rollback, "--yes")["changes_reverted"] == [
        {"file": "app/src/main.py", "action": "removed", "resource": "app"}
    ]
    fixed = project.folder / "fixed.yaml"
    fixed.write_text("steps: [{name: do it right, run: 'echo fine > src/fine.txt'}]")
    project.json("plan", "correct", "--mode", "revert", "--guidance", "x", "--with", str(fixed), "-y", correct[-1])
    assert (project.sandbox() / "src" / "fine.txt").exists()
    assert (project.sandbox() / "src" / "main.py").exists()


def test_a_failure_shows_its_output_its_checkpoint_and_the_next_commands(project: Project) -> None:
    shown = project.run("plan", "execute", str(project.plan(BAD)))
    assert shown.exit_code == 1
    assert "Step 2 (break it) failed" in shown.stdout
    assert "  | oh no" in shown.stdout
    assert "21 lines before" in shown.stdout
    assert shown.stdout.count("cp_") >= 4
    assert "holdfast plan correct --mode revert" in shown.stdout


def test_a_failure_that_changed_nothing_points_to_the_checkpoints_before_it(project: Project) -> None:
    steps = "  - {name: check, run: 'false', writes: false}\n"
    failed = project.json("plan", "execute", str(project.plan(steps)), exit_code=1)
    assert f"holdfast checkpoint list {failed['plan_id']}" in failed["next_commands"]


def test_a_failed_validation_is_shown_with_the_plan(project: Project) -> None:
    file = project.plan(GOOD, header="validate: ['echo not good; false']\n")
    failed = project.json("plan", "execute", str(file), exit_code=1)
    assert failed["failed_step"]["index"] is None
    assert failed["output_tail"] == "not good"
    status = project.json("plan", "status")
    assert [each["state"] for each in status["steps"]] == ["succeeded"] * 3
    assert [(each["state"], each["exit_code"]) for each in status["validation"]] == [("failed", 1)]
    assert "= " in project.call("plan", "status").stdout


def test_a_step_that_is_tried_again_says_which_try_it_is(project: Project) -> None:
    steps = "  - {name: shaky, run: 'test -e $TMPDIR/marker || { touch $TMPDIR/marker; false; }', retries: 1}\n"
    shown = project.run("plan", "execute", str(project.plan(steps))).stdout
    assert "shaky (try 2)" in shown
    assert "back to before step 1 (shaky)" in shown


def test_status_tells_everything_about_a_plan(project: Project) -> None:
    project.run("plan", "execute", str(project.plan(BAD)))
    status = project.json("plan", "status")
    assert status.keys() >= {
        "plan_id", "name", "phase", "state", "attempt", "last_completed_step", "last_checkpoint_id", "error",
        "created_at", "resources", "steps", "checkpoints", "decisions", "holder",
    }  # fmt: skip
    assert [each["name"] for each in status["resources"]] == ["app", "data"]
    assert status["resources"][0] == {
        "name": "app",
        "type": "git",
        "path": str(project.app),
        "sandbox_path": str(project.home / "sandboxes" / status["plan_id"] / "app"),
        "strategy": "git_worktree",
        "view": "same-path",
        "left_out": [],
    }
    assert [each["state"] for each in status["steps"]] == ["succeeded", "failed", "pending"]
    broken = status["steps"][1]
    assert (broken["index"], broken["tool"], broken["resource"], broken["exit_code"]) == (1, "shell", "app", 3)
    assert broken["output"].endswith("oh no\n")
    assert broken["duration_seconds"] >= 0
    assert broken["decision_id"] in [each["decision_id"] for each in status["decisions"]]
    assert status["checkpoints"] == len(project.checkpoints())
    assert status["holder"] is None
    assert status["error"].startswith("step 2 (break it) failed")


def test_status_of_a_plan_that_has_not_run_has_no_checkpoint(project: Project) -> None:
    project.json("plan", "create", str(project.plan(GOOD)))
    status = project.json("plan", "status")
    assert status["last_checkpoint_id"] is None
    assert [each["state"] for each in status["steps"]] == ["pending"] * 3
    assert "holdfast plan execute" in project.call("plan", "status").stdout


def test_status_warns_when_automatic_checkpoints_are_switched_off(project: Project) -> None:
    file = project.plan(GOOD, header="policy: {auto_create_on: []}\n")
    created = project.run("plan", "create", str(file), "--format", "json")
    assert "turned off" in created.envelope["messages"][0]
    assert "turned off" in project.call("plan", "status").stdout


def test_the_newest_plans_are_listed_first_and_those_of_other_projects_only_on_demand(project: Project) -> None:
    file = project.plan(GOOD)
    first, second = (project.json("plan", "create", str(file))["plan_id"] for _ in range(2))
    elsewhere = project.json("plan", "create", str(file), "--project", str(project.app))["plan_id"]
    assert [each["plan_id"] for each in project.json("plan", "list")["plans"]] == [second, first]
    assert [each["plan_id"] for each in project.json("plan", "list", "--limit", "1")["plans"]] == [second]
    everywhere = project.json("plan", "list", "--all")["plans"]
    assert [each["plan_id"] for each in everywhere] == [elsewhere, second, first]
    assert everywhere[0]["project"] == str(project.app)
    shown = project.call("plan", "list", "--all").stdout
    assert all(text in shown for text in (first, second, elsewhere, str(project.app)))


def test_an_empty_project_says_how_to_make_a_plan(project: Project) -> None:
    shown = project.call("plan", "list")
    assert (shown.exit_code, project.json("plan", "list")) == (0, {"plans": []})
    assert "holdfast plan create FILE" in shown.stdout


def test_a_difference_is_shown_as_counts_as_names_and_as_a_patch(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(GOOD)))
    data = project.json("plan", "diff", "latest")
    assert (data["files_changed"], data["added_lines"], data["removed_lines"]) == (2, 2, 1)
    assert [(each["file"], each["status"]) for each in data["files"]] == [
        ("app/version.txt", "changed"),
        ("data/note.txt", "added"),
    ]
    assert "patch" not in data["files"][0]
    assert "+2\n" in project.json("plan", "diff", "latest", "--patch")["files"][0]["patch"]
    assert "M  app/version.txt  +1 -1" in project.call("plan", "diff", "latest").stdout
    assert project.call("plan", "diff", "latest", "--name-only").stdout == "app/version.txt\ndata/note.txt\n"
    patch = project.call("plan", "diff", "latest", "-p").stdout.splitlines()
    assert patch[:5] == ["--- a/app/version.txt", "+++ b/app/version.txt", "@@ -1 +1 @@", "-1", "+2"]


def test_a_difference_can_begin_and_end_at_checkpoints(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(GOOD)))
    start, end = project.checkpoint_before(0), project.checkpoint_before(1)
    between = project.json("plan", "diff", "latest", start, end)
    assert (between["from_checkpoint_id"], between["to_checkpoint_id"]) == (start, end)
    assert [each["file"] for each in between["files"]] == ["app/version.txt"]
    assert [each["file"] for each in project.json("plan", "diff", "latest", end)["files"]] == ["data/note.txt"]
    assert project.call("plan", "diff", "latest", end, end).stdout == "Nothing changed.\n"


def test_files_have_their_bare_path_in_a_plan_with_one_resource(project: Project) -> None:
    file = project.folder / "one.yaml"
    file.write_text("name: one\nresources: {data: {type: directory, path: data}}\nsteps: [{run: echo x > x.txt}]")
    project.json("plan", "execute", str(file))
    assert project.call("plan", "diff", "latest", "--name-only").stdout == "x.txt\n"


def test_a_patch_can_be_applied_whatever_is_in_its_lines(project: Project) -> None:
    odd = "one \n\ttab\n\ftwo\nthree\rx\nsome\u2028where\x1b[1m\r\nfour"
    (project.app / "odd.txt").write_bytes(odd.encode())
    project.json("plan", "execute", str(project.plan("  - {run: 'sed -i \"s/t/T/; s/four/FOUR/\" odd.txt'}\n")))
    patch = project.call("plan", "diff", "latest", "--patch").stdout
    patch = patch.replace("a/app/", "a/").replace("b/app/", "b/")
    subprocess.run(["git", "apply", "-"], cwd=project.app, input=patch.encode(), check=True)
    changed = odd.replace("tab", "Tab").replace("two", "Two").replace("three", "Three").replace("four", "FOUR")
    assert (project.app / "odd.txt").read_bytes() == changed.encode()
    assert "\x1b[1m" not in project.on_terminal("plan", "diff", "latest", "--patch", variables={"NO_COLOR": "1"}).stdout


def test_binary_files_and_symlinks_are_named_in_a_patch(project: Project) -> None:
    steps = "  - {run: 'printf \"a\\\\000b\" > b.bin; ln -s b.bin link; chmod +x version.txt'}\n"
    project.json("plan", "execute", str(project.plan(steps)))
    shown = project.call("plan", "diff", "latest", "--patch").stdout
    assert "added app/b.bin: binary" in shown
    assert "+b.bin" in shown
    assert "binary" in project.call("plan", "diff", "latest").stdout


def test_apply_can_leave_the_commit_to_the_user(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(GOOD)))
    head = project.git("rev-parse", "HEAD")
    assert project.json("plan", "apply", "--yes", "--no-commit", "latest")["commits"] == {}
    assert project.git("rev-parse", "HEAD") == head
    assert project.git("status", "--short") == " M version.txt"


def test_apply_shows_what_it_did(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(GOOD)))
    shown = project.run("plan", "apply", "--yes", "latest").stdout
    assert shown.splitlines()[:3] == ["M  app/version.txt", "A  data/note.txt", "Applied. 2 files of yours changed."]
    assert "holdfast plan diff" in project.call("plan", "status").stdout


def test_apply_refuses_and_names_the_files_that_were_changed_meanwhile(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(GOOD)))
    (project.data / "note.txt").write_text("mine\n")
    before = project.files()
    refused = project.json("plan", "apply", "--yes", "latest", exit_code=5)["error"]
    assert refused["type"] == "ConflictError"
    assert refused["paths"] == ["data: note.txt"]
    assert project.files() == before


def test_apply_asks_and_a_no_changes_nothing(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(GOOD)))
    before = project.files()
    declined = project.on_terminal("plan", "apply", "latest", answer="n\n")
    assert declined.exit_code == 4
    assert "note.txt" in declined.stdout
    assert "nothing was changed" in declined.stdout
    assert project.files() == before
    assert project.on_terminal("plan", "apply", "latest", answer="y\n").exit_code == 0
    assert (project.data / "note.txt").exists()


def test_the_schema_is_printed_bare_for_editors_and_in_the_envelope_for_programs(project: Project) -> None:
    bare = json.loads(project.call("plan", "schema").stdout)
    assert bare["title"] == "Holdfast plan file"
    assert project.json("plan", "schema")["schema"] == bare


@pytest.mark.parametrize("chosen", ["json", "yaml"])
def test_both_formats_for_programs_hold_the_same(project: Project, chosen: str) -> None:
    project.json("plan", "create", str(project.plan(GOOD)))
    shown = project.call("plan", "status", "--format", chosen).stdout
    parsed = json.loads(shown) if chosen == "json" else yaml.safe_load(shown)
    assert parsed["command"] == "plan status"
    assert parsed["data"] == project.json("plan", "status")
    assert parsed["timing"]["started"].endswith("Z")
    assert parsed["timing"]["duration_ms"] > 0


def test_a_plan_file_with_mistakes_is_refused_with_every_one_of_them(project: Project) -> None:
    file = project.plan("  - {nam: x, run: y}\n  - {run: [1]}\n")
    refused = project.json("plan", "create", str(file), exit_code=2)["error"]
    assert refused["type"] == "PlanFileError"
    assert len(refused["problems"]) >= 2
    shown = project.run("plan", "create", str(file))
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "plan.yaml:4" in shown.stderr
    assert not Path(project.home / "sandboxes").exists() or not list((project.home / "sandboxes").iterdir())


def test_the_status_of_a_plan_that_waits_for_a_person_names_what_is_to_be_resolved(project: Project) -> None:
    steps = """\
  - name: parts
    parallel: 2
    subplans:
      - {name: one, steps: [{name: p, run: echo a > version.txt}]}
      - {name: two, steps: [{name: p, run: echo b > version.txt}]}
"""
    assert project.call("plan", "execute", str(project.plan(steps))).exit_code != 0
    said = project.call("plan", "status").stdout
    assert "Conflicts to resolve in the sandbox:" in said
    assert "version.txt" in said.partition("Conflicts to resolve in the sandbox:")[2]
    assert re.search(r"conflict +parts", said)
    assert re.search(r"ok +one", said)
    assert "continue   holdfast plan resume" in said


def test_a_list_without_plans_suggests_only_what_may_find_some(project: Project) -> None:
    here, everywhere = project.call("plan", "list").stdout, project.call("plan", "list", "--all").stdout
    assert "holdfast plan list --all" in here
    assert everywhere == "There are no plans in any project.\ncreate one  holdfast plan create FILE\n"


def test_the_latest_plan_is_the_one_made_last_also_if_the_clock_was_set_back(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(project.plan("  - {run: 'true'}\n"))
    made = [project.json("plan", "create", file)["plan_id"]]
    set_back = now() - timedelta(days=1)
    monkeypatch.setattr("holdfast.plans.creating.now", lambda: set_back)
    made.append(project.json("plan", "create", file)["plan_id"])
    assert [each["plan_id"] for each in project.json("plan", "list")["plans"]] == made[::-1]
    assert project.json("plan", "status", "latest")["plan_id"] == made[1]
    assert project.call("plan", "delete", "--yes", "latest").exit_code == 0
    assert [each["plan_id"] for each in project.json("plan", "list")["plans"]] == made[:1]


def test_checkpoints_are_listed_in_the_order_they_were_taken_also_if_the_clock_was_set_back(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.json("plan", "execute", str(project.plan("  - {run: 'echo 2 > version.txt'}\n")))
    before = [each["checkpoint_id"] for each in project.checkpoints()]
    real = time.time_ns
    monkeypatch.setattr("holdfast.system.ids._ids", _Ids())
    monkeypatch.setattr("holdfast.system.ids.time.time_ns", lambda: real() - 86_400 * 10**9)
    last = project.json("checkpoint", "create", "latest")["checkpoint_id"]
    assert last < min(before)
    assert [each["checkpoint_id"] for each in project.checkpoints()] == [*before, last]
    shown = project.call("checkpoint", "list").stdout.splitlines()
    assert next(line for line in reversed(shown) if line.startswith("cp_"))[3:11] == last[:8]
