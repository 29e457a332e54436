"""Finds the processes that a step left behind by the mark in their environment, and ends them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import SandboxError

if TYPE_CHECKING:
    import psutil

MARK_VARIABLE = "HOLDFAST_PROCESS_MARK"
SWEEP_SECONDS = 10.0


def mark_of(run_id: str, home: Path) -> str:
    """The mark of the processes of a run: a copy of the home has another one, a home that is moved keeps it."""
    place = home.stat()
    return f"{run_id}@{place.st_dev}:{place.st_ino}"


def end_leftovers(mark: str) -> int:
    """Kill every process that carries the mark, and its descendants; returns their number when all are gone.

    Needed if both the executor and the supervisor of a step were killed, before its files are used again.
    """
    import psutil

    deadline = time.monotonic() + SWEEP_SECONDS
    ended: set[int] = set()
    while marked := _marked_processes(mark):
        if time.monotonic() > deadline:
            raise survivors_error([process.pid for process in marked])
        for process in marked:
            ended.add(process.pid)
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(marked, timeout=0.5)
    return len(ended)


def survivors_error(pids: Sequence[int]) -> SandboxError:
    listed = ", ".join(map(str, sorted(pids)))
    return SandboxError(
        f"processes of the step could not be ended: {listed}",
        hint="End them yourself before you go on; they may still write into the sandbox.",
    )


def _marked_processes(mark: str) -> list[psutil.Process]:
    import psutil

    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK_VARIABLE) == mark:
                found.update({each.pid: each for each in (process, *process.children(recursive=True))})
    found.pop(os.getpid(), None)
    return [process for process in found.values() if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    import psutil

    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
