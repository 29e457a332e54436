"""Does two things at the same time that are mostly system calls."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

One = TypeVar("One")
Other = TypeVar("Other")


def both(one: Callable[[], One], other: Callable[[], Other]) -> tuple[One, Other]:
    """Both results; one after the other if no more threads are allowed. The error of the first is raised first."""
    with ThreadPoolExecutor(1) as thread:
        try:
            # In a copy of our context: a request to stop this thread is meant for both.
            result = thread.submit(copy_context().run, other)
        except RuntimeError:
            return one(), other()
        return one(), result.result()
