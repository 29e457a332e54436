"""Applying to a directory: exactly the plan's changes, beside whatever the user did meanwhile."""

from __future__ import annotations

import os
import shutil

import pytest

from holdfast.errors import ConflictError
from tests.integration.apply.conftest import Desk
from tests.support.trees import A_MOMENT_NS, compare, describe, make_odd_tree, make_socket, set_mtime, write


def test_every_kind_of_change_arrives_exactly(desk: Desk):
    make_odd_tree(desk.data)
    plan = desk.run(
        data="""
        chmod u+w 'read only' && echo more > 'read only/added' && chmod u-w 'read only'
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
