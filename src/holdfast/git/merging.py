"""Merges two changes of one text line by line, as git does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.errors import SandboxError
from holdfast.git.complaints import Cause
from holdfast.git.run import NO_REPOSITORY, complaint_of, run_git
from holdfast.system.trees import temporary_folder, temporary_place

_MOST_CONFLICTS = 127
"""What `git merge-file` can count to; a higher exit code is a failure."""
_SNIFFED_BYTES = 8000
"""In so many bytes git looks for the NUL that makes content binary."""


class MergedText(msgspec.Struct, frozen=True):
    """Two changes of one text, merged; with conflict markers if both changed the same lines."""

    content: bytes
    conflicts: int


def is_text(content: bytes) -> bool:
    return b"\0" not in content[:_SNIFFED_BYTES]


def merge_texts(
    base: bytes, ours: bytes, theirs: bytes, *, labels: tuple[str, str, str], theirs_wins: bool = False
) -> MergedText | None:
    """Merge two changes of a text, keeping every byte; None if a side is not text.

    ``labels`` name our side, the base and their side in the markers around lines that both changed. With
    ``theirs_wins`` these lines are taken from their side, and there are no conflicts.
    """
    if not all(map(is_text, (base, ours, theirs))):
        return None
    try:
        with temporary_folder() as folder:
            return _merge_files(folder, {"ours": ours, "base": base, "theirs": theirs}, labels, theirs_wins)
    except OSError as error:
        raise SandboxError(
            f"Texts cannot be merged in a temporary folder: {error.strerror}.",
            hint=f"Make room in {temporary_place()}, or name another folder in TMPDIR.",
        ) from error


def _merge_files(
    folder: Path, sides: Mapping[str, bytes], labels: Sequence[str], theirs_wins: bool
) -> MergedText | None:
    for name, content in sides.items():
        (folder / name).write_bytes(content)
    named = [word for label in labels for word in ("-L", label)]
    args = ["merge-file", "-p", "--theirs" if theirs_wins else "--diff3", *named, *sides]
    completed = run_git(args, cwd=folder, env=NO_REPOSITORY, check=False)
    if completed.returncode != 0 and Cause.NOT_TEXT.is_in(complaint_of(completed)):
        return None
    if not 0 <= completed.returncode <= _MOST_CONFLICTS:
        raise SandboxError(f"git merge-file failed: {complaint_of(completed)}")
    return MergedText(completed.stdout, completed.returncode)
