"""Stopping long work on files in the middle, where that is safe: nothing of it counts before it is whole.

The work asks whether it is to go on wherever it may take long. Who can stop it is known by thread, as with progress,
and not handed down through every layer between a verb and a file.
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
    """Somebody asked to stop, and the work that this thread did was given up; whoever allowed that puts it right."""


@contextmanager
def stoppable(stop: threading.Event) -> Iterator[None]:
    """While this lasts, work of this thread that can be given up raises ``Stopped`` once the event is set."""
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
    """Like ``subprocess.run``, and what it runs is killed when this thread is asked to stop."""
    if _stop.get() is None:
        return subprocess.run(command, input=given, check=False, **options)
    if given is not None:
        options["stdin"] = subprocess.PIPE
    if options.pop("capture_output", False):
        options["stdout"] = options["stderr"] = subprocess.PIPE
    # A group of its own: Ctrl-C at a terminal is for us alone, or the program would seem to have failed.
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
            given = None  # what it was given is on its way
        else:
            return process.returncode, said, complained
