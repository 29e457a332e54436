from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.machine import boot_id, is_ended, is_stopped, started_at

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads what Linux says of its processes")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


def test_the_start_of_a_process_does_not_move_when_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel keeps starts relative to that of the machine, and works that one out from the clock of now."""
    pid = os.getpid()
    before = started_at(pid)
    (tmp_path / str(pid)).mkdir()
    for name in ("stat", "status"):
        shutil.copy(f"/proc/{pid}/{name}", tmp_path / str(pid) / name)
    year = 365 * 24 * 3600
    (tmp_path / "stat").write_text(f"btime {int(psutil.boot_time()) + year}\n")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert psutil.Process(pid).create_time() > time.time() + year / 2
    assert started_at(pid) == before


def test_a_process_that_is_gone_or_only_waits_to_be_collected_has_no_start(sleeper: subprocess.Popen[bytes]) -> None:
    assert started_at(sleeper.pid) is not None
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert started_at(sleeper.pid) is None
    sleeper.wait()
    assert started_at(sleeper.pid) is None


def test_a_stopped_process_is_told_from_a_running_one(sleeper: subprocess.Popen[bytes]) -> None:
    assert not is_stopped(sleeper.pid)
    sleeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    assert is_stopped(sleeper.pid)


def test_a_process_is_ended_only_if_it_is_the_one_that_was_meant(sleeper: subprocess.Popen[bytes]) -> None:
    started = started_at(sleeper.pid)
    assert started is not None
    assert is_ended(sleeper.pid, started - 60, 5)
    assert sleeper.poll() is None
    assert is_ended(sleeper.pid, started, 5)
    assert started_at(sleeper.pid) is None
    assert is_ended(sleeper.pid, started, 5)


def test_one_that_may_not_be_killed_is_not_ended(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "kill", refuse)
    started = started_at(sleeper.pid)
    assert started is not None
    assert not is_ended(sleeper.pid, started, 5)


def test_every_look_finds_the_same_start_of_the_machine() -> None:
    assert boot_id() == boot_id() != ""
