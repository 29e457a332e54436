"""Does two things at the same time that are mostly system calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

One = TypeVar("One")
Other = TypeVar("Other")


def both(one: Callable[[], One], other: Callable[[], Other]) -> tuple[One, Other]:
    """Both results; one after the other if no more threads are allowed. The error of the first is raised first."""
    results: list[Other] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(other())
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that asked
            errors.append(error)

    # In a copy of our context: a request to stop this thread is meant for both.
    thread = threading.Thread(target=copy_context().run, args=(work,))
    try:
        thread.start()
    except RuntimeError:
        return one(), other()
    try:
        found = one()
    finally:
        thread.join()
    if errors:
        raise errors[0]
    return found, results[0]
