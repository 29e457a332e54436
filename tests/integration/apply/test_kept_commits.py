"""The commits that were made in a sandbox: carried over if they fit, otherwise made one, and the reason is said."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.apply.preview import ApplyPreview
from holdfast.errors import ConflictError, HoldfastError, SandboxError, StateError, UsageError
from holdfast.model import Plan, PlanState
from tests.integration.apply.conftest import Desk
from tests.support.crashes import count_of_changes, killed_at
from tests.support.repositories import git, head, log, make_repository, status
from tests.support.trees import Thing, compare, describe, write

COMMIT = "git commit -q -a -m"
TWO = (
    f"echo one >> a.txt; {COMMIT} 'change a'; git rm -q b.txt; git -c user.name=Bot -c user.email=bot@example.org "
    "commit -q -m 'remove b' --date '2001-02-03 04:05:06 +0700'"
)
DAMAGED = "chmod -R u+w .git/objects; : > .git/objects/$(git rev-parse HEAD^ | sed 's|^..|&/|')"
MALFORMED = (
    "new=$(git cat-file commit HEAD | sed 's/^committer .*/committer nobody/' "
    "| git hash-object -t commit -w --stdin --literally); git reset -q --soft $new"
)
WITH_NUL = (
    "new=$( (git cat-file commit HEAD; printf 'a\\0b') | git hash-object -t commit -w --stdin --literally); "
    "git reset -q --soft $new"
)
VERY_MANY = (
    "tree=$(git rev-parse HEAD^{tree}); c=$(git rev-parse HEAD); "
    "for i in $(seq 1001); do c=$(git commit-tree -p $c -m $i $tree); done; git reset -q --soft $c"
)
FACTS = "--format=%s|%an|%ae|%aI|%cn"


def commits(repository: Path, tip: str = "HEAD") -> list[str]:
    return git(repository, "log", FACTS, tip).splitlines()


def sandbox_head(desk: Desk, plan: Plan, name: str = "app") -> str:
    return head(desk.sandbox(plan, name))


def assert_all_is_well(desk: Desk) -> None:
    assert status(desk.app) == []
    assert desk.leftovers() == []
    assert git(desk.app, "fsck", "--strict", "--no-progress", "--no-dangling") == ""


def assert_unapplied(desk: Desk, plan: Plan, before: dict[bytes, Thing]) -> None:
    """The index has other bytes than before, and says the same."""
    desk.unapply(plan)
    index = b"app/.git/index"
    found = desk.what_counts()
    assert compare(before | {index: found[index]}, found) == []
    assert_all_is_well(desk)


def not_kept(desk: Desk, plan: Plan) -> str:
    """Why not; one commit with everything was made instead, as the dry run said."""
    before = log(desk.app)
    with desk.open() as holdfast:
        preview = holdfast.apply_preview(plan.plan_id)
    with pytest.raises(ConflictError, match="cannot be kept") as refusal:
        desk.apply(plan, commits="keep")
    assert "--commits squash" in (refusal.value.hint or "")
    result = desk.apply(plan)
    assert log(desk.app) == ["the plan", *before]
    assert result.kept_commits == {}
    assert preview.not_carried == result.not_kept
    assert result.not_kept["app"] in refusal.value.message
    return result.not_kept["app"]


# Kept


def test_on_a_branch_that_has_not_moved_they_are_the_very_commits(desk: Desk):
    plan = desk.run(app=TWO)
    before = desk.what_counts()
    result = desk.apply(plan)
    assert head(desk.app) == sandbox_head(desk, plan) == result.commits["app"]
    assert [title for _, title in result.kept_commits["app"]] == ["change a", "remove b"]
    assert result.kept_commits["app"][-1][0] == result.commits["app"]
    assert not (desk.app / ".git" / "objects" / "info" / "alternates").exists()
    assert_all_is_well(desk)
    assert_unapplied(desk, plan, before)
    assert desk.apply(plan).commits == result.commits


def test_they_are_all_there_when_the_plan_is_deleted(desk: Desk):
    """Nothing of the branch is in the sandbox only."""
    plan = desk.run(app=TWO)
    desk.apply(plan)
    with desk.open() as holdfast:
        holdfast.delete(plan.plan_id)
    shutil.rmtree(desk.home)
    assert git(desk.app, "show", "--format=%s", "--name-status", "HEAD^") == "change a\n\nM\ta.txt"
    assert_all_is_well(desk)


def test_what_was_not_committed_becomes_one_more_commit(desk: Desk):
    plan = desk.run(app=f"{TWO}; echo two >> a.txt; echo new > new.txt; git add new.txt; git rm -q --cached a.txt")
    result = desk.apply(plan, message="the rest\n\nof it")
    assert log(desk.app) == ["the rest", "remove b", "change a", "the first commit"]
    assert git(desk.app, "show", "-s", "--format=%B") == "the rest\n\nof it\n"
    assert git(desk.app, "show", "--format=", "--name-status").splitlines() == ["M\ta.txt", "A\tnew.txt"]
    assert head(desk.app) == result.commits["app"] != result.kept_commits["app"][-1][0]
    assert_all_is_well(desk)


def test_what_was_committed_and_taken_back_without_a_commit_is_taken_back(desk: Desk):
    plan = desk.run(app=f"echo x > x.txt; git add x.txt; {COMMIT} 'add x'; rm x.txt; echo one >> a.txt; {COMMIT} 'a'; "
                    "git show HEAD~2:a.txt > a.txt; echo 1 > keeps")  # fmt: skip
    desk.apply(plan)
    assert log(desk.app) == ["the plan", "a", "add x", "the first commit"]
    assert git(desk.app, "diff", "--name-status", "HEAD~3").splitlines() == ["A\tkeeps"]
    assert_all_is_well(desk)


def test_on_a_branch_that_has_moved_they_are_made_again_with_their_author_date_and_message(desk: Desk):
    plan = desk.run(app=TWO)
    write(desk.app / "mine.txt", "mine\n")
    git(desk.app, "add", "mine.txt")
    git(desk.app, "commit", "-q", "-m", "of mine")
    git(desk.app, "config", "user.name", "Me Now")
    before = desk.what_counts()
    kept = [each.split("|")[:4] for each in commits(desk.sandbox(plan))[:2]]
    desk.apply(plan)
    made = [each.split("|") for each in commits(desk.app)[:2]]
    assert [each[:4] for each in made] == kept
    assert [each[4] for each in made] == ["Me Now", "Me Now"]
    assert kept[0][1:] == ["Bot", "bot@example.org", "2001-02-03T04:05:06+07:00"]
    assert log(desk.app)[2:] == ["of mine", "the first commit"]
    assert git(desk.app, "show", "--format=", "--name-status", "HEAD^") == "M\ta.txt"
    assert_all_is_well(desk)
    assert_unapplied(desk, plan, before)


def test_lines_that_both_changed_in_one_text_are_merged_commit_by_commit(desk: Desk):
    write(desk.app / "text", "".join(f"{number}\n" for number in range(1, 20)))
    git(desk.app, "add", "text")
    git(desk.app, "commit", "-q", "-m", "text")
    plan = desk.run(app=f"sed -i s/^1$/one/ text; {COMMIT} 'one'; chmod +x text; {COMMIT} 'mode'; "
                    f"sed -i s/^9$/nine/ text; {COMMIT} 'nine'; sed -i s/^5$/five/ text")  # fmt: skip
    (desk.app / "text").write_text((desk.app / "text").read_text() + "mine\n")
    git(desk.app, "commit", "-q", "-a", "-m", "of mine")
    desk.apply(plan)
    assert log(desk.app)[:5] == ["the plan", "nine", "mode", "one", "of mine"]
    for commit, changed in (("HEAD", "five"), ("HEAD~1", "nine"), ("HEAD~3", "one")):
        lines = git(desk.app, "show", "--format=", "-U0", commit).splitlines()
        assert [line for line in lines if line.startswith("+") and not line.startswith("+++")] == [f"+{changed}"]
    assert (desk.app / "text").read_text().endswith("mine\n")
    assert_all_is_well(desk)


def test_a_mode_of_the_user_stays_in_each_of_them(desk: Desk):
    plan = desk.run(app=f"echo x > b.txt; {COMMIT} x; git show HEAD^:b.txt > b.txt; echo one >> a.txt; {COMMIT} back")
    (desk.app / "b.txt").chmod(0o755)
    git(desk.app, "commit", "-q", "-a", "-m", "a mode")
    desk.apply(plan)
    assert log(desk.app) == ["back", "x", "a mode", "the first commit"]
    assert git(desk.app, "show", "HEAD^:b.txt") == "x"
    for commit in ("HEAD", "HEAD^"):
        assert git(desk.app, "ls-tree", commit, "b.txt").startswith("100755 blob")
    assert_all_is_well(desk)


def test_a_commit_whose_change_the_branch_has_already_is_left_out(desk: Desk):
    plan = desk.run(app=TWO)
    git(desk.app, "rm", "-q", "b.txt")
    git(desk.app, "commit", "-q", "-m", "removed by me")
    desk.apply(plan)
    assert log(desk.app) == ["change a", "removed by me", "the first commit"]
    assert_all_is_well(desk)


def test_when_the_branch_has_all_of_them_already_nothing_is_committed(desk: Desk):
    plan = desk.run(app=TWO)
    git(desk.app, "pull", "-q", "--ff-only", str(desk.sandbox(plan)), "HEAD")
    result = desk.apply(plan)
    assert result.commits == {}
    assert head(desk.app) == sandbox_head(desk, plan)
    desk.unapply(plan)
    assert_all_is_well(desk)


def test_files_and_folders_that_replace_each_other_are_replaced(desk: Desk):
    plan = desk.run(app=f"git rm -q a.txt; mkdir a.txt; echo x > a.txt/x; git add .; {COMMIT} 'folder'; "
                    f"git rm -qr folder; echo y > folder; git add .; {COMMIT} 'file'; "
                    "git rm -q folder a.txt/x; mkdir -p folder a.txt; echo z > folder/z; git add .; "
                    f"{COMMIT} 'again'")  # fmt: skip
    write(desk.app / "mine.txt", "mine\n")
    git(desk.app, "add", "mine.txt")
    git(desk.app, "commit", "-q", "-m", "of mine")
    desk.apply(plan)
    assert log(desk.app)[:4] == ["again", "file", "folder", "of mine"]
    assert git(desk.app, "ls-tree", "-r", "--name-only", "HEAD").splitlines() == ["b.txt", "folder/z", "mine.txt"]
    assert git(desk.app, "ls-tree", "-r", "--name-only", "HEAD~2").splitlines() == [
        "a.txt/x", "b.txt", "folder/c.txt", "mine.txt",
    ]  # fmt: skip
    assert_all_is_well(desk)


def test_empty_commits_and_commits_that_together_change_nothing_are_kept(desk: Desk):
    plan = desk.run(
        app=f"git commit -q --allow-empty -m 'a note'; echo x > x; git add x; {COMMIT} x; git rm -q x; {COMMIT} 'no x'"
    )
    before = desk.what_counts()
    desk.apply(plan)
    assert log(desk.app) == ["no x", "x", "a note", "the first commit"]
    assert_all_is_well(desk)
    assert_unapplied(desk, plan, before)
    git(desk.app, "commit", "-q", "--allow-empty", "-m", "mine")
    desk.apply(plan)
    assert log(desk.app) == ["no x", "x", "a note", "mine", "the first commit"]


def test_more_objects_than_become_files_are_kept_in_a_pack(desk: Desk):
    plan = desk.run(app=f"for i in $(seq 120); do echo $i > $i; done; git add .; {COMMIT} many")
    desk.apply(plan)
    assert head(desk.app) == sandbox_head(desk, plan)
    assert len(list((desk.app / ".git" / "objects" / "pack").glob("*.pack"))) == 1
    assert_all_is_well(desk)


@pytest.mark.parametrize(
    "script",
    [
        "git branch -m 'another name'; {}",
        "git checkout -q -b topic; {}",
        "git checkout -q --detach; {}",
        "{}; git gc -q",
    ],
)
def test_it_does_not_matter_what_the_branch_of_the_sandbox_is_called_or_how_git_keeps_it(desk: Desk, script: str):
    plan = desk.run(app=script.format(TWO).replace("another name", "another-name"))
    desk.apply(plan)
    assert head(desk.app) == sandbox_head(desk, plan)
    assert git(desk.app, "branch", "--show-current") == "main"


def test_onto_a_detached_head(desk: Desk):
    git(desk.app, "checkout", "-q", "--detach")
    plan = desk.run(app=TWO)
    desk.apply(plan)
    assert head(desk.app) == sandbox_head(desk, plan)
    assert log(desk.app, "main") == ["the first commit"]


def test_onto_a_branch_of_their_own(desk: Desk):
    plan = desk.run(app=f"{TWO}; echo rest > rest.txt")
    git(desk.app, "commit", "-q", "--allow-empty", "-m", "meanwhile")
    was = head(desk.app)
    result = desk.apply(plan, branch="topic", message="the rest")
    assert git(desk.app, "rev-parse", "topic^") == sandbox_head(desk, plan)
    assert log(desk.app, "topic") == ["the rest", "remove b", "change a", "the first commit"]
    assert (head(desk.app), result.commits["app"]) == (was, git(desk.app, "rev-parse", "topic"))
    desk.unapply(plan)
    assert git(desk.app, "branch", "--list", "topic") == ""


def test_into_a_repository_without_a_commit(desk: Desk):
    shutil.rmtree(desk.app)
    desk.app.mkdir()
    git(desk.app, "init", "-q", "-b", "main")
    plan = desk.run(app=f"echo a > a.txt; git add .; {COMMIT} root; echo b > a.txt; {COMMIT} second")
    desk.apply(plan)
    assert head(desk.app) == sandbox_head(desk, plan)
    desk.unapply(plan)
    assert git(desk.app, "rev-parse", "-q", "--verify", "HEAD", check=False) == ""
    write(desk.app / "mine.txt", "mine\n")
    git(desk.app, "add", ".")
    git(desk.app, "commit", "-q", "-m", "of mine")
    desk.apply(plan)
    assert log(desk.app) == ["second", "root", "of mine"]
    assert_all_is_well(desk)


def test_several_repositories_each_on_its_own(desk: Desk):
    other = make_repository(desk.real / "other")
    resources = {name: {"type": "git", "path": str(desk.real / name)} for name in ("app", "other")}
    scripts = {"app": TWO, "other": f"git checkout -q -b x; {TWO}; git checkout -q -; git merge -q --no-ff -m both x"}
    steps = [{"name": f"work on {name}", "resource": name, "run": scripts[name]} for name in resources]
    plan = desk.run_plan({"name": "the plan", "resources": resources, "steps": steps})
    result = desk.apply(plan)
    assert list(result.kept_commits) == ["app"]
    assert list(result.not_kept) == ["other"]
    assert log(desk.app)[0] == "remove b"
    assert log(other) == ["the plan", "the first commit"]


def test_a_message_in_another_encoding_stays_as_it_is(desk: Desk):
    script = """
echo one >> a.txt
printf 'caf\\351\\n\\nbody' > ../message
git -c i18n.commitEncoding=ISO-8859-1 commit -q -a -F ../message --cleanup=verbatim
echo two >> a.txt; printf '\\351 is no UTF-8' > ../message; git commit -q -a -F ../message
rm ../message
"""
    plan = desk.run(app=script.replace("../message", "$TMPDIR/message"))
    raw = [git(desk.sandbox(plan), "cat-file", "commit", each) for each in ("HEAD^", "HEAD")]
    git(desk.app, "commit", "-q", "--allow-empty", "-m", "moved")
    result = desk.apply(plan)
    made = [git(desk.app, "cat-file", "commit", each) for each in ("HEAD^", "HEAD")]
    assert [each.partition("\n\n")[2] for each in made] == [each.partition("\n\n")[2] for each in raw]
    assert "\nencoding ISO-8859-1\n" in made[0]
    assert result.kept_commits["app"][0][1] == "café"
    assert_all_is_well(desk)


def test_nothing_is_written_to_look_at_them(desk: Desk):
    plan = desk.run(app=f"{TWO}; echo rest > rest.txt")
    git(desk.app, "commit", "-q", "--allow-empty", "-m", "moved")
    before, sandbox = desk.everything(), describe(desk.sandbox(plan))
    with desk.open() as holdfast:
        preview = holdfast.apply_preview(plan.plan_id, message="rest")
        assert [commit.title for commit in preview.carried["app"].kept] == ["change a", "remove b"]
        assert preview.commits()["app"].message == "rest\n"
    assert compare(before, desk.everything()) == []
    assert compare(sandbox, describe(desk.sandbox(plan))) == []
    desk.apply(plan, message="rest")
    assert compare(sandbox, describe(desk.sandbox(plan))) == []
    assert log(desk.app) == ["rest", "remove b", "change a", "moved", "the first commit"]


def test_neither_hooks_nor_the_settings_of_the_sandbox_are_used(desk: Desk):
    """What a step writes into the repository of the sandbox must start nothing outside of it."""
    evil = desk.folder / "started"
    hook = f"printf '#!/bin/sh\\ntouch {evil}\\n' > $1; chmod +x $1"
    script = f"""
{TWO}
set_up() {{ {hook}; }}
for name in post-commit reference-transaction post-checkout; do set_up .git/hooks/$name; done
set_up .git/evil.sh
git config core.fsmonitor "$PWD/.git/evil.sh"; git config uploadpack.packObjectsHook "$PWD/.git/evil.sh"
git config core.alternateRefsCommand "$PWD/.git/evil.sh"; git config gpg.program "$PWD/.git/evil.sh"
git config commit.gpgsign true
"""
    plan = desk.run(app=script)
    git(desk.app, "commit", "-q", "--allow-empty", "-m", "moved")
    desk.apply(plan)
    assert log(desk.app)[:2] == ["remove b", "change a"]
    assert not evil.exists()


# Signed


def fake_gpg(desk: Desk, script: str) -> None:
    program = write(desk.folder / "fake-gpg", f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    for key, value in (("commit.gpgsign", "true"), ("gpg.program", str(program)), ("user.signingkey", "0123")):
        git(desk.app, "config", key, value)


SIGNS = """
cat > /dev/null
printf '\\n[GNUPG:] SIG_CREATED D 1 2 00 0 0\\n' >&2
printf -- '-----BEGIN PGP SIGNATURE-----\\n\\nof the fake\\n-----END PGP SIGNATURE-----\\n'
"""


@pytest.mark.parametrize("moved", [False, True])
def test_a_user_who_signs_signs_each_of_them(desk: Desk, moved: bool):
    plan = desk.run(app=f"{TWO}; echo rest > rest")
    fake_gpg(desk, SIGNS)
    if moved:
        git(desk.app, "commit", "-q", "--allow-empty", "-m", "moved")
    with desk.open() as holdfast:
        holdfast.apply_preview(plan.plan_id)
    desk.apply(plan)
    for commit in ("HEAD", "HEAD~1", "HEAD~2"):
        assert "gpgsig -----BEGIN PGP SIGNATURE-----" in git(desk.app, "cat-file", "commit", commit)
    assert commits(desk.app)[1].split("|")[:4] == ["remove b", "Bot", "bot@example.org", "2001-02-03T04:05:06+07:00"]


def test_a_signature_that_fails_changes_nothing(desk: Desk):
    plan = desk.run(app=TWO)
    fake_gpg(desk, "exit 1")
    before = desk.what_counts()
    with pytest.raises(SandboxError, match="could not make the commit"):
        desk.apply(plan)
    desk.assert_put_back(before)


def test_an_author_that_git_would_write_in_another_way_is_not_signed(desk: Desk):
    strange = "sed 's/^author [^<]*</author J. </'"
    plan = desk.run(app=f"{TWO}; new=$(git cat-file commit HEAD | {strange} | git hash-object -t commit -w --stdin); "
                    "git reset -q --hard $new")  # fmt: skip
    fake_gpg(desk, SIGNS)
    assert "git would not sign" in not_kept(desk, plan)
    desk.unapply(plan)
    git(desk.app, "config", "commit.gpgsign", "false")
    git(desk.app, "commit", "-q", "--allow-empty", "-m", "moved")
    desk.apply(plan)
    assert "\nauthor J. <bot@" in git(desk.app, "cat-file", "commit", "HEAD")


# Made one


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (f"git checkout -q -b x; {TWO}; git checkout -q -; echo y > y; git add y; {COMMIT} y; git merge -q -m both x",
         "is a merge"),
        (f"{TWO}; git checkout -q --orphan x; {COMMIT} all", "no longer on top of the commit"),
        ("git reset -q --hard HEAD^; echo one >> a.txt", "no longer on top of the commit"),
        (f"git reset -q --hard HEAD^; echo one >> a.txt; {COMMIT} x", "no longer on top of the commit"),
        (f"{TWO}; rm -r .git", "HEAD of the sandbox names no commit"),
        (f"{TWO}; git checkout -q --orphan x", "HEAD of the sandbox names no commit"),
        (f"{TWO}; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -q -m sub",
         "changes a submodule"),
        (f"{TWO}; echo x > x.log; git add -f x.log; {COMMIT} log", "they contain x.log, which git ignores"),
        (f"{TWO}; echo x > x.log; git add -f x.log; {COMMIT} log; git rm -q --cached x.log; {COMMIT} gone",
         "they contain x.log, which git ignores"),
        (f"{TWO}; {DAMAGED}", "git cannot use them"),
        (f"{TWO}; {MALFORMED}", "git cannot use them"),
        (f"{TWO}; {WITH_NUL}", "git cannot use them"),
        (f"echo x > a.txt; {VERY_MANY}", "they are more than 1000"),
        ("git add -A .; git commit -q -m 'the work of the user'; echo one >> a.txt",
         "they contain mine.txt, which was not committed when the plan began"),
    ],
)  # fmt: skip
def test_what_is_no_line_of_commits_that_fit_becomes_one_and_the_reason_is_said(desk: Desk, script: str, reason: str):
    write(desk.app / ".gitignore", "*.log\n")
    git(desk.app, "add", ".")
    git(desk.app, "commit", "-q", "-m", "rules")
    write(desk.app / "mine.txt", "not committed\n")
    plan = desk.run(app=script)
    assert reason in not_kept(desk, plan)
    assert status(desk.app) == ["?? mine.txt"]
    assert desk.leftovers() == []


def test_commits_that_conflict_with_the_branch_become_one(desk: Desk):
    """What they come to in the end fits, but a step on the way there does not."""
    plan = desk.run(app=f"echo x > b.txt; {COMMIT} x; git show HEAD^:b.txt > b.txt; echo one >> a.txt; {COMMIT} back")
    write(desk.app / "b.txt", "of mine\n")
    git(desk.app, "commit", "-q", "-a", "-m", "of mine")
    assert "conflicts with your branch in b.txt" in not_kept(desk, plan)
    assert (desk.app / "b.txt").read_text() == "of mine\n"


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("git rm -q b.txt; mkdir b.txt; echo m > b.txt/m", "git rm -q b.txt"),
        ("git rm -q b.txt; mkdir b.txt; echo m > b.txt/m", "echo x > b.txt"),
        ("echo m > place", "mkdir place; echo x > place/x"),
        ("mkdir place; echo m > place/m", "echo x > place"),
        ("chmod +x b.txt; echo m > b.txt", "echo x > b.txt"),
        ("echo m > folder/m", "git rm -qr folder; echo x > folder"),
        ("printf 'm\\0' > b.txt", "printf 'x\\0' > b.txt"),
        ("printf 'b.txt -merge\\n' > .gitattributes; printf 'm\\nb\\n' > b.txt", "echo x >> b.txt"),
    ],
)
def test_other_conflicts_on_the_way_are_found_as_well(desk: Desk, mine: str, theirs: str):
    back = "git rm -qr --ignore-unmatch . ; git checkout -q HEAD~1 -- .; echo one >> a.txt; git add -A"
    plan = desk.run(app=f"{theirs}; git add -A; git commit -q -m theirs; {back}; git commit -q -m back")
    desk.run(data="true")  # the folder of the repository stays as it is
    subprocess.run(["sh", "-c", f"{mine}; git add -A; git commit -q -m mine"], cwd=desk.app, check=True)
    was = describe(desk.app, without=[b".git", b"a.txt"])
    assert "conflicts with your branch in" in not_kept(desk, plan)
    assert compare(was, describe(desk.app, without=[b".git", b"a.txt"]), ignoring=["mtime_ns"]) == []


def test_files_that_a_filter_makes_become_one_commit(desk: Desk):
    git(desk.app, "config", "filter.large.clean", "sed s/secret/public/")
    plan = desk.run(app=f"echo '*.bin filter=large' > .gitattributes; echo secret > x.bin; git add .; {COMMIT} bin")
    assert "they contain x.bin, which a filter of git makes" in not_kept(desk, plan)
    assert git(desk.app, "show", "HEAD:x.bin") == "public"


def test_a_mode_that_the_users_git_does_not_look_at_is_not_carried(desk: Desk):
    git(desk.app, "config", "core.fileMode", "false")
    plan = desk.run(app=f"echo one >> a.txt; git update-index --chmod=+x a.txt; {COMMIT} 'with a mode'")
    assert "with them a.txt would be another file than the plan's result" in not_kept(desk, plan)


def test_commits_that_together_change_nothing_are_nothing_for_a_branch(desk: Desk):
    plan = desk.run(app=f"echo x > x; git add x; {COMMIT} x; git rm -q x; {COMMIT} 'no x'")
    with pytest.raises(StateError, match="changed nothing that git could hold on a branch"):
        desk.apply(plan, branch="topic")


def test_settings_that_change_while_the_user_is_asked_stop_the_apply(desk: Desk):
    plan = desk.run(app=f"{TWO}; printf 'x\\r\\n' > lines.txt")
    before = desk.what_counts()

    def agree(_: ApplyPreview) -> bool:
        git(desk.app, "config", "core.autocrlf", "input")
        return True

    with desk.open() as holdfast, pytest.raises(ConflictError, match="meanwhile; nothing was changed"):
        holdfast.apply(plan.plan_id, confirm=agree)
    git(desk.app, "config", "--unset", "core.autocrlf")
    config = b"app/.git/config"
    assert compare({**before, config: desk.what_counts()[config]}, desk.what_counts()) == []
    assert log(desk.app) == ["the first commit"]
    desk.apply(plan)
    assert log(desk.app) == ["the plan", "remove b", "change a", "the first commit"]


def test_what_a_sparse_checkout_left_out_is_not_taken_back(desk: Desk):
    git(desk.app, "sparse-checkout", "set", "--no-cone", "/a.txt")
    index_only = "git update-index --cacheinfo 100644,$(git rev-parse HEAD:a.txt),b.txt; git commit -q -m index"
    plan = desk.run(app=f"echo one >> a.txt; {COMMIT} 'change a'; {index_only}")
    assert "they change b.txt, which is not checked out" in not_kept(desk, plan)
    assert git(desk.app, "show", "--format=", "--name-status") == "M\ta.txt"
    desk.unapply(plan)
    plan = desk.run(app=f"echo one >> a.txt; {COMMIT} 'change a'; echo rest > a.txt")
    desk.apply(plan)
    assert log(desk.app) == ["the plan", "change a", "the first commit"]


def test_squash_makes_one_commit_and_says_no_reason(desk: Desk):
    plan = desk.run(app=TWO)
    result = desk.apply(plan, commits="squash", message="all of it")
    assert log(desk.app) == ["all of it", "the first commit"]
    assert (result.kept_commits, result.not_kept) == ({}, {})


def test_without_a_commit_none_is_kept(desk: Desk):
    plan = desk.run(app=TWO)
    for wishes in ({"commits": "keep"}, {"message": "x"}):
        with pytest.raises(UsageError, match="exclude each other"):
            desk.apply(plan, commit=False, **wishes)
    for message in ("", " \n", "a\0b"):
        with pytest.raises(UsageError, match="needs a text"):
            desk.apply(plan, message=message)
    desk.apply(plan, commit=False)
    assert log(desk.app) == ["the first commit"]
    assert status(desk.app) == [" M a.txt", " D b.txt"]


def test_a_plan_without_commits_is_one_commit_as_ever(desk: Desk):
    plan = desk.run(app="echo one >> a.txt")
    result = desk.apply(plan, commits="keep")
    assert log(desk.app) == ["the plan", "the first commit"]
    assert (result.kept_commits, result.not_kept) == ({}, {})


# Cut short


@pytest.mark.unmeasured
@pytest.mark.parametrize("branch", [None, "topic"])
def test_killed_at_any_moment_all_of_them_are_there_or_none(desk: Desk, branch: str | None):
    plan = desk.run(app=f"{TWO}; echo rest > rest.txt", data="echo more >> one.csv") if branch is None else desk.run(
        app=f"{TWO}; echo rest > rest.txt"
    )  # fmt: skip
    git(desk.app, "commit", "-q", "--allow-empty", "-m", "moved")
    before = desk.what_counts()
    desk.keep()
    changes = count_of_changes(lambda: desk.apply(plan, branch=branch))
    desk.start_over()
    expected = ["the plan", "remove b", "change a"]
    for moment in sorted({*range(1, changes, changes // 7), *range(changes - 8, changes + 1)}):
        killed_at(moment, lambda: desk.apply(plan, branch=branch))
        with desk.open() as holdfast:
            was_applied = holdfast.find_plan(plan.plan_id).state is PlanState.APPLIED
        desk.next_command(plan)
        if not was_applied:
            desk.assert_put_back(before)
            desk.apply(plan, branch=branch)
        assert log(desk.app, branch or "HEAD")[:3] == expected, f"killed at change {moment}"
        assert_all_is_well(desk)
        assert_unapplied(desk, plan, before)
        desk.start_over()


def test_an_error_after_the_commits_were_made_leaves_the_branch_where_it_was(desk: Desk):
    plan = desk.run(app=TWO)
    write(desk.app / ".git" / "refs" / "heads" / "main.lock", "another git")
    before = desk.what_counts()
    with pytest.raises(HoldfastError):
        desk.apply(plan)
    assert compare(before, desk.what_counts()) == []
    (desk.app / ".git" / "refs" / "heads" / "main.lock").unlink()
    desk.apply(plan)
    assert head(desk.app) == sandbox_head(desk, plan)
