"""Differences between two states in readable form: files, line counts, unified diffs."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from holdfast.checkpoints.changes import Status, status_of
from holdfast.content.difference import Difference
from holdfast.content.format import DIRECTORY, FIFO, SYMLINK, Entry
from holdfast.system.directories import shown

_LARGEST_TEXT_BYTES = 4 << 20
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_KINDS = {DIRECTORY: "directory", SYMLINK: "symlink", FIFO: "fifo"}


@dataclass(frozen=True)
class FileDiff:
    """How one file differs."""

    resource: str
    path: str
    status: Status
    added_lines: int
    removed_lines: int
    is_binary: bool
    note: str
    """What changed besides the text: kind, mode or extended attributes."""
    patch: tuple[str, ...]
    is_ignored: bool = False
    """Git ignores the file."""


class Contents(Protocol):
    """Reads the content of files."""

    def content(self, entry: Entry) -> Iterator[bytes]: ...


def file_diff(reader: Contents, resource: str, difference: Difference) -> FileDiff:
    path, old, new = shown(difference.path), difference.old, difference.new
    status = status_of(difference)
    before, after = _text(reader, old), _text(reader, new)
    if before is None or after is None:
        return FileDiff(resource, path, status, 0, 0, True, _note(old, new), ())
    patch = tuple(_unified(path, before, after, old, new))
    added = sum(line.startswith("+") for line in patch[2:])
    removed = sum(line.startswith("-") for line in patch[2:])
    return FileDiff(resource, path, status, added, removed, False, _note(old, new), patch)


def without_lines(resource: str, difference: Difference) -> FileDiff:
    """That an ignored file differs; its lines are not compared."""
    note = _note(difference.old, difference.new)
    return FileDiff(resource, shown(difference.path), status_of(difference), 0, 0, False, note, (), is_ignored=True)


def _text(reader: Contents, entry: Entry | None) -> list[str] | None:
    """The lines of a text file; empty for an entry without content, None if it is not text."""
    if entry is None or entry.kind == DIRECTORY:
        return []
    if entry.kind == SYMLINK:
        return [os.fsdecode(entry.content) + "\n"]
    if entry.size > _LARGEST_TEXT_BYTES:
        return None
    content = b"".join(reader.content(entry))
    if b"\0" in content:
        return None
    # In a patch only a newline ends a line; Python's splitlines also splits at others, such as a form feed.
    return _LINE.findall(content.decode("utf-8", errors="replace"))


def _unified(path: str, before: list[str], after: list[str], old: Entry | None, new: Entry | None) -> Iterator[str]:
    names = ("/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}")
    for line in difflib.unified_diff(before, after, *names):
        if line.endswith("\n"):
            yield line[:-1]
        else:
            yield line
            yield "\\ No newline at end of file"


def _note(old: Entry | None, new: Entry | None) -> str:
    if old is None or new is None:
        entry = old or new
        return _KINDS.get(entry.kind, "") if entry else ""
    if _KINDS.get(old.kind) != _KINDS.get(new.kind):
        return f"{_KINDS.get(old.kind, 'file')} became {_KINDS.get(new.kind, 'file')}"
    notes = [f"mode {old.mode:04o} became {new.mode:04o}"] if old.mode != new.mode else []
    notes += ["other extended attributes"] if old.xattrs != new.xattrs else []
    return ", ".join(notes)
