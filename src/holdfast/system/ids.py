"""Ids are ULIDs: 48 bits of time and 80 random bits in 26 characters, which sort by age."""

from __future__ import annotations

import os
import re
import threading
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CHARACTER_BITS = 5
_LENGTH = 26
_RANDOM_BITS = 80
_STEP_BITS = 72

_FORM = re.compile(f"[0-7][{_ALPHABET}]{{{_LENGTH - 1}}}", re.IGNORECASE)
"""26 characters have two bits more than an id; the first character is at most 7, so they are 0."""


class _Ids:
    """Makes ids that sort in the order they were made, even if the clock stands still or goes back.

    Ids of the same millisecond grow by large random steps, so that a short prefix is unique.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._milliseconds, self._chance = 0, 0

    def next(self) -> int:
        fresh = int.from_bytes(os.urandom(_RANDOM_BITS // 8))
        with self._mutex:
            milliseconds = time.time_ns() // 1_000_000
            if milliseconds > self._milliseconds:
                # From the lower half, so that there is room to grow.
                self._milliseconds, self._chance = milliseconds, fresh >> 1
            else:
                self._chance += 1 + (fresh >> (_RANDOM_BITS - _STEP_BITS))
                if self._chance >> _RANDOM_BITS:
                    self._milliseconds, self._chance = self._milliseconds + 1, fresh >> 1
            return self._milliseconds << _RANDOM_BITS | self._chance


_ids = _Ids()


def new_id() -> str:
    return id_text(_ids.next())


def id_text(value: int) -> str:
    """The 128 bits of an id as its 26 characters."""
    shifts = range((_LENGTH - 1) * _CHARACTER_BITS, -1, -_CHARACTER_BITS)
    return "".join(_ALPHABET[value >> shift & 0x1F] for shift in shifts)


def is_id(text: str) -> bool:
    """Whether it has the form of an id, in upper or lower case."""
    return _FORM.fullmatch(text) is not None
