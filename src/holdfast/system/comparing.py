"""Compares packed stamps of many directories with the disk, with several cores.

Nearly all of the time goes into system calls, one for each file. The compiled ``compare_stamps`` makes them without the
interpreter's lock, so threads share the work.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from holdfast.system.calls import ARE_COMPILED, compare_stamps
from holdfast.system.stopping import stop_if_asked

_AT_ONCE = 250
"""So many directories are compared in one call; before each we may be asked to stop."""
_CHANGED = b"\1"
_MOST_THREADS = 4 if ARE_COMPILED else 1


def portions(directories: int) -> Iterator[tuple[int, int]]:
    """The first and the end of those that are compared together."""
    return ((first, min(first + _AT_ONCE, directories)) for first in range(0, directories, _AT_ONCE))


def numbers_of_changed(root: int, shares: Sequence[bytes | memoryview]) -> Iterator[int]:
    """Which of the directories changed; each share has the stamps of one portion. ``root`` is a descriptor."""
    answers = b"".join(_compared(root, shares))
    number = answers.find(_CHANGED)
    while number >= 0:
        yield number
        number = answers.find(_CHANGED, number + 1)


def _compared(root: int, shares: Sequence[bytes | memoryview]) -> list[bytes]:
    answers = [b""] * len(shares)
    numbers = iter(range(len(shares)))

    def compare() -> None:
        for number in numbers:
            stop_if_asked()
            answers[number] = compare_stamps(root, shares[number])

    helpers = [threading.Thread(target=compare, daemon=True) for _ in range(_helpers(len(shares)))]
    try:
        with suppress(RuntimeError):  # no more threads are allowed
            for helper in helpers:
                helper.start()
        compare()
    finally:
        for _ in numbers:
            pass  # if we were stopped, the others stop too
        for helper in helpers:
            if helper.ident is not None:
                helper.join()
    # Normally all are answered by now; if a thread failed, we find out why.
    return [answer or compare_stamps(root, share) for answer, share in zip(answers, shares, strict=True)]


def _helpers(shares: int) -> int:
    return max(0, min(os.cpu_count() or 1, _MOST_THREADS, shares) - 1)
