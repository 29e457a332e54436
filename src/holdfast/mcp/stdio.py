"""Standard input and output as the way to the client: nothing else of this process reads or writes them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.mcp.messages import PARSE_ERROR, Malformed, encoded

LONGEST_LINE_BYTES = 4 << 20
_READ_BYTES = 64 << 10
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Stdio:
    """Without buffers of Python's: a thread that waits for input must not hold a lock when the process ends."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._writing = threading.Lock()

    def lines(self) -> Iterator[bytes | Malformed]:
        """The lines that come in, until the client closes its end. One that is too long is not kept."""
        begun, is_too_long = bytearray(), False
        while some := self._read():
            *ended, rest = some.split(b"\n")
            for part in ended:
                line = bytes(begun + part)
                begun.clear()
                if is_too_long or len(line) > LONGEST_LINE_BYTES:
                    yield Malformed(None, PARSE_ERROR, f"A message has at most {LONGEST_LINE_BYTES} bytes.")
                elif line.strip():
                    yield line
                is_too_long = False
            begun += rest
            if len(begun) > LONGEST_LINE_BYTES:
                begun.clear()
                is_too_long = True
        if begun.strip():
            yield bytes(begun)

    def _read(self) -> bytes:
        try:
            return os.read(self._incoming, _READ_BYTES)
        except OSError:
            return b""

    def send(self, message: Any) -> None:
        """Write one line. If the client has gone, it gets nothing; the end of its input then ends the server."""
        line = memoryview(encoded(message) + b"\n")
        with self._writing, suppress(OSError):
            while line:
                line = line[os.write(self._outgoing, line) :]


@contextmanager
def taken_stdio() -> Iterator[Stdio]:
    """Take over standard input and output: a program started meanwhile reads nothing, and prints to standard error."""
    kept = os.dup(_STDIN), os.dup(_STDOUT)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for descriptor in kept:
        os.set_blocking(descriptor, True)
    try:
        os.dup2(nowhere, _STDIN)
        os.dup2(_STDERR, _STDOUT)
        yield Stdio(*kept)
    finally:
        for number, descriptor in zip((_STDIN, _STDOUT), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(nowhere)
