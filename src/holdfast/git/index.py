"""The index of a repository: a temporary one to fill, and the user's, which is locked, changed and compared."""

from __future__ import annotations

import errno
import os
import stat
import struct
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import ConflictError
from holdfast.git.plain_paths import index_after
from holdfast.git.repository import GitRepository
from holdfast.git.run import run_git
from holdfast.git.trees import TreeEntry
from holdfast.names import name_text
from holdfast.system.trees import sync_directory, temporary_folder

_LOCK_MARK = b"holdfast apply "
# The shared part of a split index would stay in the user's repository, even if the index itself is temporary.
_WHOLE = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.splitIndex", "GIT_CONFIG_VALUE_0": "false"}
MOST_ASKED_FOR = 500
"""Asked about more paths than that, git takes as long as for all."""
Changes = Mapping[bytes, tuple[bytes, bytes]]
Times = tuple[int, int]
"""Of the last access and the last change, in nanoseconds."""
_KNOWN: dict[tuple[GitRepository, str | None, str | None], Changes] = {}
_MOST_KNOWN = 8
_KNOWN_LOCK = threading.Lock()


@contextmanager
def temporary_index(
    repository: GitRepository, content: bytes | None, times: Times | None = None
) -> Iterator[dict[str, str]]:
    """The environment for a git that uses a temporary index with this content, and with these times."""
    with temporary_folder() as folder:
        index = folder / "index"
        if content is not None:
            index.write_bytes(content)
            if times is not None:
                os.utime(index, ns=times)
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


def changes_between(repository: GitRepository, old: str | None, new: str | None) -> Changes:
    """Every path in which two commits or trees differ, with its old and its new ``mode digest``."""
    key = repository, old, new
    with _KNOWN_LOCK:
        found = _KNOWN.get(key)
    if found is None:
        found = compared(*key, {})
        note_changes(*key, found)
    return found


def note_changes(repository: GitRepository, old: str | None, new: str | None, changes: Changes) -> None:
    """Spare git the question: in what two commits differ never changes."""
    with _KNOWN_LOCK:
        _KNOWN[repository, old, new] = changes
        while len(_KNOWN) > _MOST_KNOWN:
            del _KNOWN[next(iter(_KNOWN))]


def as_entries(changes: Changes) -> dict[bytes, tuple[TreeEntry | None, TreeEntry | None]]:
    return {path: (_entry(old), _entry(new)) for path, (old, new) in changes.items()}


def _entry(told: bytes) -> TreeEntry | None:
    mode, _, digest = told.partition(b" ")
    return None if told == _gone(told) else TreeEntry(int(mode, 8), bytes.fromhex(digest.decode()))


def compared(repository: GitRepository, old: str | None, new: str | None, environment: Mapping[str, str]) -> Changes:
    """The same, for a git with another environment."""
    ends = [each or tree_of(repository, None) for each in (old, new)]
    args = ["diff-tree", "-r", "-z", "--no-renames", *ends]
    # Git would read the whole index, and not use it.
    words = run_git(args, cwd=repository.root, env={**repository.without_index, **environment}).stdout.split(b"\0")
    changes = {}
    for facts, path in zip(words[::2], words[1::2], strict=False):
        old_mode, new_mode, old_digest, new_digest, _ = facts.removeprefix(b":").split(b" ")
        changes[path] = (old_mode + b" " + old_digest, new_mode + b" " + new_digest)
    return changes


# Changing


def new_index(repository: GitRepository, old: str | None, new: str | None, *, is_from_files: bool = False) -> bytes:
    """The index with every path in which the commits differ taken from the new one, and all else unchanged.

    ``is_from_files``: git has just made the new one of the files that are in the work tree now.
    """
    changes = changes_between(repository, old, new)
    made = index_after(repository, as_entries(changes), are_from_files=is_from_files)
    return _changed_index(repository, {path: entry for path, (_, entry) in changes.items()}) if made is None else made


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
    content, times = None, None
    with suppress(FileNotFoundError), repository.index_path.open("rb") as index:
        content, times = index.read(), _times_of(os.fstat(index.fileno()))
    # The files were written before: one that is missing was left out by a sparse checkout, and stays left out.
    present = [path for path, entry in entries.items() if entry != _gone(entry)]
    there = {path for path in present if os.path.lexists(repository.root / os.fsdecode(path))}
    # With its times git knows which files to read, because they were written after it looked at them.
    with temporary_index(repository, content, times) as environment:
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


def keep_index(repository: GitRepository, place: Path) -> None:
    """Keep the present index there, as it is; to be called with it locked.

    No program writes into an index: each makes a new one. So another name of the file keeps it.
    """
    with suppress(FileNotFoundError), repository.index_path.open("rb") as index:
        os.fsync(index.fileno())
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(repository.index_path, place)
        except FileExistsError:  # it may be another name of the index, which a copy would be written into
            raise
        except OSError:  # it is on another disk, or is another user's
            _write(place, _Facts.of(os.fstat(index.fileno())).stored() + index.read(), 0o600)
        sync_directory(place.parent)


def put_index_back(repository: GitRepository, place: Path, token: str) -> bool:
    """Replace the index by the one that was kept; False if none is."""
    try:
        # Read first: about a file that is missing, and would go to another disk, Linux says only the latter.
        with place.open("rb") as file:
            facts, content = _Facts.of(os.fstat(file.fileno())), file.read()
    except FileNotFoundError:
        return False
    if content.startswith(_COPY_MARK):
        facts, content = _Facts.stored_in(content), content[len(_COPY_MARK) + _FACTS.size :]
    elif _could_rename(place, repository.index_path):
        sync_directory(repository.index_path.parent)
        return True
    _replace_index(repository, content, token, facts)
    with suppress(OSError):  # it is removed later
        place.unlink()
    return True


def _could_rename(place: Path, target: Path) -> bool:
    """Give a file back its other name, if that is on the same disk still."""
    try:
        place.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


_COPY_MARK = b"holdfast's copy of an index\n"
"""What a copy begins with. Only another name of the same file may become the index again: a copy has another owner."""
_FACTS = struct.Struct(">IIIqq")


class _Facts(NamedTuple):
    """What an index has beside its content, and gets back with it as far as the user may give it."""

    mode: int
    owner: int
    group: int
    times: Times

    @classmethod
    def of(cls, found: os.stat_result) -> _Facts:
        return cls(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, _times_of(found))

    @classmethod
    def stored_in(cls, copy: bytes) -> _Facts:
        mode, owner, group, *times = _FACTS.unpack_from(copy, len(_COPY_MARK))
        return cls(mode, owner, group, (times[0], times[1]))

    def stored(self) -> bytes:
        return _COPY_MARK + _FACTS.pack(self.mode, self.owner, self.group, *self.times)


def replace_index(repository: GitRepository, content: bytes, token: str) -> None:
    """Replace the index as a whole; to be called with it locked.

    The new one has the time of the old one, or of the lock if there is none. Git reads a file again if its time is not
    before that of the index; with a later time, what was written to another file in the moment after it was noted
    would be taken for unchanged.
    """
    _replace_index(repository, content, token, None)


def _replace_index(repository: GitRepository, content: bytes, token: str, facts: _Facts | None) -> None:
    replacement = _next_index(repository, token)
    if facts is None:
        _write(replacement, content, _mode_for_index(repository), _times_for_index(repository))
    else:
        _write(replacement, content, facts.mode, facts.times, (facts.owner, facts.group))
    replacement.replace(repository.index_path)
    sync_directory(repository.index_path.parent)


def _write(
    place: Path, content: bytes, mode: int, times: Times | None = None, owners: tuple[int, int] | None = None
) -> None:
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        for owner, group in () if owners is None else ((owners[0], -1), (-1, owners[1])):
            with suppress(OSError):  # only root may, or somebody in that group
                os.fchown(descriptor, owner, group)
        os.fchmod(descriptor, stat.S_IMODE(mode))
        file.write(content)
        file.flush()
        if times is not None:
            os.utime(descriptor, ns=times)
        os.fsync(file.fileno())


def _mode_for_index(repository: GitRepository) -> int:
    """The mode of the present index; if there is none, of a file that every repository has, shared or not."""
    present = repository.index_path if repository.index_path.exists() else repository.git_dir / "HEAD"
    return present.stat().st_mode


def _times_for_index(repository: GitRepository) -> Times | None:
    """Those of the present index; if there is none, of the lock, which was there before a file was looked at."""
    for present in (repository.index_path, repository.index_lock):
        with suppress(FileNotFoundError):
            return _times_of(present.stat())
    return None


def _times_of(found: os.stat_result) -> Times:
    return found.st_atime_ns, found.st_mtime_ns


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
    return repository.index_path.with_name(f"index.holdfast-{token}")


def _next_index(repository: GitRepository, token: str) -> Path:
    """The new index, until it replaces the present one."""
    return repository.index_path.with_name(f"index.holdfast-{token}.next")


def release_index(repository: GitRepository, token: str) -> None:
    """Remove the lock, if it has this token, and the unfinished files that were to become the lock or the index."""
    for unfinished in (_prepared_lock(repository, token), _next_index(repository, token)):
        unfinished.unlink(missing_ok=True)
    if holds_index(repository, token):
        repository.index_lock.unlink()
