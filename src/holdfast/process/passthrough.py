"""The input and output of the caller, handed through to a command; an output may be slow, full or closed."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Passthrough:
    """The input and output of our caller, handed through to a command while it runs."""

    stdin: int
    """A descriptor that the command's input is read from."""
    output: int
    """A descriptor that gets what the command prints. If writing fails, the command's own output is closed: it then has
    a broken pipe, as it would have without us if the reader had gone away."""
    errors: int
    on_failed_write: Callable[[int, OSError], None] = lambda _descriptor, _error: None
    """Called with ``output`` or ``errors`` if no more can be written there."""
    is_terminal: bool = False
    """The command gets a terminal of its own, connected with this one; it then has only one output."""
    on_terminal: Callable[[int], None] = lambda _: None
    """Called with our side of that terminal, to set its size."""
    on_signal: Callable[[int], None] = lambda _: None
    """Called with the number of the signal that ended the command, if one did."""


class Outlet:
    """Writes bytes to a descriptor that other programs have open too, without ever blocking."""

    def __init__(self, descriptor: int) -> None:
        # A duplicate: two outlets may write to one descriptor, and a selector accepts each number only once.
        self.descriptor = os.dup(descriptor)
        self.waiting = b""
        """Bytes that could not be written yet."""
        self.failure: OSError | None = None
        """Why no more can be written."""
        kind = os.fstat(self.descriptor).st_mode
        never_blocks = stat.S_ISREG(kind) or (stat.S_ISCHR(kind) and not os.isatty(self.descriptor))
        # A pipe or terminal that is ready for writing takes at least this much without blocking.
        self._portion_bytes = None if never_blocks else select.PIPE_BUF

    def __enter__(self) -> Outlet:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def give(self, data: bytes) -> None:
        self.waiting += data
        self.write()

    def write(self) -> None:
        """Write as much as possible without blocking; after a failed write all bytes are dropped."""
        try:
            while self.waiting and self.failure is None and self.is_ready(0.0):
                self.waiting = self.waiting[os.write(self.descriptor, self.waiting[: self._portion_bytes]) :]
        except BlockingIOError:
            return  # another process that has it open made it non-blocking
        except OSError as error:
            self.failure = error
        if self.failure is not None:
            self.waiting = b""

    def is_ready(self, patience_seconds: float) -> bool:
        """Whether a write would not block, or would fail at once."""
        if self._portion_bytes is None:
            return True
        poll = select.poll()
        poll.register(self.descriptor, select.POLLOUT)
        return bool(poll.poll(patience_seconds * 1000))
