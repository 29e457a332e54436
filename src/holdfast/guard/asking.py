"""Asking the guard of a folder from a command, and starting it."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.errors import ConflictError
from holdfast.guard.places import GuardPlaces
from holdfast.guard.process import RECORD_WRITES
from holdfast.system.detached import start_detached

_ANSWER_SECONDS = 60.0
_START_SECONDS = 30.0
_PAUSE_SECONDS = 0.01
_CHUNK_BYTES = 1 << 16


def ask(socket_place: Path, verb: str) -> bytes | None:
    """What the guard answers; None if none is there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            directory = os.open(socket_place.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                # The whole path may be too long for a socket.
                connection.connect(f"/proc/self/fd/{directory}/{socket_place.name}")
            finally:
                os.close(directory)
            connection.sendall(f"{verb} - 0\n".encode())
            answer = b"".join(iter(lambda: connection.recv(_CHUNK_BYTES), b""))
        except TimeoutError as error:
            raise ConflictError(
                "The guard of this folder does not answer.", hint="It may be taking a checkpoint; try again later."
            ) from error
        except OSError:
            return None
    head, _, body = answer.partition(b"\n")
    with suppress(ValueError, IndexError):
        return body[: int(head.split()[1])]
    return None


def status_of(socket_place: Path) -> dict[str, Any] | None:
    """How the guard there is; None if there is none."""
    answer = ask(socket_place, "STATUS")
    with suppress(ValueError):
        found = json.loads(answer or b"null")
        return found if isinstance(found, dict) else None
    return None


def start(home: Path, folder: Path) -> dict[str, Any]:
    """Have a guard record everything that is written in the folder, started if there is none yet."""
    places = GuardPlaces(home, folder)
    if ask(places.socket, "RECORD") is None:
        places.make_directory()
        more = {"HOLDFAST_HOME": str(home)}
        start_detached("holdfast.guard.process", str(folder), RECORD_WRITES, more_environment=more)
    deadline = time.monotonic() + _START_SECONDS
    while (found := status_of(places.socket)) is None:
        if time.monotonic() > deadline:
            raise ConflictError(
                f"The guard of {folder} did not start.", hint="`holdfast doctor` checks what it needs; then try again."
            )
        time.sleep(_PAUSE_SECONDS)
    return found


def stop(home: Path, folder: Path) -> bool:
    """End the guard of the folder, after everything that it was asked for; whether there was one."""
    places = GuardPlaces(home, folder)
    if ask(places.socket, "STOP") is None:
        return False
    deadline = time.monotonic() + _START_SECONDS
    while places.socket.exists() and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return True


def running(home: Path) -> Iterator[dict[str, Any]]:
    """All guards of this home."""
    for place in sorted((home / "guards").glob("*.sock")):
        found = status_of(place)
        if found is not None:
            yield found
