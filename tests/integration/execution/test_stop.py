"""Stopping a plan from another process, and going on with it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from holdfast.app import Holdfast
from holdfast.errors import StateError
from holdfast.events import Event, Validating
from holdfast.model import DecisionType, Lease, Plan, PlanState
from tests.support.workshop import Workshop, files, run


def _running(workshop: Workshop, plan_id: str, started: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast", "--home", str(workshop.home), "plan", "execute", plan_id]
    process = subprocess.Popen(command, cwd=workshop.app, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not started.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_a_plan_that_runs_elsewhere_is_stopped_keeps_everything_and_goes_on(workshop: Workshop) -> None:
    started, gate = workshop.outside / "started", workshop.outside / "gate"
    plan = workshop.create(run("echo 1 > one"), run(f"echo half > half; touch {started}; test -e {gate} || sleep 60"))
    process = _running(workshop, plan.plan_id, started)
    opened = workshop.open()
    stopped = opened.cancel(plan.plan_id)
    assert process.wait(30) == 130
    assert stopped.state is PlanState.CANCELLED
    assert files(workshop.sandbox(plan))["one"] == "1\n"
    preview = opened.resume_preview(plan.plan_id)
    assert preview.step_index == 1
    assert preview.group_id is not None
    gate.touch()
    assert opened.execute(plan.plan_id).succeeded


def test_a_plan_that_nobody_runs_is_cancelled_at_once_and_can_go_on(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 1 > one"))
    opened = workshop.open()
    assert opened.cancel(plan.plan_id).state is PlanState.CANCELLED
    assert opened.execute(plan.plan_id).succeeded


def test_what_is_complete_is_neither_stopped_nor_resumed(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 1 > one"))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    with pytest.raises(StateError, match="nothing to stop"):
        opened.cancel(plan.plan_id)
    with pytest.raises(StateError, match="nothing to go on with"):
        opened.resume_preview(plan.plan_id)
    assert opened.find_plan(plan.plan_id).state is PlanState.COMPLETE


def test_a_preview_of_resuming_says_from_where_and_changes_nothing(workshop: Workshop) -> None:
    started = workshop.outside / "started"
    plan = workshop.create(run("echo 1 > one"), run(f"echo half > half; touch {started}; sleep 60"))
    process = _running(workshop, plan.plan_id, started)
    process.send_signal(signal.SIGKILL)
    process.wait()
    opened = workshop.open()
    before = (opened.find_plan(plan.plan_id), workshop.groups(plan))
    preview = opened.resume_preview(plan.plan_id)
    assert (preview.step_index, preview.operations) == (1, ())
    assert preview.group_id == opened.store.runs.unfinished(plan.plan_id)[0].group_before_id
    assert (opened.find_plan(plan.plan_id), workshop.groups(plan)) == before


def test_an_owner_that_was_stopped_and_forgotten_is_ended_to_cancel_its_plan(workshop: Workshop) -> None:
    started = workshop.outside / "started"
    plan = workshop.create(run("echo 1 > one"), run(f"touch {started}; sleep 60"))
    process = _running(workshop, plan.plan_id, started)
    try:
        process.send_signal(signal.SIGSTOP)
        opened = workshop.open()
        lease = opened.store.get(Lease, plan.plan_id)
        with opened.store.transaction():
            long_ago = lease.heartbeat_at.replace(year=lease.heartbeat_at.year - 1)
            opened.store.save(lease.model_copy(update={"heartbeat_at": long_ago}))
        assert opened.cancel(plan.plan_id, patience_seconds=1).state is PlanState.CANCELLED
        assert process.wait(30) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def test_a_validation_that_was_stopped_has_said_nothing_and_is_asked_again(workshop: Workshop) -> None:
    gate, stop = workshop.outside / "gate", threading.Event()
    plan = workshop.create(run("echo 1 > one"), validate=[f"test -e {gate} || sleep 60"])

    def stop_at_validation(event: Event) -> None:
        if isinstance(event, Validating):
            stop.set()

    opened = workshop.open()
    stopped = opened.execute(plan.plan_id, listener=stop_at_validation, cancelled=stop)
    assert stopped.plan.state is PlanState.CANCELLED
    assert _verdicts(opened, plan) == []
    gate.touch()
    assert opened.execute(plan.plan_id).succeeded
    assert _verdicts(opened, plan) == ["yes"]


def _verdicts(opened: Holdfast, plan: Plan) -> list[str]:
    return [each.chosen for each in opened.decisions(plan.plan_id) if each.type is DecisionType.VALIDATION_RESPONSE]
