"""Taking an apply back: the real files are what they were, unless somebody changed them since."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

from holdfast.app import Declined
from holdfast.errors import ConflictError, SandboxError, StateError
from holdfast.model import Plan
from holdfast.snapshot.restore.staging import mark_of
from tests.integration.apply.conftest import Desk
from tests.support.crashes import count_of_changes, killed_at
from tests.support.moments import just_before
from tests.support.repositories import git, head, log, status
from tests.support.trees import IS_ROOT, Thing, compare, describe, write

APP = """
echo more >> a.txt
rm b.txt
echo new > new.txt
rm -r folder && echo 'a file now' > folder
mkdir -p made/deep && echo x > made/deep/x && mkdir made/empty
chmod 755 mode
"""
DATA = """
echo more >> one.csv
rm two.csv
rm -r deep && ln -s one.csv deep
rm pair && echo apart > pair
mkdir -p new/er && echo x > new/er/x
"""


def files_of(desk: Desk) -> dict[bytes, Thing]:
    """All real files and folders but git's own."""
    return describe(desk.real, without=[b"app/.git"])


@pytest.fixture
def plan(desk: Desk) -> Plan:
    write(desk.app / "mode", "x")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "second")
    write(desk.app / "staged.txt", "the user's\n")
    git(desk.app, "add", "staged.txt")
    write(desk.app / "untracked.txt", "the user's\n")
    os.link(write(desk.data / "pair", "pair\n"), desk.data / "its other name")
    return desk.run(app=APP, data=DATA)


def test_the_times_of_folders_come_back_unless_somebody_changed_something_in_them_since(desk: Desk):
    for folder in (desk.data, desk.data / "deep"):
        os.utime(folder, ns=(10**18, 10**18 + 7))
    before = describe(desk.data)
    plan = desk.run(data="echo more >> one.csv; echo new > deep/new.csv; mkdir made; rm two.csv")
    desk.apply(plan)
    assert desk.data.stat().st_mtime_ns != before[b""].mtime_ns
    write(desk.data / "deep" / "of mine", "later")
    mine = (desk.data / "deep").stat().st_mtime_ns
    desk.unapply(plan)
    after = describe(desk.data)
    assert after[b""].mtime_ns == before[b""].mtime_ns
    assert after[b"deep"].mtime_ns == mine
    assert compare(before, after, ignoring=["mtime_ns"]) == ["b'deep/of mine' is only in the second"]


def assert_taken_back(desk: Desk, before: dict[bytes, Thing]) -> None:
    assert compare(before, files_of(desk)) == []
    assert log(desk.app) == ["second", "the first commit"]
    assert git(desk.app, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert status(desk.app) == ["A  staged.txt", "?? untracked.txt"]
    assert desk.leftovers() == []
    assert git(desk.app, "fsck", "--no-progress", "--no-dangling") == ""


def test_everything_is_as_before_and_the_plan_can_be_applied_again(desk: Desk, plan: Plan):
    before = files_of(desk)
    applied = desk.apply(plan)
    after = files_of(desk)
    taken_back = desk.unapply(plan)
    assert_taken_back(desk, before)
    assert desk.state(plan) == ("execute", "complete")
    assert git(desk.app, "diff-files", "--name-only") == "", "not even by the times of its files"
    assert taken_back.commits == applied.commits
    assert {(each.resource, each.file, each.action) for each in taken_back.changes} >= {
        ("app", "a.txt", "restored"), ("app", "b.txt", "restored"), ("app", "new.txt", "removed"),
        ("data", "one.csv", "restored"), ("data", "new/er/x", "removed"),
    }  # fmt: skip
    assert (desk.data / "pair").samefile(desk.data / "its other name")
    desk.apply(plan)
    assert compare(after, files_of(desk), ignoring=["mtime_ns"]) == []
    desk.unapply(plan)
    assert_taken_back(desk, before)


def test_a_file_that_comes_back_has_its_old_times(desk: Desk, plan: Plan):
    before = (desk.app / "a.txt").stat().st_mtime_ns
    desk.apply(plan)
    desk.unapply(plan)
    assert (desk.app / "a.txt").stat().st_mtime_ns == before


def test_the_plan_can_be_rolled_back_afterwards(desk: Desk, plan: Plan):
    desk.apply(plan)
    with desk.open() as holdfast:
        first = holdfast.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
        with pytest.raises(StateError) as refusal:
            holdfast.rollback(plan.plan_id, first)
        assert f"holdfast plan unapply {plan.plan_id}" in refusal.value.hint
        holdfast.unapply(plan.plan_id)
        holdfast.rollback(plan.plan_id, first)
        assert holdfast.execute(plan.plan_id).succeeded
    desk.apply(plan)


def test_without_a_commit_only_the_files_go_back(desk: Desk, plan: Plan):
    before, index = files_of(desk), (desk.app / ".git" / "index").read_bytes()
    desk.apply(plan, commit=False)
    desk.unapply(plan)
    assert_taken_back(desk, before)
    assert (desk.app / ".git" / "index").read_bytes() == index


def test_a_merged_text_becomes_what_the_user_had(desk: Desk):
    lines = "".join(f"{number}\n" for number in range(9))
    write(desk.data / "text", lines)
    plan = desk.run(data="sed -i s/0/zero/ text")
    write(desk.data / "text", lines + "mine\n")
    desk.apply(plan)
    assert "zero" in (desk.data / "text").read_text()
    desk.unapply(plan)
    assert (desk.data / "text").read_text() == lines + "mine\n"


def test_what_the_user_did_elsewhere_meanwhile_stays(desk: Desk, plan: Plan):
    desk.apply(plan)
    write(desk.app / "later.txt", "later\n")
    git(desk.app, "add", "later.txt")
    write(desk.app / "made" / "mine", "mine\n")
    write(desk.data / "one more", "mine\n")
    desk.unapply(plan)
    assert status(desk.app) == ["A  later.txt", "A  staged.txt", "?? made/mine", "?? untracked.txt"]
    assert sorted(os.listdir(desk.app / "made")) == ["mine"]
    assert (desk.data / "one more").exists()


def test_a_folder_that_the_user_removed_is_made_again_for_what_comes_back(desk: Desk):
    plan = desk.run(data="rm deep/three.csv")
    desk.apply(plan)
    (desk.data / "deep").rmdir()
    desk.unapply(plan)
    assert (desk.data / "deep" / "three.csv").read_text() == "deep/three.csv\n"


def test_a_folder_that_is_something_else_now_is_refused(desk: Desk):
    plan = desk.run(data="rm deep/three.csv")
    desk.apply(plan)
    (desk.data / "deep").rmdir()
    os.symlink(desk.folder, desk.data / "deep")
    refusal = refused(desk, plan)
    assert isinstance(refusal.value, ConflictError)
    assert refusal.value.paths == ("data: deep",)


def test_a_folder_that_could_not_be_removed_is_as_before(desk: Desk):
    plan = desk.run(app="rm -r folder")
    write(desk.app / "folder" / "mine.txt", "mine\n")
    desk.apply(plan)
    desk.unapply(plan)
    assert sorted(os.listdir(desk.app / "folder")) == ["c.txt", "mine.txt"]
    assert status(desk.app) == ["?? folder/mine.txt"]


def test_a_name_that_shared_its_file_and_holds_something_else_now_is_not_joined_again(desk: Desk, plan: Plan):
    desk.apply(plan)
    write(desk.data / "its other name", "of its own\n")
    desk.unapply(plan)
    assert (desk.data / "pair").read_text() == "pair\n"
    assert (desk.data / "its other name").read_text() == "of its own\n"


def test_the_first_commit_of_a_repository_is_taken_back(desk: Desk):
    shutil.rmtree(desk.app)
    desk.app.mkdir()
    git(desk.app, "init", "--quiet")
    write(desk.app / "mine.txt", "mine\n")
    plan = desk.run(app="echo first > first.txt")
    desk.apply(plan)
    assert log(desk.app) == ["the plan"]
    desk.unapply(plan)
    assert git(desk.app, "rev-parse", "-q", "--verify", "HEAD", check=False) == ""
    assert git(desk.app, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert status(desk.app) == ["?? mine.txt"]
    desk.apply(plan)
    assert log(desk.app) == ["the plan"]


def test_a_detached_head_goes_back_and_stays_detached(desk: Desk, plan: Plan):
    git(desk.app, "checkout", "-q", "--detach")
    before = head(desk.app)
    desk.apply(plan)
    desk.unapply(plan)
    assert head(desk.app) == before
    assert git(desk.app, "symbolic-ref", "-q", "HEAD", check=False) == ""
    assert git(desk.app, "rev-parse", "main") == before


def test_ignored_files_that_were_included_go_back_too(desk: Desk):
    write(desk.app / ".gitignore", "*.cfg\n")
    write(desk.app / "local.cfg", "old\n")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "ignore")
    desk.overrides = {"sandbox.include-ignored": '["*.cfg"]'}
    plan = desk.run(app="echo new > local.cfg; echo more >> a.txt")
    desk.apply(plan)
    assert (desk.app / "local.cfg").read_text() == "new\n"
    desk.unapply(plan)
    assert (desk.app / "local.cfg").read_text() == "old\n"
    assert status(desk.app) == []


# Refusals


def refused(desk: Desk, plan: Plan, error: type[Exception] = ConflictError) -> pytest.ExceptionInfo[Exception]:
    before = desk.everything()
    with pytest.raises(error) as refusal:
        desk.unapply(plan)
    assert compare(before, desk.everything()) == []
    assert desk.state(plan) == ("apply", "applied")
    return refusal


@pytest.mark.parametrize(
    ("meanwhile", "path"),
    [
        ("echo mine >> app/a.txt", "app: a.txt"),
        ("echo mine > app/b.txt", "app: b.txt"),
        ("mkdir data/two.csv", "data: two.csv"),
        ("rm app/new.txt", "app: new.txt"),
        ("chmod 700 data/one.csv", "data: one.csv"),
        ("rm data/deep; mkdir data/deep; touch data/deep/x", "data: deep"),
        ("echo mine > app/a.txt; git -C app add a.txt; git -C app show HEAD:a.txt > app/a.txt", "app: a.txt"),
    ],
    ids=["edited", "made again", "made a folder", "removed", "mode", "something else", "staged only"],
)
@pytest.mark.unmeasured
def test_a_file_changed_since_is_refused_by_path_and_nothing_changes(desk: Desk, plan: Plan, meanwhile: str, path: str):
    desk.apply(plan)
    subprocess.run(["sh", "-ec", meanwhile], cwd=desk.real, check=True)
    refusal = refused(desk, plan)
    assert isinstance(refusal.value, ConflictError)
    assert refusal.value.paths == (path,)
    assert refusal.value.exit_code == 5


def commit_on_top(desk: Desk) -> None:
    git(desk.app, "commit", "-q", "--allow-empty", "-m", "on top")


def another_branch(desk: Desk) -> None:
    git(desk.app, "checkout", "-q", "-b", "other")


def the_commit_before(desk: Desk) -> None:
    git(desk.app, "reset", "-q", "--soft", "HEAD^")


@pytest.mark.parametrize("meanwhile", [commit_on_top, another_branch, the_commit_before])
def test_a_head_that_is_elsewhere_is_refused_with_the_way_out(
    desk: Desk, plan: Plan, meanwhile: Callable[[Desk], None]
):
    commit = desk.apply(plan).commits["app"]
    meanwhile(desk)
    refusal = refused(desk, plan)
    assert isinstance(refusal.value, ConflictError)
    assert f"git revert {commit}" in refusal.value.hint


def test_a_merge_in_progress_is_refused(desk: Desk):
    plan = desk.run(app="echo new > new.txt")
    desk.apply(plan)
    write(desk.app / ".git" / "MERGE_HEAD", head(desk.app) + "\n")
    refused(desk, plan, SandboxError)
    (desk.app / ".git" / "MERGE_HEAD").unlink()
    desk.unapply(plan)


def test_a_branch_that_another_work_tree_uses_too_is_refused(desk: Desk, plan: Plan):
    desk.apply(plan)
    git(desk.app, "worktree", "add", "--quiet", "--force", str(desk.folder / "tree"), "main")
    refusal = refused(desk, plan).value
    assert "checked out in" in refusal.message
    assert "--branch" not in refusal.hint


def test_only_an_applied_plan_is_taken_back_and_only_once(desk: Desk, plan: Plan):
    with pytest.raises(StateError, match="complete"):
        desk.unapply(plan)
    desk.apply(plan)
    desk.unapply(plan)
    with pytest.raises(StateError, match="complete"):
        desk.unapply(plan)


def test_a_person_who_says_no_is_obeyed_and_a_preview_changes_nothing(desk: Desk, plan: Plan):
    desk.apply(plan)
    before = desk.everything()
    with desk.open() as holdfast:
        assert isinstance(holdfast.unapply(plan.plan_id, confirm=lambda _: False), Declined)
        assert "a.txt" in {each.file for each in holdfast.unapply_preview(plan.plan_id).changes}
    assert compare(before, desk.everything()) == []
    assert desk.state(plan) == ("apply", "applied")


# What it needs is kept


def test_what_it_needs_is_kept_through_every_collection(desk: Desk, plan: Plan):
    before = files_of(desk)
    desk.apply(plan)
    with desk.open() as holdfast:
        holdfast.prune(plan.plan_id, keep=2)
        holdfast.service.garbage.collect()
    desk.unapply(plan)
    assert_taken_back(desk, before)


def test_with_few_checkpoints_kept_the_result_can_still_be_applied_again(desk: Desk):
    kinds = {"app": {"type": "git", "path": str(desk.app)}}
    policy = {"max_checkpoints": 2}
    steps = [{"name": "work", "run": "echo more >> a.txt"}]
    plan = desk.run_plan({"name": "the plan", "resources": kinds, "policy": policy, "steps": steps})
    for _ in range(2):
        desk.apply(plan)
        desk.unapply(plan)
    assert status(desk.app) == []


# Cut short


def assert_applied_still(desk: Desk, after: dict[bytes, Thing]) -> None:
    assert compare(after, files_of(desk), ignoring=["mtime_ns"]) == []
    assert log(desk.app)[0] == "the plan"
    assert status(desk.app) == ["A  staged.txt", "?? untracked.txt"]
    assert desk.leftovers() == []
    assert git(desk.app, "fsck", "--no-progress", "--no-dangling") == ""


@pytest.mark.unmeasured
def test_killed_at_any_moment_the_next_command_puts_things_right(desk: Desk, plan: Plan):
    before = files_of(desk)
    desk.apply(plan)
    after = files_of(desk)
    desk.keep()
    changes = count_of_changes(lambda: desk.unapply(plan))
    assert_taken_back(desk, before)
    desk.start_over()
    for moment in sorted({*range(1, changes, changes // 5), *range(changes - 4, changes + 1)}):
        killed_at(moment, lambda: desk.unapply(plan))
        if desk.next_command(plan).state == "applied":
            assert_applied_still(desk, after)
            desk.unapply(plan)
        assert_taken_back(desk, before)
        desk.start_over()


@pytest.mark.unmeasured
def test_killed_while_it_is_being_undone_the_command_after_puts_things_right(desk: Desk, plan: Plan):
    before = files_of(desk)
    desk.apply(plan)
    after = files_of(desk)
    desk.keep()
    changes = count_of_changes(lambda: desk.unapply(plan))
    desk.start_over()
    for number, moment in enumerate(range(changes // 2, changes, changes // 6)):
        killed_at(moment, lambda: desk.unapply(plan))
        killed_at(1 + 6 * number, lambda: desk.next_command(plan))
        if desk.next_command(plan).state == "applied":
            assert_applied_still(desk, after)
            desk.unapply(plan)
        assert_taken_back(desk, before)
        desk.start_over()


def test_killed_while_the_first_commit_is_taken_back(desk: Desk):
    shutil.rmtree(desk.app)
    desk.app.mkdir()
    git(desk.app, "init", "--quiet")
    plan = desk.run(app="echo first > first.txt")
    desk.apply(plan)
    desk.keep()
    moment = 1
    while killed_at(moment, lambda: desk.unapply(plan)):
        if desk.next_command(plan).state == "applied":
            assert log(desk.app) == ["the plan"]
            assert status(desk.app) == []
            desk.unapply(plan)
        assert git(desk.app, "rev-parse", "-q", "--verify", "HEAD", check=False) == ""
        assert status(desk.app) == []
        desk.start_over()
        moment += 7


@pytest.mark.skipif(not IS_ROOT, reason="only root may mount something")
def test_a_disk_that_may_only_be_read_leaves_it_applied(desk: Desk, plan: Plan):
    before = files_of(desk)
    desk.apply(plan)
    after = files_of(desk)
    subprocess.run(["mount", "--bind", desk.data, desk.data], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", desk.data], check=True)
        with pytest.raises(SandboxError, match=f"nothing was changed:\n  {desk.data}"):
            desk.unapply(plan)
        assert_applied_still(desk, after)
        assert desk.state(plan) == ("apply", "applied")
    finally:
        subprocess.run(["umount", "--lazy", desk.data], check=True)
    desk.unapply(plan)
    assert_taken_back(desk, before)


def test_a_lock_that_a_person_removed_after_a_kill_costs_them_nothing(desk: Desk, plan: Plan):
    """Git's own advice is to remove it; what they stage then must survive, and ours must go."""
    desk.keep()
    changes = count_of_changes(lambda: desk.apply(plan))
    desk.start_over()
    found = 0
    for moment in range(changes - 14, changes + 1, 3):
        killed_at(moment, lambda: desk.apply(plan))
        lock = desk.app / ".git" / "index.lock"
        if lock.exists():
            found += 1
            lock.unlink()
            write(desk.app / "later.txt", "later\n")
            git(desk.app, "add", "later.txt")
            assert desk.next_command(plan).state == "complete"
            assert status(desk.app) == ["A  later.txt", "A  staged.txt", "?? untracked.txt"]
            assert log(desk.app)[0] == "second"
        desk.start_over()
    assert found


def test_paths_with_odd_names(desk: Desk):
    plan = desk.run(app="printf x > \"$(printf 'odd\\nname \\377')\"; echo more >> a.txt")
    desk.apply(plan)
    assert len(os.listdir(os.fsencode(desk.app))) == 5
    desk.unapply(plan)
    assert sorted(os.listdir(desk.app)) == [".git", "a.txt", "b.txt", "folder"]


def test_what_is_saved_while_it_is_being_taken_back_is_not_lost(desk: Desk):
    plan = desk.run(data="echo more >> one.csv; rm two.csv; echo new > new.csv; echo more >> deep/three.csv")
    desk.apply(plan)
    for name in ("one.csv", "two.csv", "new.csv"):
        replacing = f".holdfast-*-{mark_of(name.encode()).decode()}"
        before = describe(desk.data, without=[name.encode()])
        with (
            just_before("os.rename", replacing, lambda name=name: write(desk.data / name, "saved by the user")),
            pytest.raises(ConflictError, match=name),
        ):
            desk.unapply(plan)
        assert (desk.data / name).read_text() == "saved by the user"
        assert [
            line for line in compare(before, describe(desk.data, without=[name.encode()])) if "mtime" not in line
        ] == []
        assert desk.state(plan) == ("apply", "applied")
        if name == "two.csv":
            (desk.data / name).unlink()
        else:
            write(desk.data / name, "one.csv\nmore\n" if name == "one.csv" else "new\n")
    desk.unapply(plan)
    assert sorted(path.name for path in desk.data.glob("*.csv")) == ["one.csv", "two.csv"]
    assert desk.leftovers() == []
