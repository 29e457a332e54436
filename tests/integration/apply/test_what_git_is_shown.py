"""What a commit of apply is made from: the recorded result, under the rules and attributes the repository has by now.

And what it is refused for: whatever else git would change or forget with it.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable

import pytest

from holdfast.app import Holdfast
from holdfast.apply.preview import ApplyPreview
from holdfast.errors import ConflictError, SandboxError, StateError
from holdfast.model import Plan
from tests.integration.apply.conftest import Desk
from tests.support.crashes import killed_at
from tests.support.repositories import git, head, status
from tests.support.trees import write

# A file where there was a folder, and the other way round


def folder_removed(desk: Desk) -> str:
    shutil.rmtree(desk.app / "folder")
    return "echo new > folder"


def folder_not_checked_out(desk: Desk) -> str:
    git(desk.app, "sparse-checkout", "set", "elsewhere")
    return "echo new > folder"


def file_staged_and_removed(desk: Desk) -> str:
    write(desk.app / "precious", "precious\n")
    git(desk.app, "add", "precious")
    (desk.app / "precious").unlink()
    return "mkdir precious && echo new > precious/new"


def folder_staged_and_removed(desk: Desk) -> str:
    write(desk.app / "precious" / "file", "precious\n")
    git(desk.app, "add", "precious")
    shutil.rmtree(desk.app / "precious")
    return "echo new > precious"


CLASHES = {
    folder_removed: "folder/c.txt",
    folder_not_checked_out: "folder/c.txt",
    file_staged_and_removed: "precious",
    folder_staged_and_removed: "precious/file",
}


@pytest.mark.parametrize("prepare", CLASHES, ids=lambda prepare: prepare.__name__.replace("_", " "))
def test_what_git_would_forget_for_a_new_file_is_named(desk: Desk, prepare: Callable[[Desk], str]):
    plan = desk.run(app=prepare(desk))
    before = desk.what_counts()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert refusal.value.paths == (f"app: {CLASHES[prepare]}",)
    assert "--no-commit" in (refusal.value.hint or "")
    desk.assert_put_back(before)


def test_a_branch_does_not_lose_a_folder_that_the_user_removed(desk: Desk):
    plan = desk.run(app=folder_removed(desk))
    before = desk.what_counts()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan, branch="result")
    assert refusal.value.paths == ("app: folder/c.txt",)
    desk.assert_put_back(before)


def test_a_file_that_the_user_stages_in_the_place_of_a_removed_folder_is_not_lost_by_taking_back(desk: Desk):
    plan = desk.run(app="rm -r folder")
    desk.apply(plan)
    write(desk.app / "folder", "precious\n")
    git(desk.app, "add", "folder")
    (desk.app / "folder").unlink()
    staged = git(desk.app, "ls-files", "--stage")
    with pytest.raises(ConflictError) as refusal:
        desk.unapply(plan)
    assert refusal.value.paths == ("app: folder",)
    assert git(desk.app, "ls-files", "--stage") == staged


# The recorded result


def test_a_sandbox_that_is_edited_while_the_question_is_open_is_not_applied(desk: Desk):
    plan = desk.run(app="echo result > a.txt")
    before = desk.what_counts()

    def edit_then_say_yes(_: ApplyPreview) -> bool:
        write(desk.sandbox(plan) / "a.txt", "edited\n")
        return True

    with desk.open() as holdfast, pytest.raises(StateError, match="not what the plan left"):
        holdfast.apply(plan.plan_id, confirm=edit_then_say_yes)
    desk.assert_put_back(before)


def test_what_is_in_the_files_already_and_not_committed_is_work_of_the_user(desk: Desk):
    plan = desk.run(app="echo new > new.txt && echo changed > a.txt && echo changed > b.txt")
    write(desk.app / "new.txt", "new\n")
    write(desk.app / "a.txt", "changed\n")
    before = desk.what_counts()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert refusal.value.paths == ("app: a.txt", "app: new.txt")
    desk.assert_put_back(before)
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "--quiet", "-m", "the same by hand")
    desk.apply(plan)
    assert git(desk.app, "show", "--format=", "--name-only").split() == ["b.txt"]
    assert status(desk.app) == []


def test_a_file_that_may_not_be_read_is_committed_too(desk: Desk):
    plan = desk.run(app="echo new > new.txt && echo run > tool && chmod 0 new.txt && chmod 0111 tool")
    desk.apply(plan)
    assert git(desk.app, "ls-tree", "HEAD", "new.txt", "tool").split()[::4] == ["100644", "100755"]
    assert git(desk.app, "show", "HEAD:new.txt") == "new"


def test_a_temporary_folder_without_room_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    plan = desk.run(app="echo new > new.txt")
    before = desk.what_counts()

    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("holdfast.apply.git_view.change", no_room)
    with pytest.raises(SandboxError, match="No space left on device") as refusal:
        desk.apply(plan)
    assert "TMPDIR" in (refusal.value.hint or "")
    desk.assert_put_back(before)


# Rules for ignored files


def ignore(desk: Desk, text: str) -> None:
    write(desk.app / ".gitignore", text)
    git(desk.app, "add", ".gitignore")
    git(desk.app, "commit", "--quiet", "-m", "what to ignore")


def test_what_the_user_ignores_by_now_is_left_in_the_sandbox(desk: Desk):
    ignore(desk, "*.log\n")
    plan = desk.run(app="echo secret > .env && mkdir out && echo x > out/x && echo x > a.log && echo new > b.txt")
    ignore(desk, "*.log\n.env\nout/\n")
    result = desk.apply(plan)
    assert set(result.left_out) == {".env", "out/x", "a.log"}
    assert git(desk.app, "show", "--format=", "--name-only").split() == ["b.txt"]
    assert status(desk.app) == []


def test_what_the_user_no_longer_ignores_is_committed(desk: Desk):
    ignore(desk, "*.log\n")
    plan = desk.run(app="echo kept > a.log")
    ignore(desk, "# nothing\n")
    assert desk.apply(plan).left_out == ()
    assert git(desk.app, "show", "HEAD:a.log") == "kept"


def test_where_both_changed_the_rules_those_of_both_hold(desk: Desk):
    ignore(desk, "1\n2\n3\n4\n5\n6\n7\n")
    plan = desk.run(app="echo '*.tmp' >> .gitignore && echo x > a.tmp && echo x > .env && echo new > new.txt")
    ignore(desk, ".env\n1\n2\n3\n4\n5\n6\n7\n")
    assert set(desk.apply(plan).left_out) == {".env", "a.tmp"}
    assert git(desk.app, "show", "--format=", "--name-only").split() == [".gitignore", "new.txt"]
    assert status(desk.app) == []


def test_a_branch_follows_the_rules_that_are_on_it(desk: Desk):
    plan = desk.run(app="echo '*.tmp' > .gitignore && echo x > a.tmp && echo new > new.txt")
    ignore(desk, "new.txt\n")
    assert desk.apply(plan, branch="result").left_out == ("a.tmp",)
    assert git(desk.app, "ls-tree", "--name-only", "result", "new.txt", "a.tmp") == "new.txt"


# Attributes


def test_a_filter_that_the_user_set_up_by_now_is_used_and_the_files_are_clean(desk: Desk):
    write(desk.app / ".gitattributes", "*.txt text\n")
    git(desk.app, "add", ".gitattributes")
    git(desk.app, "commit", "--quiet", "-m", "attributes")
    plan = desk.run(app="echo hello > big.bin")
    git(desk.app, "config", "filter.upper.clean", "tr a-z A-Z")
    git(desk.app, "config", "filter.upper.smudge", "tr A-Z a-z")
    write(desk.app / ".gitattributes", "*.txt text\n*.bin filter=upper\n")
    git(desk.app, "commit", "--quiet", "-am", "a filter")
    start = head(desk.app)
    desk.apply(plan)
    assert git(desk.app, "show", "HEAD:big.bin") == "HELLO"
    assert status(desk.app) == []
    desk.unapply(plan)
    assert head(desk.app) == start


def test_attributes_that_the_plan_brings_hold_for_its_own_files(desk: Desk):
    git(desk.app, "config", "filter.upper.clean", "tr a-z A-Z")
    git(desk.app, "config", "filter.upper.smudge", "tr A-Z a-z")
    plan = desk.run(app="echo '*.bin filter=upper' > folder/.gitattributes && echo hello | tee folder/x.bin y.bin")
    desk.apply(plan)
    assert git(desk.app, "show", "HEAD:folder/x.bin", "HEAD:y.bin").split() == ["HELLO", "hello"]
    assert status(desk.app) == []


def test_lines_that_nobody_changed_keep_their_ends_in_a_merge(desk: Desk):
    write(desk.app / "dos.txt", "".join(f"{number}\r\n" for number in range(9)))
    git(desk.app, "add", "dos.txt")
    git(desk.app, "commit", "--quiet", "-m", "with carriage returns")
    git(desk.app, "config", "core.autocrlf", "input")
    plan = desk.run(app="sed -i 's/^0/zero/' dos.txt")
    text = (desk.app / "dos.txt").read_bytes().replace(b"8", b"eight")
    (desk.app / "dos.txt").write_bytes(text)
    git(desk.app, "commit", "--quiet", "-am", "the last line")
    desk.apply(plan)
    assert git(desk.app, "show", "--format=", "--numstat").split() == ["1", "1", "dos.txt"]
    assert status(desk.app) == []


# The repository


def test_a_partial_clone_needs_nothing_from_afar(desk: Desk):
    origin = desk.folder / "origin"
    desk.app.rename(origin)
    git(origin, "config", "uploadpack.allowFilter", "true")
    git(desk.real, "clone", "--quiet", "--filter=blob:none", "--sparse", f"file://{origin}", "app")
    origin.rename(desk.folder / "away")
    plan = desk.run(app="echo changed > a.txt")
    desk.apply(plan)
    assert git(desk.app, "show", "--format=", "--name-only").split() == ["a.txt"]


@pytest.mark.parametrize("mark", ["sequencer", "BISECT_LOG"])
def test_the_middle_of_something_longer_is_no_time_to_apply(desk: Desk, mark: str):
    plan = desk.run(app="echo changed > a.txt")
    write(desk.app / ".git" / mark, "")
    with pytest.raises(SandboxError, match="in progress"):
        desk.apply(plan)
    assert (desk.app / "a.txt").read_text() == "a\n"


def test_a_message_says_in_which_encoding_it_really_is(desk: Desk):
    git(desk.app, "config", "i18n.commitEncoding", "ISO-8859-1")
    plan = desk.run_plan(
        {
            "name": "größer",
            "resources": {"app": {"type": "git", "path": str(desk.app)}},
            "steps": [{"name": "change", "run": "echo changed > a.txt"}],
        }
    )
    desk.apply(plan)
    commit = git(desk.app, "cat-file", "commit", "HEAD")
    assert "\nencoding " not in commit
    assert "größer" in commit


def test_the_index_stays_open_to_those_it_was_open_to(desk: Desk):
    (desk.app / ".git" / "index").chmod(0o664)
    desk.apply(desk.run(app="echo changed > a.txt"))
    assert stat.S_IMODE((desk.app / ".git" / "index").stat().st_mode) == 0o664


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "still there"])
def test_a_branch_that_was_merged_is_not_taken_back_by_removing_its_name(desk: Desk, is_deleted: bool):
    plan = desk.run(app="echo changed > a.txt")
    desk.apply(plan, branch="result")
    git(desk.app, "merge", "--quiet", "result")
    if is_deleted:
        git(desk.app, "branch", "--delete", "result")
    with pytest.raises(ConflictError, match="is part of what is checked out") as refusal:
        desk.unapply(plan)
    assert "git revert" in (refusal.value.hint or "")
    assert desk.state(plan) == ("apply", "applied")


# A project that is gone


def cut_short_and_moved_away(desk: Desk) -> Plan:
    plan = desk.run(app="echo changed > a.txt", data="echo changed > one.csv")
    # After the files, before the index: the first three are about its lock.
    assert killed_at(4, lambda: desk.apply(plan), touching="index.holdfast")
    assert (desk.data / "one.csv").read_text() == "changed\n"
    desk.app.rename(desk.folder / "away")
    return plan


def opened_elsewhere(desk: Desk) -> Holdfast:
    environment = {name: os.environ[name] for name in ("PATH", "HOME")}
    return Holdfast.open(desk.folder, home=desk.home, environment=environment)


@pytest.mark.parametrize("name", ["app", "data"])
def test_a_project_that_is_not_there_is_named(desk: Desk, name: str):
    plan = desk.run(app="echo changed > a.txt", data="echo changed > one.csv")

    def is_refused(verb: Callable[[Holdfast], object]) -> None:
        (desk.real / name).rename(desk.folder / "away")
        with opened_elsewhere(desk) as holdfast, pytest.raises(SandboxError, match="no longer exist") as refusal:
            verb(holdfast)
        assert str(desk.real / name) in str(refusal.value)
        (desk.folder / "away").rename(desk.real / name)

    is_refused(lambda holdfast: holdfast.apply(plan.plan_id))
    desk.apply(plan)
    is_refused(lambda holdfast: holdfast.unapply(plan.plan_id))
    desk.unapply(plan)
    assert status(desk.app) == []


def test_of_a_plan_cut_short_all_that_is_there_is_put_back_and_the_rest_waited_for(desk: Desk):
    plan = cut_short_and_moved_away(desk)
    with (
        opened_elsewhere(desk) as holdfast,
        pytest.raises(SandboxError, match="missing and cannot be restored") as refusal,
    ):
        holdfast.execute(plan.plan_id)
    assert str(desk.app) in str(refusal.value)
    assert "plan delete" in (refusal.value.hint or "")
    assert (desk.data / "one.csv").read_text() == "one.csv\n"
    (desk.folder / "away").rename(desk.app)
    assert desk.next_command(plan).state.value == "complete"
    assert (desk.app / "a.txt").read_text() == "a\n"
    assert status(desk.app) == []


def test_a_plan_whose_project_is_gone_for_good_can_be_deleted(desk: Desk):
    plan = cut_short_and_moved_away(desk)
    with opened_elsewhere(desk) as holdfast:
        holdfast.delete(plan.plan_id)
        assert holdfast.list_plans(everywhere=True) == []
    assert (desk.data / "one.csv").read_text() == "one.csv\n"
