"""Saying what apply and unapply would do: the same analysis, the same refusals, and nothing is changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import ConflictError, HoldfastError, SandboxError, StateError
from holdfast.model import Plan
from tests.integration.apply.conftest import Desk, unchangeable
from tests.support.crashes import count_of_changes, killed_at
from tests.support.repositories import git, head, status
from tests.support.trees import compare, write

APP = "sed -i s/^1$/one/ text; echo new > new.txt; rm b.txt; echo x > x.log; mkdir empty"


@pytest.fixture
def plan(desk: Desk) -> Plan:
    write(desk.app / ".gitignore", "*.log\n")
    write(desk.app / "text", "".join(f"{number}\n" for number in range(1, 10)))
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "a text")
    plan = desk.run(app=APP, data="echo more >> one.csv")
    (desk.app / "text").write_text((desk.app / "text").read_text() + "mine\n")
    git(desk.app, "commit", "-q", "-a", "-m", "of mine")
    return plan


def records_of(desk: Desk, plan: Plan) -> tuple[object, ...]:
    with desk.open() as holdfast:
        found = holdfast.find_plan(plan.plan_id)
        return found, holdfast.status(plan.plan_id), len(holdfast.checkpoints(plan.plan_id))


@pytest.mark.parametrize("options", [{}, {"commit": False}], ids=["commit", "no commit"])
def test_it_says_exactly_what_the_real_one_then_does(desk: Desk, plan: Plan, options: dict[str, bool]):
    before, records = desk.everything(), records_of(desk, plan)
    with desk.open() as holdfast:
        preview = holdfast.apply_preview(plan.plan_id, **options)
        drafts = preview.commits()
    assert compare(before, desk.everything()) == [], "not even an object in the user's repository"
    assert records_of(desk, plan) == records
    assert ("text", "merged") in {(each.file, each.action) for each in preview.changes}
    assert preview.left_out == ("x.log",)
    result = desk.apply(plan, **options)
    assert result.changes == preview.changes
    assert result.commits.keys() == drafts.keys()
    if drafts:
        assert git(desk.app, "show", "-s", "--format=%B") == drafts["app"].message
        assert preview.branch_of("app") == "main"
        assert git(desk.app, "rev-parse", "HEAD^") == drafts["app"].parent


def test_an_index_that_git_splits_leaves_nothing_in_the_repository(desk: Desk):
    git(desk.app, "config", "core.splitIndex", "true")
    write(desk.app / "staged.txt", "the user's\n")
    git(desk.app, "add", "staged.txt")
    plan = desk.run(app="echo more >> a.txt; echo new > new.txt")
    before = desk.everything()
    with desk.open() as holdfast:
        for branch in (None, "topic"):
            assert holdfast.apply_preview(plan.plan_id, branch=branch).commits().keys() == {"app"}
    # Whoever reads the index makes git set the time of its shared part.
    assert compare(before, desk.everything(), ignoring=["mtime_ns"]) == []
    shared = list((desk.app / ".git").glob("sharedindex.*"))
    desk.apply(plan)
    assert status(desk.app) == ["A  staged.txt"]
    desk.unapply(plan)
    assert status(desk.app) == ["A  staged.txt"]
    assert list((desk.app / ".git").glob("sharedindex.*")) == shared


def test_on_a_branch_of_its_own(desk: Desk):
    plan = desk.run(app="echo more >> a.txt")
    before = desk.everything()
    with desk.open() as holdfast:
        preview = holdfast.apply_preview(plan.plan_id, branch="topic")
        assert preview.branch_of("app") == "topic"
        assert preview.commits()["app"].parent == head(desk.app)
    assert compare(before, desk.everything()) == []


def test_a_change_that_git_does_not_see_would_be_no_commit(desk: Desk):
    plan = desk.run(app="mkdir empty; mkfifo pipe; chmod 600 a.txt")
    with desk.open() as holdfast:
        preview = holdfast.apply_preview(plan.plan_id)
        assert preview.commits() == {}
        assert {each.file for each in preview.changes} == {"a.txt", "empty", "pipe"}
    assert desk.apply(plan).commits == {}
    assert status(desk.app) == []


def test_a_detached_head_is_named(desk: Desk):
    plan = desk.run(app="echo more >> a.txt")
    git(desk.app, "checkout", "-q", "--detach")
    with desk.open() as holdfast:
        assert holdfast.apply_preview(plan.plan_id).branch_of("app") is None


def test_conflicts_are_the_same_refusal(desk: Desk):
    plan = desk.run(app="echo more >> a.txt", data="echo more >> one.csv")
    write(desk.data / "one.csv", "mine\n")
    refusals = []
    for dry_run in (True, False):
        with desk.open() as holdfast, pytest.raises(ConflictError) as refusal:
            holdfast.apply_preview(plan.plan_id) if dry_run else holdfast.apply(plan.plan_id)
        refusals.append((refusal.value.message, refusal.value.hint, refusal.value.paths, refusal.value.exit_code))
    assert refusals[0] == refusals[1]


def same_refusal(desk: Desk, plan: Plan, kind: type[HoldfastError]) -> str:
    """What both the dry run and the real one say, of an apply or, if that is done, of an unapply."""
    command = "unapply" if desk.state(plan) == ("apply", "applied") else "apply"
    said = []
    for attempt in (lambda: dry_run(desk, plan, command), lambda: getattr(desk, command)(plan)):
        with pytest.raises(kind) as refusal:
            attempt()
        said.append(refusal.value.message)
    assert said[0] == said[1]
    return said[0]


def dry_run(desk: Desk, plan: Plan, command: str) -> None:
    """All that the command asks for."""
    with desk.open() as holdfast:
        if command == "apply":
            holdfast.apply_preview(plan.plan_id).commits()
        else:
            holdfast.unapply_preview(plan.plan_id)


@pytest.mark.parametrize("lock", ["index.lock", "HEAD.lock", "refs/heads/main.lock"])
def test_a_lock_of_another_git_is_the_same_refusal(desk: Desk, plan: Plan, lock: str):
    before = desk.what_counts()
    file = write(desk.app / ".git" / lock, "")
    assert str(file) in same_refusal(desk, plan, ConflictError)
    with desk.open() as holdfast:
        holdfast.apply_preview(plan.plan_id, commit=False)  # that needs no lock
    file.unlink()
    assert compare(before, desk.what_counts()) == []
    desk.apply(plan)
    write(file, "")
    assert str(file) in same_refusal(desk, plan, ConflictError)
    file.unlink()
    desk.unapply(plan)


def test_a_lock_does_not_matter_if_there_will_be_no_commit(desk: Desk):
    plan = desk.run(app="mkdir empty; chmod 600 a.txt")
    write(desk.app / ".git" / "index.lock", "")
    with desk.open() as holdfast:
        holdfast.apply_preview(plan.plan_id)
        holdfast.apply(plan.plan_id)


def test_a_person_without_a_name_is_the_same_refusal(desk: Desk, plan: Plan):
    for name in ("user.name", "user.email"):
        git(desk.app, "config", name, "")
    git(desk.app, "config", "user.useConfigOnly", "true")
    assert "Git could not make the commit" in same_refusal(desk, plan, SandboxError)


def test_a_commit_that_would_take_more_along_is_the_same_refusal(desk: Desk):
    write(desk.app / "left" / "out", "x")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "more")
    git(desk.app, "sparse-checkout", "set", "--no-cone", "/*", "!/left/")
    plan = desk.run(app="echo 'a file now' > left")
    assert "left/out" in same_refusal(desk, plan, ConflictError)


FOLDERS = ["app", "app/.git", "app/.git/objects", "data"]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_may_not_be_written_is_the_same_refusal(desk: Desk, plan: Plan, name: str):
    before = desk.what_counts()
    with unchangeable(desk.real / name):
        with pytest.raises(SandboxError) as refusal, desk.open() as holdfast:
            holdfast.apply_preview(plan.plan_id)
        assert refusal.value.message.endswith(f"nothing was changed:\n  {desk.real / name}")
        with pytest.raises(SandboxError) as real_refusal:
            desk.apply(plan)
        assert real_refusal.value.message == refusal.value.message
        desk.assert_put_back(before)
    desk.apply(plan)
    after = desk.what_counts()
    with unchangeable(desk.real / name):
        with pytest.raises(SandboxError, match=f"\n  {desk.real / name}$"), desk.open() as holdfast:
            holdfast.unapply_preview(plan.plan_id)
        desk.assert_put_back(after)
    desk.unapply(plan)


def test_a_folder_in_which_nothing_changes_may_be_closed(desk: Desk, plan: Plan):
    with unchangeable(desk.data / "deep"), desk.open() as holdfast:
        holdfast.apply_preview(plan.plan_id)
    on_branch = desk.run(app="echo more >> a.txt")
    with unchangeable(desk.app), desk.open() as holdfast:
        holdfast.apply_preview(on_branch.plan_id, branch="topic")


def test_a_sandbox_that_is_gone_is_not_made_anew_and_what_was_recorded_of_it_is_told(desk: Desk, plan: Plan):
    sandbox = desk.sandbox(plan)
    with desk.open() as holdfast:
        told = holdfast.apply_preview(plan.plan_id).changes
        sandbox.rename(desk.folder / "gone")
        assert holdfast.apply_preview(plan.plan_id).changes == told
    assert not sandbox.exists()


def test_an_apply_that_was_cut_short_is_not_repaired_but_told(desk: Desk, plan: Plan):
    desk.keep()
    changes = count_of_changes(lambda: desk.apply(plan))
    desk.start_over()
    killed_at(changes - 8, lambda: desk.apply(plan))
    before = desk.everything()
    with desk.open() as holdfast, pytest.raises(StateError, match="cut short") as refusal:
        holdfast.apply_preview(plan.plan_id)
    assert "plan execute" in refusal.value.hint
    assert compare(before, desk.everything()) == []
    desk.next_command(plan)
    desk.apply(plan)


# The command


def run(desk: Desk, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "plan", *arguments],
        cwd=desk.app,
        env={**os.environ, "HOLDFAST_HOME": str(desk.home)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_shows_files_commit_message_and_what_stays(desk: Desk, plan: Plan):
    before = desk.everything()
    ended = run(desk, "apply", "--dry-run", plan.plan_id)
    assert ended.returncode == 0, ended.stderr
    for words in (
        "M  app/text (merged with your change)", "A  app/new.txt", "D  app/b.txt", "M  data/one.csv",
        "would be a commit on main", "    the plan", "x.log", "Nothing was changed.", f"plan apply {plan.plan_id}",
    ):  # fmt: skip
        assert words in ended.stdout
    assert compare(before, desk.everything()) == []


def test_the_commands_go_together(desk: Desk, plan: Plan, tmp_path: Path):
    assert run(desk, "unapply", "--dry-run", plan.plan_id).returncode == 4
    applied = run(desk, "apply", "--yes", plan.plan_id)
    assert f"holdfast plan unapply {plan.plan_id}" in applied.stdout
    shown = run(desk, "unapply", "--dry-run", plan.plan_id)
    assert "would be restored or removed" in shown.stdout
    assert "Nothing was changed." in shown.stdout
    assert run(desk, "unapply", plan.plan_id).returncode == 2, "nobody to ask"
    taken_back = run(desk, "unapply", "--yes", plan.plan_id)
    assert "the plan is complete again" in taken_back.stdout
    assert f"holdfast plan apply {plan.plan_id}" in taken_back.stdout
    named = run(desk, "apply", "--dry-run", "--branch", "topic", plan.plan_id)
    assert (named.returncode, "directory data" in named.stderr) == (4, True)
