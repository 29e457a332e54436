"""Asking the process that executes a plan, at its door."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast import errors
from holdfast.door.wire import (
    MOST_ANSWER_BYTES,
    PLAN_VARIABLE,
    SOCKET_VARIABLE,
    Answer,
    Busy,
    Failed,
    Request,
    TakeCheckpoint,
    at_short_path,
    decoded,
    encoded,
    read_line,
)
from holdfast.errors import ConflictError, HoldfastError, NotFoundError, SandboxError, UsageError, described

_PATIENCE_SECONDS = 120.0
"""How long an answer is waited for: a checkpoint of large files takes a while."""


def ask(place: Path, request: Request) -> Any | None:
    """What came of the request, as plain values; None if nobody is there, or the plan cannot be served now.

    Raises the error with which it was refused.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PATIENCE_SECONDS)
        try:
            at_short_path(place, connection.connect)
            connection.sendall(encoded(request))
            line = read_line(connection, MOST_ANSWER_BYTES)
        except TimeoutError as error:
            raise ConflictError(
                f"The process that works on plan {request.plan_id} does not answer; it may still do what it was asked.",
                hint="See what became of it with `holdfast log`, and try again later.",
            ) from error
        except OSError:
            return None
    if line is None:
        return None  # it ended, or the plan did
    try:
        answer: Answer = decoded(line, Answer)
    except ValueError as error:
        raise SandboxError(f"The process that works on plan {request.plan_id} answered something else.") from error
    if isinstance(answer, Failed):
        raise _error_of(answer)
    return None if isinstance(answer, Busy) else answer.result


def is_inside(environment: Mapping[str, str]) -> bool:
    """Whether this process runs in a sandbox from which it can ask."""
    return bool(environment.get(SOCKET_VARIABLE) and environment.get(PLAN_VARIABLE))


def mark(label: str, environment: Mapping[str, str] | None = None) -> str:
    """Take a checkpoint with that label of the plan in whose sandbox this process runs; its id.

    It is never pruned, and several may have the same label.
    """
    variables = os.environ if environment is None else environment
    if not is_inside(variables):
        raise UsageError(
            "This process runs in no sandbox: there is no plan to mark.",
            hint="Elsewhere, `holdfast checkpoint create --label TEXT PLAN_ID` takes a checkpoint of a plan.",
        )
    plan_id = variables[PLAN_VARIABLE]
    try:
        found = ask(Path(variables[SOCKET_VARIABLE]), TakeCheckpoint(plan_id, label, is_mark=True))
    except OSError as error:
        raise SandboxError(f"The socket of plan {plan_id} cannot be used: {described(error)}.") from error
    if found is None:
        raise NotFoundError(
            f"No process works on plan {plan_id}, or it cannot take a checkpoint now.",
            hint="Marks work while a step runs that is a program; see `holdfast plan status`.",
        )
    return str(found)


def _error_of(failed: Failed) -> HoldfastError:
    found = getattr(errors, failed.kind, None)
    if isinstance(found, type) and issubclass(found, HoldfastError):
        return found(failed.message, hint=failed.hint)
    return SandboxError(failed.message, hint=failed.hint)
