"""Pauses everything that a step runs, so that its files stand still for a moment, and lets it go on."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from holdfast.errors import ConflictError, described
from holdfast.process import supervisor
from holdfast.process.leftovers import MARK_VARIABLE

_PAUSE_SECONDS = 5.0
_LOOK_SECONDS = 0.001
_STANDING = frozenset("TtXZ")
"""The states of threads that do nothing: stopped, traced, dead."""


@contextmanager
def paused(mark: str) -> Iterator[bool]:
    """Stop what the step with that mark runs, as a child of this process. Yields whether it runs anything.

    Its supervisor goes on: if this process dies, the supervisor notices, and ends what it has started. Parents are
    stopped before their children and continue after them, so that no shell sees one of its jobs stopped. What was
    stopped already stays stopped.
    """
    found = _supervisor_with(mark)
    with ExitStack() as going_on:
        yield found is not None and _stop_below(found, going_on)


def _supervisor_with(mark: str) -> int | None:
    marked = f"{MARK_VARIABLE}={mark}".encode()
    for child in _children(os.getpid()):
        with suppress(OSError), open(f"/proc/{child}/environ", "rb") as variables:
            if marked in variables.read().split(b"\0"):
                return child
    return None


def _stop_below(top: int, going_on: ExitStack) -> bool:
    """Stop all its descendants; ``going_on`` lets them go on, the last one first. Whether there are any."""
    deadline, seen = time.monotonic() + _PAUSE_SECONDS, {top}
    while new := [each for each in _descendants(top) if each not in seen]:
        # A stopped process starts no other. One that was not stopped yet may have ended, and left children elsewhere.
        for each in new:
            seen.add(each)
            _stop(each, deadline, going_on)
        if time.monotonic() > deadline:
            raise _cannot_be_paused(top, "it starts others all the time")
    return len(seen) > 1


def _descendants(top: int) -> list[int]:
    """Parents come before their children."""
    found = [top]
    for each in found:
        found += _children(each)
    return found[1:]


def _children(process: int) -> list[int]:
    """All threads of a process can have children."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            with suppress(ProcessLookupError), open(f"/proc/{process}/task/{thread}/children", "rb") as listing:
                found += map(int, listing.read().split())
    except FileNotFoundError:
        return supervisor.children_by_scan(process)  # it has ended, or the kernel has no such lists
    return found


def _stop(process: int, deadline: float, going_on: ExitStack) -> None:
    try:
        handle = os.pidfd_open(process)
        going_on.callback(os.close, handle)
        if _is_standing(process):
            return
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
    except OSError as error:
        if error.errno == errno.ESRCH:
            return  # it has ended
        raise _cannot_be_paused(process, described(error)) from error
    going_on.callback(_go_on, handle)
    while not _is_standing(process):
        if time.monotonic() > deadline:
            raise _cannot_be_paused(process, "it does not stop")
        time.sleep(_LOOK_SECONDS)


def _go_on(handle: int) -> None:
    with suppress(OSError):  # it was killed meanwhile
        signal.pidfd_send_signal(handle, signal.SIGCONT)


def _is_standing(process: int) -> bool:
    """Whether none of its threads does anything; one that has ended does nothing."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return all(_state_of(process, thread) in _STANDING for thread in os.listdir(f"/proc/{process}/task"))
    return True


def _state_of(process: int, thread: str) -> str:
    try:
        with open(f"/proc/{process}/task/{thread}/stat", "rb") as stat:
            # The name of the program, in parentheses, may itself hold spaces and parentheses.
            return stat.read().rpartition(b")")[2].split()[0].decode()
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _cannot_be_paused(process: int, why: str) -> ConflictError:
    return ConflictError(
        f"Process {process} of the running step could not be paused, so nothing was done: {why}.",
        hint="Try again, or wait until the step ends.",
    )
