"""Applying to a repository: one commit on the user's branch, and nothing else of theirs is touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConflictError, HoldfastError, SandboxError, StateError
from holdfast.git.branches import refuse_a_branch_used_elsewhere
from holdfast.git.repository import GitRepository
from tests.integration.apply.conftest import Desk
from tests.support.repositories import AUTHOR, git, head, log, make_repository, status
from tests.support.trees import IS_ROOT, compare, describe, write

CHANGES = """
echo more >> a.txt
echo new > new.txt
rm b.txt
mkdir -p deep/er && echo deep > deep/er/file
"""


def test_the_result_is_one_commit_by_the_user_on_their_branch(desk: Desk):
    before = head(desk.app)
    plan = desk.run(app=CHANGES)
    assert head(desk.app) == before, "nothing happens before apply"
    result = desk.apply(plan)
    assert git(desk.app, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert head(desk.app) == result.commits["app"]
    assert git(desk.app, "rev-parse", "HEAD^") == before
    assert git(desk.app, "show", "-s", "--format=%an <%ae>|%cn <%ce>") == f"{AUTHOR}|{AUTHOR}"
    message = git(desk.app, "show", "-s", "--format=%B")
    assert message.startswith("the plan\n\n- work on app\n")
    assert f"Holdfast-Plan: {plan.plan_id}" in message
    changed = git(desk.app, "show", "--name-status", "--format=").splitlines()
    assert changed == ["M\ta.txt", "D\tb.txt", "A\tdeep/er/file", "A\tnew.txt"]
    assert status(desk.app) == []
    assert (desk.app / "a.txt").read_text() == "a\nmore\n"
    assert (desk.app / "deep" / "er" / "file").read_text() == "deep\n"
    assert not (desk.app / "b.txt").exists()
    assert {(each.file, each.action) for each in result.changes} == {
        ("a.txt", "changed"), ("b.txt", "removed"), ("deep/er/file", "added"), ("new.txt", "added"),
    }  # fmt: skip
    assert desk.leftovers() == []


def test_git_sees_nothing_to_do_also_when_it_trusts_only_the_index(desk: Desk):
    desk.apply(desk.run(app=CHANGES))
    assert git(desk.app, "diff-files", "--name-only") == ""
    assert git(desk.app, "diff-index", "--cached", "--name-only", "HEAD") == ""
    assert git(desk.app, "fsck", "--no-progress") == ""
    assert "holdfast" in git(desk.app, "reflog", "-1")


def test_other_uncommitted_work_is_untouched_and_still_uncommitted(desk: Desk):
    write(desk.app / "folder" / "c.txt", "unstaged\n")
    write(desk.app / "staged.txt", "staged\n")
    git(desk.app, "add", "staged.txt")
    write(desk.app / "untracked.txt", "untracked\n")
    plan = desk.run(app="echo more >> a.txt; cat folder/c.txt staged.txt untracked.txt > seen.txt")
    write(desk.app / "later.txt", "made while the plan ran\n")
    git(desk.app, "add", "later.txt")
    before = describe(desk.app, without=[b".git", b"a.txt", b"seen.txt"])
    desk.apply(plan)
    assert (desk.app / "seen.txt").read_text() == "unstaged\nstaged\nuntracked\n", "the plan saw that work"
    assert git(desk.app, "show", "--name-only", "--format=").splitlines() == ["a.txt", "seen.txt"]
    assert status(desk.app) == [" M folder/c.txt", "A  later.txt", "A  staged.txt", "?? untracked.txt"]
    assert compare(before, describe(desk.app, without=[b".git", b"a.txt", b"seen.txt"]), ignoring=["mtime_ns"]) == []


def test_every_kind_of_change_arrives(desk: Desk):
    write(desk.app / "was a file", "x")
    write(desk.app / "was a directory" / "deep" / "inside", "x")
    write(desk.app / "whole directory" / "one" / "two", "x")
    write(desk.app / "script", "#!/bin/sh\n")
    os.symlink("a.txt", desk.app / "link")
    os.symlink("a.txt", desk.app / "was a link")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "more kinds")
    plan = desk.run(
        app="""
        rm 'was a file' && mkdir 'was a file' && echo inside > 'was a file/inside'
        rm -r 'was a directory' && echo file > 'was a directory'
        rm -r 'whole directory'
        chmod +x script
        ln -sfn b.txt link
        rm 'was a link' && echo file > 'was a link'
        ln -s nowhere 'new link'
        : > empty
        mv folder moved
        printf x > "$(printf 'odd\\nname \\377')"
        """
    )
    desk.apply(plan)
    sandbox = desk.sandbox(plan)
    ignoring = ["mtime_ns"]
    assert compare(describe(sandbox, without=[b".git"]), describe(desk.app, without=[b".git"]), ignoring=ignoring) == []
    assert status(desk.app) == []
    git(sandbox, "add", "--all")
    assert git(sandbox, "write-tree") == git(desk.app, "rev-parse", "HEAD^{tree}")


def test_commits_made_inside_the_sandbox_arrive_as_the_plans_one_commit_if_that_is_asked_for(desk: Desk):
    plan = desk.run(
        app="git -c user.name=x -c user.email=x@x commit -q --allow-empty -m one; echo more >> a.txt;"
        "git add a.txt; git -c user.name=x -c user.email=x@x commit -q -m two; git tag inside; git branch other"
    )
    desk.apply(plan, commits="squash")
    assert log(desk.app) == ["the plan", "the first commit"]
    assert git(desk.app, "tag") == ""
    assert git(desk.app, "branch", "--format=%(refname:short)") == "main"
    assert status(desk.app) == []


def test_a_plan_that_changes_nothing_makes_no_commit(desk: Desk):
    before = desk.what_counts()
    result = desk.apply(desk.run(app="true"))
    assert (result.commits, result.changes) == ({}, ())
    assert compare(before, desk.what_counts()) == []


def test_what_the_user_did_already_in_the_same_way_is_no_conflict(desk: Desk):
    plan = desk.run(app="echo more >> a.txt; echo new > new.txt")
    with open(desk.app / "a.txt", "a") as file:
        file.write("more\n")
    git(desk.app, "commit", "-q", "-a", "-m", "the same by hand")
    desk.apply(plan)
    assert log(desk.app) == ["the plan", "the same by hand", "the first commit"]
    assert git(desk.app, "show", "--name-only", "--format=").splitlines() == ["new.txt"]


# Where HEAD is


def test_commits_made_meanwhile_on_other_paths_stay_below_the_plans(desk: Desk):
    plan = desk.run(app=CHANGES)
    write(desk.app / "folder" / "c.txt", "meanwhile\n")
    git(desk.app, "commit", "-q", "-a", "-m", "meanwhile")
    desk.apply(plan)
    assert log(desk.app) == ["the plan", "meanwhile", "the first commit"]
    assert (desk.app / "folder" / "c.txt").read_text() == "meanwhile\n"
    assert status(desk.app) == []


def test_the_commit_goes_to_the_branch_that_is_checked_out_at_apply(desk: Desk):
    plan = desk.run(app=CHANGES)
    git(desk.app, "checkout", "-q", "-b", "feature")
    desk.apply(plan)
    assert log(desk.app, "feature") == ["the plan", "the first commit"]
    assert log(desk.app, "main") == ["the first commit"]


def test_a_detached_head_moves_and_stays_detached(desk: Desk):
    git(desk.app, "checkout", "-q", "--detach")
    result = desk.apply(desk.run(app=CHANGES))
    assert git(desk.app, "symbolic-ref", "-q", "HEAD", check=False) == ""
    assert head(desk.app) == result.commits["app"]
    assert log(desk.app, "main") == ["the first commit"]
    assert status(desk.app) == []


def test_the_first_commit_of_a_branch_without_one(desk: Desk):
    shutil.rmtree(desk.app)
    desk.app.mkdir()
    git(desk.app, "init", "--quiet")
    write(desk.app / "untracked", "mine")
    desk.apply(desk.run(app="echo first > first.txt"))
    assert log(desk.app) == ["the plan"]
    assert git(desk.app, "ls-files") == "first.txt"
    assert status(desk.app) == ["?? untracked"]


def test_a_linked_worktree(desk: Desk):
    git(desk.app, "worktree", "add", "-q", "-b", "feature", str(desk.real / "linked"))
    resources = {"app": {"type": "git", "path": str(desk.real / "linked")}}
    plan = desk.run_plan({"name": "the plan", "resources": resources, "steps": [{"run": CHANGES}]})
    desk.apply(plan)
    assert log(desk.app, "feature") == ["the plan", "the first commit"]
    assert status(desk.real / "linked") == []
    assert status(desk.app) == []


def test_the_line_ends_of_the_repository_are_kept(desk: Desk):
    write(desk.app / ".gitattributes", "*.txt text eol=crlf\n")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "line ends")
    shutil.rmtree(desk.app / "folder")
    git(desk.app, "checkout", "-q", "--", "folder")
    assert (desk.app / "folder" / "c.txt").read_bytes() == b"c\r\n"
    desk.apply(desk.run(app=r"printf 'more\r\n' >> folder/c.txt"))
    assert (desk.app / "folder" / "c.txt").read_bytes() == b"c\r\nmore\r\n"
    assert git(desk.app, "show", "HEAD:folder/c.txt") == "c\nmore"
    assert status(desk.app) == []


# Ignored files


def test_ignored_files_of_the_plan_stay_in_the_sandbox_and_are_told(desk: Desk):
    write(desk.app / ".gitignore", "*.log\nbuild/\n")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "rules")
    plan = desk.run(app="echo more >> a.txt; echo x > x.log; mkdir build; echo y > build/y; echo keep > keep.txt")
    result = desk.apply(plan)
    assert {"x.log", "build/y"} <= set(result.left_out)
    assert not (desk.app / "x.log").exists()
    assert not (desk.app / "build").exists()
    assert git(desk.app, "show", "--name-only", "--format=").splitlines() == ["a.txt", "keep.txt"]


def test_rules_the_plan_itself_made_count(desk: Desk):
    result = desk.apply(desk.run(app="echo '*.tmp' > .gitignore; echo x > x.tmp"))
    assert result.left_out == ("x.tmp",)
    assert git(desk.app, "show", "--name-only", "--format=") == ".gitignore"


def test_ignored_files_that_the_settings_include_arrive_but_are_not_committed(desk: Desk):
    desk.overrides = {"sandbox.include-ignored": '[".env"]'}
    write(desk.app / ".gitignore", ".env\n")
    git(desk.app, "add", ".gitignore")
    git(desk.app, "commit", "-q", "-m", "rules")
    write(desk.app / ".env", "old\n")
    plan = desk.run(app="cat .env > seen.txt; echo new > .env")
    result = desk.apply(plan)
    assert (desk.app / "seen.txt").read_text() == "old\n"
    assert (desk.app / ".env").read_text() == "new\n"
    assert result.left_out == ()
    assert git(desk.app, "show", "--name-only", "--format=").splitlines() == ["seen.txt"]
    assert status(desk.app) == []


# The user's programs


def test_the_users_hooks_do_not_run(desk: Desk):
    marker = desk.folder / "a hook ran"
    for name in (
        "pre-commit",
        "commit-msg",
        "post-commit",
        "reference-transaction",
        "post-index-change",
        "post-checkout",
    ):
        write(desk.app / ".git" / "hooks" / name, f"#!/bin/sh\ntouch '{marker}'\n", mode=0o755)
    plan = desk.run(app=CHANGES)
    desk.apply(plan)
    assert not marker.exists()
    assert log(desk.app) == ["the plan", "the first commit"]


def test_settings_that_a_step_wrote_into_the_sandbox_start_no_program(desk: Desk):
    marker = desk.folder / "a program ran"
    plan = desk.run(
        app=f"git config core.fsmonitor \"touch '{marker}'\"; git config filter.x.clean \"touch '{marker}'; cat\";"
        "echo '* filter=x' > .gitattributes; echo more >> a.txt"
    )
    marker.unlink(missing_ok=True)
    desk.apply(plan)
    assert not marker.exists()


# Without a commit


def test_without_a_commit_only_the_files_change(desk: Desk):
    write(desk.app / "staged.txt", "staged\n")
    git(desk.app, "add", "staged.txt")
    before = head(desk.app), git(desk.app, "ls-files", "--stage")
    plan = desk.run(app=CHANGES)
    result = desk.apply(plan, commit=False)
    assert result.commits == {}
    assert (head(desk.app), git(desk.app, "ls-files", "--stage")) == before
    assert status(desk.app) == [" M a.txt", " D b.txt", "A  staged.txt", "?? deep/er/file", "?? new.txt"]


def test_work_of_the_user_on_a_file_that_the_plan_changed_needs_their_word(desk: Desk):
    """Their uncommitted lines would otherwise end up in the plan's commit."""
    write(desk.app / "a.txt", "a\nnot committed yet\n")
    write(desk.app / "untracked.txt", "not even tracked\n")
    plan = desk.run(app="echo from the plan >> a.txt; echo from the plan >> untracked.txt")
    before = desk.everything()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert set(refusal.value.paths) == {"app: a.txt", "app: untracked.txt"}
    assert "--no-commit" in refusal.value.hint
    assert compare(before, desk.everything()) == []
    desk.apply(plan, commit=False)
    assert (desk.app / "a.txt").read_text() == "a\nnot committed yet\nfrom the plan\n"
    assert (desk.app / "untracked.txt").read_text() == "not even tracked\nfrom the plan\n"
    assert log(desk.app) == ["the first commit"]


# Refusals


def test_a_file_that_both_changed_is_refused_by_name_and_nothing_changes(desk: Desk):
    plan = desk.run(app=CHANGES, data="echo more >> one.csv")
    write(desk.app / "a.txt", "the user's\n")
    write(desk.app / "new.txt", "the user's\n")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "the user's")
    before = desk.everything()
    for commit in (True, False):
        with pytest.raises(ConflictError) as refusal:
            desk.apply(plan, commit=commit)
        assert refusal.value.exit_code == 5
        assert set(refusal.value.paths) == {"app: a.txt", "app: new.txt"}
        assert "app: a.txt" in refusal.value.message
        assert compare(before, desk.everything()) == []


def test_a_file_that_the_plan_removed_and_the_user_changed_is_refused(desk: Desk):
    plan = desk.run(app="rm b.txt")
    write(desk.app / "b.txt", "changed by the user\n")
    before = desk.everything()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert refusal.value.paths == ("app: b.txt",)
    assert compare(before, desk.everything()) == []


def test_a_file_that_the_plan_changed_and_the_user_removed_is_refused(desk: Desk):
    plan = desk.run(app="echo more >> b.txt")
    (desk.app / "b.txt").unlink()
    before = desk.everything()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert refusal.value.paths == ("app: b.txt",)
    assert compare(before, desk.everything()) == []


def test_an_operation_in_progress_is_refused(desk: Desk):
    plan = desk.run(app="echo new > new.txt")
    git(desk.app, "checkout", "-q", "-b", "other")
    write(desk.app / "a.txt", "theirs\n")
    git(desk.app, "commit", "-q", "-a", "-m", "theirs")
    git(desk.app, "checkout", "-q", "main")
    write(desk.app / "a.txt", "ours\n")
    git(desk.app, "commit", "-q", "-a", "-m", "ours")
    git(desk.app, "merge", "other", check=False)
    before = desk.everything()
    with pytest.raises(SandboxError, match="merge is in progress"):
        desk.apply(plan)
    assert compare(before, desk.everything()) == []


def test_changes_to_files_of_a_submodule_are_refused(desk: Desk):
    library = make_repository(desk.folder / "library", {"lib.txt": "lib\n"})
    git(desk.app, "submodule", "--quiet", "add", str(library), "lib")
    git(desk.app, "commit", "-q", "-m", "a submodule")
    plan = desk.run(app="echo more >> lib/lib.txt; echo more >> a.txt")
    before = desk.everything()
    with pytest.raises(SandboxError, match="submodule"):
        desk.apply(plan)
    assert compare(before, desk.everything()) == []


def test_what_git_does_to_the_inside_of_a_submodule_does_not_keep_the_rest_from_being_applied(desk: Desk):
    library = make_repository(desk.folder / "library", {"lib.txt": "lib\n"})
    git(desk.app, "submodule", "--quiet", "add", str(library), "lib")
    git(desk.app, "commit", "-q", "-m", "a submodule")
    plan = desk.run(app="touch lib/lib.txt; git status; git add -A; git -C lib tag mine; echo more >> a.txt")
    before = {path: thing for path, thing in desk.everything().items() if path.startswith(b"app/lib")}
    desk.apply(plan)
    after = {path: thing for path, thing in desk.everything().items() if path.startswith(b"app/lib")}
    assert compare(before, after) == []
    assert git(desk.app, "show", "--format=", "--name-only", "HEAD").split() == ["a.txt"]


def test_names_that_look_like_patterns_of_git_are_names(desk: Desk):
    write(desk.app / ".gitignore", "secret\n")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "ignore")
    names = [":!no", ":(top)secret", ":secret", "b*c", "folder/:x"]
    plan = desk.run(app="\n".join(f"echo x > '{name}'" for name in [*names, "secret"]))
    assert desk.apply(plan).left_out == ("secret",)
    assert git(desk.app, "show", "--format=", "--name-only", "-z", "HEAD").rstrip("\0").split("\0") == names
    assert status(desk.app) == []


def nested_repository(desk: Desk) -> None:
    make_repository(desk.app / "inner", {"x.txt": "x\n"})


def nested_work_tree(desk: Desk) -> None:
    git(desk.app, "worktree", "add", "--quiet", "-b", "other", "inner")
    write(desk.app / "inner" / "x.txt", "x\n")


@pytest.mark.parametrize("nested", [nested_repository, nested_work_tree])
@pytest.mark.parametrize("script", ["echo more >> inner/x.txt", "rm -rf inner", "rm -rf inner/.git; echo > inner/new"])
@pytest.mark.parametrize("options", [{}, {"commit": False}, {"branch": "result"}], ids=str)
def test_work_in_a_repository_inside_the_repository_is_not_committed_to_the_outer_one(
    desk: Desk, nested: Callable[[Desk], None], script: str, options: dict[str, Any]
):
    nested(desk)
    write(desk.app / "inner" / "x.txt", "work in progress\n")
    plan = desk.run(app=f"{script}; echo more >> a.txt")
    before = desk.everything()
    with pytest.raises(SandboxError, match=r"another repository inside this one[^$]*inner/"):
        desk.apply(plan, **options)
    assert compare(before, desk.everything()) == []


def test_a_repository_inside_the_repository_does_not_keep_the_rest_from_being_applied(desk: Desk):
    nested_repository(desk)
    write(desk.app / ".git" / "info" / "exclude", "ignored\n")
    plan = desk.run(app="touch inner/x.txt; git -C inner tag mine; git init -q ignored; echo > ignored/x; echo > a.txt")
    desk.apply(plan)
    assert git(desk.app, "show", "--format=", "--name-only", "HEAD").split() == ["a.txt"]
    assert status(desk.app / "inner") == []


@pytest.mark.parametrize("how", ["clone --quiet", "submodule --quiet add"])
def test_a_repository_that_the_plan_made_is_not_committed_as_plain_files(desk: Desk, how: str):
    library = make_repository(desk.folder / "library", {"lib.txt": "lib\n"})
    plan = desk.run(app=f"git -c protocol.file.allow=always {how} {library} deep/lib && echo more >> a.txt")
    before = desk.everything()
    for branch in (None, "result"):
        with pytest.raises(SandboxError, match=r"made repositories inside app[^$]*deep/lib") as refusal:
            desk.apply(plan, branch=branch)
        assert "--no-commit" in refusal.value.hint
        assert compare(before, desk.everything()) == []
    desk.apply(plan, commit=False)
    assert (desk.app / "deep" / "lib" / "lib.txt").read_text() == "lib\n"
    assert log(desk.app) == ["the first commit"]


def test_a_submodule_on_a_branch_is_a_resource_like_any_other(desk: Desk):
    around = make_repository(desk.folder / "around", {"a.txt": "a\n"})
    git(around, "submodule", "--quiet", "add", str(desk.app), "app")
    branch = git(around / "app", "branch", "--show-current").strip()
    repository = GitRepository.at(around / "app")
    refuse_a_branch_used_elsewhere(repository, f"refs/heads/{branch}", way_out="then again.")
    git(around / "app", "worktree", "add", "--quiet", "--force", str(desk.folder / "second"), branch)
    with pytest.raises(ConflictError, match="is checked out in"):
        refuse_a_branch_used_elsewhere(repository, f"refs/heads/{branch}", way_out="then again.")


def test_a_lock_of_another_git_is_respected(desk: Desk):
    plan = desk.run(app=CHANGES)
    write(desk.app / ".git" / "index.lock", "another git at work")
    before = desk.what_counts()
    with pytest.raises(ConflictError, match=r"index\.lock"):
        desk.apply(plan)
    assert compare(before, desk.what_counts()) == []
    (desk.app / ".git" / "index.lock").unlink()
    desk.apply(plan)
    assert status(desk.app) == []


def test_without_a_name_git_makes_no_commit_and_says_how_to_set_it(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    plan = desk.run(app=CHANGES)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for name in ("NAME", "EMAIL"):
        monkeypatch.delenv(f"GIT_AUTHOR_{name}", raising=False)
    git(desk.app, "config", "user.useConfigOnly", "true")
    before = desk.what_counts()
    with pytest.raises(SandboxError) as refusal:
        desk.apply(plan)
    assert "user.name" in refusal.value.hint
    assert compare(before, desk.what_counts()) == []
    desk.apply(plan, commit=False)
    assert (desk.app / "new.txt").exists()


@pytest.mark.parametrize("name", ["", " ", "...", "<>"])
def test_a_name_that_git_does_not_accept_is_refused_before_anything_is_written(desk: Desk, name: str):
    plan = desk.run(app=CHANGES)
    git(desk.app, "config", "user.name", name)
    before = desk.everything()
    with pytest.raises(SandboxError, match="could not make the commit") as refusal:
        desk.apply(plan)
    assert compare(before, desk.everything()) == []
    assert "ident" in refusal.value.message or "name" in refusal.value.message
    git(desk.app, "config", "author.name", "Ada")
    git(desk.app, "config", "committer.name", "Ada")
    desk.apply(plan)
    assert git(desk.app, "show", "-s", "--format=%an, %cn") == "Ada, Ada"


# The user's folders that became something else


def test_a_folder_that_became_a_symlink_is_not_followed(desk: Desk):
    plan = desk.run(app="echo new > folder/new.txt")
    outside = desk.folder / "outside"
    write(outside / "c.txt", "c\n")
    shutil.rmtree(desk.app / "folder")
    os.symlink(outside, desk.app / "folder")
    before, theirs = desk.what_counts(), describe(outside)
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert refusal.value.paths == ("app: folder",)
    assert compare(before, desk.what_counts()) == []
    assert compare(theirs, describe(outside)) == []


def test_a_folder_that_the_user_removed_is_made_again_for_what_the_plan_adds(desk: Desk):
    plan = desk.run(app="echo new > folder/new.txt")
    git(desk.app, "rm", "-q", "-r", "folder")
    git(desk.app, "commit", "-q", "-m", "without the folder")
    desk.apply(plan)
    assert os.listdir(desk.app / "folder") == ["new.txt"]
    assert status(desk.app) == []


def test_a_folder_that_the_plan_made_a_file_and_the_user_put_something_into_is_refused(desk: Desk):
    plan = desk.run(app="rm -r folder; echo file > folder")
    write(desk.app / "folder" / "mine.txt", "the user's\n")
    before = desk.everything()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert "app: folder" in refusal.value.paths
    assert compare(before, desk.everything()) == []


def test_a_folder_that_the_plan_removed_stays_with_what_the_user_put_into_it(desk: Desk):
    plan = desk.run(app="rm -r folder")
    write(desk.app / "folder" / "mine.txt", "the user's\n")
    desk.apply(plan)
    assert os.listdir(desk.app / "folder") == ["mine.txt"]
    assert status(desk.app) == ["?? folder/mine.txt"]


# What git cannot hold


def test_what_git_cannot_hold_arrives_in_the_files(desk: Desk):
    desk.apply(desk.run(app="mkdir empty; echo more >> a.txt; chmod 600 a.txt; mkfifo pipe"))
    assert (desk.app / "empty").is_dir()
    assert (desk.app / "pipe").is_fifo()
    assert (desk.app / "a.txt").stat().st_mode & 0o777 == 0o600
    assert git(desk.app, "show", "--name-only", "--format=").splitlines() == ["a.txt"]


def test_a_repository_that_the_plan_made_inside_is_refused_or_left_out_but_breaks_nothing(desk: Desk):
    plan = desk.run(
        app="git init -q nested; echo x > nested/x; cd nested; git add x;"
        "git -c user.name=x -c user.email=x@x commit -q -m nested; cd ..; echo more >> a.txt"
    )
    before = desk.what_counts()
    try:
        desk.apply(plan)
    except HoldfastError:
        desk.assert_put_back(before)
    else:
        assert (desk.app / "a.txt").read_text() == "a\nmore\n"
        assert (desk.app / "nested" / "x").read_text() == "x\n"
        assert " M a.txt" not in status(desk.app)


# The state of the plan


def test_a_plan_is_applied_once(desk: Desk):
    plan = desk.run(app=CHANGES)
    desk.apply(plan)
    before = desk.everything()
    with pytest.raises(StateError, match="applied already"):
        desk.apply(plan)
    assert compare(before, desk.everything()) == []


def test_a_plan_that_is_not_complete_is_not_applied(desk: Desk):
    plan = desk.run(app=CHANGES)
    with desk.open() as holdfast:
        first = holdfast.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
        holdfast.rollback(plan.plan_id, first)
    before = desk.everything()
    with pytest.raises(StateError, match="queued"):
        desk.apply(plan)
    assert compare(before, desk.everything()) == []


def test_a_sandbox_that_something_changed_after_the_plan_is_not_applied_until_it_is_taken_back(desk: Desk):
    plan = desk.run(app=CHANGES)
    write(desk.sandbox(plan) / "slipped in", "x")
    before = desk.everything()
    with pytest.raises(StateError, match="not what the plan left") as refusal:
        desk.apply(plan)
    assert compare(before, desk.everything()) == []
    words = refusal.value.hint.split("`")[1].split()
    assert words[:4] == ["holdfast", "plan", "rollback", plan.plan_id]
    with desk.open() as holdfast:
        holdfast.rollback(plan.plan_id, words[4])
        holdfast.execute(plan.plan_id)
    desk.apply(plan)
    assert not (desk.app / "slipped in").exists()
    assert (desk.app / "new.txt").exists()


def test_a_person_who_says_no_is_obeyed(desk: Desk):
    plan = desk.run(app=CHANGES)
    before = desk.everything()
    with desk.open() as holdfast:
        holdfast.apply(plan.plan_id, confirm=lambda _: False)
    assert compare(before, desk.everything()) == []
    desk.apply(plan)


@pytest.mark.skipif(not IS_ROOT, reason="only root may give files away")
def test_a_file_keeps_its_owner(desk: Desk):
    os.chown(desk.app / "a.txt", 1234, 4321)
    plan = desk.run(app="echo more > new && mv new a.txt")
    desk.apply(plan)
    found = (desk.app / "a.txt").stat()
    assert (found.st_uid, found.st_gid) == (1234, 4321)


def test_the_projects_own_files_of_the_plan_do_not_matter(desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """From wherever the command is called."""
    plan = desk.run(app=CHANGES)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    desk.apply(plan)
    assert status(desk.app) == []
