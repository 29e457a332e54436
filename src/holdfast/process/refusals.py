"""Explains which write outside of the sandboxes made a confined step fail, and how to allow it.

A refused program learns only that it lacks permission, so the refused path is looked for in what it printed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from holdfast.process.confinement import real_path, would_expose
from holdfast.process.mount import Mount, seen_at

# Linking or moving a file out of a sandbox fails as if there were two file systems.
_REFUSED = re.compile(r"permission denied|access ?denied|EACCES|cross-device link|EXDEV", re.IGNORECASE)
_PROGRAM = re.compile(r"^\S+: (?!permission denied)", re.IGNORECASE)
_NAME = re.compile(
    r"""
    '([^']+)' | "([^"]+)" | \u2018([^\u2018\u2019]+)\u2019 | `([^`']+)[`']  # in quotes of any kind
    | (?<!\S) (\.{0,2}/.*?) (?=\s?:\s|\s?:$|,\s|\s\(|\s[-=]>\s|$)           # what looks like a path
    | (?<!\S) (\S+) (?=:\ permission\ denied)                               # the word before the complaint
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LINES_ABOVE = 3
_MOST_NAMES = 100
_NEVER_WORTH_ALLOWING = (Path("/proc"), Path("/sys"))
_SHARED_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # nosec B108 # only compared with


@dataclass(frozen=True, kw_only=True)
class Border:
    """What a step may write, and what lies outside."""

    writable: Sequence[Path]
    allowed: Sequence[Path]
    """The writable paths that the user allowed."""
    copies: Mapping[Path, Path]
    """The plan's real folders, and the sandbox of each."""
    holdfast_home: Path
    mounts: Sequence[Mount] = ()
    """What the step saw at other places."""


def explain(printed: str, cwd: Path, border: Border) -> str | None:
    """A sentence about the write that was refused; None unless an unconfined step could have done it."""
    for name in islice(refused_names(printed), _MOST_NAMES):
        path = real_path(seen_at(cwd / name, border.mounts))
        if _is_beyond(path, border) and os.access(_nearest_existing(path), os.W_OK):
            return f"writing {path} was refused: {_advice(path, border)}"
    return None


def refused_names(printed: str) -> Iterator[str]:
    """The files that messages about missing permission name, the last one first."""
    lines = printed.splitlines()
    for index in reversed(range(len(lines))):
        if _REFUSED.search(lines[index]):
            yield from _names_at(lines, index)


def _names_at(lines: Sequence[str], index: int) -> list[str]:
    """The names in that line, or in one of the lines above: some programs print file and reason in separate lines."""
    for line in reversed(lines[max(0, index - _LINES_ABOVE) : index + 1]):
        found = _NAME.finditer(_PROGRAM.sub("", line.strip()))
        names = [next(group for group in match.groups() if group) for match in found]
        if names:
            return names[::-1]
    return []


def _is_beyond(path: Path, border: Border) -> bool:
    if any(path.is_relative_to(special) for special in _NEVER_WORTH_ALLOWING):
        return False
    # Only folders: a single file that may be written may still not be removed or replaced.
    folders = (real_path(each) for each in border.writable if each.is_dir())
    return not any(path.is_relative_to(folder) for folder in folders)


def _nearest_existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if os.path.lexists(each))


def _advice(path: Path, border: Border) -> str:
    for original, copy in border.copies.items():
        if path.is_relative_to(real_path(original)):
            return (
                f"it is one of the real files; a step changes its copy, {copy / path.relative_to(real_path(original))}"
            )
    if path.is_relative_to(real_path(border.holdfast_home)):
        return "it belongs to Holdfast"
    outside = "it lies outside of the plan's sandboxes"
    if any(path.is_relative_to(folder) for folder in _SHARED_TEMPORARY):
        outside += " and of the step's own TMPDIR"
    return f"{outside}; to allow it, {_how_to_allow(path, border)}"


def _how_to_allow(path: Path, border: Border) -> str:
    place = _nearest_existing(path)
    if place in border.allowed:
        place = place.parent
    if would_expose(place, border.holdfast_home):
        return f"make it yourself and then `{_command(path, border)}`"
    return f"`{_command(place, border)}`"


def _command(place: Path, border: Border) -> str:
    """The command that allows one more path; it repeats the others, because setting a list replaces it."""
    paths = [str(each) for each in (*border.allowed, place)]
    is_plain = not any("," in path or path != path.strip() for path in paths)
    value = ",".join(paths) if is_plain else json.dumps(paths)
    return f"holdfast config set sandbox.allow-write {shlex.quote(value)}"
