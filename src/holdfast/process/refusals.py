"""Explains which write outside of the sandboxes made a confined step fail, and how to allow it.

A refused program learns only that it lacks permission, so the refused path is looked for in what it printed. The
kernel tells only programs that read its audit log of refusals, and a user may not.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from holdfast.model import RefusedWrite
from holdfast.process.confinement import real_path, would_expose
from holdfast.process.mount import Mount, seen_at

# Linking or moving a file out of a sandbox fails as if there were two file systems.
# So does one in a folder that stands in for the real one, which is mounted read-only.
_REFUSED = re.compile(
    r"permission denied|access ?denied|EACCES|cross-device link|EXDEV|read-only file system|EROFS", re.IGNORECASE
)
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
_MOST_SHOWN = 5
_LONGEST_TAIL = 16 * 1024
_WORDS = (b"denied", b"eacces", b"device link", b"exdev", b"read-only file", b"erofs")
"""One of them is in all that the expression above finds."""
# Codes for a terminal: the cursor some places on, or to another line; then all others.
_FORWARD = re.compile(r"\x1b\[\d*C")
_MOVE = re.compile(r"\x1b\[[\d;]*[ABEFHf]")
_OTHER_CODE = re.compile(r"\x1b(\[[\d;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[ -/]*[0-~])")
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
    user_home: Path | None = None
    """Nobody is told to allow it as a whole."""


class Complaints:
    """Hears all that a program prints, and keeps the names of what it may have been refused."""

    def __init__(self) -> None:
        self._tail = b""
        """The last lines, and the beginning of the next one."""
        self._names: dict[str, None] = {}

    def hear(self, printed: bytes) -> None:
        data = self._tail + printed
        # Most programs complain of nothing, and some print very much.
        lowered = data.lower()
        if any(word in lowered for word in _WORDS):
            self._note(data)
        ends = data.rsplit(b"\n", _LINES_ABOVE + 1)
        self._tail = b"\n".join(ends[1:] if len(ends) > _LINES_ABOVE + 1 else ends)[-_LONGEST_TAIL:]

    def names(self) -> tuple[str, ...]:
        """In the order in which they came."""
        self.hear(b"\n")
        return tuple(self._names)

    def _note(self, data: bytes) -> None:
        # The last line may go on; on a terminal one piece of output holds many lines.
        text = _as_plain_text(data.rpartition(b"\n")[0] if b"\n" in data else data)
        lines = [line for line in text.splitlines() if line.strip()]
        for index, line in enumerate(lines):
            if _REFUSED.search(line) and len(self._names) < _MOST_NAMES:
                self._names.update(dict.fromkeys(_names_at(lines, index)))


def _as_plain_text(data: bytes) -> str:
    """Without the codes for a terminal: one that moves the cursor to another line begins a new one."""
    text = _OTHER_CODE.sub("", _MOVE.sub("\n", _FORWARD.sub(" ", data.decode("utf-8", errors="replace"))))
    return "".join(each for each in text if each in "\n\r\t" or each.isprintable())


def refused_writes(names: Iterable[str], cwd: Path, border: Border) -> tuple[RefusedWrite, ...]:
    """What a program was refused, each place once: a few, those that came first."""
    found: dict[str, RefusedWrite] = {}
    for name in names:
        path = real_path(seen_at(cwd / name, border.mounts))
        if _is_beyond(path, border) and os.access(_nearest_existing(path), os.W_OK):
            refused = _refused_write(path, border)
            found.setdefault(refused.allow or refused.path, refused)
    return tuple(islice(found.values(), _MOST_SHOWN))


def _refused_write(path: Path, border: Border) -> RefusedWrite:
    reason = _why_never(path, border)
    if reason is not None:
        return RefusedWrite(str(path), None, reason=reason)
    place = _place_to_allow(path, border)
    if not would_expose(place, border.holdfast_home) and place != border.user_home:
        return RefusedWrite(str(path), str(place))
    below = place / path.relative_to(place).parts[0] if path != place else path
    return RefusedWrite(str(path), str(below), is_missing=not below.exists())


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
    reason = _why_never(path, border)
    if reason is not None:
        return reason
    outside = "it lies outside of the plan's sandboxes"
    if any(path.is_relative_to(folder) for folder in _SHARED_TEMPORARY):
        outside += " and of the step's own TMPDIR"
    return f"{outside}; to allow it, {_how_to_allow(path, border)}"


def _why_never(path: Path, border: Border) -> str | None:
    """Why nothing allows writing there; None if it can be allowed."""
    for original, copy in border.copies.items():
        if path.is_relative_to(real_path(original)):
            return (
                f"it is one of the real files; a step changes its copy, {copy / path.relative_to(real_path(original))}"
            )
    if path.is_relative_to(real_path(border.holdfast_home)):
        return "it belongs to Holdfast"
    return None


def _how_to_allow(path: Path, border: Border) -> str:
    place = _place_to_allow(path, border)
    if would_expose(place, border.holdfast_home):
        return f"make it yourself and then `{_command(path, border)}`"
    return f"`{_command(place, border)}`"


def _place_to_allow(path: Path, border: Border) -> Path:
    place = _nearest_existing(path)
    return place.parent if place in border.allowed else place


def _command(place: Path, border: Border) -> str:
    """The command that allows one more path; it repeats the others, because setting a list replaces it."""
    paths = [str(each) for each in (*border.allowed, place)]
    is_plain = not any("," in path or path != path.strip() for path in paths)
    value = ",".join(paths) if is_plain else json.dumps(paths)
    return f"holdfast config set sandbox.allow-write {shlex.quote(value)}"
