"""Killed, or without power, and then gone on with: where triggers are off, checkpoints few, or something waits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.errors import SandboxError, StateError
from holdfast.events import Event, StepFinished, StepStarted, SubplanStarted
from holdfast.model import Plan, PlanState
from tests.support.workshop import Died, Workshop, dies_at, files, run

VERSION = {"version.txt": "1\n"}
CONFLICTING = {
    "name": "divided",
    "parallel": 2,
    "subplans": [
        {"name": "one", "steps": [run("echo a > version.txt")]},
        {"name": "two", "steps": [run("echo b > version.txt")]},
    ],
}


def started(index: int) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, StepStarted) and event.index == index


def finished(index: int) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, StepFinished) and event.index == index


def killed(workshop: Workshop, plan: Plan, at: Callable[[Event], bool]) -> None:
    with pytest.raises(Died):
        workshop.open().execute(plan.plan_id, listener=dies_at(at))


def rebooted(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    with opened.store.transaction():
        opened.store.save(opened.find_plan(plan.plan_id).changed(boot_id="another start"))


def last_decision(opened: Holdfast, plan: Plan) -> str:
    return [each for each in opened.decisions(plan.plan_id) if each.step_index is not None][-1].decision_id


# On the disk


def test_where_no_checkpoint_will_hold_what_a_step_did_its_files_are_on_the_disk_before_it_counts(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = workshop.create(run("echo r > result"), policy={"auto_create_on": ["before_step"]})
    opened, counted = workshop.open(), []

    def sync() -> None:
        assert (workshop.sandbox(plan) / "result").exists()
        counted.append(opened.find_plan(plan.plan_id).last_completed_step)

    monkeypatch.setattr("os.sync", sync)
    assert opened.execute(plan.plan_id).succeeded
    assert counted == [-1]
    recorded = workshop.create(run("echo r > result"))
    assert opened.execute(recorded.plan_id).succeeded
    assert counted == [-1]


# Validation


def test_a_validation_that_was_killed_is_made_again(workshop: Workshop) -> None:
    plan = workshop.create(run("echo r > result"), validate=["test -e result"])
    killed(workshop, plan, started(1))
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    assert opened.find_plan(plan.plan_id).state is PlanState.COMPLETE


def test_what_was_lost_with_the_machine_during_a_validation_is_put_back(workshop: Workshop) -> None:
    plan = workshop.create(run("echo r > result"), validate=["test -e result"])
    killed(workshop, plan, started(1))
    rebooted(workshop, plan)
    (workshop.sandbox(plan) / "result").unlink()
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {**VERSION, "result": "r\n"}


def test_a_killed_validation_is_not_taken_for_a_step_that_is_added(workshop: Workshop) -> None:
    plan = workshop.create(run("echo r > result"), validate=["test -e two"])
    killed(workshop, plan, started(1))
    opened = workshop.open()
    steps = workshop.steps_file(run("test -e result && echo 2 > two", side_effects=True))
    opened.correct(last_decision(opened, plan), guidance="more", mode="append", steps_file=steps)
    assert opened.execute(plan.plan_id).succeeded


def test_nothing_is_added_while_a_step_is_cut_short_because_going_on_would_lose_it(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 1 > one"), run("echo 2 > two"))
    killed(workshop, plan, started(1))
    opened, steps = workshop.open(), workshop.steps_file(run("echo 3 > three"))

    def add() -> None:
        opened.correct(last_decision(opened, plan), guidance="more", mode="append", steps_file=steps)

    with pytest.raises(StateError, match=r"Step 2 .* has not finished") as refusal:
        add()
    assert f"holdfast plan resume {plan.plan_id}" in refusal.value.hint
    opened.execute(plan.plan_id)
    add()
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {**VERSION, "one": "1\n", "two": "2\n", "three": "3\n"}


def test_steps_are_added_after_a_failure_that_nothing_undoes(workshop: Workshop) -> None:
    gate = workshop.outside / "gate"
    plan = workshop.create(run("echo 1 > one"), run(f"echo 2 > two; test -e {gate}"), policy={"auto_create_on": []})
    opened, steps = workshop.open(), workshop.steps_file(run("echo 3 > three"))
    opened.execute(plan.plan_id)
    opened.correct(last_decision(opened, plan), guidance="more", mode="append", steps_file=steps)
    gate.touch()
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {**VERSION, "one": "1\n", "two": "2\n", "three": "3\n"}


@pytest.mark.parametrize("policy", [{}, {"auto_create_on": []}])
def test_nothing_is_added_while_a_conflict_waits(workshop: Workshop, policy: dict[str, Any]) -> None:
    plan = workshop.create(CONFLICTING, policy=policy)
    opened = workshop.open()
    opened.execute(plan.plan_id)
    with pytest.raises(StateError, match="has not finished"):
        opened.correct(
            last_decision(opened, plan), guidance="x", mode="append", steps_file=workshop.steps_file(run("true"))
        )


# Few checkpoints


@pytest.mark.parametrize("limit", [2, 3])
def test_what_is_put_back_to_is_not_pruned(workshop: Workshop, limit: int) -> None:
    plan = workshop.create(run("echo 1 > one"), run("echo 2 > two"), policy={"max_checkpoints": limit})
    killed(workshop, plan, finished(0))
    (workshop.sandbox(plan) / "one").write_text("torn")
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {**VERSION, "one": "1\n", "two": "2\n"}


@pytest.mark.parametrize("more", [{}, {"retries": 1}], ids=["once", "retried"])
def test_what_a_failed_step_goes_back_to_is_not_pruned(workshop: Workshop, more: dict[str, Any]) -> None:
    plan = workshop.create(run("echo 1 > one"), run("echo x > bad; false", **more), policy={"max_checkpoints": 2})
    for _ in range(2):
        result = workshop.open().execute(plan.plan_id)
        assert result.failed_run is not None
        assert files(workshop.sandbox(plan)) == {**VERSION, "one": "1\n"}


def test_what_an_interrupted_step_goes_back_to_is_not_pruned_either(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 1 > one"), run("echo x >> two"))
    killed(workshop, plan, started(1))
    (workshop.sandbox(plan) / "two").write_text("half\n")
    opened = workshop.open()
    opened.create_checkpoint(plan.plan_id)
    opened.prune(plan.plan_id, keep=2)
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["two"] == "x\n"


def corrected_first_step(workshop: Workshop, policy: dict[str, Any]) -> Plan:
    plan = workshop.create(run("echo wrong > one"), run("echo 2 > two"), policy=policy)
    opened = workshop.open()
    opened.execute(plan.plan_id)
    wrong = next(each for each in opened.decisions(plan.plan_id) if each.step_index == 0)
    opened.correct(wrong.decision_id, guidance="right", steps_file=workshop.steps_file(run("echo right > one")))
    return plan


def test_a_correction_never_goes_back_to_after_the_decision(workshop: Workshop) -> None:
    """The checkpoint taken when a step has ended names its decision as well; it holds what was wrong."""
    with pytest.raises(StateError, match="no checkpoint"):
        corrected_first_step(workshop, {"max_checkpoints": 6})


def test_a_correction_finds_the_checkpoint_that_a_step_began_with(workshop: Workshop) -> None:
    plan = corrected_first_step(workshop, {"auto_create_on": ["on_tool_write_complete"]})
    assert files(workshop.sandbox(plan)) == VERSION


# Fewer triggers


@pytest.mark.parametrize("triggers", [[], ["on_error"], ["on_tool_write_complete", "after_subplan"]])
def test_a_correction_is_not_undone_by_what_happens_after_it(workshop: Workshop, triggers: list[str]) -> None:
    plan = workshop.create(run("echo 1 > one"), policy={"auto_create_on": triggers})
    opened = workshop.open()
    opened.execute(plan.plan_id)
    steps = workshop.steps_file(run("echo 2 > two"), run("echo 3 > three"))
    opened.correct(last_decision(opened, plan), guidance="more", mode="append", steps_file=steps)
    killed(workshop, plan, started(1))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {**VERSION, "one": "1\n", "two": "2\n", "three": "3\n"}


@pytest.mark.parametrize("on_failure", ["rollback", "rollback_to_start"])
def test_going_back_after_a_failure_keeps_the_steps_that_were_added(workshop: Workshop, on_failure: str) -> None:
    plan = workshop.create(run("echo 1 > one"), policy={"auto_create_on": [], "on_failure": on_failure})
    opened = workshop.open()
    opened.execute(plan.plan_id)
    steps = workshop.steps_file(run("echo x > bad; false"))
    opened.correct(last_decision(opened, plan), guidance="more", mode="append", steps_file=steps)
    assert opened.execute(plan.plan_id).failed_run is not None
    assert [step.name for step in opened.find_plan(plan.plan_id).steps] == ["echo 1 > one", "echo x > bad; false"]
    assert files(workshop.sandbox(plan)) == {**VERSION, "one": "1\n"}


def test_going_back_to_the_start_after_a_failure_keeps_the_correction(workshop: Workshop) -> None:
    plan = workshop.create(run("echo wrong > one"), policy={"on_failure": "rollback_to_start"})
    opened = workshop.open()
    opened.execute(plan.plan_id)
    steps = workshop.steps_file(run("echo new > one"), run("false"))
    opened.correct(last_decision(opened, plan), guidance="new", steps_file=steps)
    assert opened.execute(plan.plan_id).failed_run is not None
    assert [step.name for step in opened.find_plan(plan.plan_id).steps] == ["echo new > one", "false"]
    assert files(workshop.sandbox(plan)) == VERSION


def test_the_start_of_a_correction_is_not_pruned_while_a_failure_would_go_back_to_it(workshop: Workshop) -> None:
    policy = {"on_failure": "rollback_to_start", "max_checkpoints": 6}
    plan = workshop.create(run("echo 1 > one"), run("echo wrong > two"), policy=policy)
    opened = workshop.open()
    opened.execute(plan.plan_id)
    steps = workshop.steps_file(run("echo right > two"), run("echo 3 > three"), run("false"))
    opened.correct(last_decision(opened, plan), guidance="new", steps_file=steps)
    result = opened.execute(plan.plan_id)
    assert result.failed_run is not None
    assert (result.plan.next_step, result.plan.attempt, len(result.plan.steps)) == (1, 2, 4)
    assert files(workshop.sandbox(plan)) == {**VERSION, "one": "1\n"}


def test_a_resolved_conflict_is_not_replaced_by_its_marks(workshop: Workshop) -> None:
    triggers = ["on_tool_write_complete", "after_subplan"]
    plan = workshop.create(CONFLICTING, run("echo l > later"), policy={"auto_create_on": triggers})
    workshop.open().execute(plan.plan_id)
    (workshop.sandbox(plan) / "version.txt").write_text("resolved\n")
    killed(workshop, plan, finished(0))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"version.txt": "resolved\n", "later": "l\n"}


@pytest.mark.parametrize("policy", [{"on_failure": "keep"}, {"rollback_enabled": False}])
@pytest.mark.parametrize("triggers", [[], ["on_tool_write", "on_tool_write_complete", "after_subplan"]])
def test_what_a_failed_step_left_is_kept_through_a_new_start_of_the_machine(
    workshop: Workshop, policy: dict[str, Any], triggers: list[str]
) -> None:
    plan = workshop.create(run("echo kept > kept; false"), policy={"auto_create_on": triggers, **policy})
    workshop.open().execute(plan.plan_id)
    rebooted(workshop, plan)
    workshop.open().create_checkpoint(plan.plan_id)
    assert files(workshop.sandbox(plan)) == {**VERSION, "kept": "kept\n"}


def test_what_a_failed_step_left_is_kept_if_the_plan_is_killed_right_then(workshop: Workshop) -> None:
    plan = workshop.create(run("echo x >> kept; test $(wc -l < kept) = 2"), policy={"on_failure": "keep"})
    killed(workshop, plan, finished(0))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["kept"] == "x\nx\n"


def test_what_was_changed_by_hand_before_a_step_without_a_checkpoint_stays(workshop: Workshop) -> None:
    plan = workshop.create(run("test -e fixed"), policy={"auto_create_on": []})
    workshop.open().execute(plan.plan_id)
    (workshop.sandbox(plan) / "fixed").write_text("by hand\n")
    killed(workshop, plan, started(0))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {**VERSION, "fixed": "by hand\n"}


def test_steps_whose_result_went_with_the_sandbox_are_run_again(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 1 > one"), run("echo 2 > two"), policy={"auto_create_on": []})
    killed(workshop, plan, finished(0))
    shutil.rmtree(workshop.sandbox(plan))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {**VERSION, "one": "1\n", "two": "2\n"}


# Subplans


def test_a_plan_that_waited_and_was_rolled_back_is_put_right_after_a_kill_like_any_other(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 1 >> one"), CONFLICTING)
    opened = workshop.open()
    assert opened.execute(plan.plan_id).plan.state is PlanState.CONSTRAINED
    opened.rollback(plan.plan_id, workshop.groups(plan)[0].group_id)
    assert opened.find_plan(plan.plan_id).state is PlanState.QUEUED
    killed(workshop, plan, started(0))
    (workshop.sandbox(plan) / "one").write_text("half\n")
    workshop.open().execute(plan.plan_id)
    assert files(workshop.sandbox(plan))["one"] == "1\n"


@pytest.mark.parametrize("parallel", [1, 2])
def test_what_was_lost_with_the_machine_before_the_first_subplan_is_put_back(workshop: Workshop, parallel: int) -> None:
    subplans = [{"name": name, "steps": [run(f"echo {name} > {name}")]} for name in ("one", "two")]
    plan = workshop.create(run("echo r > result"), {"name": "divided", "parallel": parallel, "subplans": subplans})
    killed(workshop, plan, lambda event: isinstance(event, SubplanStarted))
    rebooted(workshop, plan)
    (workshop.sandbox(plan) / "result").write_text("")
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {**VERSION, "result": "r\n", "one": "one\n", "two": "two\n"}


def test_a_divided_step_that_failed_and_could_not_be_undone_starts_from_before_it(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = workshop.outside / "flag"
    subplans = [{"name": "one", "steps": [run("echo 1 >> one")]}, {"name": "two", "steps": [run(f"test -e {flag}")]}]
    plan = workshop.create({"name": "divided", "subplans": subplans})
    opened = workshop.open()

    def full(*_: object, **__: object) -> None:
        raise SandboxError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(opened.service.rollback, "keep_present", full)
        with pytest.raises(SandboxError):
            opened.execute(plan.plan_id)
    flag.touch()
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {**VERSION, "one": "1\n"}


def test_what_was_lost_with_the_machine_while_a_subplan_waits_is_put_back(workshop: Workshop) -> None:
    divided = {"name": "outer", "subplans": [{"name": "inner", "steps": [CONFLICTING]}]}
    plan = workshop.create(run("echo r > result"), divided)
    opened = workshop.open()
    assert opened.execute(plan.plan_id).plan.state is PlanState.CONSTRAINED
    [inner] = opened.store.plans.below(plan.plan_id)
    (workshop.sandbox(inner) / "version.txt").write_text("both\n")
    rebooted(workshop, plan)
    (workshop.sandbox(plan) / "result").write_text("")
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"version.txt": "both\n", "result": "r\n"}
