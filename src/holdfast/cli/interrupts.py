"""Ctrl-C and SIGTERM while a plan runs: the first one asks it to stop, the second one stops at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
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

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield cancelled
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
