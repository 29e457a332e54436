"""Nothing a step started is left: not when it ends, not when it is stopped, not when somebody is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.errors import SandboxError
from holdfast.process import command, leftovers, watch
from holdfast.process.leftovers import MARK_VARIABLE, end_leftovers

DAEMON = "(setsid sh -c 'echo $$ > daemon; exec sleep 1000' &)"
WAIT_FOR_DAEMON = "until test -s daemon; do sleep 0.01; done"
CHILD_IN_GROUP = "sh -c 'echo $$ > child; exec sleep 1000' & until test -s child; do sleep 0.01; done"


def test_a_daemon_that_left_its_session_ends_with_the_step(run, pid_file):
    result = run(f"{DAEMON}; {WAIT_FOR_DAEMON}; echo done")
    assert (result.exit_code, result.output) == (0, "done\n")
    assert not pid_file("daemon").is_alive


def test_a_background_process_that_holds_the_output_open_does_not_hold_us_up(run, pid_file):
    result = run(f"{CHILD_IN_GROUP}; echo done")
    assert result.output == "done\n"
    assert not pid_file("child").is_alive


def test_a_daemon_without_environment_and_output_ends_with_the_step(run, pid_file):
    run(f"(env -i setsid /bin/sh -c 'echo $$ > daemon; exec /bin/sleep 1000' >/dev/null 2>&1 &); {WAIT_FOR_DAEMON}")
    assert not pid_file("daemon").is_alive


def test_the_children_of_a_daemon_end_with_the_step(run, pid_file):
    child = CHILD_IN_GROUP.replace("'", '"')
    run(f"(setsid sh -c '{child}; echo $$ > daemon; sleep 1000' &); {WAIT_FOR_DAEMON}")
    assert not pid_file("daemon").is_alive
    assert not pid_file("child").is_alive


@pytest.mark.parametrize("leave_group", ["pass", "os.setsid()"])
def test_a_process_that_forks_all_the_time_is_caught(run, leave_group):
    chain = f"import os\nwhile True:\n    if os.fork(): os._exit(0)\n    {leave_group}\n"
    result = run([sys.executable, "-S", "-c", chain], mark="a-chain-of-forks")
    assert result.exit_code == 0
    assert end_leftovers("a-chain-of-forks") == 0


def test_orphans_that_end_while_the_command_runs_are_not_kept_as_zombies(run):
    alone = "[ $(ps -o pid= --ppid $PPID | wc -l) = 1 ]"
    script = f"for each in 1 2 3 4 5; do (sleep 0 &); done; until {alone}; do sleep 0.01; done; echo alone"
    assert run(script, timeout_seconds=60).output == "alone\n"


def test_a_timeout_ends_the_whole_tree(run, pid_file):
    result = run(f"{DAEMON}; {CHILD_IN_GROUP}; {WAIT_FOR_DAEMON}; echo ready; sleep 1000", timeout_seconds=4)
    assert (result.timed_out, result.cancelled, result.exit_code) == (True, False, None)
    assert result.output == "ready\n"
    assert not pid_file("daemon").is_alive
    assert not pid_file("child").is_alive


def test_a_command_that_is_stopped_may_clean_up_first(run):
    cancelled = threading.Event()
    result = run(
        "trap 'echo cleaned; exit 5' TERM; echo ready; while :; do sleep 0.01; done",
        cancelled=cancelled,
        on_output=lambda _: cancelled.set(),
    )
    assert (result.cancelled, result.exit_code) == (True, 5)
    assert result.output.endswith("cleaned\n")


def test_a_child_of_a_stopped_shell_may_clean_up_as_well(run, tmp_path):
    child = "trap 'sleep 0.1; echo cleaned > proof; exit' TERM; echo ready; while :; do sleep 0.01; done"
    (tmp_path / "child.sh").write_text(child)
    cancelled = threading.Event()
    run("sh child.sh & wait", cancelled=cancelled, on_output=lambda _: cancelled.set())
    assert (tmp_path / "proof").read_text() == "cleaned\n"


def test_a_command_that_ignores_the_request_to_stop_is_killed(run, pid_file):
    cancelled = threading.Event()
    result = run(
        "trap '' TERM; echo $$ > main; echo ready; sleep 1000; sleep 1000",
        cancelled=cancelled,
        on_output=lambda _: cancelled.set(),
    )
    assert (result.cancelled, result.signal) == (True, "SIGKILL")
    assert not pid_file("main").is_alive


def test_setting_the_event_cancels_the_command(run, pid_file):
    cancelled = threading.Event()
    result = run("echo $$ > main; echo ready; sleep 1000", cancelled=cancelled, on_output=lambda _: cancelled.set())
    assert (result.cancelled, result.timed_out, result.exit_code) == (True, False, None)
    assert not pid_file("main").is_alive


def test_an_event_that_is_set_before_the_start_cancels_as_well(run):
    cancelled = threading.Event()
    cancelled.set()
    assert run("sleep 1000", cancelled=cancelled).cancelled


def test_a_command_that_ended_in_time_is_not_called_cancelled(run):
    cancelled = threading.Event()
    assert not run("true", cancelled=cancelled).cancelled


def executor_at_work(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A process that runs a step with a child, a daemon and a mark."""
    program = (
        "import os, pathlib, signal\n"
        # Who runs the tests in the background may have it ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from holdfast.process.command import run_supervised\n"
        f"run_supervised({f'echo $PPID > supervisor; {DAEMON}; {CHILD_IN_GROUP}; sleep 1000'!r},"
        " cwd=pathlib.Path.cwd(), environment=dict(os.environ), mark='the-mark')\n"
    )
    package = Path(command.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(package)}
    return subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_step_ends_when_its_executor_is_killed(tmp_path, pid_file, wait_until, number):
    executor = executor_at_work(tmp_path)
    files = [pid_file(name) for name in ("supervisor", "daemon", "child")]
    wait_until(lambda: all(file.is_written for file in files))
    executor.send_signal(number)
    executor.wait()
    wait_until(lambda: not any(file.is_alive for file in files))


def test_leftovers_of_a_killed_executor_and_supervisor_are_found_by_their_mark(tmp_path, pid_file, wait_until):
    executor = executor_at_work(tmp_path)
    files = [pid_file(name) for name in ("supervisor", "daemon", "child")]
    wait_until(lambda: all(file.is_written for file in files))
    executor.send_signal(signal.SIGSTOP)
    os.kill(files[0].pid, signal.SIGKILL)
    executor.kill()
    executor.wait()
    assert end_leftovers("the-mark") > 0
    assert not any(file.is_alive for file in files)
    assert end_leftovers("the-mark") == 0


def test_leftovers_of_another_mark_are_left_alone():
    other = subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK_VARIABLE: "the-mark-of-another"})
    try:
        assert end_leftovers("the-mark-of") == 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_killed_supervisor_neither_hangs_us_nor_leaves_the_tree(run, pid_file, wait_until):
    result = run(
        f"{DAEMON}; {CHILD_IN_GROUP}; {WAIT_FOR_DAEMON}; echo $$ > main; echo ready; kill -9 $PPID; sleep 1000"
    )
    assert (result.exit_code, result.signal, result.output) == (None, "SIGKILL", "ready\n")
    assert not any(pid_file(name).is_alive for name in ("main", "daemon", "child"))


def test_a_stopped_supervisor_does_not_hold_up_a_timeout(run, pid_file, monkeypatch):
    monkeypatch.setattr(watch, "STOP_SECONDS", 0.5)
    result = run(f"{CHILD_IN_GROUP}; echo $$ > main; kill -STOP $PPID; sleep 1000", timeout_seconds=4)
    assert result.timed_out
    assert not any(pid_file(name).is_alive for name in ("main", "child"))


def test_a_step_inside_a_step_ends_with_the_outer_one(run, tmp_path, pid_file):
    inner = (
        "import os, pathlib\nfrom holdfast.process.command import run_supervised\n"
        f"run_supervised({f'{CHILD_IN_GROUP}; touch ready; sleep 1000'!r},"
        " cwd=pathlib.Path.cwd(), environment=dict(os.environ))\n"
    )
    (tmp_path / "inner.py").write_text(inner)
    package = str(Path(command.__file__).parents[2])
    run(
        f"setsid {sys.executable} inner.py & until test -e ready; do sleep 0.01; done",
        environment={**os.environ, "PYTHONPATH": package},
    )
    assert not pid_file("child").is_alive


def test_a_stopped_supervisor_does_not_hold_up_a_failure_of_ours(run, pid_file, monkeypatch):
    monkeypatch.setattr(command, "STOP_SECONDS", 0.5)

    def fail(data: bytes) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(f"{CHILD_IN_GROUP}; echo $$ > main; kill -STOP $PPID; echo ready; sleep 1000", on_output=fail)
    assert not any(pid_file(name).is_alive for name in ("main", "child"))


def test_leftovers_that_cannot_be_ended_are_named(monkeypatch):
    monkeypatch.setattr(leftovers, "SWEEP_SECONDS", -1.0)
    immortal = subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK_VARIABLE: "immortal"})
    try:
        with pytest.raises(SandboxError, match=f"could not be ended: {immortal.pid}"):
            end_leftovers("immortal")
    finally:
        immortal.kill()
        immortal.wait()
