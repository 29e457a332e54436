"""This start of this machine and its processes: what tells them from others, whatever its clock is set to."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STATE, _GROUP, _THREADS, _START = 0, 2, 17, 19
"""Which words of ``/proc/PID/stat`` these are, counted from behind the name of the program."""


def boot_id() -> str:
    """What tells this start of the machine from others."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        import psutil

        return str(int(psutil.boot_time()))


def pid_namespace() -> str:
    """What tells the processes that we see from those of another container, which have the same numbers."""
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


@dataclass(frozen=True)
class Process:
    """What can be seen of a process that runs."""

    started_at: float | None
    """Never the same for two processes of one number and one start of the machine; None if that is hidden from us."""
    is_stopped: bool
    group: int | None


def process_of(pid: int) -> Process | None:
    """None if there is none that still runs."""
    if not _is_there(pid):
        return None
    try:
        # The name of the program, cut to what the kernel keeps of it, may end inside a character.
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    except ProcessLookupError:
        return None
    except OSError:
        return _without_proc(pid)
    # Of one that was killed other threads may still be at work after its first is gone.
    if words[_STATE] in "ZX" and int(words[_THREADS]) <= 1:
        return None
    # The kernel counts starts from that of the machine; setting the clock does not move them.
    return Process(float(words[_START]), is_stopped=words[_STATE] == "T", group=int(words[_GROUP]))


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's
    return True


def _without_proc(pid: int) -> Process | None:
    """The same where there is no ``/proc``, or where it shows only our own processes."""
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
    """Kill that process, if it still is the one that was started then; whether it is gone.

    With it go those of its children that are in its process group, as git is: whoever stopped the group stopped them
    too, and they would go on when it is continued.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except (OSError, AttributeError):
        return False  # this kernel cannot hold on to a process, and we might hit another of the same number
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
