from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.system import machine
from holdfast.system.machine import boot_id, end, pid_namespace, process_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads what Linux says of its processes")

NOBODY = 65534


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


def start_of(pid: int) -> float:
    found = process_of(pid)
    assert found is not None
    assert found.started_at is not None
    return found.started_at


def test_two_processes_of_one_number_have_two_starts_whatever_the_clock_says(sleeper: subprocess.Popen[bytes]) -> None:
    """The start counts from that of the machine, not from what the clock shows."""
    ticks = start_of(sleeper.pid)
    seconds = ticks / os.sysconf("SC_CLK_TCK")
    assert 0 <= time.clock_gettime(time.CLOCK_BOOTTIME) - seconds < 60
    time.sleep(2 / os.sysconf("SC_CLK_TCK"))
    with subprocess.Popen(["sleep", "300"]) as later:
        assert start_of(later.pid) > ticks
        later.kill()


def test_a_process_whose_name_the_kernel_cut_inside_a_character_is_seen(tmp_path: Path) -> None:
    program = tmp_path / ("x" * 14 + "ä")
    program.symlink_to(shutil.which("sleep") or "")
    with subprocess.Popen([program, "300"]) as process:
        deadline = time.monotonic() + 20
        # It has its own name only a moment after it was started.
        while Path(f"/proc/{process.pid}/comm").read_bytes() != b"x" * 14 + "ä".encode()[:1] + b"\n":
            assert time.monotonic() < deadline
        found = process_of(process.pid)
        process.kill()
    assert found is not None


def test_a_process_that_is_gone_or_only_waits_to_be_collected_does_not_run(sleeper: subprocess.Popen[bytes]) -> None:
    assert process_of(sleeper.pid) is not None
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert process_of(sleeper.pid) is None
    sleeper.wait()
    assert process_of(sleeper.pid) is None


def test_one_whose_first_thread_is_gone_and_another_is_not_runs() -> None:
    program = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(300,)).start()\n"
        "print('ready', flush=True)\n"
        "ctypes.CDLL(None).syscall(60 if __import__('platform').machine() == 'x86_64' else 93, 0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 10
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.01)
        assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
        assert process_of(process.pid) is not None
        assert end(process.pid, start_of(process.pid), 5)
        assert process_of(process.pid) is None


def test_a_stopped_process_is_told_from_a_running_one(sleeper: subprocess.Popen[bytes]) -> None:
    running = process_of(sleeper.pid)
    sleeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    stopped = process_of(sleeper.pid)
    assert running is not None
    assert stopped is not None
    assert (running.is_stopped, stopped.is_stopped) == (False, True)


def test_a_process_is_ended_only_if_it_is_the_one_that_was_meant(sleeper: subprocess.Popen[bytes]) -> None:
    started = start_of(sleeper.pid)
    assert end(sleeper.pid, started - 60, 5)
    assert sleeper.poll() is None
    assert end(sleeper.pid, started, 5)
    assert process_of(sleeper.pid) is None
    assert sleeper.wait() == -signal.SIGKILL
    assert end(sleeper.pid, started, 5)


def test_with_a_stopped_process_go_its_children_that_were_stopped_with_it(tmp_path: Path) -> None:
    # "go" is written by the one apart, once it is: until then it is in the group of the others.
    script = "sleep 300 & echo $! > child; setsid sh -c 'echo $$ > apart; touch go; exec sleep 301' & wait"
    owner = subprocess.Popen(["sh", "-c", script], cwd=tmp_path, start_new_session=True)
    try:
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        child, apart = int((tmp_path / "child").read_text()), int((tmp_path / "apart").read_text())
        os.killpg(owner.pid, signal.SIGSTOP)
        assert end(owner.pid, start_of(owner.pid), 5)
        deadline = time.monotonic() + 10
        while process_of(child) is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert process_of(child) is None
        # A step's supervisor has a group of its own, and ends the step when it finds its owner dead.
        assert process_of(apart) is not None
        os.kill(apart, signal.SIGKILL)
    finally:
        os.killpg(owner.pid, signal.SIGKILL)
        owner.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root to become somebody else")
def test_the_process_of_another_user_is_seen_but_not_ended(sleeper: subprocess.Popen[bytes]) -> None:
    started = start_of(sleeper.pid)
    child = os.fork()
    if child == 0:
        os.setuid(NOBODY)
        os._exit(0 if process_of(sleeper.pid) is not None and not end(sleeper.pid, started, 5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sleeper.poll() is None


def test_a_process_that_is_hidden_from_us_runs_but_its_start_is_unknown(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hide(*_: object) -> None:
        raise FileNotFoundError

    def refuse(pid: int) -> None:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(Path, "read_bytes", hide)
    there = process_of(sleeper.pid)
    assert there is not None
    assert there.started_at == psutil.Process(sleeper.pid).create_time()
    monkeypatch.setattr(psutil, "Process", refuse)
    hidden = process_of(sleeper.pid)
    assert hidden is not None
    assert hidden.started_at is None
    sleeper.kill()
    sleeper.wait()
    assert process_of(sleeper.pid) is None


def test_a_kernel_that_cannot_hold_on_to_a_process_ends_none(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(machine.os, "pidfd_open")
    assert not end(sleeper.pid, start_of(sleeper.pid), 5)
    assert sleeper.poll() is None


def test_without_a_boot_id_the_time_of_the_start_identifies_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_BOOT_ID", tmp_path / "nowhere")
    assert boot_id() == str(int(psutil.boot_time()))


def test_a_zombie_does_not_run_also_if_proc_does_not_show_it(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hide(*_: object) -> None:
        raise FileNotFoundError

    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(Path, "read_bytes", hide)
    assert process_of(sleeper.pid) is None


def test_every_look_finds_the_same_machine() -> None:
    assert boot_id() == boot_id() != ""
    assert pid_namespace() == os.readlink("/proc/self/ns/pid")
