"""Which command was meant by a word that is none: looked for in its group, and then in all others."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import takewhile

from holdfast.cli.invocation import PROGRAM, LazyGroup

Words = tuple[str, ...]
"""The words of a command after the program's name."""


def did_you_mean_command(root: LazyGroup, group: LazyGroup, place: Words, typed: Sequence[str]) -> str:
    """A question to put behind a complaint, or nothing if no command is close.

    ``typed``: the words from the wrong one on; ``place``: those before it, which lead from ``root`` to ``group``.
    """
    words = list(takewhile(lambda word: not word.startswith("-"), typed))
    found = _elsewhere(root, words[0]) or _beside(group, place, words) or _close_elsewhere(root, words[0])
    named = " or ".join(f"`{' '.join((PROGRAM, *each))}`" for each in found)
    return f" Did you mean {named}?" if found else ""


def _elsewhere(root: LazyGroup, name: str) -> list[Words]:
    """The commands that have exactly this name, in other groups."""
    found = [path for path in root.paths() if path[-1] == name]
    return [(name,)] if (name,) in found else found


def _beside(group: LazyGroup, place: Words, words: Sequence[str]) -> list[Words]:
    """The command of this group with a similar name; if it is a group, with the command of it that follows."""
    close = get_close_matches(words[0], group.names(), n=1)
    if not close:
        return []
    path = (*place, close[0])
    below = group.group_named(close[0])
    if below is None or len(words) == 1:
        return [path]
    return _beside(below, path, words[1:]) or [path]


def _close_elsewhere(root: LazyGroup, word: str) -> list[Words]:
    close = get_close_matches(word, {path[-1] for path in root.paths()}, n=1)
    return _elsewhere(root, close[0]) if close else []
