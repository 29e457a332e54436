"""Commits read from the files of a repository without git: their parents and their subjects."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from holdfast.git.head import ReadFile

_MOST_BYTES = 1 << 20
_MOST_COMMITS = 100


class CommitText(NamedTuple):
    parents: tuple[str, ...]
    subject: str


def read_commit(read: ReadFile, digest: str) -> CommitText | None:
    """A commit that has a file of its own, as one that was just made has; None for a packed or a damaged one."""
    packed = read(f"objects/{digest[:2]}/{digest[2:]}".encode())
    try:
        text = zlib.decompressobj().decompress(packed or b"", _MOST_BYTES)
    except zlib.error:
        return None
    kind, _, content = text.partition(b"\0")
    if not kind.startswith(b"commit "):
        return None
    headers, _, message = content.partition(b"\n\n")
    lines = headers.splitlines()
    parents = tuple(line[7:].decode("ascii", "replace") for line in lines if line.startswith(b"parent "))
    subject = message.lstrip(b"\n").partition(b"\n")[0]
    return CommitText(parents, subject.decode("utf-8", "replace").strip())


def count_commits(read: ReadFile, newest: str, before: str | None) -> int | None:
    """How many commits lead from ``before``, or from nothing, to the newest one; None if that is not how it came."""
    digest: str | None = newest
    for count in range(_MOST_COMMITS):
        if digest == before:
            return count
        commit = None if digest is None else read_commit(read, digest)
        if commit is None:
            return None
        digest = commit.parents[0] if commit.parents else None
    return None
