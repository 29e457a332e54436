"""The customer's names: a manager that rolls back to what it listed, and lists what was recorded."""

from __future__ import annotations

import pytest

from holdfast import CheckpointNotFoundError, Holdfast, SandboxCheckpoint
from holdfast.model import Plan
from holdfast.system.ids import new_id
from tests.support.workshop import Workshop, files, run

SEVEN = ("checkpoint_id", "sandbox_id", "plan_id", "phase", "created_at", "metadata", "snapshot_path")


@pytest.fixture
def opened(workshop: Workshop) -> Holdfast:
    return workshop.open()


@pytest.fixture
def plan(workshop: Workshop, opened: Holdfast) -> Plan:
    """One step that changes one of two resources, and one that changes nothing."""
    steps = run("echo 2 > version.txt"), run("true")
    return opened.execute(opened.create_plan(workshop.plan_file(*steps)).plan_id).plan


def test_the_manager_lists_every_recorded_checkpoint_also_if_nothing_had_changed(opened: Holdfast, plan: Plan) -> None:
    recorded = opened.service.list_checkpoints(plan.plan_id)
    listed = [
        each
        for resource in plan.resources
        for each in opened.service.manager.list_checkpoints(f"{plan.plan_id}/{resource.name}")
    ]

    assert sorted(each.checkpoint_id for each in listed) == sorted(each.checkpoint_id for each in recorded)
    assert any(each.size_bytes == 0 for each in listed)
    for each in recorded:
        found = opened.service.manager.get_checkpoint(each.checkpoint_id)
        assert found in listed
        assert found.state_hash == each.metadata.state_hash
        assert found.created_at == each.created_at
        assert found.snapshot_path == each.filesystem_path
        assert found.metadata["reason"] == each.metadata.reason
        assert opened.service.get_checkpoint(plan.plan_id, each.checkpoint_id) == each


def test_a_checkpoint_of_a_rollback_is_listed_as_well(opened: Holdfast, plan: Plan) -> None:
    first = opened.service.list_checkpoints(plan.plan_id)[0]
    opened.rollback(plan.plan_id, first.checkpoint_id)

    last = opened.find_plan(plan.plan_id).last_checkpoint_id
    assert last is not None
    assert opened.service.manager.get_checkpoint(last).metadata["triggers"] == ["rollback"]


def test_the_manager_rolls_a_sandbox_back_to_a_checkpoint(workshop: Workshop, opened: Holdfast, plan: Plan) -> None:
    sandbox = workshop.sandbox(plan)
    first, *_, last = opened.service.manager.list_checkpoints(f"{plan.plan_id}/app")

    differences, _ = opened.service.manager.rollback_to(first)
    assert [each.path for each in differences] == [b"version.txt"]
    assert files(sandbox) == {"version.txt": "1\n"}
    opened.service.manager.rollback_to(last)
    assert files(sandbox) == {"version.txt": "2\n"}


def test_the_seven_fields_of_a_checkpoint_are_enough_to_roll_back_to_it(
    workshop: Workshop, opened: Holdfast, plan: Plan
) -> None:
    first = opened.service.manager.list_checkpoints(f"{plan.plan_id}/app")[0]
    made = SandboxCheckpoint(**{name: getattr(first, name) for name in SEVEN})

    opened.service.manager.rollback_to(made)

    assert files(workshop.sandbox(plan)) == {"version.txt": "1\n"}


def test_an_unknown_checkpoint_is_an_error_of_its_own(opened: Holdfast, plan: Plan) -> None:
    unknown = new_id()
    first = opened.service.manager.list_checkpoints(f"{plan.plan_id}/app")[0]
    made_up = SandboxCheckpoint(**{name: getattr(first, name) for name in SEVEN} | {"checkpoint_id": unknown})

    for ask in (
        lambda: opened.service.manager.get_checkpoint(unknown),
        lambda: opened.service.manager.rollback_to(made_up),
        lambda: opened.service.get_checkpoint(plan.plan_id, unknown),
        lambda: opened.checkpoint(unknown),
        lambda: opened.checkpoint("no such label", plan.plan_id),
        lambda: opened.rollback(plan.plan_id, "cp_00000000"),
        lambda: opened.delete_checkpoint(plan.plan_id, unknown),
    ):
        with pytest.raises(CheckpointNotFoundError) as caught:
            ask()
        assert caught.value.exit_code == 3
        assert caught.value.hint
