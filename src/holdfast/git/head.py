"""What HEAD says, read from its files: running git would cost more than the checkpoint of a sandbox itself."""

from __future__ import annotations

import errno
import os
import re
import stat
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from holdfast.model import GitHead

_MOST_BYTES = 64 << 20
_HASH = re.compile(rb"[0-9a-f]{40}([0-9a-f]{24})?")
_BRANCHES = b"refs/heads/"
_BRANCH = re.compile(rb"refs/heads(/(?!\.)[^\0-\x20\x7f~^:?*\[\\/]+)+")
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
_COMMIT = b"commit "
_BEGINNING_BYTES = 128
_REFERENCE = b"ref: "
_ELSEWHERE = b"refs/heads/.invalid"
"""What HEAD names if the branches are kept in another form than in files."""


ReadFile = Callable[[bytes], bytes | None]
"""The content of a file by its path below ``.git``; None if there is none."""


class Head(NamedTuple):
    """Where HEAD of a repository is."""

    ref: str | None
    """The full name of the branch; None if HEAD is detached."""
    commit: str
    """What is to be one: nobody looked at the object."""


def head_of(git_dir: Path, common_dir: Path) -> Head | None:
    """None if git must be asked, because the files do not say it in the form that git writes, or there is no commit."""
    try:
        line = (_content(os.fsencode(git_dir) + b"/HEAD") or b"").removesuffix(b"\n")
        reference = line.removeprefix(_REFERENCE)
        if reference == line:
            ref, commit = None, _hash(line)
        elif reference == _ELSEWHERE or not _is_plain_branch(reference):
            return None
        else:
            ref, commit = os.fsdecode(reference), _commit_of(_reader(common_dir), reference)
    except _Unreadable:
        return None
    return None if commit is None else Head(ref, commit)


def _is_plain_branch(reference: bytes) -> bool:
    """Whether it is a name that git accepts for a branch; any other could name another file than git means."""
    return (
        _BRANCH.fullmatch(reference) is not None
        and not any(part in reference for part in (b"..", b"@{", b".lock/"))
        and not reference.endswith((b".", b".lock"))
    )


def is_certainly_commit(common_dir: Path, digest: str) -> bool:
    """Whether the object has a file of its own, which begins as a commit does; of a packed one, git must be asked."""
    place = os.fsencode(common_dir / "objects" / digest[:2] / digest[2:])
    try:
        beginning = zlib.decompressobj().decompress(_content(place, _BEGINNING_BYTES) or b"", len(_COMMIT))
    except (_Unreadable, zlib.error):
        return False
    return beginning == _COMMIT


def git_head(root: Path) -> GitHead | None:
    """Commit and branch; None if the files of a repository cannot be read this way, or a step destroyed them."""
    try:
        return head_in(_reader(root / ".git"))
    except _Unreadable:
        return None


def head_in(read: ReadFile) -> GitHead | None:
    """The same of a repository whose files are read in another way."""
    head = read(b"HEAD")
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
    return GitHead(commit=_commit_of(read, reference), branch=branch)


class _Unreadable(Exception):
    """What is there cannot be read, so it is not known what git would make of it."""


def _reader(folder: Path) -> ReadFile:
    return partial(_content_below, os.fsencode(folder) + b"/")


def _content_below(folder: bytes, name: bytes) -> bytes | None:
    return _content(folder + name)


def _commit_of(read: ReadFile, reference: bytes) -> str | None:
    """The commit that a reference names; None for a branch without a commit.

    The packed ones hold what it was before, so they count only if it certainly has no file of its own.
    """
    loose = read(reference)
    if loose is not None:
        return _hash(loose.strip())
    packed = read(b"packed-refs") or b""
    ending = b" " + reference
    return next((_hash(line[: -len(ending)]) for line in packed.splitlines() if line.endswith(ending)), None)


def _hash(text: bytes) -> str | None:
    return text.decode() if _HASH.fullmatch(text) and text.strip(b"0") else None


def _content(path: bytes, most_bytes: int = _MOST_BYTES) -> bytes | None:
    """The content of a regular file, or its beginning; None if there is no file. A fifo in its place does not block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise _Unreadable from error
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            return None
        if not stat.S_ISREG(mode):
            raise _Unreadable
        return os.read(descriptor, most_bytes)
    except OSError as error:
        raise _Unreadable from error
    finally:
        os.close(descriptor)
