"""Commit and branch of a sandbox, read from its files: running git would cost more than the checkpoint itself."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from holdfast.model import GitHead

_MOST_BYTES = 64 << 20
_HASH = re.compile(rb"[0-9a-f]{40}([0-9a-f]{24})?")
_BRANCHES = b"refs/heads/"
_REFERENCE = b"ref: "


def git_head(root: Path) -> GitHead | None:
    """Commit and branch; None if the files of a repository cannot be read this way, or a step destroyed them."""
    folder = os.fsencode(root) + b"/.git"
    head = _content(folder + b"/HEAD")
    if head is None:
        return None
    line = head.strip()
    if not line.startswith(_REFERENCE):
        commit = _hash(line)
        return None if commit is None else GitHead(commit=commit, branch=None)
    reference = line.removeprefix(_REFERENCE).strip()
    if b".." in reference.split(b"/") or b"\0" in reference or not reference.startswith(b"refs/"):
        return None
    branch = os.fsdecode(reference.removeprefix(_BRANCHES))
    return GitHead(commit=_commit_of(folder, reference), branch=branch)


def _commit_of(folder: bytes, reference: bytes) -> str | None:
    """The commit that a reference names; None for a branch without a commit."""
    loose = _content(folder + b"/" + reference)
    if loose is not None:
        return _hash(loose.strip())
    packed = _content(folder + b"/packed-refs") or b""
    ending = b" " + reference
    return next((_hash(line[: -len(ending)]) for line in packed.splitlines() if line.endswith(ending)), None)


def _hash(text: bytes) -> str | None:
    return text.decode() if _HASH.fullmatch(text) else None


def _content(path: bytes) -> bytes | None:
    """The content of a regular file; a fifo in its place does not block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.read(descriptor, _MOST_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)
