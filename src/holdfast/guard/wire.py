"""What is said on the socket of a folder's process, and where that socket is.

A request is ``HOOK AGENT SIZE`` and a newline, then SIZE bytes: what the agent said. ``STATUS 0 0``, ``RECORD 0 0``
and ``STOP 0 0`` ask the process itself. An answer is ``CODE OUT ERR`` and a newline, then OUT bytes for standard output
and ERR bytes for standard error. Each connection carries one request. The clients of hooks (``client.py``,
``_client.c``) say the same.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from holdfast.guard.client import LARGEST_BYTES, name_of

HOOK, STATUS, RECORD, STOP = "HOOK", "STATUS", "RECORD", "STOP"
NO_AGENT = "0"
"""Stands for the agent in a request that is no hook's."""
_FOLDER = "guards"
_LONGEST_LINE = 256
_PIECE_BYTES = 1 << 16
_REQUEST = re.compile(rb"([A-Z]{1,16}) ([a-z0-9-]{1,64}) ([0-9]{1,10})")
_ANSWER = re.compile(rb"([0-9]{1,3}) ([0-9]{1,10}) ([0-9]{1,10})")


class WireError(Exception):
    """What came is nothing that is said on this socket, or the other side was gone before its end."""


class Request(msgspec.Struct, frozen=True):
    verb: str
    agent: str = NO_AGENT
    payload: bytes = b""

    def encoded(self) -> bytes:
        return f"{self.verb} {self.agent} {len(self.payload)}\n".encode() + self.payload


class Answer(msgspec.Struct, frozen=True):
    exit_code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""

    def encoded(self) -> bytes:
        return f"{self.exit_code} {len(self.stdout)} {len(self.stderr)}\n".encode() + self.stdout + self.stderr


def read_request(connection: socket.socket) -> Request | None:
    """The request; None if the other side ended without a word, as one does that only looks whether this one lives."""
    stream = _Stream(connection)
    line = stream.line()
    if line is None:
        return None
    found = _REQUEST.fullmatch(line)
    if found is None or int(found[3]) > LARGEST_BYTES:
        raise WireError(f"not a request: {line[:80]!r}")
    return Request(found[1].decode(), found[2].decode(), stream.exactly(int(found[3])))


def read_answer(connection: socket.socket) -> Answer:
    stream = _Stream(connection)
    line = stream.line()
    found = _ANSWER.fullmatch(line or b"")
    if found is None or int(found[1]) > 255 or int(found[2]) + int(found[3]) > LARGEST_BYTES:
        raise WireError(f"not an answer: {(line or b'')[:80]!r}")
    return Answer(int(found[1]), stream.exactly(int(found[2])), stream.exactly(int(found[3])))


class _Stream:
    """Reads a line, and then as many bytes as it announces."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._ahead = connection, bytearray()

    def line(self) -> bytes | None:
        """The line without its end; None if nothing came."""
        while b"\n" not in self._ahead[:_LONGEST_LINE]:
            if len(self._ahead) >= _LONGEST_LINE:
                raise WireError("the first line does not end")
            if not self._more():
                if self._ahead:
                    raise WireError("the first line is cut off")
                return None
        end = self._ahead.index(b"\n")
        found = bytes(self._ahead[:end])
        del self._ahead[: end + 1]
        return found

    def exactly(self, size: int) -> bytes:
        while len(self._ahead) < size:
            if not self._more():
                raise WireError(f"{size} bytes were announced, and {len(self._ahead)} came")
        found = bytes(self._ahead[:size])
        del self._ahead[:size]
        return found

    def _more(self) -> bool:
        piece = self._connection.recv(_PIECE_BYTES)
        self._ahead += piece
        return bool(piece)


def sockets_folder(home: Path) -> Path:
    return home / _FOLDER


def socket_name(folder: Path) -> str:
    """The name of the socket in its folder, for a project folder whose path is a real one."""
    return f"{name_of(os.fsencode(folder)).decode()}.sock"


def lock_place(home: Path, folder: Path) -> Path:
    """The file that the process of a folder has locked as long as it lives."""
    return (sockets_folder(home) / socket_name(folder)).with_suffix(".lock")


@contextmanager
def short_address(home: Path, folder: Path) -> Iterator[str]:
    """An address of the socket that fits, however long the path of the home is; only usable inside the context."""
    descriptor = os.open(sockets_folder(home), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{socket_name(folder)}"
    finally:
        os.close(descriptor)


def ask(home: Path, folder: Path, request: Request, *, limit_seconds: float) -> Answer | None:
    """What the process of the folder answers; None if there is none. Each wait is limited, and ends in TimeoutError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(limit_seconds)
        try:
            with short_address(home, folder) as address:
                connection.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        connection.sendall(request.encoded())
        return read_answer(connection)
