"""Checkpoints while a program runs: one whenever it has written something and then paused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.errors import SandboxError, described

_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 10.0
"""How long errors of the operating system are tolerated; a file may disappear while it is read."""


@contextmanager
def settling(
    heard: Callable[[], object], settle_seconds: float, take: Callable[[], None], stop: threading.Event
) -> Iterator[None]:
    """In this context, ``take`` is called whenever the sandboxes changed and then did not change for that long.

    ``heard`` returns another value whenever they have changed. If a checkpoint cannot be taken, the program is stopped
    (``stop`` is set) and the error is raised at the end: no program goes on without checkpoints.
    """
    over = threading.Event()
    failures: list[Exception] = []

    def watch() -> None:
        try:
            _watch(heard, settle_seconds, take, over)
        except OSError as error:
            failures.append(SandboxError(f"No checkpoint could be taken: {described(error)}."))
            stop.set()
        except Exception as error:  # noqa: BLE001 - an exception in a thread would be lost
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


def _watch(heard: Callable[[], object], settle_seconds: float, take: Callable[[], None], over: threading.Event) -> None:
    look_seconds = min(_LOOK_SECONDS, settle_seconds / 2)
    kept = seen = heard()
    quiet_since = worked_at = time.monotonic()
    while not over.wait(look_seconds):
        try:
            present = heard()
            if present != seen:
                seen, quiet_since = present, time.monotonic()
            elif seen != kept and time.monotonic() - quiet_since >= settle_seconds:
                take()
                kept = seen
            worked_at = time.monotonic()
        except OSError:
            if time.monotonic() - worked_at > _PATIENCE_SECONDS:
                raise
