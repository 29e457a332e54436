"""What a rollback or an apply replaces can come back, also if what the store had of it was damaged meanwhile."""

from __future__ import annotations

import random

import pytest
from blake3 import blake3

from holdfast.app import Holdfast
from holdfast.decisions.correct import CorrectionResult
from holdfast.errors import ContentError
from holdfast.events import Event, StepFinished
from holdfast.model import CheckpointGroup, Moment, Plan, PlanState, RollbackResult
from tests.integration.cli.damage import blank_page_of, damage_objects, objects_in
from tests.support.snapshots import needed_objects
from tests.support.workshop import Workshop, files, run

LARGE_BYTES = 5_000_000
"""Stored in pieces."""
STEPS = (
    run("mkdir -p deep/down; echo one > deep/down/one; echo old > changed"),
    run("echo two > deep/two; echo new > changed; head -c 5000000 /dev/zero > large"),
)


@pytest.fixture
def plan(workshop: Workshop) -> Plan:
    return workshop.open().execute(workshop.create(*STEPS).plan_id).plan


def _start(opened: Holdfast, plan: Plan) -> CheckpointGroup:
    return opened.store.groups.of(plan.plan_id)[0]


def _damage_all_but(workshop: Workshop, opened: Holdfast, group: CheckpointGroup) -> None:
    """Files, pieces, folders and states: all but what that group needs."""
    database = workshop.home / "objects.db"
    needed = needed_objects(opened.service.manager.reader, group.states.values())
    damage_objects(database, objects_in(database) - needed)


def _gone_back(opened: Holdfast, plan: Plan, reference: str, *only: str) -> RollbackResult:
    result = opened.rollback(plan.plan_id, reference, only=only)
    assert isinstance(result, RollbackResult)
    return result


def test_a_rollback_stores_what_it_leaves_anew_where_that_is_damaged(workshop: Workshop, plan: Plan) -> None:
    before, opened = files(workshop.sandbox(plan)), workshop.open()
    start = _start(opened, plan)
    _damage_all_but(workshop, opened, start)
    left = _gone_back(workshop.open(), plan, start.group_id).left_group_id
    assert files(workshop.sandbox(plan)) == {"version.txt": "1\n"}
    _gone_back(workshop.open(), plan, left or "")
    assert files(workshop.sandbox(plan)) == before


def test_so_does_a_correction(workshop: Workshop, plan: Plan) -> None:
    before, opened = files(workshop.sandbox(plan)), workshop.open()
    decision = next(each for each in opened.decisions(plan.plan_id) if each.step_index == 0)
    left = plan.head_group_id
    _damage_all_but(workshop, opened, _start(opened, plan))
    assert isinstance(workshop.open().correct(decision.decision_id, guidance="differently"), CorrectionResult)
    assert files(workshop.sandbox(plan)) == {"version.txt": "1\n"}
    _gone_back(workshop.open(), plan, left or "")
    assert files(workshop.sandbox(plan)) == before


def test_so_does_going_back_after_a_failure(workshop: Workshop) -> None:
    plan = workshop.create(*STEPS, run("false"), policy={"on_failure": "rollback_to_start"})
    opened = workshop.open()

    def listener(event: Event) -> None:
        if isinstance(event, StepFinished) and event.index == 1:
            damage_objects(workshop.home / "objects.db", [blake3(bytes(1 << 20)).digest()])

    assert not opened.execute(plan.plan_id, listener=listener).succeeded
    assert files(workshop.sandbox(plan)) == {"version.txt": "1\n"}
    left = next(each for each in opened.store.groups.of(plan.plan_id) if each.last_completed_step == 1)
    _gone_back(workshop.open(), plan, left.group_id)
    assert files(workshop.sandbox(plan))["large"] == "\0" * LARGE_BYTES


def test_so_does_restoring_single_files(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    earlier = next(each for each in opened.store.groups.of(plan.plan_id) if each.last_completed_step == 0)
    damage_objects(workshop.home / "objects.db", [blake3(b"new\n").digest()])
    left = _gone_back(opened, plan, earlier.group_id, "changed").left_group_id
    assert files(workshop.sandbox(plan))["changed"] == "old\n"
    _gone_back(workshop.open(), plan, left or "", "changed")
    assert files(workshop.sandbox(plan))["changed"] == "new\n"


def test_so_does_putting_back_what_was_recorded_after_the_machine_died(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    (workshop.sandbox(plan) / "changed").write_text("old\n")  # what an earlier checkpoint has stored
    damage_objects(workshop.home / "objects.db", [blake3(b"old\n").digest()])
    with opened.store.transaction():
        opened.store.save(opened.find_plan(plan.plan_id).changed(boot_id="another start"))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["changed"] == "new\n"
    found = next(each for each in workshop.groups(plan) if Moment.BEFORE_ROLLBACK in each.triggers)
    _gone_back(workshop.open(), plan, found.group_id)
    assert files(workshop.sandbox(plan))["changed"] == "old\n"


def test_so_does_an_apply_with_the_real_files_it_replaces(workshop: Workshop) -> None:
    made = workshop.create(run('echo 2 > version.txt; echo 3 > "$HOLDFAST_RESOURCE_DATA/orders.csv"'))
    workshop.open().execute(made.plan_id)
    damage_objects(workshop.home / "objects.db", [blake3(each).digest() for each in (b"1\n", b"1;2\n")])
    workshop.open().apply(made.plan_id)
    assert (files(workshop.app), files(workshop.data)) == ({"version.txt": "2\n"}, {"orders.csv": "3\n"})
    workshop.open().unapply(made.plan_id)
    assert (files(workshop.app), files(workshop.data)) == ({"version.txt": "1\n"}, {"orders.csv": "1;2\n"})


def test_real_files_that_cannot_be_stored_anew_are_not_replaced(workshop: Workshop) -> None:
    content = random.Random(4).randbytes(50_000)
    (workshop.data / "kept").write_bytes(content)
    made = workshop.create(run('echo less > "$HOLDFAST_RESOURCE_DATA/kept"'))
    workshop.open().execute(made.plan_id)
    workshop.close()
    blank_page_of(workshop.home / "objects.db", content)
    with pytest.raises(ContentError, match="cannot be stored again"):
        workshop.open().apply(made.plan_id)
    assert (workshop.data / "kept").read_bytes() == content
    assert workshop.open().find_plan(made.plan_id).state is PlanState.COMPLETE


@pytest.mark.parametrize("only", [(), ("kept",)], ids=["all", "one file"])
def test_what_cannot_be_stored_anew_is_not_given_up(workshop: Workshop, only: tuple[str, ...]) -> None:
    content = random.Random(3).randbytes(50_000)
    (workshop.folder / "content").write_bytes(content)
    made = workshop.create(run(f"cp {workshop.folder}/content kept"))
    plan = workshop.open().execute(made.plan_id).plan
    start = _start(workshop.open(), plan).group_id
    workshop.close()
    blank_page_of(workshop.home / "objects.db", content)
    opened = workshop.open()
    for go_back in (opened.rollback_preview, opened.rollback):
        with pytest.raises(ContentError, match="cannot be stored again"):
            go_back(plan.plan_id, start, only=only)
    assert (workshop.sandbox(plan) / "kept").read_bytes() == content
