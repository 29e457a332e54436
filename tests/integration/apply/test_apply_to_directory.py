"""Applying to a directory: exactly the plan's changes, beside whatever the user did meanwhile."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.errors import ConflictError, SandboxError
from holdfast.system import folder_mark
from tests.integration.apply.conftest import Desk
from tests.support.repositories import settings_of_a_person
from tests.support.trees import A_MOMENT_NS, Thing, compare, describe, make_odd_tree, make_socket, set_mtime, write
from tests.support.unprivileged import folder_for_nobody, run_as_a_user


def test_every_kind_of_change_arrives_exactly(desk: Desk):
    make_odd_tree(desk.data)
    plan = desk.run(
        data="""
        chmod u+w 'read only' && echo more > 'read only/added'
        rm -r shared && echo file > shared
        rm private && mkdir private && echo x > private/inside
        ln -sfn elsewhere 'relative link'
        rm fifo 'very old'
        mkfifo -m 600 'another fifo'
        chmod 755 plain.txt
        mkdir -p new/deep/empty
        echo one > new/one && ln new/one new/deep/two
        echo 'through one name' >> 'linked/first name'
        rm 'linked/second name' && echo apart > 'linked/second name'
        """
    )
    desk.apply(plan)
    expected, found = describe(desk.sandbox(plan, "data")), describe(desk.data)
    assert compare(expected, found, ignoring=["mtime_ns"]) == []
    times = {path: (expected[path].mtime_ns, found[path].mtime_ns) for path in expected if found[path].kind == "file"}
    assert [path for path, (wanted, there) in times.items() if wanted != there] == []
    assert desk.leftovers() == []


READ_ONLY_CHANGES = ["echo new > deep/new", "rm deep/three.csv", "echo more >> deep/three.csv"]


@pytest.mark.parametrize("change", READ_ONLY_CHANGES)
def test_a_folder_that_somebody_made_read_only_is_not_written_to(desk: Desk, change: str):
    plan = desk.run(data=f"{change}; echo more >> one.csv")
    (desk.data / "deep").chmod(0o555)
    before = desk.everything()
    refusals = []
    for attempt in (Holdfast.apply_preview, Holdfast.apply):
        with desk.open() as holdfast, pytest.raises(SandboxError, match="read-only") as refusal:
            attempt(holdfast, plan.plan_id)
        refusals.append((refusal.value.message, refusal.value.hint))
    assert refusals[0] == refusals[1]
    assert refusals[0][0].endswith(f"nothing was changed:\n  {desk.data / 'deep'}")
    assert "chmod u+w" in refusals[0][1]
    assert compare(before, desk.everything()) == []
    (desk.data / "deep").chmod(0o755)
    desk.apply(plan)
    (desk.data / "deep").chmod(0o500)
    for attempt_back in (Holdfast.unapply_preview, Holdfast.unapply):
        with desk.open() as holdfast, pytest.raises(SandboxError, match="read-only"):
            attempt_back(holdfast, plan.plan_id)


@pytest.mark.parametrize("change", ["echo new > deep/new; chmod u-w deep", "rm -r deep"])
def test_a_folder_that_was_read_only_before_is_not_written_to_by_a_plan_that_goes_around_it(desk: Desk, change: str):
    (desk.data / "deep").chmod(0o555)
    plan = desk.run(data=f"chmod u+w deep; {change}")
    with pytest.raises(SandboxError, match="read-only"):
        desk.apply(plan)


def test_a_folder_that_the_plan_makes_writable_or_read_only_is_the_plans_decision(desk: Desk):
    (desk.data / "deep").chmod(0o555)
    before = describe(desk.data)
    plan = desk.run(
        data="chmod 755 deep && echo new > deep/new; mkdir made && echo x > made/x && chmod 500 made; chmod 500 ."
    )
    desk.apply(plan)
    assert compare(describe(desk.sandbox(plan, "data")), describe(desk.data), ignoring=["mtime_ns"]) == []
    desk.unapply(plan)
    assert compare(before, describe(desk.data)) == []


CLOSED = [0o000, 0o100, 0o300, 0o500, 0o700]


def apply_closed_folders(folder: str) -> list[str]:
    """What differs between the result of a plan and the real files; the plan makes folders closed to their owner."""
    os.environ.update(settings_of_a_person(Path(folder)))
    desk = Desk(Path(folder))
    (desk.data / "deep").chmod(0o755)
    made = [f"mkdir {mode:o} && echo x > {mode:o}/file && chmod {mode:o} {mode:o}" for mode in CLOSED]
    plan = desk.run(data="; ".join([*made, "echo more >> deep/three.csv; chmod 100 deep"]))
    before = opened_up(desk.data)
    desk.apply(plan)
    differences = compare(opened_up(desk.sandbox(plan, "data")), opened_up(desk.data), ignoring=["mtime_ns"])
    desk.unapply(plan)
    return differences + compare(before, opened_up(desk.data))


def opened_up(root: Path) -> dict[bytes, Thing]:
    """What is in a tree, also in folders that are closed to their owner."""
    modes = {}
    for path in sorted(root.iterdir()):
        if path.is_dir():
            modes[path] = path.stat().st_mode & 0o7777
            path.chmod(0o700)
    tree = describe(root)
    for path, mode in modes.items():
        path.chmod(mode)
        tree[os.fsencode(path.name)] = replace(tree[os.fsencode(path.name)], mode=mode)
    return tree


def test_a_result_with_folders_that_are_closed_to_their_owner_arrives_for_a_user_who_is_not_root():
    with folder_for_nobody() as folder:
        assert run_as_a_user(apply_closed_folders, str(folder)) == []


def apply_closed_root(folder: str, mode: str) -> dict[str, object]:
    """What differs once the whole folder is closed to its owner by a plan, and once that is taken back."""
    os.environ.update(settings_of_a_person(Path(folder)))
    desk = Desk(Path(folder))
    (desk.data / "deep").chmod(0o755)
    before = describe(desk.data)
    folders = "".join(f"mkdir many{number}; echo {number} > many{number}/file; " for number in range(_MANY))
    plan = desk.run(data=f"{folders} echo more >> deep/three.csv; chmod {mode} .")
    desk.apply(plan)
    applied = stat.S_IMODE(desk.data.stat().st_mode)
    desk.data.chmod(0o700)
    desk.sandbox(plan, "data").chmod(0o700)
    arrived = compare(describe(desk.sandbox(plan, "data")), describe(desk.data), ignoring=["mtime_ns"])
    marked = folder_mark.find_on(desk.data) is not None
    desk.data.chmod(applied)
    desk.sandbox(plan, "data").chmod(applied)
    desk.unapply(plan)
    left = compare(before, describe(desk.data))
    return {"mode": f"{applied:o}", "arrived": arrived, "marked": marked, "left": left}


_MANY = 70
"""More folders than are kept open at a time."""


@pytest.mark.parametrize("mode", ["0", "100", "300", "400", "555"])
def test_a_result_that_closes_the_folder_itself_arrives_and_can_be_taken_back_by_a_user_who_is_not_root(mode: str):
    with folder_for_nobody() as folder:
        found = run_as_a_user(apply_closed_root, str(folder), mode)
    assert found == {"mode": mode, "arrived": [], "marked": False, "left": []}


def test_what_the_plan_did_not_touch_is_not_touched(desk: Desk):
    make_odd_tree(desk.data)
    untouched = {
        path: (path.lstat().st_ino, path.lstat().st_ctime_ns)
        for path in desk.data.rglob("*")
        if path.name != "plain.txt"
    }
    desk.apply(desk.run(data="echo more >> plain.txt"))
    after = {path: (path.lstat().st_ino, path.lstat().st_ctime_ns) for path in untouched}
    assert after == untouched


def test_changes_of_the_user_to_other_files_stay(desk: Desk):
    plan = desk.run(data="echo plan >> one.csv; rm two.csv")
    write(desk.data / "deep" / "three.csv", "the user's\n")
    write(desk.data / "added.csv", "the user's\n")
    os.symlink("one.csv", desk.data / "link")
    make_socket(desk.data / "socket")
    result = desk.apply(plan)
    assert (desk.data / "one.csv").read_text() == "one.csv\nplan\n"
    assert (desk.data / "deep" / "three.csv").read_text() == "the user's\n"
    assert sorted(os.listdir(desk.data)) == ["added.csv", "deep", "link", "one.csv", "socket"]
    assert {(each.file, each.action) for each in result.changes} == {("one.csv", "changed"), ("two.csv", "removed")}


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(lambda data: write(data / "one.csv", "the user's"), id="changed"),
        pytest.param(lambda data: (data / "one.csv").unlink(), id="removed"),
        pytest.param(lambda data: (data / "one.csv").chmod(0o600), id="closed"),
        pytest.param(lambda data: ((data / "one.csv").unlink(), (data / "one.csv").mkdir()), id="a directory now"),
        pytest.param(lambda data: ((data / "one.csv").unlink(), os.symlink("x", data / "one.csv")), id="a symlink now"),
        pytest.param(lambda data: ((data / "one.csv").unlink(), make_socket(data / "one.csv")), id="a socket now"),
    ],
)
def test_a_file_that_both_changed_is_refused_and_nothing_changes(desk: Desk, meanwhile):
    plan = desk.run(app="echo more >> a.txt", data="echo plan >> one.csv; echo plan >> two.csv")
    meanwhile(desk.data)
    before = desk.everything()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert refusal.value.paths == ("data: one.csv",)
    assert compare(before, desk.everything()) == []


def test_something_new_of_the_user_where_the_plan_made_something_is_refused(desk: Desk):
    plan = desk.run(data="mkdir new; echo x > new/x; echo y > y")
    write(desk.data / "new", "a file of the user's")
    write(desk.data / "y", "another y")
    before = desk.everything()
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert {"data: new", "data: y"} <= set(refusal.value.paths)
    assert compare(before, desk.everything()) == []


def test_a_directory_both_made_takes_what_both_put_into_it(desk: Desk):
    plan = desk.run(data="mkdir new; echo x > new/plan")
    write(desk.data / "new" / "user", "y")
    desk.apply(plan)
    assert sorted(os.listdir(desk.data / "new")) == ["plan", "user"]


def test_a_directory_that_the_user_removed_is_made_again_for_what_the_plan_adds(desk: Desk):
    plan = desk.run(data="mkdir -p deep/er; echo x > deep/er/new; echo y > deep/new")
    shutil.rmtree(desk.data / "deep")
    desk.apply(plan)
    assert sorted(os.listdir(desk.data / "deep")) == ["er", "new"]


def test_a_directory_that_became_a_symlink_is_not_followed(desk: Desk):
    plan = desk.run(data="echo x > deep/new; echo more >> deep/three.csv")
    outside = desk.folder / "outside"
    write(outside / "three.csv", "deep/three.csv\n")
    shutil.rmtree(desk.data / "deep")
    os.symlink(outside, desk.data / "deep")
    before, theirs = desk.everything(), describe(outside)
    with pytest.raises(ConflictError):
        desk.apply(plan)
    assert compare(before, desk.everything()) == []
    assert compare(theirs, describe(outside)) == []


def test_a_change_of_times_alone_is_no_change(desk: Desk):
    plan = desk.run(data="echo plan >> one.csv; touch two.csv")
    set_mtime(desk.data / "one.csv", A_MOMENT_NS)
    set_mtime(desk.data / "two.csv", A_MOMENT_NS)
    result = desk.apply(plan)
    assert [each.file for each in result.changes] == ["one.csv"]
    assert (desk.data / "two.csv").stat().st_mtime_ns == A_MOMENT_NS


def test_a_file_linked_from_elsewhere_is_replaced_and_its_other_name_keeps_the_old(desk: Desk):
    os.link(desk.data / "one.csv", desk.folder / "elsewhere")
    desk.apply(desk.run(data="echo plan >> one.csv"))
    assert (desk.data / "one.csv").read_text() == "one.csv\nplan\n"
    assert (desk.folder / "elsewhere").read_text() == "one.csv\n"


def test_files_that_the_plan_made_one_are_one(desk: Desk):
    desk.apply(desk.run(data="ln -f one.csv two.csv; ln one.csv deep/four.csv"))
    assert (desk.data / "two.csv").samefile(desk.data / "one.csv")
    assert (desk.data / "deep" / "four.csv").samefile(desk.data / "one.csv")


def test_a_name_the_user_gave_a_file_of_its_own_is_not_joined_again(desk: Desk):
    """In the sandbox it still is the same file as another, which the plan gave one more name."""
    os.link(desk.data / "one.csv", desk.data / "same.csv")
    plan = desk.run(data="ln one.csv another.csv")
    (desk.data / "same.csv").unlink()
    write(desk.data / "same.csv", "the user's own\n")
    desk.apply(plan)
    assert (desk.data / "another.csv").samefile(desk.data / "one.csv")
    assert (desk.data / "same.csv").read_text() == "the user's own\n"
