"""Leaving the result on a branch of its own: a commit and its name, and nothing else of the user's is touched."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import ConflictError, HoldfastError, StateError, UsageError
from holdfast.model import Plan
from tests.integration.apply.conftest import Desk
from tests.support.crashes import count_of_changes, killed_at
from tests.support.repositories import AUTHOR, git, head, log, make_repository, status
from tests.support.trees import Thing, compare, describe, write

CHANGES = "echo more >> a.txt; echo new > new.txt; rm b.txt; echo trace > trace.log"


def branches(repository: Path) -> list[str]:
    return git(repository, "for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()


def all_but_branches(desk: Desk) -> dict[bytes, Thing]:
    """HEAD, index, working files, everything but new objects and the names of branches."""
    hidden = [b"app/.git/objects", b"app/.git/refs", b"app/.git/logs/refs"]
    return {path: thing for path, thing in describe(desk.real, without=hidden).items() if path != b"app/.git/logs"}


def visible(desk: Desk) -> dict[bytes, Thing]:
    hidden = [f"{name}/.git/{place}".encode() for name in ("app", "other") for place in ("objects", "logs")]
    return describe(desk.real, without=hidden)


def two_repositories(desk: Desk) -> Plan:
    make_repository(desk.real / "other")
    resources = {name: {"type": "git", "path": str(desk.real / name)} for name in ("app", "other")}
    steps = [{"name": f"work on {name}", "resource": name, "run": CHANGES} for name in resources]
    return desk.run_plan({"name": "the plan", "resources": resources, "steps": steps})


def test_the_result_is_a_commit_on_the_new_branch_and_nothing_else_is_touched(desk: Desk):
    write(desk.app / ".gitignore", "*.log\n")
    git(desk.app, "add", ".gitignore")
    git(desk.app, "commit", "-q", "-m", "ignore")
    write(desk.app / "staged.txt", "staged\n")
    git(desk.app, "add", "staged.txt")
    write(desk.app / "folder" / "c.txt", "not committed\n")
    plan = desk.run(app=CHANGES)
    before = all_but_branches(desk)
    result = desk.apply(plan, branch="topic/one")
    assert compare(before, all_but_branches(desk)) == []
    assert branches(desk.app) == ["main", "topic/one"]
    assert git(desk.app, "rev-parse", "topic/one") == result.commits["app"]
    assert git(desk.app, "rev-parse", "topic/one^") == head(desk.app)
    assert git(desk.app, "show", "-s", "--format=%an <%ae>", "topic/one") == AUTHOR
    changed = git(desk.app, "show", "--name-status", "--format=", "topic/one").splitlines()
    assert changed == ["M\ta.txt", "D\tb.txt", "A\tnew.txt"]
    assert (result.branch, result.left_out) == ("topic/one", ("trace.log",))
    assert desk.state(plan) == ("apply", "applied")
    assert desk.leftovers() == []


def test_it_starts_where_the_plan_started_so_that_git_can_merge_what_apply_would_refuse(desk: Desk):
    plan = desk.run(app="echo plan > a.txt; echo new > new.txt")
    start = head(desk.app)
    write(desk.app / "a.txt", "mine\n")
    git(desk.app, "commit", "-q", "-a", "-m", "of mine")
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert "--branch NAME" in refusal.value.hint
    desk.apply(plan, branch="topic")
    assert git(desk.app, "rev-parse", "topic^") == start
    git(desk.app, "merge", "-q", "-X", "ours", "--no-edit", "topic")
    assert (desk.app / "a.txt").read_text() == "mine\n"
    assert (desk.app / "new.txt").read_text() == "new\n"


def test_work_that_was_not_committed_when_the_plan_changed_the_same_file_is_refused(desk: Desk):
    write(desk.app / "a.txt", "a\nnot committed\n")
    plan = desk.run(app="echo more >> a.txt; echo more >> b.txt")
    before = desk.what_counts()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan, branch="topic")
    assert refusal.value.paths == ("app: a.txt",)
    assert compare(before, desk.what_counts()) == []
    git(desk.app, "commit", "-q", "-a", "-m", "now it is")
    desk.apply(plan, branch="topic")
    assert log(desk.app, "topic") == ["the plan", "now it is", "the first commit"]
    assert git(desk.app, "show", "topic:a.txt") == "a\nnot committed\nmore"


def test_a_start_that_the_user_rewrote_is_looked_for_in_head(desk: Desk):
    plan = desk.run(app="echo more >> a.txt")
    git(desk.app, "commit", "-q", "--amend", "-m", "rewritten")
    git(desk.app, "reflog", "expire", "--expire=now", "--all")
    git(desk.app, "gc", "-q", "--prune=now")
    desk.apply(plan, branch="topic")
    assert log(desk.app, "topic") == ["the plan", "rewritten"]


def test_line_ends_that_the_repository_converts_are_no_uncommitted_work(desk: Desk):
    write(desk.app / ".gitattributes", "*.txt text eol=crlf\n")
    (desk.app / "a.txt").write_bytes(b"one\r\n")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "crlf")
    plan = desk.run(app="printf 'two\\r\\n' >> a.txt")
    desk.apply(plan, branch="topic")
    assert git(desk.app, "show", "topic:a.txt") == "one\ntwo"


def test_a_repository_without_a_commit(desk: Desk):
    shutil.rmtree(desk.app)
    desk.app.mkdir()
    git(desk.app, "init", "--quiet")
    plan = desk.run(app="echo first > first.txt")
    desk.apply(plan, branch="topic")
    assert log(desk.app, "topic") == ["the plan"]
    assert git(desk.app, "rev-parse", "-q", "--verify", "HEAD", check=False) == ""
    assert status(desk.app) == []
    desk.unapply(plan)
    assert branches(desk.app) == []


# Refusals


def refused(desk: Desk, plan: Plan, branch: str, error: type[HoldfastError]) -> HoldfastError:
    before = visible(desk)
    with pytest.raises(error) as refusal:
        desk.apply(plan, branch=branch)
    assert compare(before, visible(desk), ignoring=["mtime_ns"]) == []
    assert desk.state(plan)[1] == "complete"
    return refusal.value


def test_a_directory_that_the_plan_changed_is_named(desk: Desk):
    plan = desk.run(app=CHANGES, data="echo more >> one.csv")
    assert "directory data" in refused(desk, plan, "topic", StateError).message


@pytest.mark.parametrize("script", ["true", "echo trace > trace.log", "chmod +x a.txt", "mkdir empty"])
def test_a_plan_that_changed_nothing_git_could_hold_is_refused_and_makes_no_branch(desk: Desk, script: str):
    write(desk.app / ".gitignore", "*.log\n")
    git(desk.app, "add", ".gitignore")
    git(desk.app, "commit", "-q", "-m", "ignore")
    git(desk.app, "config", "core.fileMode", "false")
    plan = desk.run(app=script)
    assert "nothing that git could hold" in refused(desk, plan, "topic", StateError).message
    assert branches(desk.app) == ["main"]
    desk.apply(plan)


def test_a_directory_that_the_plan_left_alone_is_no_reason(desk: Desk):
    desk.apply(desk.run(app=CHANGES, data="cat one.csv"), branch="topic")
    assert branches(desk.app) == ["main", "topic"]


def test_a_name_that_git_does_not_take_is_refused(desk: Desk):
    git(desk.app, "checkout", "-q", "-b", "second")
    git(desk.app, "checkout", "-q", "main")
    for plan in (desk.run(app=CHANGES), desk.run(app="true")):
        for name in ("", "a..b", "a b", "-x", "x.lock", "@{-1}", "HEAD", "refs/../x"):
            refused(desk, plan, name, UsageError)


def test_a_branch_that_exists_is_refused(desk: Desk):
    git(desk.app, "branch", "topic")
    plan = desk.run(app=CHANGES)
    assert "topic" in refused(desk, plan, "topic", ConflictError).message
    git(desk.app, "branch", "deep/topic")
    for name, taken in (("topic/below", "topic"), ("main/below", "main"), ("deep", "deep/topic")):
        assert f"There is a branch {taken} in" in refused(desk, plan, name, ConflictError).message
        with desk.open() as holdfast, pytest.raises(ConflictError, match="beside it"):
            holdfast.apply_preview(plan.plan_id, branch=name)
    assert desk.apply(plan, branch="topic-too").branch == "topic-too"


def test_a_branch_that_is_checked_out_and_has_no_commit_yet_is_refused(desk: Desk):
    shutil.rmtree(desk.app)
    desk.app.mkdir()
    git(desk.app, "init", "--quiet")
    git(desk.app, "add", write(desk.app / "mine.txt", "staged").name)
    plan = desk.run(app="echo new > new.txt")
    for name in ("main", "main/below"):
        assert "There is a branch main in" in refused(desk, plan, name, ConflictError).message
    assert status(desk.app) == ["A  mine.txt"]


def test_a_branch_and_no_commit_exclude_each_other(desk: Desk):
    with pytest.raises(UsageError):
        desk.apply(desk.run(app=CHANGES), commit=False, branch="topic")


def test_two_work_trees_of_one_repository_cannot_both_have_the_branch(desk: Desk):
    git(desk.app, "worktree", "add", "--quiet", "-b", "side", str(desk.real / "side"))
    resources = {name: {"type": "git", "path": str(desk.real / name)} for name in ("app", "side")}
    steps = [{"name": f"work on {name}", "resource": name, "run": "echo more >> a.txt"} for name in resources]
    plan = desk.run_plan({"name": "the plan", "resources": resources, "steps": steps})
    assert "one repository" in refused(desk, plan, "topic", StateError).message


# All repositories or none


def test_a_branch_that_cannot_be_made_in_the_second_repository_is_made_in_none(desk: Desk):
    plan = two_repositories(desk)
    write(desk.real / "other" / ".git" / "refs" / "heads" / "topic.lock", "another git")
    refused(desk, plan, "topic", ConflictError)
    (desk.real / "other" / ".git" / "refs" / "heads" / "topic.lock").unlink()
    desk.apply(plan, branch="topic")
    assert [branches(desk.real / name) for name in ("app", "other")] == [["main", "topic"]] * 2


@pytest.mark.unmeasured
def test_killed_at_any_moment_all_branches_are_there_or_none(desk: Desk):
    plan = two_repositories(desk)
    desk.keep()
    changes = count_of_changes(lambda: desk.apply(plan, branch="topic"))
    desk.start_over()
    seen = set()
    for moment in sorted({*range(1, changes, changes // 3), *range(changes - 8, changes + 1)}):
        killed_at(moment, lambda: desk.apply(plan, branch="topic"))
        state = desk.next_command(plan).state
        seen.add(state)
        expected = ["main", "topic"] if state == "applied" else ["main"]
        assert [branches(desk.real / name) for name in ("app", "other")] == [expected] * 2
        desk.start_over()
    assert seen >= {"complete"}


# Taking it back


def test_taking_it_back_removes_the_branch_and_nothing_else(desk: Desk):
    plan = desk.run(app=CHANGES)
    before = desk.what_counts()
    desk.apply(plan, branch="topic")
    assert desk.unapply(plan).branch == "topic"
    assert branches(desk.app) == ["main"]
    assert compare(before, desk.what_counts()) == []
    assert desk.state(plan) == ("execute", "complete")
    desk.apply(plan, branch="topic")


def test_a_branch_that_somebody_deleted_is_taken_back_already(desk: Desk):
    plan = desk.run(app=CHANGES)
    desk.apply(plan, branch="topic")
    git(desk.app, "branch", "-q", "-D", "topic")
    desk.unapply(plan)
    assert desk.state(plan) == ("execute", "complete")


@pytest.mark.parametrize(
    ("meanwhile", "words"),
    [
        ("git switch -q topic && git commit -q --allow-empty -m more && git switch -q main", "has moved on"),
        ("git switch -q topic", "is checked out"),
        ("git worktree add --quiet ../tree topic", "is checked out"),
    ],
    ids=["moved", "checked out", "checked out elsewhere"],
)
def test_a_branch_that_somebody_works_on_is_not_removed(desk: Desk, meanwhile: str, words: str):
    plan = desk.run(app=CHANGES)
    desk.apply(plan, branch="topic")
    subprocess.run(["sh", "-ec", meanwhile], cwd=desk.app, check=True)
    with pytest.raises(ConflictError, match=words):
        desk.unapply(plan)
    assert "topic" in branches(desk.app)
    assert desk.state(plan) == ("apply", "applied")


def test_killed_while_branches_are_removed_all_are_there_or_none(desk: Desk):
    plan = two_repositories(desk)
    desk.apply(plan, branch="topic")
    desk.keep()
    moment = 1
    while killed_at(moment, lambda: desk.unapply(plan)):
        expected = ["main", "topic"] if desk.next_command(plan).state == "applied" else ["main"]
        assert [branches(desk.real / name) for name in ("app", "other")] == [expected] * 2
        desk.start_over()
        moment += 4
