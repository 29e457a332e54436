"""Commits: their parents and their subjects, read without git as far as they have files of their own."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NamedTuple

from holdfast.git.head import ReadFile
from holdfast.git.repository import GitRepository
from holdfast.git.run import run_git

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
    return _parsed(content) if kind.startswith(b"commit ") else None


def ask_for_commit(repository: GitRepository, objects: Path, digest: str) -> CommitText | None:
    """A commit of the repository, or one that is only among these objects, as git says it."""
    # The settings are those of the repository: those of a sandbox may start programs. No object is fetched.
    quoted = str(objects).replace("\\", "\\\\").replace('"', '\\"')
    environment = {
        "GIT_DIR": str(repository.git_dir),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"',
        "GIT_NO_LAZY_FETCH": "1",
    }
    answer = run_git(["cat-file", "commit", digest], cwd=repository.root, env=environment, check=False)
    return _parsed(answer.stdout[:_MOST_BYTES]) if answer.returncode == 0 else None


def _parsed(content: bytes) -> CommitText:
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
