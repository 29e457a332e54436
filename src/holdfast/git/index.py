"""The index of a repository: a temporary one to fill, and the user's, which is locked, changed and compared."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from holdfast.errors import ConflictError
from holdfast.git.repository import GitRepository
from holdfast.git.run import run_git
from holdfast.names import name_text
from holdfast.system.trees import sync_directory, temporary_folder

_LOCK_MARK = b"holdfast apply "
# The shared part of a split index would stay in the user's repository, even if the index itself is temporary.
_WHOLE = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.splitIndex", "GIT_CONFIG_VALUE_0": "false"}
MOST_ASKED_FOR = 500
"""Asked about more paths than that, git takes as long as for all."""
_NO_INDEX = "no-index"


@contextmanager
def temporary_index(repository: GitRepository, content: bytes | None) -> Iterator[dict[str, str]]:
    """The environment for a git that uses a temporary index with this content."""
    with temporary_folder() as folder:
        index = folder / "index"
        if content is not None:
            index.write_bytes(content)
        places = {"GIT_DIR": str(repository.git_dir), "GIT_WORK_TREE": str(repository.root)}
        yield {**_WHOLE, **places, "GIT_INDEX_FILE": str(index)}


def index_entries(
    repository: GitRepository, paths: Collection[bytes], environment: Mapping[str, str] | None = None
) -> dict[bytes, bytes]:
    """The ``mode digest`` of those of these paths that the index lists."""
    if not paths:
        return {}
    asked = sorted(map(os.fsdecode, paths)) if len(paths) <= MOST_ASKED_FOR else []
    args = ["--literal-pathspecs", "ls-files", "-s", "-z", "--", *asked]
    listed = run_git(args, cwd=repository.root, env=environment).stdout.split(b"\0")[:-1]
    return {path: facts.rpartition(b" ")[0] for facts, _, path in (line.partition(b"\t") for line in listed)}


def staged(repository: GitRepository, commit: str | None) -> set[bytes]:
    """The paths in which the index differs from a commit."""
    args = ["diff-index", "--cached", "-z", "--name-only", "--no-renames", commit or tree_of(repository, None)]
    return {path for path in run_git(args, cwd=repository.root).stdout.split(b"\0") if path}


def tree_of(repository: GitRepository, commit: str | None) -> str:
    if commit is None:
        return run_git(["hash-object", "-t", "tree", "--stdin"], cwd=repository.root).stdout.decode().strip()
    return run_git(["rev-parse", f"{commit}^{{tree}}"], cwd=repository.root).stdout.decode().strip()


@lru_cache(maxsize=8)  # what two commits are never changes
def changes_between(repository: GitRepository, old: str | None, new: str | None) -> Mapping[bytes, tuple[bytes, bytes]]:
    """Every path in which two commits or trees differ, with its old and its new ``mode digest``."""
    return compared(repository, old, new, {})


def compared(
    repository: GitRepository, old: str | None, new: str | None, environment: Mapping[str, str]
) -> Mapping[bytes, tuple[bytes, bytes]]:
    """The same, for a git with another environment."""
    ends = [each or tree_of(repository, None) for each in (old, new)]
    args = ["diff-tree", "-r", "-z", "--no-renames", *ends]
    # Git would read the whole index, and not use it.
    no_index = {"GIT_INDEX_FILE": str(repository.git_dir / _NO_INDEX)}
    words = run_git(args, cwd=repository.root, env={**no_index, **environment}).stdout.split(b"\0")
    changes = {}
    for facts, path in zip(words[::2], words[1::2], strict=False):
        old_mode, new_mode, old_digest, new_digest, _ = facts.removeprefix(b":").split(b" ")
        changes[path] = (old_mode + b" " + old_digest, new_mode + b" " + new_digest)
    return changes


# Changing


def new_index(repository: GitRepository, old: str | None, new: str | None) -> bytes:
    """The index with every path in which the commits differ taken from the new one, and all else unchanged."""
    changes = changes_between(repository, old, new)
    return _changed_index(repository, {path: entry for path, (_, entry) in changes.items()})


def take_out_of_index(repository: GitRepository, old: str | None, new: str | None, token: str) -> None:
    """Undo in the index what it has of the new commit, path by path; all else in it is the user's work."""
    changes = changes_between(repository, old, new)
    present = index_entries(repository, changes.keys())
    ours = {path: before for path, (before, made) in changes.items() if present.get(path, _gone(made)) == made}
    if not ours:
        return
    lock_index(repository, token)
    try:
        replace_index(repository, _changed_index(repository, ours), token)
    finally:
        release_index(repository, token)


def _gone(entry: bytes) -> bytes:
    return b"000000 " + b"0" * (len(entry) - len(b"000000 "))


def _changed_index(repository: GitRepository, entries: Mapping[bytes, bytes]) -> bytes:
    content = repository.index_path.read_bytes() if repository.index_path.exists() else None
    # The files were written before: one that is missing was left out by a sparse checkout, and stays left out.
    present = [path for path, entry in entries.items() if entry != _gone(entry)]
    there = {path for path in present if os.path.lexists(repository.root / os.fsdecode(path))}
    with temporary_index(repository, content) as environment:
        # From the files, so that git knows them without another look; all other entries stay as they are.
        _update_index(repository, there, environment, "--add", "--replace", check=False)
        made = index_entries(repository, there, environment)
        # A filter may have made something else of a file this time: what is committed counts.
        others = {path: entry for path, entry in entries.items() if path not in there or made.get(path) != entry}
        # Removals first: a file may have become a directory.
        lines = sorted(entry + b"\t" + path for path, entry in others.items())
        _update_index(repository, lines, environment, "--index-info")
        _update_index(repository, set(present).difference(there), environment, "--skip-worktree")
        return Path(environment["GIT_INDEX_FILE"]).read_bytes()


def _update_index(
    repository: GitRepository,
    lines: Collection[bytes],
    environment: Mapping[str, str],
    *options: str,
    check: bool = True,
) -> None:
    if lines:
        how = [*options, "-z", "--stdin"] if "--index-info" not in options else ["-z", *options]
        # The index is temporary.
        args = ["-c", "core.fsync=all,-index", "update-index", *how]
        listed = b"".join(line + b"\0" for line in lines)
        run_git(args, cwd=repository.root, input=listed, env=environment, check=check)


def replace_index(repository: GitRepository, content: bytes, token: str) -> None:
    """Replace the index as a whole; to be called with it locked."""
    replacement = _next_index(repository, token)
    descriptor = os.open(replacement, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, _mode_for_index(repository))
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    replacement.replace(repository.index_path)
    sync_directory(repository.git_dir)


def _mode_for_index(repository: GitRepository) -> int:
    """The mode of the present index; if there is none, of a file that every repository has, shared or not."""
    present = repository.index_path if repository.index_path.exists() else repository.git_dir / "HEAD"
    return stat.S_IMODE(present.stat().st_mode)


# Locking


def lock_index(repository: GitRepository, token: str) -> None:
    """Keep every other git away from the index by git's own lock file, in which the token says that it is ours.

    The lock appears with the token already in it: after a crash a lock without token could not be recognised as ours,
    and would stay.
    """
    prepared = _prepared_lock(repository, token)
    with prepared.open("wb") as file:
        file.write(_LOCK_MARK + token.encode())
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(prepared, repository.index_lock)
    except FileExistsError as error:
        raise index_is_locked(repository) from error
    finally:
        prepared.unlink()


def index_is_locked(repository: GitRepository) -> ConflictError:
    return ConflictError(
        f"Another git command is at work in {name_text(str(repository.root))}: "
        f"{name_text(str(repository.index_lock))} exists.",
        hint="Wait for it to end; if none is running, remove that file. Then run the command again.",
    )


def holds_index(repository: GitRepository, token: str) -> bool:
    try:
        return repository.index_lock.read_bytes() == _LOCK_MARK + token.encode()
    except FileNotFoundError:
        return False


def _prepared_lock(repository: GitRepository, token: str) -> Path:
    return repository.git_dir / f"index.holdfast-{token}"


def _next_index(repository: GitRepository, token: str) -> Path:
    """The new index, until it replaces the present one."""
    return repository.git_dir / f"index.holdfast-{token}.next"


def release_index(repository: GitRepository, token: str) -> None:
    """Remove the lock, if it has this token, and the unfinished files that were to become the lock or the index."""
    for unfinished in (_prepared_lock(repository, token), _next_index(repository, token)):
        unfinished.unlink(missing_ok=True)
    if holds_index(repository, token):
        repository.index_lock.unlink()
