"""The sandbox of a repository: the user's is not written to, and everything a plan does with git can be taken back."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import SandboxError
from holdfast.sandbox.protocol import Sandbox
from tests.support.repositories import git, head, log, make_repository, status
from tests.support.snapshots import Place
from tests.support.trees import A_MOMENT_NS, compare, describe, write
from tests.unit.sandbox.conftest import Bench

WORK = """
set -e
echo changed >> a.txt
git add a.txt
git commit -q -m 'inside the sandbox'
echo more >> b.txt
git stash -q
git tag inside
git branch another HEAD~1
git config user.name 'Somebody Else'
git config --global --get user.name > /dev/null
git update-ref refs/heads/main HEAD
git gc -q --prune=now
echo unstaged >> folder/c.txt
echo untracked > new.txt
git add new.txt
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


@pytest.fixture
def sandbox(bench: Bench, repository: Path) -> Sandbox:
    return bench.git(repository)


def run(path: Path, script: str) -> None:
    subprocess.run(["bash", "-c", script], cwd=path, check=True)


def add_all_kinds_of_work(repository: Path) -> None:
    """Staged, unstaged, both on one file, removed, renamed, untracked, intended to be added."""
    write(repository / "staged.txt", "staged")
    git(repository, "add", "staged.txt")
    write(repository / "a.txt", "staged\n")
    git(repository, "add", "a.txt")
    write(repository / "a.txt", "staged and then changed\n")
    git(repository, "mv", "b.txt", "renamed.txt")
    (repository / "folder" / "c.txt").unlink()
    write(repository / "folder" / "untracked.txt", "untracked")
    write(repository / "intended.txt", "intended")
    git(repository, "add", "--intent-to-add", "intended.txt")


# What the plan sees


def test_it_is_on_a_branch_of_its_own_at_the_users_commit(sandbox: Sandbox, bench: Bench, repository: Path):
    resource = sandbox.create()
    assert git(sandbox.path, "symbolic-ref", "HEAD") == f"refs/heads/holdfast/{bench.plan_id}"
    assert head(sandbox.path) == head(repository)
    assert resource.base == {"commit": head(repository), "branch": "refs/heads/main"}
    assert status(sandbox.path) == []


def test_what_git_could_not_remove_of_its_own_is_not_in_it(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = shutil.which("git")
    leaves_its_probe = f"""#!/bin/sh
{real} "$@" || exit
case " $* " in *" init "*) ln -s testing .git/tAb3_9z;; esac
"""
    write(tmp_path / "programs" / "git", leaves_its_probe, mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"), prepend=os.pathsep)
    sandbox.create()
    assert not list((sandbox.path / ".git").glob("t*"))
    assert status(sandbox.path) == []


def test_a_mode_that_git_could_not_put_back_is_not_in_it(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """``git init`` finds out with its config whether modes can be set."""
    real = shutil.which("git")
    leaves_a_mode = f"""#!/bin/sh
{real} "$@" || exit
case " $* " in *" init "*) chmod u+x .git/config;; esac
"""
    write(tmp_path / "programs" / "git", leaves_a_mode, mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"), prepend=os.pathsep)
    sandbox.create()
    assert (sandbox.path / ".git" / "config").stat().st_mode == (sandbox.path / ".git" / "packed-refs").stat().st_mode


def test_uncommitted_work_of_every_kind_is_in_it_and_looks_the_same_to_git(sandbox: Sandbox, repository: Path):
    add_all_kinds_of_work(repository)
    expected = status(repository)
    assert len(expected) == 6
    sandbox.create()
    assert status(sandbox.path) == expected
    assert git(sandbox.path, "diff", "--cached") == git(repository, "diff", "--cached")
    assert git(sandbox.path, "diff") == git(repository, "diff")


def test_git_need_not_read_a_file_of_it_to_know_that_it_is_unchanged(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without asking git: it would read every file."""
    repository = tmp_path / "settled"
    for name in ("a.txt", "folder/b.txt"):
        write(repository / name, name, mtime_ns=A_MOMENT_NS)
    make_repository(repository, {})
    tools, real = tmp_path / "tools", shutil.which("git")
    write(tools / "git", f'#!/bin/sh\ncase "$*" in *--refresh*) kill -9 $$;; esac\nexec {real} "$@"\n', mode=0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    sandbox = bench.git(repository)
    sandbox.create()
    assert git(sandbox.path, "diff-files") == ""
    assert status(sandbox.path) == status(repository) == []


def test_the_users_commits_branches_tags_and_settings_are_in_it(sandbox: Sandbox, repository: Path):
    write(repository / "a.txt", "second\n")
    git(repository, "commit", "-q", "-a", "-m", "second")
    git(repository, "branch", "feature", "HEAD~1")
    git(repository, "tag", "-a", "v1", "-m", "one")
    git(repository, "config", "alias.hello", '!echo "hello; #\\t world"')
    git(repository, "remote", "add", "origin", "/nowhere/a b.git")
    git(repository, "pack-refs", "--all")
    sandbox.create()
    assert log(sandbox.path) == ["second", "the first commit"]
    assert log(sandbox.path, "feature") == ["the first commit"]
    assert git(sandbox.path, "describe") == "v1"
    for key in ("alias.hello", "remote.origin.url", "remote.origin.fetch"):
        assert git(sandbox.path, "config", key) == git(repository, "config", key)
    assert git(sandbox.path, "fsck", "--no-progress") == ""


def test_tracked_files_that_a_rule_ignores_are_in_it(sandbox: Sandbox, repository: Path):
    write(repository / "kept.log", "x")
    write(repository / ".gitignore", "*.log\n")
    git(repository, "add", "--force", "kept.log", ".gitignore")
    git(repository, "commit", "-q", "-m", "a tracked log")
    sandbox.create()
    assert (sandbox.path / "kept.log").read_text() == "x"
    assert status(sandbox.path) == []


def test_the_users_private_rules_of_what_to_ignore_hold_in_it(sandbox: Sandbox, repository: Path):
    write(repository / ".git" / "info" / "exclude", "private-*\n")
    sandbox.create()
    write(sandbox.path / "private-too", "x")
    assert status(sandbox.path) == []


# The user's repository


def test_the_users_repository_is_byte_for_byte_as_before(sandbox: Sandbox, repository: Path, tmp_path: Path):
    add_all_kinds_of_work(repository)
    write(repository / ".gitignore", "ignored\n")
    write(repository / "ignored", "x")
    git(repository, "branch", "feature")
    git(repository, "reset", "--quiet", "intended.txt")  # no stash is made while a file is only intended to be added
    before = describe(repository)
    sandbox.check()
    sandbox.create()
    (tmp_path / "snapshots").mkdir()
    place = Place(tmp_path / "snapshots", sandbox.path)
    checkpoint = place.take()
    run(sandbox.path, WORK)
    place.go_back(checkpoint)
    place.close()
    sandbox.remove()
    assert compare(before, describe(repository)) == []


def test_what_a_plan_does_with_git_is_taken_back(sandbox: Sandbox, repository: Path, tmp_path: Path):
    sandbox.create()
    (tmp_path / "snapshots").mkdir()
    place = Place(tmp_path / "snapshots", sandbox.path)
    before, checkpoint = describe(sandbox.path), place.take()
    run(sandbox.path, WORK)
    assert log(sandbox.path) == ["inside the sandbox", "the first commit"]
    assert git(sandbox.path, "stash", "list") != ""
    place.go_back(checkpoint)
    assert compare(before, describe(sandbox.path)) == []
    assert head(sandbox.path) == head(repository)
    assert status(sandbox.path) == []
    for command in (("stash", "list"), ("tag",), ("branch", "--list", "another")):
        assert git(sandbox.path, *command) == ""
    assert git(sandbox.path, "fsck", "--no-progress") == ""
    place.close()


def test_the_users_stash_is_not_in_reach_of_the_plan(sandbox: Sandbox, repository: Path):
    write(repository / "a.txt", "stashed\n")
    git(repository, "stash", "--quiet")
    sandbox.create()
    assert git(sandbox.path, "stash", "list") == ""
    git(sandbox.path, "stash", "clear")
    assert git(repository, "stash", "list") != ""


def test_branches_of_other_plans_are_not_in_it(sandbox: Sandbox, repository: Path):
    git(repository, "branch", "holdfast/another-plan")
    sandbox.create()
    assert git(sandbox.path, "branch", "--list", "holdfast/another-plan") == ""


# Repositories of every shape


def test_a_repository_without_a_commit(bench: Bench, tmp_path: Path):
    repository = tmp_path / "empty"
    repository.mkdir()
    git(repository, "init", "--quiet")
    write(repository / "staged", "x")
    git(repository, "add", "staged")
    write(repository / "untracked", "x")
    sandbox = bench.git(repository)
    resource = sandbox.create()
    assert resource.base == {"commit": "", "branch": "refs/heads/main"}
    assert status(sandbox.path) == status(repository) == ["A  staged", "?? untracked"]
    git(sandbox.path, "commit", "-q", "-m", "first")
    assert git(repository, "rev-parse", "--verify", "-q", "HEAD", check=False) == ""


def test_an_empty_repository_with_nothing_in_it(bench: Bench, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "--quiet")
    sandbox = bench.git(tmp_path / "empty")
    sandbox.create()
    assert os.listdir(sandbox.path) == [".git"]
    assert status(sandbox.path) == []


def test_a_detached_head(sandbox: Sandbox, bench: Bench, repository: Path):
    write(repository / "a.txt", "second\n")
    git(repository, "commit", "-q", "-a", "-m", "second")
    git(repository, "checkout", "-q", "--detach", "HEAD~1")
    resource = sandbox.create()
    assert resource.base == {"commit": head(repository), "branch": ""}
    assert git(sandbox.path, "symbolic-ref", "HEAD") == f"refs/heads/holdfast/{bench.plan_id}"
    assert log(sandbox.path) == ["the first commit"]
    assert status(sandbox.path) == []


def test_work_trees_may_have_settings_of_their_own_without_having_any(bench: Bench, repository: Path, tmp_path: Path):
    git(repository, "config", "extensions.worktreeConfig", "true")
    git(repository, "worktree", "add", "-q", "-b", "feature", str(tmp_path / "linked"))
    for place in (repository, tmp_path / "linked"):
        sandbox = bench.git(place)
        sandbox.create()
        assert status(sandbox.path) == []


def test_a_linked_worktree_of_the_user(bench: Bench, repository: Path, tmp_path: Path):
    git(repository, "worktree", "add", "-q", "-b", "feature", str(tmp_path / "linked"))
    write(tmp_path / "linked" / "a.txt", "staged in the worktree\n")
    git(tmp_path / "linked", "add", "a.txt")
    before = describe(repository), describe(tmp_path / "linked")
    sandbox = bench.git(tmp_path / "linked")
    resource = sandbox.create()
    assert resource.base["branch"] == "refs/heads/feature"
    assert (sandbox.path / ".git").is_dir()
    assert status(sandbox.path) == status(tmp_path / "linked") == ["M  a.txt"]
    run(sandbox.path, "git commit -q -m inside && git worktree prune")
    assert compare(before[0], describe(repository)) == []
    assert compare(before[1], describe(tmp_path / "linked")) == []


def test_its_refs_are_files_whatever_the_user_wants_for_new_repositories(
    bench: Bench, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A git that knows other formats takes the one in the settings, unless the environment says another."""
    noting = f'case "$*" in *" init "*) echo "$GIT_DEFAULT_REF_FORMAT" >> {tmp_path}/asked;; esac'
    write(tmp_path / "bin" / "git", f'#!/bin/sh\n{noting}\nexec {shutil.which("git")} "$@"\n').chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    git(repository, "config", "init.defaultRefFormat", "reftable")
    sandbox = bench.git(repository)
    sandbox.create()
    assert (tmp_path / "asked").read_text() == "files\n"
    assert log(sandbox.path) == ["the first commit"]


def test_submodules_work_in_it_and_the_users_are_untouched(bench: Bench, repository: Path, tmp_path: Path):
    library = make_repository(tmp_path / "library", {"lib.txt": "lib\n"})
    git(repository, "submodule", "--quiet", "add", str(library), "vendor/lib")
    git(repository, "commit", "-q", "-m", "a submodule")
    write(repository / "vendor" / "lib" / "lib.txt", "changed in the submodule\n")
    before = describe(repository)
    sandbox = bench.git(repository)
    sandbox.create()
    assert status(sandbox.path) == status(repository) == [" M vendor/lib"]
    inside = sandbox.path / "vendor" / "lib"
    assert (inside / ".git").is_dir()
    assert head(inside) == head(repository / "vendor" / "lib")
    assert status(inside) == [" M lib.txt"]
    run(inside, "git commit -q -a -m 'in the submodule' && git tag inside")
    assert compare(before, describe(repository)) == []
    assert log(library) == ["the first commit"]


def test_linked_work_trees_in_it_work_and_the_users_are_untouched(bench: Bench, repository: Path):
    git(repository, "worktree", "add", "--quiet", "-b", "other", "inner/tree")
    write(repository / "inner" / "tree" / "a.txt", "not committed\n")
    before = describe(repository)
    sandbox = bench.git(repository)
    sandbox.create()
    inside = sandbox.path / "inner" / "tree"
    assert status(inside) == [" M a.txt"]
    run(inside, "git commit -q -a -m 'in the work tree'")
    assert log(inside) == ["in the work tree", "the first commit"]
    # git marks objects that it would have written again as young, also borrowed ones.
    assert compare(before, describe(repository), ignoring=["mtime_ns"]) == []
    assert log(repository, "other") == ["the first commit"]


@pytest.mark.parametrize(
    "question",
    ["is-bare-repository", "absolute-git-dir", "git-common-dir", "verify", "symbolic-ref", "ls-files", "for-each-ref",
     "show-object-format", "init", "update-index"],
)  # fmt: skip
@pytest.mark.parametrize("end", ["kill -9 $$", "exit 128"])
def test_a_git_that_is_killed_or_fails_has_answered_nothing(
    bench: Bench, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str, end: str
):
    """No answer is not the answer that there is no commit, no index or no file."""
    if (question, end) == ("update-index", "exit 128"):
        pytest.skip("it only saves time")
    if question in ("verify", "symbolic-ref"):
        # Otherwise git is not asked: its files say where HEAD is.
        git(repository, "branch", "real")
        git(repository, "symbolic-ref", "refs/heads/main", "refs/heads/real")
    tools = tmp_path / "tools"
    real = shutil.which("git")
    write(tools / "git", f'#!/bin/sh\ncase "$*" in *{question}*) {end};; esac\nexec {real} "$@"\n', mode=0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    sandbox = bench.git(repository)
    with pytest.raises(SandboxError):
        sandbox.create()
    assert not sandbox.path.exists()


def test_a_submodule_that_is_not_checked_out(bench: Bench, repository: Path, tmp_path: Path):
    library = make_repository(tmp_path / "library", {"lib.txt": "lib\n"})
    git(repository, "submodule", "--quiet", "add", str(library), "lib")
    git(repository, "commit", "-q", "-m", "a submodule")
    git(tmp_path, "clone", "-q", str(repository), str(tmp_path / "clone"))
    sandbox = bench.git(tmp_path / "clone")
    sandbox.create()
    assert status(sandbox.path) == []


def test_a_nested_repository_that_is_no_submodule_is_in_it_as_it_is(sandbox: Sandbox, repository: Path):
    make_repository(repository / "nested", {"n.txt": "n\n"})
    sandbox.create()
    assert log(sandbox.path / "nested") == ["the first commit"]
    assert status(sandbox.path) == status(repository)


@pytest.mark.parametrize(
    "name", ["with space", 'quo"te', "apos'trophe", "new\nline", '"quoted"', "#hash", "grüße", "-dash"]
)
def test_a_repository_at_a_path_with_odd_characters(bench: Bench, tmp_path: Path, name: str):
    repository = make_repository(tmp_path / name)
    sandbox = bench.git(repository)
    sandbox.create()
    assert log(sandbox.path) == ["the first commit"]
    assert status(sandbox.path) == []
    assert git(sandbox.path, "fsck", "--no-progress") == ""


def test_a_repository_that_borrows_objects_itself(bench: Bench, repository: Path, tmp_path: Path):
    git(tmp_path, "clone", "-q", "--shared", str(repository), str(tmp_path / "clone"))
    sandbox = bench.git(tmp_path / "clone")
    sandbox.create()
    assert log(sandbox.path) == ["the first commit"]
    assert git(sandbox.path, "fsck", "--no-progress") == ""


def test_a_shallow_clone(bench: Bench, repository: Path, tmp_path: Path):
    for number in range(3):
        write(repository / "a.txt", f"{number}\n")
        git(repository, "commit", "-q", "-a", "-m", f"commit {number}")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", str(tmp_path / "clone"))
    sandbox = bench.git(tmp_path / "clone")
    sandbox.create()
    assert log(sandbox.path) == ["commit 2"]
    assert status(sandbox.path) == []


def test_a_sparse_checkout(bench: Bench, tmp_path: Path):
    repository = make_repository(tmp_path / "project", {"in/a": "a\n", "out/b": "b\n", "top": "t\n"})
    git(repository, "sparse-checkout", "set", "in")
    assert not (repository / "out").exists()
    sandbox = bench.git(repository)
    sandbox.create()
    assert not (sandbox.path / "out").exists()
    assert status(sandbox.path) == []


def test_an_index_that_is_split(sandbox: Sandbox, repository: Path):
    git(repository, "update-index", "--split-index")
    write(repository / "new", "x")
    git(repository, "add", "new")
    sandbox.create()
    assert status(sandbox.path) == ["A  new"]


def test_a_repository_with_sha256_names(bench: Bench, tmp_path: Path):
    repository = tmp_path / "sha256"
    repository.mkdir()
    git(repository, "init", "--quiet", "--object-format=sha256")
    write(repository / "a", "x")
    git(repository, "add", "a")
    git(repository, "commit", "-q", "-m", "first")
    sandbox = bench.git(repository)
    sandbox.create()
    assert head(sandbox.path) == head(repository)
    assert len(head(sandbox.path)) == 64
    assert status(sandbox.path) == []


# Refusals


def in_the_middle_of(command: str) -> Callable[[Path], None]:
    def begin(repository: Path) -> None:
        git(repository, "checkout", "-q", "-b", "other")
        write(repository / "a.txt", "theirs\n")
        git(repository, "commit", "-q", "-a", "-m", "theirs")
        git(repository, "checkout", "-q", "main")
        write(repository / "a.txt", "ours\n")
        git(repository, "commit", "-q", "-a", "-m", "ours")
        git(repository, *command.split(), check=False)

    return begin


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("merge other", "merge"),
        ("rebase other", "rebase"),
        ("cherry-pick other", "cherry-pick"),
        ("revert HEAD~1", "revert"),
    ],
)
def test_an_operation_in_progress_is_refused(sandbox: Sandbox, repository: Path, command: str, name: str):
    in_the_middle_of(command)(repository)
    before = describe(repository)
    for refused in (sandbox.check, sandbox.create):
        with pytest.raises(SandboxError, match=f"A {name} is in progress") as refusal:
            refused()
        assert name in refusal.value.hint
    assert not sandbox.path.exists()
    assert compare(before, describe(repository)) == []


def test_a_folder_inside_a_repository_is_refused(bench: Bench, repository: Path):
    with pytest.raises(SandboxError, match="not its root") as refusal:
        bench.git(repository / "folder").check()
    assert "directory" in refusal.value.hint


def test_a_bare_repository_is_refused(bench: Bench, repository: Path, tmp_path: Path):
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(tmp_path / "bare.git"))
    with pytest.raises(SandboxError, match="bare"):
        bench.git(tmp_path / "bare.git").check()


def test_the_git_directory_itself_is_refused(bench: Bench, repository: Path):
    with pytest.raises(SandboxError):
        bench.git(repository / ".git").check()


def test_a_folder_that_is_no_repository_is_refused(bench: Bench, tmp_path: Path):
    (tmp_path / "plain").mkdir()
    with pytest.raises(SandboxError, match="not a git repository") as refusal:
        bench.git(tmp_path / "plain").check()
    assert "git init" in refusal.value.hint


def test_a_repository_whose_git_directory_is_damaged_is_refused(bench: Bench, repository: Path):
    shutil.rmtree(repository / ".git" / "refs")
    (repository / ".git" / "HEAD").write_text("nonsense")
    with pytest.raises(SandboxError):
        bench.git(repository).check()


def test_git_variables_of_the_caller_do_not_lead_elsewhere(
    bench: Bench, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As they are set, for example, when Holdfast is called from a hook."""
    other = make_repository(tmp_path / "other", {"other.txt": "other\n"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    sandbox = bench.git(repository)
    sandbox.create()
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name)
    assert git(sandbox.path, "ls-files") == git(repository, "ls-files")
    assert status(other) == []


def test_git_directories_are_its_own_affair_and_nothing_else_is(sandbox: Sandbox):
    for path in (b".git", b".git/index", b"nested/.git/HEAD"):
        assert sandbox.hides(path)
    for path in (b"a.txt", b".gitignore", b".github/workflows", b"git/.gitx", b"x.git/y"):
        assert not sandbox.hides(path)
