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
from holdfast.events import Event, SandboxesPutBack, StepFinished
from holdfast.executor import AfterInterruption, Choices
from holdfast.model import Decision, DecisionType, Plan, PlanState, RunStatus
from tests.integration.engine.workshop import Died, Workshop, dies_at, files, run


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
    assert [each.status for each in opened.store.runs_of(plan.plan_id)] == [RunStatus.SUCCEEDED] * 3


def test_a_step_that_may_be_done_twice_is_simply_run_again(workshop: Workshop) -> None:
    plan = _with_effect(workshop, side_effects=True, idempotent=True)
    assert workshop.open().execute(plan.plan_id).succeeded
    assert (workshop.outside / "sent").read_text() == "mail\nmail\n"


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
    [put_back] = [each for each in told if isinstance(each, SandboxesPutBack)]
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
