"""A checkpoint can be named by the moment it is of, wherever a command takes one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Holdfast
from holdfast.errors import AmbiguousError, CheckpointNotFoundError, DamagedRecordError
from holdfast.model import CheckpointGroup, Plan
from tests.integration.cli.damage import module
from tests.support.statements import counted_statements
from tests.support.workshop import Workshop, run


@pytest.fixture
def opened(workshop: Workshop) -> Holdfast:
    opened = workshop.open()
    plan = opened.create_plan(workshop.plan_file(run("echo 2 > version.txt", name="bump"), run("touch x", name="more")))
    opened.execute(plan.plan_id)
    return opened


def group_of(opened: Holdfast, reference: str) -> CheckpointGroup:
    return opened.checkpoint(reference, "latest").group


def groups(opened: Holdfast) -> list[CheckpointGroup]:
    return opened.store.groups.of(plan_of(opened).plan_id)


def plan_of(opened: Holdfast) -> Plan:
    return opened.find_plan("latest")


def test_now_before_and_start(opened: Holdfast) -> None:
    every = groups(opened)
    assert group_of(opened, "@") == every[-1]
    assert group_of(opened, "@-1") == every[-2]
    assert group_of(opened, f"@-{len(every) - 1}") == every[0]
    assert group_of(opened, "start") == every[0]


def test_they_work_without_the_name_of_the_plan(opened: Holdfast) -> None:
    assert opened.checkpoint("@").group == groups(opened)[-1]
    assert opened.checkpoint("start").group == groups(opened)[0]


def test_moments_before_are_counted_along_the_line_that_led_here(opened: Holdfast) -> None:
    target = groups(opened)[2]
    opened.rollback("latest", target.group_id)
    opened.create_checkpoint("latest", "lunch")
    # The moments that the rollback left are not on it.
    assert group_of(opened, "@").label == "lunch"
    assert group_of(opened, "@-1").restored_group_id == target.group_id
    assert group_of(opened, "@-2") == target
    assert group_of(opened, "@-3") == groups(opened)[1]


def test_a_time_means_the_newest_moment_until_then_on_any_branch(opened: Holdfast) -> None:
    for index, group in enumerate(groups(opened)):
        moved = group.model_copy(update={"created_at": group.created_at - timedelta(minutes=10 * (9 - index))})
        with opened.store.transaction():
            opened.store.save(moved)
    every = groups(opened)
    assert group_of(opened, "@{0s}") == every[-1]
    assert group_of(opened, "@{85 minutes ago}") == every[0]
    assert group_of(opened, "@{75 minutes ago}") == every[1]
    assert group_of(opened, f"@{{{every[2].created_at.astimezone():%Y-%m-%d %H:%M:%S}}}") == every[2]
    with pytest.raises(CheckpointNotFoundError, match=r'no moment "@\{2 days ago\}": its first one, `start`'):
        group_of(opened, "@{2 days ago}")


def test_a_moment_that_there_is_not_is_refused_with_a_hint(opened: Holdfast) -> None:
    with pytest.raises(CheckpointNotFoundError, match='no moment "@-99"') as caught:
        group_of(opened, "@-99")
    assert "holdfast log" in caught.value.hint
    with pytest.raises(CheckpointNotFoundError, match=r'"@\{teatime\}" names no moment') as caught:
        group_of(opened, "@{teatime}")
    assert "@{10 minutes ago}" in caught.value.hint


@pytest.mark.parametrize("reference", ["@", "@-1", "@{1m}", "start"])
def test_a_plan_without_moments_says_so(workshop: Workshop, reference: str) -> None:
    opened = workshop.open()
    opened.create_plan(workshop.plan_file(run("true")))
    with pytest.raises(CheckpointNotFoundError) as caught:
        group_of(opened, reference)
    assert caught.value.hint == "The plan has no checkpoints yet."


def labelled(opened: Holdfast, group: CheckpointGroup, label: str) -> None:
    """As an earlier version allowed it."""
    with opened.store.transaction():
        opened.store.save(group.model_copy(update={"label": label}))
        for each in opened.checkpoints_at(group):
            metadata = each.metadata.model_copy(update={"label": label})
            opened.store.save(each.model_copy(update={"metadata": metadata}))


def test_an_older_label_that_looks_like_a_moment_counts_if_nothing_else_is_meant(opened: Holdfast) -> None:
    every = groups(opened)
    labelled(opened, every[1], "@-77")
    assert group_of(opened, "@-77").group_id == every[1].group_id
    labelled(opened, every[0], "start")
    assert group_of(opened, "start").group_id == every[0].group_id
    labelled(opened, every[2], "@noon")
    assert group_of(opened, "@noon").group_id == every[2].group_id
    labelled(opened, every[2], "@-1")
    with pytest.raises(AmbiguousError, match='"@-1" is a moment and also the label') as caught:
        group_of(opened, "@-1")
    for each in (every[-2], every[2]):
        assert opened.checkpoints_at(each)[0].checkpoint_id in caught.value.hint


def test_a_damaged_record_on_the_way_is_said(workshop: Workshop, opened: Holdfast) -> None:
    every = groups(opened)
    connection = module.connect(workshop.home / "holdfast.db")
    with connection:
        connection.execute("UPDATE checkpoint_group SET reason = 'x' WHERE group_id = ?", (every[-3].group_id,))
    connection.close()
    assert group_of(opened, "@-1") == every[-2]
    with pytest.raises(DamagedRecordError, match="is damaged, so it is not known"):
        group_of(opened, "@-4")


def test_damaged_checkpoints_of_a_moment_are_said(workshop: Workshop, opened: Holdfast) -> None:
    head = groups(opened)[-1]
    connection = module.connect(workshop.home / "holdfast.db")
    with connection:
        connection.execute("UPDATE checkpoint_metadata SET size_bytes = 77 WHERE group_id = ?", (head.group_id,))
    connection.close()
    with pytest.raises(DamagedRecordError, match="records of all checkpoints of moment"):
        group_of(opened, "@")


def test_a_rollback_takes_them_too(workshop: Workshop, opened: Holdfast) -> None:
    opened.rollback("latest", "@-3", only=["version.txt"])
    assert (workshop.sandbox(plan_of(opened)) / "version.txt").read_text() == "2\n"
    opened.rollback("latest", "start", only=["version.txt"])
    assert (workshop.sandbox(plan_of(opened)) / "version.txt").read_text() == "1\n"


def test_naming_the_present_does_not_read_the_history(workshop: Workshop, opened: Holdfast) -> None:
    plan = plan_of(opened)
    with counted_statements() as counts:
        opened.service.get_checkpoint(plan.plan_id, "@")
        few = counts.now()
        for number in range(40):
            (workshop.sandbox(plan) / "f").write_text(str(number))
            opened.create_checkpoint(plan.plan_id)
        before = counts.now()
        opened.service.get_checkpoint(plan.plan_id, "@")
        opened.service.get_checkpoint(plan.plan_id, "@-2")
        many = counts.since(before)
    assert many.rows <= 3 * few.rows + 3
