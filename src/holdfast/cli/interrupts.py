"""Ctrl-C and SIGTERM while a plan runs: the first one asks it to stop, the second one stops at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """The event that the first Ctrl-C sets, which stops the current step cleanly; a second Ctrl-C raises."""
    cancelled = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if cancelled.is_set():
            raise KeyboardInterrupt
        cancelled.set()
        # The stream may be closed; an error here would be raised in the interrupted code.
        with suppress(OSError, ValueError, AttributeError):
            # Not through the buffered stream: the signal may have come in the middle of a write to it.
            os.write(sys.stderr.fileno(), b"\nstopping the step; press Ctrl-C again to stop at once\n")

    with _handled(stop, signal.SIGINT, signal.SIGTERM):
        yield cancelled


@contextmanager
def one_press_too_many() -> Iterator[None]:
    """In this context the first Ctrl-C does nothing. Many programs end after two, and the second one comes too late."""
    pressed = threading.Event()

    def ignore(_number: int, _frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    with _handled(ignore, signal.SIGINT):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
