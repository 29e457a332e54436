"""How names are shown: those of files hold whatever somebody put there, and need not even be text."""

from __future__ import annotations

import re
from collections.abc import Iterable

# With those that turn the direction of writing: they make a name look like another one.
NOT_IN_A_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


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


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``; did you mean "x"?`` to put behind a complaint, or nothing if no choice is close."""
    import difflib  # rarely needed, and slow to import

    close = difflib.get_close_matches(word, list(choices), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""
