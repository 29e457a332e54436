"""This start of this machine, and its processes: what tells them from earlier ones, whatever its clock is set to."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

_LOOK_AGAIN_SECONDS = 0.005


def boot_id() -> str:
    """What tells this start of the machine from others."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        import psutil

        return str(int(psutil.boot_time()))


def started_at(pid: int) -> float | None:
    """When that process was started, in seconds since the machine was; None if there is none that still runs."""
    import psutil

    try:
        process = psutil.Process(pid)
        # Both are by the clock of now: somebody who sets it moves both.
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time() - psutil.boot_time()
    except psutil.Error:
        return None


def is_stopped(pid: int) -> bool:
    """Whether it waits for a SIGCONT."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return True


def is_ended(pid: int, started: float, within_seconds: float) -> bool:
    """Kill that process, if it still is the one that was started then, and say whether it is gone."""
    import psutil

    deadline = time.monotonic() + within_seconds
    # Not psutil's wait: that would wait for whoever has to collect it, and collect it itself if that is us.
    while is_same_start(started_at(pid), started):
        with suppress(psutil.NoSuchProcess):
            try:
                psutil.Process(pid).kill()
            except psutil.AccessDenied:
                return False
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_AGAIN_SECONDS)
    return True


def is_same_start(one: float | None, other: float) -> bool:
    return one is not None and abs(one - other) < 1.0
