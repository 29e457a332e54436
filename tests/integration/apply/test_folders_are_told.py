"""What apply and unapply say of folders, before and after, is what they do, and what the diff of the plan says."""

from __future__ import annotations

import pytest

from holdfast.apply.preview import ApplyPreview
from holdfast.apply.unapply import UnapplyPreview
from holdfast.errors import ConflictError
from tests.integration.apply.conftest import Desk
from tests.support.crashes import count_of_changes, killed_at
from tests.support.trees import compare, write

Told = set[tuple[str, str]]


def told(result: ApplyPreview | UnapplyPreview) -> Told:
    return {(each.file, each.action) for each in result.changes}


@pytest.mark.parametrize(
    ("script", "changes"),
    [
        ("rmdir empty", {("empty", "removed")}),
        ("mkdir new", {("new", "added")}),
        ("rm -r full", {("full/a", "removed"), ("full/b", "removed")}),
        ("mkdir -p one/two/three", {("one/two/three", "added")}),
        ("mkdir one; touch one/file; chmod 700 full", {("one/file", "added"), ("full", "changed")}),
        ("rmdir empty; touch empty", {("empty", "changed")}),
        ("rm -r full; touch full", {("full", "changed"), ("full/a", "removed"), ("full/b", "removed")}),
    ],
)
def test_the_dry_run_the_result_and_the_diff_say_the_same(desk: Desk, script: str, changes: Told):
    (desk.data / "empty").mkdir()
    write(desk.data / "full" / "a")
    (desk.data / "full" / "b").mkdir()
    before = desk.everything()
    plan = desk.run(data=script)
    with desk.open() as holdfast:
        assert {(each.path, each.status) for each in holdfast.diff(plan.plan_id)} == changes
        assert told(holdfast.apply_preview(plan.plan_id)) == changes
    assert {(each.file, each.action) for each in desk.apply(plan).changes} == changes
    back = {(file, "removed" if action == "added" else "restored") for file, action in changes}
    with desk.open() as holdfast:
        assert told(holdfast.unapply_preview(plan.plan_id)) == back
    assert told(desk.unapply(plan)) == back
    assert compare(before, desk.everything(), ignoring=["mtime_ns"]) == []


def test_a_folder_that_stays_as_it_holds_something_of_the_user_is_not_told(desk: Desk):
    (desk.data / "empty").mkdir()
    plan = desk.run(data="rmdir empty; mkdir new")
    write(desk.data / "empty" / "mine")
    assert {(each.file, each.action) for each in desk.apply(plan).changes} == {("new", "added")}
    write(desk.data / "new" / "mine")
    assert told(desk.unapply(plan)) == set()
    assert (desk.data / "empty" / "mine").exists()
    assert (desk.data / "new" / "mine").exists()


def test_a_branch_of_its_own_has_no_empty_folder(desk: Desk):
    plan = desk.run(app="mkdir empty; echo more >> a.txt")
    with desk.open() as holdfast:
        assert told(holdfast.apply_preview(plan.plan_id, branch="result")) == {("a.txt", "changed")}


def test_the_mode_of_the_resource_itself_arrives_and_goes_back(desk: Desk):
    desk.data.chmod(0o755)
    before = desk.everything()
    plan = desk.run(data="chmod 711 .; echo more >> one.csv")
    changes = {(".", "changed"), ("one.csv", "changed")}
    with desk.open() as holdfast:
        assert {(each.path, each.status) for each in holdfast.diff(plan.plan_id)} == changes
        assert told(holdfast.apply_preview(plan.plan_id)) == changes
    assert {(each.file, each.action) for each in desk.apply(plan).changes} == changes
    assert desk.data.stat().st_mode & 0o777 == 0o711
    assert told(desk.unapply(plan)) == {(".", "restored"), ("one.csv", "restored")}
    assert compare(before, desk.everything(), ignoring=["mtime_ns"]) == []


def test_a_mode_of_the_resource_itself_that_both_changed_is_refused(desk: Desk):
    desk.data.chmod(0o755)
    plan = desk.run(data="chmod 711 .")
    desk.data.chmod(0o750)
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert refusal.value.paths == ("data: .",)
    assert desk.data.stat().st_mode & 0o777 == 0o750


def test_killed_while_the_resource_itself_is_changed_it_is_put_back(desk: Desk):
    desk.data.chmod(0o755)
    plan = desk.run(data="chmod 711 .")
    before = desk.what_counts()
    desk.keep()
    changes = count_of_changes(lambda: desk.apply(plan))
    desk.start_over()
    for moment in range(changes - 5, changes + 1):
        killed_at(moment, lambda: desk.apply(plan))
        if desk.next_command(plan).state == "complete":
            assert compare(before, desk.what_counts()) == []
            desk.apply(plan)
        assert desk.data.stat().st_mode & 0o777 == 0o711
        desk.start_over()
