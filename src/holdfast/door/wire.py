"""What is said at the door: one request and one answer, each as one line of JSON, and where the socket is.

Who answers runs unconfined and reads what a confined program may have written, so requests are few, small and typed.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

SOCKET_VARIABLE = "HOLDFAST_SOCKET"
PLAN_VARIABLE = "HOLDFAST_PLAN_ID"
MOST_REQUEST_BYTES = 1 << 20
MOST_ANSWER_BYTES = 1 << 28
_CHUNK_BYTES = 1 << 16


class TakeCheckpoint(msgspec.Struct, frozen=True, tag="checkpoint", forbid_unknown_fields=True):
    """Take a checkpoint of the sandboxes as they are now."""

    plan_id: str
    label: str | None
    is_mark: bool = False
    """The program of the plan asks, not a person."""


class RestorePaths(msgspec.Struct, frozen=True, tag="restore", forbid_unknown_fields=True):
    """Restore single files or folders from a checkpoint."""

    plan_id: str
    checkpoint_id: str
    only: tuple[str, ...]
    is_preview: bool
    """Only say what that would do."""


Request = TakeCheckpoint | RestorePaths


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Why it was not done: the name of the class of errors, with its message and hint."""

    kind: str
    message: str
    hint: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What came of it, in the form of ``encoded``."""

    result: Any


class Busy(msgspec.Struct, frozen=True, tag="busy"):
    """The plan is at a point at which nothing can be done for others."""


Answer = Failed | Done | Busy


def encoded(value: object) -> bytes:
    """Names that are no text hold lone surrogates: the standard module can write and read them, msgspec cannot."""
    return json.dumps(msgspec.to_builtins(value)).encode("ascii") + b"\n"


def decoded(line: bytes, form: Any) -> Any:
    """Raises ``ValueError``, of which msgspec's errors are a kind, if it is not of that form."""
    try:
        return msgspec.convert(json.loads(line), form)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_line(connection: socket.socket, most_bytes: int) -> bytes | None:
    """One line; None if the other side ended before its end, or if it is too long."""
    read = bytearray()
    while not read.endswith(b"\n"):
        chunk = connection.recv(_CHUNK_BYTES)
        read += chunk
        if not chunk or len(read) > most_bytes:
            return None
    return bytes(read)


def at_short_path(place: Path, use: Callable[[str], None]) -> None:
    """Call ``use`` with a path of the socket that is short enough, whatever the home is called."""
    folder = os.open(place.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        use(f"/proc/self/fd/{folder}/{place.name}")
    finally:
        os.close(folder)
