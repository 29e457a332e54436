"""How names and sizes are shown: names of files may hold any bytes, those of checkpoints are shorter than their ids."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise, takewhile

# Also characters that change the direction of writing: they make a name look like another one.
NOT_IN_A_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

DISPLAY_PREFIX = "cp_"
SHORTEST_DISPLAY = 8
TIME_CHARACTERS = 10
"""How many of a ULID's characters are its time."""


def valid_text(text: str) -> str:
    """Without lone surrogates: a byte of a file name that is not UTF-8 is written ``\\xff``."""
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "backslashreplace")
    return raw.decode("utf-8", "backslashreplace")


def name_text(name: str) -> str:
    """A file name on one line, with nothing in it that a terminal would obey."""
    return NOT_IN_A_NAME.sub(lambda found: repr(found[0])[1:-1], valid_text(name))


def bytes_text(size: float) -> str:
    if size < 1000:
        return f"{size:.0f} B"
    units = iter(("kB", "MB", "GB", "TB"))
    while (size := size / 1000) >= 999.5:
        next(units)
    unit = next(units)
    return f"{size:.1f} {unit}" if size < 9.95 else f"{size:.0f} {unit}"


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``; did you mean "x"?`` to put behind a complaint, or nothing if no choice is close."""
    import difflib  # rarely needed, and slow to import

    close = difflib.get_close_matches(word, list(choices), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def display_ids(ids: Iterable[str]) -> dict[str, str]:
    """For each id ``cp_`` and its shortest prefix of 8 or more characters that no other of the ids has."""
    ordered = sorted(set(ids))
    lengths = dict.fromkeys(ordered, SHORTEST_DISPLAY)
    for left, right in pairwise(ordered):
        # Among sorted ids the longest common prefix is always with a neighbour.
        common = takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
        needed = len(list(common)) + 1
        lengths[left] = max(lengths[left], needed)
        lengths[right] = max(lengths[right], needed)
    return {each: DISPLAY_PREFIX + each[: lengths[each]] for each in ordered}


def short_ids(some: Iterable[str], beside: Iterable[str]) -> dict[str, str]:
    """For each of some ids its beginning that later ids do not make ambiguous: it contains the whole time.

    ``beside``: at least the neighbours of each id among those that have the same time.
    """
    wanted = list(some)
    unique = display_ids([*wanted, *beside])
    return {each: max(unique[each].removeprefix(DISPLAY_PREFIX), each[:TIME_CHARACTERS], key=len) for each in wanted}


def lasting_id(checkpoint_id: str, beside: Iterable[str]) -> str:
    """A display id that later checkpoints do not make ambiguous: it contains the whole time of the checkpoint.

    ``beside``: at least the neighbours of the id among those of the plan that have the same time.
    """
    short = display_ids([checkpoint_id, *beside])[checkpoint_id]
    return max(short, DISPLAY_PREFIX + checkpoint_id[:TIME_CHARACTERS], key=len)
