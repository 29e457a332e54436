"""The process dies with SIGKILL; the next command puts everything right."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from holdfast.app import Holdfast
from holdfast.errors import ConflictError, ContentError, LeaseLostError, StateError
from holdfast.execution.executor import AfterInterruption, Choices
from holdfast.model import Lease, Plan, PlanState, RunStatus, StepRun
from holdfast.system.machine import process_of
from tests.integration.cli.damage import damage_content
from tests.support.repositories import status
from tests.support.workshop import Workshop, files, killed_in_rollback, run


def _start(workshop: Workshop, plan_id: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast", "--home", str(workshop.home), "plan", "execute", plan_id]
    return subprocess.Popen(command, cwd=workshop.app, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop it, and wait until it is: a signal takes its time."""
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + 60
    while (found := process_of(process.pid)) is None or not found.is_stopped:
        assert time.monotonic() < deadline, "it was not stopped"
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def killed(workshop: Workshop) -> tuple[str, int]:
    """A plan whose process died in the middle of its second step; the id and a process that step had started."""
    gate, started = workshop.outside / "gate", workshop.outside / "started"
    command = f"echo x >> log; sleep 300 & echo $! > {started}; test -e {gate} || wait"
    plan = workshop.create(run("echo 1 > one"), run(command), run("echo 3 > three"))
    process = _start(workshop, plan.plan_id)
    _wait_for(started)
    while not started.read_text().strip():
        time.sleep(0.01)
    process.kill()
    process.wait()
    gate.touch()
    return plan.plan_id, int(started.read_text())


def test_a_killed_plan_is_not_stuck_and_its_step_runs_again_from_a_clean_state(
    workshop: Workshop, killed: tuple[str, int]
) -> None:
    plan_id, child = killed
    status = workshop.open().status(plan_id)
    assert status.plan.state is PlanState.PROCESSING
    assert status.interrupted
    assert status.holder is None
    result = workshop.open().execute(plan_id)
    assert result.succeeded
    assert files(workshop.sandbox(result.plan)) == {"log": "x\n", "one": "1\n", "three": "3\n", "version.txt": "1\n"}
    assert not _is_running(child)
    runs = workshop.open().store.runs.of(plan_id)
    assert [(each.step_index, each.status) for each in runs] == [
        (0, RunStatus.SUCCEEDED),
        (1, RunStatus.INTERRUPTED),
        (1, RunStatus.SUCCEEDED),
        (2, RunStatus.SUCCEEDED),
    ]


def test_a_rollback_of_a_killed_plan_works_at_once(workshop: Workshop, killed: tuple[str, int]) -> None:
    plan_id, child = killed
    opened = workshop.open()
    first = opened.checkpoints(plan_id)[0]
    opened.rollback(plan_id, first.checkpoint.checkpoint_id)
    plan = opened.find_plan(plan_id)
    assert (plan.state, plan.last_completed_step) == (PlanState.QUEUED, -1)
    assert files(workshop.sandbox(plan)) == {"version.txt": "1\n"}
    assert not _is_running(child)


def test_the_half_done_work_of_a_killed_step_is_kept_as_a_group(workshop: Workshop, killed: tuple[str, int]) -> None:
    plan_id, _ = killed
    opened = workshop.open()
    opened.execute(plan_id)
    kept = next(group for group in opened.store.groups.of(plan_id) if group.triggers == ("before_rollback",))
    opened.rollback(plan_id, kept.group_id)
    assert files(workshop.sandbox(opened.find_plan(plan_id)))["log"] == "x\n"


def test_a_plan_that_runs_elsewhere_is_left_alone(workshop: Workshop) -> None:
    started = workshop.outside / "started"
    plan = workshop.create(run(f"touch {started}; sleep 300"))
    process = _start(workshop, plan.plan_id)
    try:
        _wait_for(started)
        opened = workshop.open()
        status = opened.status(plan.plan_id)
        assert status.holder is not None
        assert status.holder.pid == process.pid
        before = workshop.groups(plan)
        for refused in (
            lambda: opened.execute(plan.plan_id),
            lambda: opened.rollback(plan.plan_id, before[0].group_id),
            lambda: opened.apply(plan.plan_id),
        ):
            with pytest.raises(ConflictError, match=f"process {process.pid}"):
                refused()
        assert workshop.groups(plan) == before
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


@pytest.mark.parametrize(
    ("fields", "code"),
    [({}, -signal.SIGKILL), ({"machine_id": "elsewhere"}, LeaseLostError.exit_code)],
    ids=["here", "elsewhere"],
)
def test_a_stopped_owner_that_is_replaced_writes_nothing_more(
    workshop: Workshop, fields: dict[str, str], code: int
) -> None:
    """SIGSTOP, take over (its heartbeat is old), SIGCONT: where it can be killed it is, elsewhere it must notice."""
    started = workshop.outside / "started"
    plan = workshop.create(run(f"touch {started}; sleep 3"), run("echo 2 > two"))
    process = _start(workshop, plan.plan_id)
    try:
        _wait_for(started)
        _stop(process)
        opened = workshop.open()
        lease = opened.store.get(Lease, plan.plan_id)
        with opened.store.transaction():
            long_ago = lease.heartbeat_at.replace(year=lease.heartbeat_at.year - 1)
            opened.store.save(lease.model_copy(update={"heartbeat_at": long_ago, **fields}))
        opened.rollback(plan.plan_id, workshop.groups(plan)[0].group_id)
        groups = workshop.groups(plan)
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == code
        assert workshop.groups(plan) == groups
        assert opened.find_plan(plan.plan_id).state is PlanState.QUEUED
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGCONT)
            process.kill()
            process.wait()


def test_an_owner_that_was_stopped_inside_a_transaction_does_not_block_others_for_long(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 1 > one"))
    held = workshop.outside / "held"
    script = (
        "import pathlib, sys, time\n"
        "from holdfast.app import Holdfast\n"
        "from holdfast.db.lease import leased\n"
        "opened = Holdfast.open(pathlib.Path(sys.argv[1]), home=pathlib.Path(sys.argv[2]))\n"
        "with leased(opened.store, sys.argv[3], 'plan execute') as lease, opened.store.transaction(lease):\n"
        "    opened.store.save(lease.model_copy(update={'heartbeat_at': lease.heartbeat_at}))\n"
        "    pathlib.Path(sys.argv[4]).touch()\n"
        "    time.sleep(300)\n"
    )
    opened = workshop.open()
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(workshop.app), str(workshop.home), plan.plan_id, str(held)]
    )
    try:
        _wait_for(held)
        _stop(owner)
        with patch("holdfast.db.lease.EXPIRES_AFTER", timedelta(0)):
            assert opened.execute(plan.plan_id).succeeded
        assert owner.wait(60) == -signal.SIGKILL
    finally:
        owner.kill()
        owner.wait()


@pytest.mark.parametrize("call", [3, 9, 17, 30])
def test_a_rollback_killed_in_the_middle_is_finished_by_the_next_command(workshop: Workshop, call: int) -> None:
    lines = "".join(f"echo {number} > f{number};" for number in range(20))
    plan = workshop.create(run(f"mkdir d; cd d; {lines}"), run("rm -r d; echo gone > gone"))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    target = next(view for view in opened.checkpoints(plan.plan_id) if view.group.step_index == 1)
    wanted = {"version.txt": "1\n", **{f"d/f{number}": f"{number}\n" for number in range(20)}}
    exit_code = killed_in_rollback(workshop, call, plan.plan_id, target.checkpoint.checkpoint_id)
    if call <= 20:
        assert exit_code == -signal.SIGKILL
    again = workshop.open().rollback(plan.plan_id, target.checkpoint.checkpoint_id)
    assert again.plan.last_completed_step == 0
    assert files(workshop.sandbox(plan)) == wanted
    assert not workshop.open().store.operations.unfinished(plan.plan_id)
    assert workshop.open().execute(plan.plan_id).succeeded


def _died_after_failing(opened: Holdfast, plan: Plan) -> StepRun:
    """As if it had died right after it had noted that the step failed."""
    failed = opened.store.runs.of(plan.plan_id)[-1]
    with opened.store.transaction():
        opened.store.save(failed.model_copy(update={"is_superseded": False}))
        opened.store.save(opened.find_plan(plan.plan_id).changed(state=PlanState.PROCESSING))
    return failed


def test_a_crash_between_a_failure_and_what_the_policy_says_of_it_leaves_nothing_half_done(workshop: Workshop) -> None:
    gate = workshop.outside / "gate"
    plan = workshop.create(run(f"echo dirt >> log; test -e {gate}"))
    opened = workshop.open()
    assert not opened.execute(plan.plan_id).succeeded
    (workshop.sandbox(plan) / "log").write_text("dirt\n")
    _died_after_failing(opened, plan)
    gate.touch()
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["log"] == "dirt\n"


def test_a_sandbox_that_cannot_be_made_anew_is_not_there_in_part(workshop: Workshop) -> None:
    """An empty one would count as what the steps before it made: the others would run in it, and apply delete all."""
    plan = workshop.create(run("echo 2 > version.txt"), run(f"test -e {workshop.outside / 'go'}"))
    opened = workshop.open()
    assert not opened.execute(plan.plan_id).succeeded
    shutil.rmtree(workshop.sandbox(plan))
    damage_content(workshop.home / "objects.db")
    (workshop.outside / "go").touch()
    for _ in range(2):
        with pytest.raises(ContentError):
            workshop.open().execute(plan.plan_id)
        assert list(workshop.sandbox(plan).parent.glob("*app*")) == []


def test_a_preview_of_resuming_after_such_a_crash_says_what_resuming_does(workshop: Workshop) -> None:
    gate = workshop.outside / "gate"
    plan = workshop.create(run("echo 1 > one"), run(f"echo dirt > log; test -e {gate}", side_effects=True))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    failed = _died_after_failing(opened, plan)
    with pytest.raises(StateError, match="was interrupted"):
        opened.resume_preview(plan.plan_id)
    again = opened.resume_preview(plan.plan_id, choices=Choices(AfterInterruption.RERUN))
    assert (again.step_index, again.group_id) == (1, failed.group_before_id)
    skipping = opened.resume_preview(plan.plan_id, choices=Choices(AfterInterruption.SKIP))
    assert (skipping.step_index, skipping.skipped) == (None, failed.step)
    with pytest.raises(StateError, match="was interrupted"):
        workshop.open().execute(plan.plan_id)
    assert workshop.open().execute(plan.plan_id, choices=Choices(AfterInterruption.SKIP)).succeeded


def test_a_complete_plan_whose_sandbox_was_removed_can_be_applied(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 2 > version.txt"))
    workshop.open().execute(plan.plan_id)
    shutil.rmtree(workshop.sandbox(plan))
    opened = workshop.open()
    opened.apply(plan.plan_id)
    assert (workshop.app / "version.txt").read_text() == "2\n"
    assert status(workshop.app) == []


def test_a_temporary_folder_of_a_killed_process_goes_with_the_next_command_that_changes_the_plan(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = workshop.create(run("echo 1 > one"))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    holdfast = workshop.open()
    holdfast.execute(plan.plan_id)
    dying = "import os\nfrom holdfast.system.trees import temporary_folder as a\nwith a(): os._exit(1)"
    subprocess.run([sys.executable, "-c", dying], check=False)
    assert [name.split("-")[:2] for name in os.listdir(temporary)] == [["holdfast", "of"]]
    holdfast.create_checkpoint(plan.plan_id, label="afterwards")
    assert os.listdir(temporary) == []
