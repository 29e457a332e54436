"""Doing something at the very moment this process is about to do something else, told by the interpreter's events."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

_waiting: list[tuple[str, str, Callable[[], Any]]] = []
_state = {"is_hooked": False}


@contextmanager
def just_before(event: str, name: str, action: Callable[[], Any]) -> Iterator[None]:
    """Do ``action`` once, before the first audit event of that kind about a path whose last name fits that glob.

    With ``*`` it need not be about a path.
    """
    if not _state["is_hooked"]:
        sys.addaudithook(_hear)  # it cannot be taken away again, so there is only one
        _state["is_hooked"] = True
    waiting = (event, name, action)
    _waiting.append(waiting)
    try:
        yield
        assert waiting not in _waiting, f"there was no {event} of {name}"
    finally:
        if waiting in _waiting:
            _waiting.remove(waiting)


def _hear(event: str, args: tuple[Any, ...]) -> None:
    for waiting in [each for each in _waiting if each[0] == event]:
        names = [os.path.basename(os.fsdecode(arg)) for arg in args if isinstance(arg, str | bytes)]
        if waiting[1] == "*" or any(fnmatchcase(name, waiting[1]) for name in names):
            _waiting.remove(waiting)
            waiting[2]()
