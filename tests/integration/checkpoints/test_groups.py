"""One moment, all resources that changed, one group: all of it or nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError
from holdfast.model import Plan
from tests.support.workshop import Workshop, files, run

KILLED_BETWEEN_TWO_SNAPSHOTS = """
import os, signal, sys
from pathlib import Path
from holdfast.app import Holdfast
from holdfast.snapshot.manager import CheckpointManager

take = CheckpointManager.take
def take_or_die(manager, batch, **about):
    taken = take(manager, batch, **about)
    if about["metadata"]["triggers"] == ["on_tool_write_complete"] and about["sandbox_id"].endswith("/one"):
        os.kill(os.getpid(), signal.SIGKILL)
    return taken
CheckpointManager.take = take_or_die
Holdfast.open(Path(sys.argv[1]), home=Path(sys.argv[2])).execute(sys.argv[3])
"""


@pytest.fixture
def three(workshop: Workshop) -> Plan:
    """A plan with three resources, whose one step changes two of them."""
    resources = {}
    for name in ("one", "two", "three"):
        (workshop.folder / name).mkdir()
        (workshop.folder / name / "file").write_text("before\n")
        resources[name] = {"type": "directory", "path": name}
    steps = [run('echo after > file; echo after > "$HOLDFAST_RESOURCE_TWO/file"')]
    file = workshop.folder / "three.yaml"
    file.write_text(json.dumps({"name": "three", "resources": resources, "steps": steps}))
    return workshop.open().create_plan(file)


def _rows_after_the_write(opened: Holdfast, plan: Plan) -> list[str]:
    return [
        view.checkpoint.resource_id
        for view in opened.checkpoints(plan.plan_id)
        if "on_tool_write_complete" in view.group.triggers
    ]


def test_a_group_has_a_checkpoint_for_each_resource_that_changed_and_the_state_of_all(
    workshop: Workshop, three: Plan
) -> None:
    opened = workshop.open()
    opened.execute(three.plan_id)
    assert _rows_after_the_write(opened, three) == ["one", "two"]
    [group] = [each for each in workshop.groups(three) if "on_tool_write_complete" in each.triggers]
    assert set(group.states) == {"one", "two", "three"}


def test_after_a_kill_between_two_snapshots_there_is_no_group_and_nothing_refers_to_one(
    workshop: Workshop, three: Plan
) -> None:
    command = [sys.executable, "-c", KILLED_BETWEEN_TWO_SNAPSHOTS, workshop.app, workshop.home, three.plan_id]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    opened = workshop.open()
    assert _rows_after_the_write(opened, three) == []
    groups = {group.group_id for group in workshop.groups(three)}
    plan = opened.find_plan(three.plan_id)
    assert plan.head_group_id in groups
    assert plan.last_checkpoint_id in {row.checkpoint_id for row in opened.store.checkpoints.of(three.plan_id)}
    assert all(run.group_before_id in groups for run in opened.store.runs.of(three.plan_id))
    assert opened.verify(three.plan_id).damaged == ()
    assert opened.execute(three.plan_id).succeeded
    assert _rows_after_the_write(opened, three) == ["one", "two"]


def test_a_second_resource_that_cannot_be_read_leaves_no_group(workshop: Workshop, three: Plan) -> None:
    opened = workshop.open()
    opened.execute(three.plan_id)
    before = workshop.groups(three)
    second = Path(three.resource("two").sandbox_path)
    second.rename(second.with_name("moved away"))
    (Path(three.resource("one").sandbox_path) / "file").write_text("more\n")
    with pytest.raises(HoldfastError):
        opened.create_checkpoint(three.plan_id)
    assert workshop.groups(three) == before


@pytest.mark.unmeasured
def test_five_hundred_steps_keep_as_many_checkpoints_and_as_much_content_as_retention_says(workshop: Workshop) -> None:
    steps = [
        {"tool": "write_file", "resource": "data", "args": {"path": f"file {n % 7}", "content": f"{n}\n" * 200}}
        for n in range(500)
    ]
    plan = workshop.create(*steps, policy={"max_checkpoints": 20})
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    assert len(opened.checkpoints(plan.plan_id)) == 20
    opened.service.garbage.collect()
    kept = {content for group in workshop.groups(plan) for content in group.states.values()}
    objects = opened.service.manager.objects
    assert len(objects.catalogue.records_of(f"{plan.plan_id}/data")) <= 20
    # A fresh file each step, and two groups a step: what twenty checkpoints need is a small part of what was written.
    assert len(kept) <= 2 * 20
    assert objects.content_bytes() < 120_000
    first = opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
    opened.rollback(plan.plan_id, first)
    assert files(workshop.sandbox(plan, "data")) == {"orders.csv": "1;2\n"}
