"""Stops long work on files in the middle if that is safe: its result counts only when it is complete.

Work that may take long asks again and again whether to stop. As with progress, the event that stops it is set for a
thread, and not passed through every layer between a verb and a file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

_LOOK_SECONDS = 0.05

_stop: ContextVar[threading.Event | None] = ContextVar("holdfast_stop", default=None)


class Stopped(Exception):
    """The work of this thread was abandoned on request; the caller that made it stoppable cleans up."""


@contextmanager
def stoppable(stop: threading.Event) -> Iterator[None]:
    """Meanwhile work of this thread that can be abandoned raises ``Stopped`` once the event is set."""
    before = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(before)


def stop_if_asked() -> None:
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise Stopped


def run_stoppable(
    command: Sequence[str | os.PathLike[str]], *, given: bytes | None = None, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Like ``subprocess.run``, but the program is killed when this thread is asked to stop."""
    if _stop.get() is None:
        return subprocess.run(command, input=given, check=False, **options)
    if given is not None:
        options["stdin"] = subprocess.PIPE
    if options.pop("capture_output", False):
        options["stdout"] = options["stderr"] = subprocess.PIPE
    # A group of its own: Ctrl-C at a terminal must reach only us, or the program would seem to have failed.
    with subprocess.Popen(command, process_group=0, **options) as process:
        try:
            return subprocess.CompletedProcess(command, *_ended(process, given))
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def _ended(process: subprocess.Popen[bytes], given: bytes | None) -> tuple[int, bytes, bytes]:
    while True:
        stop_if_asked()
        try:
            said, complained = process.communicate(given, timeout=_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            given = None  # ``communicate`` goes on sending it
        else:
            return process.returncode, said, complained
