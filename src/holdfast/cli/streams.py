"""The standard streams: opened if they are closed, and checked for output that could not be written."""

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
    """Inside the block, no write to ``sys.stdout`` or ``sys.stderr`` raises; ``Outputs.lost`` tells what failed."""
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
    """Open closed descriptors on /dev/null; otherwise the next opened file would get one, and output go into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, number)
            if nowhere != number:
                os.close(nowhere)
        if getattr(sys, name) is None:
            # Never closed: the rest of the process uses it.
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


class ReaderGone(Exception):
    """The program that reads our output has ended, such as a pager; what is only shown need not go on."""


class Outputs:
    """Standard output and standard error of one command."""

    def __init__(self) -> None:
        self._descriptors: list[_Descriptor] = []
        self._streams: list[TextIO] = []

    def checked(self, stream: TextIO, number: int) -> TextIO:
        """The stream with its writes checked; one that does not write to this descriptor, as in tests, unchanged."""
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
        """The first stream that could not be written, and the error; a closed pipe does not count."""
        self.flush()
        failed = ((STREAM_NAMES[each.fileno()], each.failure) for each in self._descriptors)
        return next(((name, why) for name, why in failed if why and not isinstance(why, BrokenPipeError)), None)


def is_broken(stream: TextIO) -> bool:
    """Whether a write to one of the standard streams failed, so that the rest is discarded."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return isinstance(raw, _Descriptor) and raw.failure is not None


def _writes_to(stream: TextIO, number: int) -> bool:
    try:
        return stream.fileno() == number
    except (OSError, ValueError, AttributeError):
        return False


class _Descriptor(io.FileIO):
    """After the first failed write it discards everything: output with a gap would be worse than none."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        size = memoryview(data).nbytes
        if self.failure is not None:
            return size
        try:
            while (written := super().write(data)) is None:
                # Another program made it non-blocking, as some do with a terminal that they share.
                select.select([], [self], [])
        except OSError as error:
            self.failure = error
            return size
        return written
