"""Asking the guard of a folder from a command, and starting it."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.errors import ConflictError, SandboxError
from holdfast.guard.process import RECORD_WRITES
from holdfast.guard.wire import RECORD, STATUS, STOP, Answer, Request, WireError, ask, lock_place, sockets_folder
from holdfast.names import name_text
from holdfast.system.detached import start_detached

_ANSWER_SECONDS = 60.0
_START_SECONDS = 30.0
_PAUSE_SECONDS = 0.01


def _asked(home: Path, folder: Path, verb: str) -> Answer | None:
    try:
        return ask(home, folder, Request(verb), limit_seconds=_ANSWER_SECONDS)
    except TimeoutError as error:
        raise ConflictError(
            f"The guard of {name_text(str(folder))} does not answer.",
            hint="It may be taking a checkpoint; try again later.",
        ) from error
    except WireError as error:
        raise SandboxError(f"The guard of {name_text(str(folder))} answered something else: {error}.") from error
    except OSError:
        return None  # it ended meanwhile


def status_of(home: Path, folder: Path) -> dict[str, Any] | None:
    """How the guard of the folder is; None if there is none."""
    answer = _asked(home, folder, STATUS)
    found = json.loads(answer.stdout) if answer is not None and answer.stdout else None
    return found if isinstance(found, dict) else None


def start(home: Path, folder: Path) -> dict[str, Any]:
    """Have a guard record everything that is written in the folder, started if there is none yet."""
    if _asked(home, folder, RECORD) is None:
        more = {"HOLDFAST_HOME": str(home)}
        start_detached("holdfast.guard.process", str(folder), RECORD_WRITES, more_environment=more)
    deadline = time.monotonic() + _START_SECONDS
    while (found := status_of(home, folder)) is None:
        if time.monotonic() > deadline:
            raise ConflictError(
                f"The guard of {name_text(str(folder))} did not start.",
                hint="`holdfast doctor` checks what it needs; then try again.",
            )
        time.sleep(_PAUSE_SECONDS)
    if found["problem"]:
        raise SandboxError(f"Nothing can be recorded in {name_text(str(folder))}: {found['problem']}")
    return found


def stop(home: Path, folder: Path) -> bool:
    """End the guard of the folder, after everything that it was asked for; whether there was one."""
    if _asked(home, folder, STOP) is None:
        return False
    deadline = time.monotonic() + _START_SECONDS
    while _is_alive(home, folder) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    return True


def _is_alive(home: Path, folder: Path) -> bool:
    """Whether its process is still there: it keeps what it knows after its last answer."""
    try:
        with lock_place(home, folder).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def running(home: Path, folders: Iterator[Path]) -> Iterator[dict[str, Any]]:
    """The guards of these folders that are there."""
    if sockets_folder(home).is_dir():
        for folder in folders:
            found = status_of(home, folder)
            if found is not None:
                yield found
