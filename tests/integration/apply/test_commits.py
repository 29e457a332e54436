"""The commit that apply makes: what it says, who made it, how it is signed, and where it may go."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest

from holdfast.errors import ConflictError, HoldfastError, SandboxError
from holdfast.model import Plan
from tests.integration.apply.conftest import Desk, unchangeable
from tests.support.repositories import git, head, log, make_repository, status
from tests.support.trees import IS_ROOT, compare, describe, write

# What it says


def decided_plan(desk: Desk) -> Plan:
    decision = {"type": "strategy_choice", "question": "Which version\n  comes next?", "chosen": "2", "rationale": "x"}
    return desk.run_plan(
        {
            "name": "upgrade",
            "resources": {"app": {"type": "git", "path": str(desk.app)}},
            "validate": ["test -s a.txt"],
            "steps": [
                {"name": "bump", "run": "echo 2 > a.txt", "decision": decision},
                {"name": "tidy", "run": "rm b.txt"},
            ],
        }
    )


def test_the_message_is_the_plans_name_its_steps_and_the_decisions_in_force(desk: Desk):
    plan = decided_plan(desk)
    desk.apply(plan)
    assert git(desk.app, "show", "-s", "--format=%B").rstrip("\n") == (
        "upgrade\n\n- bump\n- tidy\n\nDecisions:\n- Which version comes next? 2\n"
        f"- Does `test -s a.txt` accept the result? yes\n\nHoldfast-Plan: {plan.plan_id}"
    )
    assert git(desk.app, "show", "-s", "--format=%(trailers:key=Holdfast-Plan,valueonly)").strip() == plan.plan_id


def test_a_decision_that_was_corrected_is_not_in_the_message(desk: Desk):
    plan = decided_plan(desk)
    with desk.open() as holdfast:
        wrong = next(each for each in holdfast.decisions(plan.plan_id) if each.chosen == "2")
        holdfast.correct(wrong.decision_id, guidance="take 3")
        assert holdfast.execute(plan.plan_id).succeeded
    desk.apply(plan)
    message = git(desk.app, "show", "-s", "--format=%B")
    assert "take 3" in message
    assert message.count("Which version comes next? 2") == 1, "made again, with the guidance"


def test_the_title_of_a_program_that_nobody_named_is_no_command_line(desk: Desk):
    with desk.open() as holdfast:
        plan = holdfast.create_program_plan(["sh", "-c", "echo more >> a.txt"], resources=[desk.app], folder=desk.app)
        assert holdfast.execute(plan.plan_id).succeeded
    desk.apply(plan)
    assert "sh" in log(desk.app)[0]
    assert "echo more" not in log(desk.app)[0]


def test_a_message_of_the_user_is_taken_as_it_is(desk: Desk):
    desk.apply(desk.run(app="echo more >> a.txt"), message="my words\n\nin two paragraphs\n\n")
    assert git(desk.app, "show", "-s", "--format=%B").rstrip("\n") == "my words\n\nin two paragraphs"


# How it is signed


def fake_gpg(desk: Desk, script: str) -> None:
    program = write(desk.folder / "fake-gpg", f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    git(desk.app, "config", "commit.gpgsign", "true")
    git(desk.app, "config", "gpg.program", str(program))
    git(desk.app, "config", "user.signingkey", "0123456789")


SIGNS = """
cat > /dev/null
printf '\\n[GNUPG:] SIG_CREATED D 1 2 00 0 0\\n' >&2
printf -- '-----BEGIN PGP SIGNATURE-----\\n\\nof the fake\\n-----END PGP SIGNATURE-----\\n'
"""


@pytest.mark.parametrize("branch", [None, "topic"])
def test_it_is_signed_by_gits_own_machinery_if_the_user_signs(desk: Desk, branch: str | None):
    plan = desk.run(app="echo more >> a.txt")
    fake_gpg(desk, SIGNS)
    desk.apply(plan, branch=branch)
    assert "gpgsig -----BEGIN PGP SIGNATURE-----" in git(desk.app, "cat-file", "commit", branch or "HEAD")
    assert status(desk.app) == []


def test_a_signature_that_fails_refuses_and_changes_nothing(desk: Desk):
    plan = desk.run(app="echo more >> a.txt", data="echo more >> one.csv")
    fake_gpg(desk, "echo 'no such key' >&2; exit 2")
    before = desk.what_counts()
    with pytest.raises(SandboxError) as refusal:
        desk.apply(plan)
    assert "commit.gpgsign" in refusal.value.hint
    desk.assert_put_back(before)
    assert desk.state(plan) == ("execute", "complete")
    git(desk.app, "config", "commit.gpgsign", "false")
    desk.apply(plan)
    assert "gpgsig" not in git(desk.app, "cat-file", "commit", "HEAD")


def test_the_user_who_asks_for_signatures_before_they_say_yes_gets_one(desk: Desk):
    plan = desk.run(app="echo more >> a.txt")

    def sign_and_say_yes(_: object) -> bool:
        fake_gpg(desk, SIGNS)
        return True

    with desk.open() as holdfast:
        holdfast.apply(plan.plan_id, confirm=sign_and_say_yes)
    assert "gpgsig" in git(desk.app, "cat-file", "commit", "HEAD")


def test_a_signature_by_ssh_that_fails_is_not_blamed_on_the_name(desk: Desk):
    plan = desk.run(app="echo more >> a.txt")
    for key, value in {"commit.gpgsign": "true", "gpg.format": "ssh", "user.signingkey": "/no/such/key"}.items():
        git(desk.app, "config", key, value)
    with pytest.raises(SandboxError, match="/no/such/key") as refusal:
        desk.apply(plan)
    assert "commit.gpgsign" in refusal.value.hint


# What else git may refuse


@pytest.mark.parametrize("name", [".GIT", "git~1", "deep/.Git"])
def test_names_that_git_allows_in_no_commit_are_refused(desk: Desk, name: str):
    plan = desk.run(app=f"mkdir -p deep; echo new > {name}; echo more >> a.txt")
    before = desk.what_counts()
    with pytest.raises(ConflictError, match="no commit with these names") as refusal:
        desk.apply(plan)
    assert refusal.value.paths == (name,)
    desk.assert_put_back(before)
    desk.apply(plan, commit=False)
    assert (desk.app / name).read_text() == "new\n"


def test_objects_that_cannot_be_written_are_not_blamed_on_the_name(desk: Desk):
    plan = desk.run(app="echo more >> a.txt")
    objects = desk.app / ".git" / "objects"
    tree = git(desk.sandbox(plan), "hash-object", "a.txt")
    (objects / tree[:2]).mkdir(exist_ok=True)
    before = desk.what_counts()
    with unchangeable(objects / tree[:2]):
        with pytest.raises(SandboxError, match="unable to create temporary file") as refusal:
            desk.apply(plan)
        assert str(objects) in refusal.value.hint
        assert "user.name" not in refusal.value.hint
        desk.assert_put_back(before)


@pytest.mark.parametrize("branch", [None, "topic"])
def test_a_filter_that_fails_is_told_with_the_way_out(desk: Desk, branch: str | None):
    write(desk.app / ".gitattributes", "*.x filter=bad\n")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "with a filter")
    git(desk.app, "config", "filter.bad.clean", "false")
    git(desk.app, "config", "filter.bad.required", "true")
    plan = desk.run(app="echo q > q.x")
    before = desk.what_counts()
    with pytest.raises(SandboxError, match=r"q\.x: clean filter 'bad' failed.* Nothing was changed") as refusal:
        desk.apply(plan, branch=branch)
    with pytest.raises(SandboxError, match="clean filter 'bad' failed"), desk.open() as holdfast:
        holdfast.apply_preview(plan.plan_id, branch=branch).commits()
    assert "--no-commit" in refusal.value.hint
    desk.assert_put_back(before)
    desk.apply(plan, commit=False)
    assert (desk.app / "q.x").read_text() == "q\n"


@pytest.mark.parametrize("name", ["HEAD.lock", "refs/heads/main.lock"])
def test_a_lock_on_the_branch_is_named(desk: Desk, name: str):
    plan = desk.run(app="echo more >> a.txt", data="echo more >> one.csv")
    lock = write(desk.app / ".git" / name, "another git")
    before = desk.what_counts()
    with pytest.raises(ConflictError, match=f"{lock}': File exists") as refusal:
        desk.apply(plan)
    assert not refusal.value.message.endswith("..")
    assert "remove that file" in refusal.value.hint
    assert compare(before, desk.what_counts(), ignoring=["mtime_ns"]) == []
    lock.unlink()
    desk.apply(plan)


# Where it may go


def test_a_branch_that_is_checked_out_elsewhere_is_refused_and_nothing_changes(desk: Desk):
    plan = desk.run(app="echo more >> a.txt")
    git(desk.app, "worktree", "add", "--quiet", "--force", str(desk.folder / "tree"), "main")
    before, theirs = desk.everything(), describe(desk.folder / "tree")
    with pytest.raises(ConflictError, match="checked out in"):
        desk.apply(plan)
    assert compare(before, desk.everything()) == []
    assert compare(theirs, describe(desk.folder / "tree")) == []
    desk.apply(plan, commit=False)
    assert status(desk.app) == [" M a.txt"]


def test_other_work_trees_on_other_branches_are_no_reason(desk: Desk):
    plan = desk.run(app="echo more >> a.txt")
    git(desk.app, "worktree", "add", "--quiet", "-b", "other", str(desk.folder / "one"))
    git(desk.app, "worktree", "add", "--quiet", "--detach", str(desk.folder / "two"))
    desk.apply(plan)
    assert log(desk.app) == ["the plan", "the first commit"]
    assert status(desk.folder / "one") == status(desk.folder / "two") == []


def test_a_work_tree_that_is_gone_is_no_reason(desk: Desk):
    plan = desk.run(app="echo more >> a.txt")
    git(desk.app, "worktree", "add", "--quiet", "--force", str(desk.folder / "tree"), "main")
    shutil.rmtree(desk.folder / "tree")
    desk.apply(plan)
    assert log(desk.app) == ["the plan", "the first commit"]


def test_two_repositories_get_their_commits_together_or_not_at_all(desk: Desk):
    """The second one's branch cannot be moved: the first one's goes back."""
    other = make_repository(desk.real / "other")
    resources = {name: {"type": "git", "path": str(desk.real / name)} for name in ("app", "other")}
    steps = [{"name": f"work on {name}", "resource": name, "run": "echo more >> a.txt"} for name in resources]
    plan = desk.run_plan({"name": "the plan", "resources": resources, "steps": steps})
    lock = write(other / ".git" / "refs" / "heads" / "main.lock", "another git")
    with pytest.raises(HoldfastError):
        desk.apply(plan)
    assert [log(each) for each in (desk.app, other)] == [["the first commit"]] * 2
    assert [status(each) for each in (desk.app, other)] == [[], []]
    lock.unlink()
    desk.apply(plan)
    assert [log(each)[0] for each in (desk.app, other)] == ["the plan"] * 2
    desk.unapply(plan)
    assert [log(each) for each in (desk.app, other)] == [["the first commit"]] * 2


# What the user has of their own


def test_files_that_git_was_told_not_to_look_at_are_work_of_the_user(desk: Desk):
    write(desk.app / "a.txt", "a\nlocal, never to be committed\n")
    git(desk.app, "update-index", "--assume-unchanged", "a.txt")
    git(desk.app, "update-index", "--skip-worktree", "b.txt")
    plan = desk.run(app="echo more >> a.txt; echo more >> b.txt")
    before = desk.everything()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert refusal.value.paths == ("app: a.txt", "app: b.txt")
    assert compare(before, desk.everything()) == []
    desk.apply(plan, commit=False)
    assert (desk.app / "a.txt").read_text() == "a\nlocal, never to be committed\nmore\n"


def commit_something(desk: Desk) -> None:
    write(desk.app / "meanwhile.txt", "x\n")
    git(desk.app, "add", "meanwhile.txt")
    git(desk.app, "commit", "-q", "-m", "meanwhile")


def switch_branch(desk: Desk) -> None:
    git(desk.app, "checkout", "-q", "-b", "other")


def stage_something(desk: Desk) -> None:
    text = (desk.app / "a.txt").read_text()
    write(desk.app / "a.txt", "staged\n")
    git(desk.app, "add", "a.txt")
    write(desk.app / "a.txt", text)


def edit_a_file(desk: Desk) -> None:
    write(desk.app / "a.txt", "edited in the last moment\n")


def make_a_file(desk: Desk) -> None:
    write(desk.app / "new.txt", "made in the last moment\n")


@pytest.mark.parametrize(
    "meanwhile",
    [commit_something, switch_branch, stage_something, edit_a_file, make_a_file],
    ids=lambda each: each.__name__,
)
@pytest.mark.unmeasured
def test_what_the_user_does_after_the_look_at_their_files_is_not_lost(desk: Desk, meanwhile: Callable[[Desk], None]):
    plan = desk.run(app="echo more >> a.txt; echo new > new.txt")
    after: list[object] = []

    def confirm(_: object) -> bool:
        meanwhile(desk)
        after.append((describe(desk.app, without=[b".git"]), status(desk.app), head(desk.app)))
        return True

    with desk.open() as holdfast, pytest.raises(ConflictError):
        holdfast.apply(plan.plan_id, confirm=confirm)
    assert (describe(desk.app, without=[b".git"]), status(desk.app), head(desk.app)) == after[0]
    assert desk.state(plan) == ("execute", "complete")
    assert desk.leftovers() == []


# Disks and folders


@pytest.mark.skipif(not IS_ROOT, reason="only root may mount something")
@pytest.mark.parametrize("place", ["work tree", "repository"])
def test_a_disk_that_is_full_in_the_middle_puts_everything_back(desk: Desk, place: str):
    plan = desk.run(
        app="echo more >> a.txt; head -c 700000 /dev/urandom > large; echo new > zz", data="echo more >> one.csv"
    )
    target = desk.app if place == "work tree" else desk.app / ".git"
    aside = desk.folder / "aside"
    subprocess.run(["cp", "-a", target, aside], check=True)
    if place == "work tree":
        write(aside / "untracked filler", "x" * 150_000)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1200k", "holdfast-test", target], check=True)
    try:
        subprocess.run(["cp", "-a", f"{aside}/.", target], check=True)
        if place == "repository":
            write(target / "filler", "x" * 600_000)
        before = desk.what_counts()
        with pytest.raises(HoldfastError) as refusal:
            desk.apply(plan)
        assert refusal.value.exit_code == 6
        assert compare(before, desk.what_counts(), ignoring=["mtime_ns"]) == []
        assert desk.leftovers() == []
        assert desk.state(plan) == ("execute", "complete")
    finally:
        subprocess.run(["umount", "--lazy", target], check=True)
