"""``plan apply`` and ``plan unapply`` as a person meets them: questions, previews, what is said afterwards."""

from __future__ import annotations

from tests.integration.cli.project import Project

PLAN = """
name: the plan
resources:
  app: {type: git, path: app}
steps:
  - {name: change, run: "echo more >> a.txt; echo new > new.txt"}
"""


def run_plan(project: Project, text: str = PLAN) -> str:
    (project.folder / "small.yaml").write_text(text)
    return str(project.json("plan", "execute", str(project.folder / "small.yaml"))["plan_id"])


def test_apply_and_unapply_ask_and_do_what_is_answered(project: Project) -> None:
    plan_id = run_plan(project)
    before = project.files()
    asked = project.on_terminal("plan", "apply", plan_id, answer="n\n")
    assert asked.exit_code == 4
    assert "Bring 2 changed files into" in asked.stdout
    assert project.files() == before
    assert project.on_terminal("plan", "apply", plan_id, answer="y\n").exit_code == 0
    asked = project.on_terminal("plan", "unapply", plan_id, answer="n\n")
    assert asked.exit_code == 4
    assert "Undo the apply: restore or remove 2 files?" in asked.stdout
    assert project.on_terminal("plan", "unapply", plan_id, answer="y\n").exit_code == 0
    assert project.files() == before


def test_a_branch_is_asked_for_made_and_deleted(project: Project) -> None:
    plan_id = run_plan(project)
    before = project.files()
    asked = project.on_terminal("plan", "apply", "--branch", "topic", plan_id, answer="y\n")
    assert "on the new branch topic of" in asked.stdout.replace("\r\n", " ")
    assert "on the branch topic; your own files are untouched" in asked.stdout
    assert "git merge topic" in asked.stdout
    assert project.files() == before
    shown = project.json("plan", "unapply", "--dry-run", plan_id)
    assert (shown["branch"], shown["dry_run"], shown["state"]) == ("topic", True, "applied")
    asked = project.on_terminal("plan", "unapply", plan_id, answer="y\n")
    assert "Delete the branch topic" in asked.stdout
    assert "is removed from topic" in asked.stdout


def test_a_dry_run_needs_nobody_to_ask_and_names_the_command_that_does_it(project: Project) -> None:
    plan_id = run_plan(project)
    before = project.files()
    for options in ([], ["--no-commit"], ["--branch", "topic"]):
        shown = project.json("plan", "apply", "--dry-run", *options, plan_id)
        assert shown["plan_id"] == plan_id
        assert shown["dry_run"] is True
        assert shown["next_commands"] == [" ".join(["holdfast plan apply", *options, plan_id])]
        assert ("app" in shown["commits"]) == ("--no-commit" not in options)
    assert project.files() == before
    assert project.json("plan", "status", plan_id)["state"] == "complete"


def test_a_detached_head_is_named_in_a_dry_run(project: Project) -> None:
    run_plan(project)
    project.git("checkout", "-q", "--detach")
    shown = project.call("plan", "apply", "--dry-run", "latest").stdout
    assert "would be a commit on a detached HEAD" in shown


def test_many_files_and_what_git_ignores_are_told_in_few_lines(project: Project) -> None:
    (project.app / ".gitignore").write_text("*.log\n")
    project.git("add", ".gitignore")
    project.git("commit", "-q", "-m", "ignore")
    script = "for n in $(seq 40); do echo x > f$n; done; for n in 1 2 3 4 5; do echo x > $n.log; done"
    run_plan(project, PLAN.replace("echo more >> a.txt; echo new > new.txt", script))
    shown = project.call("plan", "apply", "--yes", "latest").stdout
    assert "and 10 more" in shown
    assert "1.log, 2.log, 3.log and 2 more" in shown


def test_a_branch_and_no_commit_exclude_each_other(project: Project) -> None:
    plan_id = run_plan(project)
    ended = project.call("plan", "apply", "--yes", "--no-commit", "--branch", "topic", plan_id)
    assert ended.exit_code == 2
    assert "exclude each other" in ended.stderr


def test_the_status_of_an_applied_plan_names_the_way_back(project: Project) -> None:
    plan_id = run_plan(project)
    project.json("plan", "apply", "--yes", plan_id)
    assert f"holdfast plan unapply {plan_id}" in project.call("plan", "status", plan_id).stdout
