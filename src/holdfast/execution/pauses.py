"""Checkpoints while a program runs that knows nothing of us: whenever it has written something and then been quiet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.checkpoints.service import CheckpointService
from holdfast.errors import SandboxError, described
from holdfast.model import Plan

_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 10.0
"""How long the operating system may refuse what a checkpoint needs; a file may be gone while it is read."""


@contextmanager
def settling(
    plan: Plan, service: CheckpointService, settle_seconds: float, take: Callable[[], None], stop: threading.Event
) -> Iterator[None]:
    """While this lasts, ``take`` is called whenever the sandboxes changed and then stayed as they are for that long.

    A checkpoint that cannot be taken stops the program (``stop`` is set) and is raised at the end: nothing goes on
    unprotected.
    """
    over = threading.Event()
    failures: list[Exception] = []

    def watch() -> None:
        try:
            _watch(plan, service, settle_seconds, take, over)
        except OSError as error:
            failures.append(SandboxError(f"No checkpoint could be taken: {described(error)}."))
            stop.set()
        except Exception as error:  # noqa: BLE001 - in a thread nobody else would hear of it
            failures.append(error)
            stop.set()

    thread = threading.Thread(target=watch, name="holdfast-settling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failures:
        raise failures[0]


def _watch(
    plan: Plan, service: CheckpointService, settle_seconds: float, take: Callable[[], None], over: threading.Event
) -> None:
    look_seconds = min(_LOOK_SECONDS, settle_seconds / 2)
    kept = seen = service.sandboxes.heard(plan)
    quiet_since = worked_at = time.monotonic()
    while not over.wait(look_seconds):
        try:
            heard = service.sandboxes.heard(plan)
            if heard != seen:
                seen, quiet_since = heard, time.monotonic()
            elif seen != kept and time.monotonic() - quiet_since >= settle_seconds:
                take()
                kept = seen
            worked_at = time.monotonic()
        except OSError:
            if time.monotonic() - worked_at > _PATIENCE_SECONDS:
                raise
