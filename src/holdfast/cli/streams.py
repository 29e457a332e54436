"""The standard streams: open from the start, and at the end it is known whether they took all that was written."""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STREAM_NAMES = {1: "Standard output", 2: "Standard error"}


@contextmanager
def standard_streams() -> Iterator[Outputs]:
    """While this lasts, no write to ``sys.stdout`` or ``sys.stderr`` raises; ``Outputs.lost`` tells what failed."""
    _open_missing()
    before = sys.stdout, sys.stderr
    outputs = Outputs()
    sys.stdout, sys.stderr = (outputs.checked(stream, number) for number, stream in enumerate(before, start=1))
    try:
        yield outputs
    finally:
        outputs.flush()
        sys.stdout, sys.stderr = before


def _open_missing() -> None:
    """A descriptor that is closed would be given to the next file that is opened, and then printed into."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, number)
            if nowhere != number:
                os.close(nowhere)
        if getattr(sys, name) is None:
            # Never closed: it stays what the rest of the process reads from or prints to.
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


class Outputs:
    """Standard output and standard error of one command."""

    def __init__(self) -> None:
        self._descriptors: list[_Descriptor] = []
        self._streams: list[TextIO] = []

    def checked(self, stream: TextIO, number: int) -> TextIO:
        """The stream with what it writes into checked; one that is not ours to check, as a test has it, as it is."""
        if not _writes_to(stream, number):
            return stream
        stream.flush()
        raw = _Descriptor(number)
        checked = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=getattr(stream, "line_buffering", False),
        )
        self._descriptors.append(raw)
        self._streams.append(checked)
        return checked

    def flush(self) -> None:
        for stream in self._streams:
            stream.flush()

    def lost(self) -> tuple[str, OSError] | None:
        """The first stream that did not take all it was given, and why; not if only its reader has gone away."""
        self.flush()
        failed = ((STREAM_NAMES[each.fileno()], each.failure) for each in self._descriptors)
        return next(((name, why) for name, why in failed if why and not isinstance(why, BrokenPipeError)), None)


def _writes_to(stream: TextIO, number: int) -> bool:
    try:
        return stream.fileno() == number
    except (OSError, ValueError, AttributeError):
        return False


class _Descriptor(io.FileIO):
    """After the first write that fails, everything goes nowhere: output with a gap would be worse than none."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        size = memoryview(data).nbytes
        if self.failure is not None:
            return size
        try:
            while (written := super().write(data)) is None:
                # Another program that has it open made it non-blocking, as some do with a shared terminal.
                select.select([], [self], [])
        except OSError as error:
            self.failure = error
            return size
        return written
