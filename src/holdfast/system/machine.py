"""This boot of this machine and its processes: what distinguishes them from others, whatever the clock says."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STATE, _GROUP, _THREADS, _START = 0, 2, 17, 19
"""The numbers of these words in ``/proc/PID/stat``, counted after the name of the program."""


def boot_id() -> str:
    """What distinguishes this boot of the machine from others."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        import psutil

        return str(int(psutil.boot_time()))


def pid_namespace() -> str:
    """What distinguishes our processes from those of another container, which have the same numbers."""
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


class Process(NamedTuple):
    """What is known of a running process."""

    started_at: float | None
    """Differs for two processes with the same number in one boot of the machine; None if it is hidden from us."""
    is_stopped: bool
    group: int | None


def process_of(pid: int) -> Process | None:
    """The process with that number; None if none runs."""
    if not _is_there(pid):
        return None
    try:
        # The kernel cuts the name of the program, perhaps inside a character.
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    except ProcessLookupError:
        return None
    except OSError:
        return _without_proc(pid)
    # In a killed process other threads may still run after the first one is gone.
    if words[_STATE] in "ZX" and int(words[_THREADS]) <= 1:
        return None
    # The kernel counts from the boot of the machine; setting the clock changes nothing.
    return Process(float(words[_START]), is_stopped=words[_STATE] == "T", group=int(words[_GROUP]))


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it belongs to another user
    return True


def _without_proc(pid: int) -> Process | None:
    """The same if there is no ``/proc``, or if it shows only our own processes."""
    import psutil

    try:
        process = psutil.Process(pid)
        status, started_at = process.status(), process.create_time()
    except psutil.Error:
        return Process(None, is_stopped=False, group=None) if _is_there(pid) else None
    if status == psutil.STATUS_ZOMBIE:
        return None
    return Process(started_at, is_stopped=status == psutil.STATUS_STOPPED, group=None)


def end(pid: int, started_at: float, within_seconds: float) -> bool:
    """Kill that process, if it is still the one that was started then; returns whether it is gone.

    Its children in the same process group, as git is, are killed too: if the group was stopped, they were stopped with
    it, and would go on when it is continued.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except (OSError, AttributeError):
        return False  # without a pidfd we might kill another process with the same number
    try:
        found = process_of(pid)
        if found is None or found.started_at != started_at:
            return True
        children = _children_in(pid, found.group)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        is_gone = bool(select.select([descriptor], [], [], within_seconds)[0])
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        return is_gone
    except PermissionError:
        return False
    finally:
        os.close(descriptor)


def _children_in(pid: int, group: int | None) -> list[int]:
    import psutil

    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return [each.pid for each in below if (found := process_of(each.pid)) is not None and found.group == group]
