"""Everything that a step runs stands still for a moment, and goes on as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.process.pausing import paused
from tests.integration.process.conftest import PidFile, is_alive

MARK = "a-step-that-is-paused"
WAITS = "until test -e over; do sleep 0.01; done"
COUNTS = "n=0; until test -e over; do n=$((n+1)); echo $n > counted; done"


@contextmanager
def running(run: Callable[..., Any], folder: Path, script: str | list[str]) -> Iterator[dict[str, Any]]:
    """The command in a thread, until the file ``over`` is there; its result is in the dictionary afterwards."""
    found: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: found.update(result=run(script, mark=MARK)))
    thread.start()
    try:
        yield found
    finally:
        (folder / "over").touch()
        thread.join()


def is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


def test_nothing_is_written_meanwhile_and_the_command_goes_on(
    run: Callable[..., Any], tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    counted = tmp_path / "counted"
    with running(run, tmp_path, COUNTS) as found:
        wait_until(counted.exists)
        with paused(MARK) as is_running:
            assert is_running
            before = counted.stat().st_ctime_ns
            # Whatever still ran would be scheduled before this process is.
            subprocess.run(["sync", counted], check=True)
            assert counted.stat().st_ctime_ns == before
        wait_until(lambda: counted.stat().st_ctime_ns != before)
    assert found["result"].exit_code == 0


def test_daemons_and_threads_stand_still_too(
    run: Callable[..., Any], tmp_path: Path, wait_until: Callable[..., None], pid_file: Callable[[str], PidFile]
) -> None:
    threads = (
        "import os, pathlib, threading, time\n"
        "def count(name):\n"
        "    while not os.path.exists('over'): pathlib.Path(name).write_text('x')\n"
        "all = [threading.Thread(target=count, args=(f'of-thread-{n}',)) for n in range(3)]\n"
        "[each.start() for each in all]\n"
        "[each.join() for each in all]\n"
    )
    (tmp_path / "threads.py").write_text(threads)
    daemon = f"(setsid sh -c 'echo $$ > daemon; {WAITS}' >/dev/null 2>&1 &)"
    with running(run, tmp_path, f"{daemon}; {sys.executable} -S threads.py; {WAITS}"):
        written = tmp_path / "of-thread-2"
        wait_until(lambda: written.exists() and pid_file("daemon").is_written)
        with paused(MARK):
            assert is_stopped(pid_file("daemon").pid)
            before = [(tmp_path / f"of-thread-{n}").stat().st_ctime_ns for n in range(3)]
            subprocess.run(["sync", written], check=True)
            assert [(tmp_path / f"of-thread-{n}").stat().st_ctime_ns for n in range(3)] == before
        wait_until(lambda: written.stat().st_ctime_ns != before[2])


def test_no_shell_sees_a_job_of_its_own_stopped(
    run: Callable[..., Any], tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    script = (
        "import os, sys, time\n"
        "child = os.fork()\n"
        "while child == 0 and not os.path.exists('over'): time.sleep(0.001)\n"
        "if child == 0: os._exit(0)\n"
        "open('ready', 'w').close()\n"
        "_, status = os.waitpid(child, os.WUNTRACED)\n"
        "sys.exit(9 if os.WIFSTOPPED(status) else 0)\n"
    )
    with running(run, tmp_path, [sys.executable, "-S", "-c", script]) as found:
        wait_until((tmp_path / "ready").exists)
        for _ in range(20):
            with paused(MARK):
                pass
    assert found["result"].exit_code == 0


def test_what_was_stopped_before_stays_stopped(
    run: Callable[..., Any], tmp_path: Path, wait_until: Callable[..., None], pid_file: Callable[[str], PidFile]
) -> None:
    script = f"sh -c 'echo $$ > child; {WAITS}' & until test -s child; do sleep 0.01; done; kill -STOP $!; {WAITS}"
    with running(run, tmp_path, script):
        wait_until(lambda: pid_file("child").is_written and is_stopped(pid_file("child").pid))
        with paused(MARK):
            pass
        assert is_stopped(pid_file("child").pid)
        os.kill(pid_file("child").pid, signal.SIGCONT)


def test_nothing_runs_with_another_mark(tmp_path: Path, run: Callable[..., Any]) -> None:
    with running(run, tmp_path, WAITS), paused("another-mark") as is_running:
        assert not is_running


def test_if_the_process_that_paused_it_is_killed_nothing_of_it_is_left(
    tmp_path: Path, wait_until: Callable[..., None], pid_file: Callable[[str], PidFile]
) -> None:
    code = (
        "import os, signal, threading, time\n"
        "from pathlib import Path\n"
        "from holdfast.process.command import run_supervised\n"
        "from holdfast.process.pausing import paused\n"
        f"script = 'echo $$ > child; {WAITS}'\n"
        "def run(): run_supervised(script, cwd=Path.cwd(), environment=dict(os.environ), mark='m')\n"
        "threading.Thread(target=run, daemon=True).start()\n"
        "while not (os.path.exists('child') and os.path.getsize('child')): time.sleep(0.01)\n"
        "with paused('m') as is_running:\n"
        "    assert is_running\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert ended.returncode == -signal.SIGKILL
    child = pid_file("child").pid
    wait_until(lambda: not is_alive(child))


@pytest.mark.parametrize("times", [3])
def test_it_can_be_paused_again_and_again(
    run: Callable[..., Any], tmp_path: Path, wait_until: Callable[..., None], times: int
) -> None:
    counted = tmp_path / "counted"
    with running(run, tmp_path, COUNTS) as found:
        wait_until(counted.exists)
        for _ in range(times):
            with paused(MARK) as is_running:
                assert is_running
    assert found["result"].exit_code == 0
