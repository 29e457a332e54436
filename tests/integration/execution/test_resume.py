"""What happens to a failed step, to one with effects outside, and to sandboxes after the machine went down."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.errors import SandboxError, StateError
from holdfast.events import Event, SandboxesRestored, StepFinished
from holdfast.execution.executor import AfterInterruption, Choices
from holdfast.model import Decision, DecisionType, Plan, PlanState, RollbackResult, RunStatus
from tests.support.workshop import Died, Workshop, dies_at, files, run


def recoveries(opened: Holdfast, plan: Plan) -> list[Decision]:
    return [each for each in opened.decisions(plan.plan_id) if each.type is DecisionType.ERROR_RECOVERY]


@pytest.mark.parametrize(
    ("on_failure", "chosen"),
    [
        ("rollback", "rollback and stop"),
        ("rollback_to_start", "rollback to start and stop"),
        ("keep", "keep what is there and stop"),
    ],
)
def test_what_is_done_about_a_failure_is_a_decision_in_force_with_a_checkpoint(
    workshop: Workshop, on_failure: str, chosen: str
) -> None:
    plan = workshop.create(run("echo 1 > one"), run("echo 2 > two; false"), policy={"on_failure": on_failure})
    opened = workshop.open()
    opened.execute(plan.plan_id)
    [decision] = recoveries(opened, plan)
    assert (decision.chosen, decision.is_superseded) == (chosen, False)
    assert decision.rationale == "the command ended with exit code 1"
    tied = [each for each in opened.checkpoints(plan.plan_id) if each.checkpoint.decision_id == decision.decision_id]
    assert len(tied) == 1


def test_every_retry_is_decided_and_there_are_exactly_as_many_as_asked_for(workshop: Workshop) -> None:
    plan = workshop.create(run(f"echo x >> {workshop.outside}/tries; false", retries=2))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    assert (workshop.outside / "tries").read_text() == "x\nx\nx\n"
    assert [each.chosen for each in recoveries(opened, plan)] == [
        "try again, try 2 of 3",
        "try again, try 3 of 3",
        "rollback and stop",
    ]


def test_retries_without_rollback_are_decided_too(workshop: Workshop) -> None:
    plan = workshop.create(run("echo x >> log; test $(wc -l < log) = 2", retries=1), policy={"rollback_enabled": False})
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["log"] == "x\nx\n"
    assert [each.chosen for each in recoveries(opened, plan)] == ["try again, try 2 of 2"]


def test_a_failed_try_whose_changes_were_kept_is_superseded_by_the_next(workshop: Workshop) -> None:
    tries = workshop.outside / "tries"
    command = f"echo x >> {tries}; test $(wc -l < {tries}) = 2"
    deploy = run(command, name="deploy", side_effects=True)
    plan = workshop.create(deploy, run("echo 2 > two"), policy={"on_failure": "keep"})
    opened = workshop.open()
    assert not opened.execute(plan.plan_id).succeeded
    assert opened.execute(plan.plan_id).succeeded
    assert [each.is_superseded for each in opened.store.runs.of(plan.plan_id)] == [True, False, False]
    after = next(each for each in opened.checkpoints(plan.plan_id) if each.group.last_completed_step == 0)
    preview = opened.rollback_preview(plan.plan_id, after.checkpoint.checkpoint_id)
    assert preview.expected.impact.side_effects_not_undone == ()
    assert preview.decisions == 1
    before = opened.rollback_preview(plan.plan_id, opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id)
    assert [each.step for each in before.expected.impact.side_effects_not_undone] == ["deploy"]


def test_subplans_of_a_failed_try_whose_changes_were_kept_are_superseded_by_the_next(workshop: Workshop) -> None:
    gate = workshop.outside / "gate"
    step = {"name": "both", "subplans": [{"name": "one", "steps": [run(f"test -e {gate}")]}]}
    plan = workshop.create(step, policy={"on_failure": "keep"})
    opened = workshop.open()
    assert not opened.execute(plan.plan_id).succeeded
    gate.touch()
    assert opened.execute(plan.plan_id).succeeded
    assert [bool(each.is_superseded) for each in opened.store.plans.below(plan.plan_id)] == [True, False]


# Effects outside


def _kill_in(workshop: Workshop, plan: Plan, started: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "--home", str(workshop.home), "plan", "execute", plan.plan_id]
    process = subprocess.Popen(command, cwd=workshop.app, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not started.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def _with_effect(workshop: Workshop, **declared: Any) -> Plan:
    """A plan whose second step does something outside and is killed in the middle of it."""
    gate, started, sent = (workshop.outside / name for name in ("gate", "started", "sent"))
    command = f"echo half > half; echo mail >> {sent}; touch {started}; until test -e {gate}; do sleep 0.05; done"
    plan = workshop.create(run("echo 1 > one"), run(command, name="send", **declared), run("echo 3 > three"))
    _kill_in(workshop, plan, started)
    gate.touch()
    return plan


def test_an_interrupted_step_with_effects_outside_is_not_silently_run_twice(workshop: Workshop) -> None:
    plan = _with_effect(workshop, side_effects=True)
    with pytest.raises(StateError, match=r"Step 2 \(send\) was interrupted") as refusal:
        workshop.open().execute(plan.plan_id)
    assert "--rerun" in refusal.value.hint
    assert "--skip" in refusal.value.hint
    assert (workshop.outside / "sent").read_text() == "mail\n"
    assert workshop.open().find_plan(plan.plan_id).state is PlanState.QUEUED


def test_it_is_run_again_from_a_clean_state_if_a_person_says_so(workshop: Workshop) -> None:
    plan = _with_effect(workshop, side_effects=True)
    result = workshop.open().execute(plan.plan_id, choices=Choices(AfterInterruption.RERUN))
    assert result.succeeded
    assert (workshop.outside / "sent").read_text() == "mail\nmail\n"


def test_it_counts_as_done_if_a_person_says_so_with_the_files_as_it_left_them(workshop: Workshop) -> None:
    plan = _with_effect(workshop, side_effects=True)
    opened = workshop.open()
    assert opened.execute(plan.plan_id, choices=Choices(AfterInterruption.SKIP)).succeeded
    assert (workshop.outside / "sent").read_text() == "mail\n"
    assert files(workshop.sandbox(plan)) == {"half": "half\n", "one": "1\n", "three": "3\n", "version.txt": "1\n"}
    said = [each.chosen for each in opened.decisions(plan.plan_id) if each.type is DecisionType.USER_INTERVENTION]
    assert said == ["no, it counts as done"]
    assert [each.status for each in opened.store.runs.of(plan.plan_id)] == [RunStatus.SUCCEEDED] * 3


def test_correcting_that_it_counts_as_done_runs_it_from_a_clean_state(workshop: Workshop) -> None:
    plan = _with_effect(workshop, side_effects=True)
    opened = workshop.open()
    opened.execute(plan.plan_id, choices=Choices(AfterInterruption.SKIP))
    [skip] = [each for each in opened.decisions(plan.plan_id) if each.type is DecisionType.USER_INTERVENTION]
    assert skip in opened.correction_preview(skip.decision_id).superseded
    opened.correct(skip.decision_id, guidance="it was not done")
    assert files(workshop.sandbox(plan)) == {"one": "1\n", "version.txt": "1\n"}
    in_force = [each.chosen for each in opened.decisions(plan.plan_id) if not each.is_superseded]
    assert in_force == ["a plan", "echo 1 > one", "it was not done"]
    assert opened.execute(plan.plan_id).succeeded
    assert (workshop.outside / "sent").read_text() == "mail\nmail\n"


def test_a_step_that_may_be_done_twice_is_simply_run_again(workshop: Workshop) -> None:
    plan = _with_effect(workshop, side_effects=True, idempotent=True)
    assert workshop.open().execute(plan.plan_id).succeeded
    assert (workshop.outside / "sent").read_text() == "mail\nmail\n"


def _with_effects_and_no_sandbox(workshop: Workshop, **declared: Any) -> Plan:
    """Two steps, no checkpoint after the first; killed in the second, and then the sandbox is removed."""
    gate, started, sent = (workshop.outside / name for name in ("gate", "started", "sent"))
    command = f"echo 2 >> {sent}; touch {started}; until test -e {gate}; do sleep 0.05; done"
    plan = workshop.create(
        run(f"echo 1 > one; echo 1 >> {sent}", name="first", **declared),
        run(command, name="second", **declared),
        policy={"auto_create_on": []},
    )
    _kill_in(workshop, plan, started)
    gate.touch()
    shutil.rmtree(workshop.sandbox(plan))
    return plan


@pytest.mark.parametrize("choice", [None, AfterInterruption.SKIP])
def test_effects_of_steps_that_went_with_a_sandbox_are_not_silently_repeated(
    workshop: Workshop, choice: AfterInterruption | None
) -> None:
    plan = _with_effects_and_no_sandbox(workshop, side_effects=True)
    opened = workshop.open()
    for go_on in (opened.resume_preview, opened.execute):
        with pytest.raises(
            StateError, match=r"sandbox of app is gone.* again: step 1 \(first\), step 2 \(second\)\."
        ) as refusal:
            go_on(plan.plan_id, choices=Choices(choice))
        assert f"--rerun {plan.plan_id}" in refusal.value.hint
    assert (workshop.outside / "sent").read_text() == "1\n2\n"
    again = Choices(AfterInterruption.RERUN)
    preview = opened.resume_preview(plan.plan_id, choices=again)
    assert (preview.step_index, preview.group_id) == (0, workshop.groups(plan)[0].group_id)
    assert (preview.made_anew, preview.is_lost) == (("app",), True)
    assert opened.execute(plan.plan_id, choices=again).succeeded
    assert (workshop.outside / "sent").read_text() == "1\n2\n1\n2\n"


def test_steps_that_went_with_a_sandbox_are_run_again_if_that_does_no_harm(workshop: Workshop) -> None:
    plan = _with_effects_and_no_sandbox(workshop, side_effects=True, idempotent=True)
    assert workshop.open().resume_preview(plan.plan_id).step_index == 0
    assert workshop.open().execute(plan.plan_id).succeeded


def test_a_step_of_a_subplan_with_effects_outside_is_refused_before_anything_goes_on(workshop: Workshop) -> None:
    gate, started, sent = (workshop.outside / name for name in ("gate", "started", "sent"))
    command = f"echo mail >> {sent}; touch {started}; until test -e {gate}; do sleep 0.05; done"
    left = {"name": "left", "steps": [run("echo l > left"), run(command, name="send", side_effects=True)]}
    right = {"name": "right", "steps": [run(f"until test -e {gate}; do sleep 0.05; done; echo r > right")]}
    plan = workshop.create({"name": "both", "parallel": 2, "subplans": [left, right]})
    _kill_in(workshop, plan, started)
    gate.touch()
    opened = workshop.open()
    for go_on in (opened.resume_preview, opened.execute):
        with pytest.raises(StateError, match=r"Step 2 \(send\) of subplan left was interrupted") as refusal:
            go_on(plan.plan_id)
        assert refusal.value.hint.count(plan.plan_id) == 2
    assert PlanState.COMPLETE not in {each.state for each in opened.store.plans.below(plan.plan_id)}
    found = opened.find_plan(plan.plan_id)
    assert (found.state, found.error) == (PlanState.QUEUED, "step 1 (both) was interrupted")
    assert opened.execute(plan.plan_id, choices=Choices(AfterInterruption.SKIP)).succeeded
    assert sent.read_text() == "mail\n"


def test_a_preview_tells_that_a_failed_step_is_undone_first_if_that_failed_before(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = workshop.outside / "gate"
    plan = workshop.create(run(f"echo half > half; test -e {gate}", name="build"))
    opened = workshop.open()

    def refused(*_: object, **__: object) -> None:
        raise SandboxError("Restoring the sandbox failed.")

    with monkeypatch.context() as patched:
        patched.setattr(opened.service.rollback, "_restore_and_record", refused)
        with pytest.raises(SandboxError):
            opened.execute(plan.plan_id)
    [failed] = opened.store.runs.of(plan.plan_id)
    assert opened.resume_preview(plan.plan_id).group_id == failed.group_before_id
    gate.touch()
    assert opened.execute(plan.plan_id).succeeded


# Undoing a rollback from where a step was cut short


def _rolled_back(opened: Holdfast, plan: Plan, index: int = 0) -> str:
    """Go back to a checkpoint, and say what undoes that."""
    result = opened.rollback(plan.plan_id, opened.checkpoints(plan.plan_id)[index].checkpoint.checkpoint_id)
    assert isinstance(result, RollbackResult)
    assert result.left_group_id is not None
    return result.left_group_id


def test_undoing_a_rollback_brings_a_step_that_was_cut_short_back_as_such(workshop: Workshop) -> None:
    plan = _with_effect(workshop)
    opened = workshop.open()
    left = _rolled_back(opened, plan)
    preview = opened.rollback_preview(plan.plan_id, left)
    undone = opened.rollback(plan.plan_id, left)
    assert isinstance(undone, RollbackResult)
    assert undone.plan.error == preview.expected.plan.error == "step 2 (send) was interrupted"
    assert files(workshop.sandbox(plan))["half"] == "half\n"
    run_before = opened.resume_preview(plan.plan_id).group_id
    assert (
        run_before == next(each for each in opened.store.runs.of(plan.plan_id) if each.step_index == 1).group_before_id
    )
    assert opened.execute(plan.plan_id).succeeded
    assert [each.is_superseded for each in opened.store.runs.of(plan.plan_id)] == [False, True, False, False]


@pytest.mark.parametrize("is_run_anew", [False, True])
def test_after_undoing_a_rollback_a_step_with_effects_is_not_silently_run_twice_either(
    workshop: Workshop, is_run_anew: bool
) -> None:
    plan = _with_effect(workshop, side_effects=True)
    opened = workshop.open()
    left = _rolled_back(opened, plan)
    if is_run_anew:
        assert opened.execute(plan.plan_id).succeeded
    sent = (workshop.outside / "sent").read_text()
    opened.rollback(plan.plan_id, left)
    with pytest.raises(StateError, match=r"Step 2 \(send\) was interrupted"):
        opened.execute(plan.plan_id)
    assert opened.execute(plan.plan_id, choices=Choices(AfterInterruption.SKIP)).succeeded
    assert (workshop.outside / "sent").read_text() == sent
    decisions = [each for each in opened.decisions(plan.plan_id) if not each.is_superseded]
    assert [each.step_index for each in decisions] == [None, 0, 1, 1, 2]
    # What was run anew meanwhile is not in force, also for those who go back to what there is now.
    end = _rolled_back(opened, plan)
    opened.rollback(plan.plan_id, end)
    assert [each for each in opened.decisions(plan.plan_id) if not each.is_superseded] == decisions


def test_a_step_that_came_to_its_end_cannot_be_cut_short_again(workshop: Workshop) -> None:
    plan = _with_effect(workshop, side_effects=True)
    opened = workshop.open()
    left = _rolled_back(opened, plan)
    opened.rollback(plan.plan_id, left)
    opened.execute(plan.plan_id, choices=Choices(AfterInterruption.SKIP))
    before = files(workshop.sandbox(plan))
    with pytest.raises(StateError, match=r"step 2 \(send\) was running. It has ended since"):
        opened.rollback(plan.plan_id, left)
    assert files(workshop.sandbox(plan)) == before


def test_the_checkpoint_before_a_step_that_can_come_back_stays_as_long_as_that_is_so(workshop: Workshop) -> None:
    plan = _with_effect(workshop)
    opened = workshop.open()
    left = _rolled_back(opened, plan)
    before = next(each for each in opened.store.runs.of(plan.plan_id) if each.step_index == 1).group_before_id or ""
    with pytest.raises(StateError, match="is needed"):
        opened.delete_checkpoint(plan.plan_id, before)
    opened.delete_checkpoint(plan.plan_id, left)
    assert opened.execute(plan.plan_id).succeeded
    assert opened.delete_checkpoint(plan.plan_id, before) == 1


# A machine that went down


def _after_a_power_cut(workshop: Workshop, plan: Plan) -> None:
    """The records of another start of the machine, and a sandbox that lost what was not on the disk yet."""
    opened = workshop.open()
    found = opened.find_plan(plan.plan_id)
    with opened.store.transaction():
        opened.store.save(found.changed(state=PlanState.PROCESSING, boot_id="another start"))
    opened.close()
    (workshop.sandbox(plan) / "one").write_bytes(b"\0\0")


def test_what_a_sandbox_lost_with_the_machine_is_put_back_and_what_was_found_is_kept(workshop: Workshop) -> None:
    flag = workshop.outside / "flag"
    plan = workshop.create(run("echo 1 > one"), run(f"cat one > seen; test -e {flag}"))
    workshop.open().execute(plan.plan_id)
    _after_a_power_cut(workshop, plan)
    flag.touch()
    told: list[Event] = []
    opened = workshop.open()
    assert opened.execute(plan.plan_id, listener=told.append).succeeded
    assert files(workshop.sandbox(plan))["seen"] == "1\n"
    [put_back] = [each for each in told if isinstance(each, SandboxesRestored)]
    assert put_back.resources == ("app",)
    found = opened.checkpoint(put_back.checkpoint_id, plan.plan_id)
    one = opened.service.manager.reader
    entry = one.find(one.state(found.group.states["app"]), b"one")
    assert entry is not None
    assert b"".join(one.content(entry)) == b"\0\0"


def test_steps_after_which_no_checkpoint_is_taken_are_not_taken_for_lost(workshop: Workshop) -> None:
    """The last group is then older than what they did, and nothing tells what the sandbox should be."""
    plan = workshop.create(run("echo 1 > one"), run("echo 2 > two"), policy={"auto_create_on": []})
    with pytest.raises(Died):
        workshop.open().execute(plan.plan_id, listener=dies_at(lambda event: isinstance(event, StepFinished)))
    assert files(workshop.sandbox(plan)) == {"one": "1\n", "version.txt": "1\n"}
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"one": "1\n", "two": "2\n", "version.txt": "1\n"}


def test_without_a_new_start_of_the_machine_the_sandbox_counts_as_it_is(workshop: Workshop) -> None:
    flag = workshop.outside / "flag"
    plan = workshop.create(run("echo 1 > one"), run(f"cat one > seen; test -e {flag}"))
    workshop.open().execute(plan.plan_id)
    (workshop.sandbox(plan) / "one").write_text("by hand\n")
    flag.touch()
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["seen"] == "by hand\n"


def test_what_is_edited_by_hand_after_a_kill_and_a_rollback_is_not_taken_back(workshop: Workshop) -> None:
    plan = _with_effect(workshop)
    opened, told = workshop.open(), list[Event]()
    opened.rollback(plan.plan_id, opened.checkpoints(plan.plan_id)[-1].checkpoint.checkpoint_id)
    (workshop.sandbox(plan) / "one").write_text("by hand\n")
    assert workshop.open().execute(plan.plan_id, listener=told.append).succeeded
    assert files(workshop.sandbox(plan))["one"] == "by hand\n"
    assert not [each for each in told if isinstance(each, SandboxesRestored)]


def test_a_step_killed_a_second_time_still_starts_from_a_clean_state(workshop: Workshop) -> None:
    started, gate = workshop.outside / "started", workshop.outside / "gate"
    plan = workshop.create(run(f"echo x >> log; touch {started}; until test -e {gate}; do sleep 0.05; done"))
    for _ in range(2):
        _kill_in(workshop, plan, started)
        started.unlink()
    gate.touch()
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["log"] == "x\n"


# Before anything runs


def test_all_that_is_wrong_with_a_plan_is_said_at_once(workshop: Workshop) -> None:
    file = workshop.plan_file(run("true", name="mail", checkpointable=False))
    shutil.rmtree(workshop.app / ".git")
    with pytest.raises(StateError, match="for 2 reasons") as refusal:
        workshop.open().create_plan(file)
    assert "mail" in refusal.value.message
    assert "git" in refusal.value.message


def test_steps_of_subplans_are_checked_as_well(workshop: Workshop) -> None:
    inner = {"name": "left", "steps": [run("true", name="deep inside", checkpointable=False)]}
    with pytest.raises(StateError, match="deep inside"):
        workshop.create({"name": "divided", "subplans": [inner]})


def test_what_is_not_copied_takes_no_space(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    (workshop.app / ".gitignore").write_text("built/\n*.log\n")
    (workshop.app / "built").mkdir()
    for name in ("built/large", "large.log"):
        (workshop.app / name).write_bytes(bytes(3_000_000))

    def create(**settings: str) -> Plan:
        return workshop.open(**settings).create_plan(workshop.plan_file(run("true")))

    one, both = create(sandbox__exclude="built"), create()
    none = create(sandbox__copy_ignored_limit="2MB")
    leftover = workshop.sandbox(one, "app").with_name(".app.unfinished")
    leftover.mkdir(parents=True)
    usage = type("Usage", (), {"free": 1_000_000})()
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    for plan, size in ((one, "3 MB"), (both, "6 MB")):
        with pytest.raises(SandboxError, match=f"The sandboxes need {size}"):
            workshop.open().execute(plan.plan_id)
    assert not leftover.exists()
    assert workshop.open().execute(none.plan_id).succeeded
    assert not (workshop.sandbox(none, "app") / "built").exists()


def test_a_plan_whose_sandboxes_do_not_fit_on_the_disk_does_not_start(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = workshop.create(run("true"))
    usage = type("Usage", (), {"free": 1})()
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(SandboxError, match=r"The sandboxes need .* MB"):
        workshop.open().execute(plan.plan_id)
    monkeypatch.undo()
    assert workshop.groups(plan) == []
    assert workshop.open().execute(plan.plan_id).succeeded
