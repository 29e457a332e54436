"""Moves a branch of the user to another commit and back, and refuses a branch that cannot be moved."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.errors import ConflictError, UsageError
from holdfast.git.complaints import Cause
from holdfast.git.index import Changes, as_entries, changes_between, index_is_locked, staged
from holdfast.git.plain_paths import is_nothing_staged
from holdfast.git.repository import GitRepository
from holdfast.git.run import GitFailed, run_git
from holdfast.git.work_tree import in_the_way_of
from holdfast.system.trees import sync_directory

_PACKED_LOCK = "packed-refs.lock"
_GRACE_SECONDS = 0.3
"""Another git that still runs keeps such a lock for less time."""


class BranchMove(msgspec.Struct, frozen=True):
    """A branch, or a detached HEAD, that goes from one commit to another; None stands for a branch without a commit."""

    repository: GitRepository
    ref: str | None
    """The branch's full name; None for a detached HEAD."""
    old: str | None
    new: str | None
    is_checked_out: bool = True
    """If so, the index moves with the branch; otherwise only the name moves."""

    @property
    def reversed(self) -> BranchMove:
        return msgspec.structs.replace(self, old=self.new, new=self.old)

    def is_at(self, commit: str | None) -> bool:
        """Whether the branch is at that commit, and HEAD too if the branch is checked out."""
        if self.is_checked_out:
            return self.repository.branch() == self.ref and self.repository.head() == commit
        return self.repository.commit_of(self.ref or "HEAD") == commit


def branch_name(ref: str) -> str:
    return ref.removeprefix("refs/heads/")


# Refusals


def check_unmoved(move: BranchMove) -> None:
    """Refuse if, before the index was locked, the branch was moved or something was staged in the paths concerned."""
    repository = move.repository
    changed = changes_between(repository, move.old, move.new) if move.is_checked_out else {}
    if (changed and _is_staged(move, changed)) or not move.is_at(move.old):
        raise ConflictError(
            f"Something else changed the repository {repository.root} meanwhile; nothing was changed.",
            hint="Run the command again.",
        )


def _is_staged(move: BranchMove, changed: Changes) -> bool:
    if is_nothing_staged(move.repository, as_entries(changed)):
        return False
    return bool(in_the_way_of(changed, staged(move.repository, move.old)))


def refuse_a_locked_branch(move: BranchMove) -> None:
    """Refuse if a lock of another git keeps us from moving the branch, or from changing the index with it."""
    repository = move.repository
    if move.is_checked_out and repository.index_lock.exists():
        raise index_is_locked(repository)
    is_deletion = move.old is not None and move.new is None
    for lock in _lock_files(move):
        if lock.exists() and (is_deletion or lock.name != _PACKED_LOCK):
            raise _cannot_move(repository, f"Unable to create '{lock}': File exists", is_locked=True)


def refuse_a_branch_used_elsewhere(repository: GitRepository, ref: str | None, *, way_out: str) -> None:
    """Refuse a branch that another work tree has checked out: its files would no longer match its HEAD."""
    if not repository.has_other_work_trees():
        return
    listed = run_git(["worktree", "list", "--porcelain", "-z"], cwd=repository.root).stdout.split(b"\0\0")
    for block in listed:
        facts = dict(line.partition(b" ")[::2] for line in block.split(b"\0"))
        place = Path(os.fsdecode(facts.get(b"worktree", b"")))
        # For a submodule git lists its git directory in place of its work tree.
        is_ours = place.resolve() in (repository.root, repository.git_dir.resolve())
        is_there = b"prunable" not in facts and not is_ours
        if ref is not None and is_there and facts.get(b"branch") == os.fsencode(ref):
            raise ConflictError(
                f"The branch {branch_name(ref)} is checked out in {place} as well; nothing was changed.",
                hint=f"Check out another branch in one of them, {way_out}",
            )


def refuse_branch_name(repository: GitRepository, name: str) -> None:
    """Refuse a name that git would not accept for a new branch."""
    answer = run_git(["check-ref-format", "--branch", name], cwd=repository.root, check=False)
    if answer.returncode != 0 or answer.stdout.decode(errors="surrogateescape").strip() != name:
        raise UsageError(f"{name!r} is not a valid branch name.", hint="See `git help check-ref-format` for the rules.")
    # The branch that is checked out may have no commit yet; git does not list it then.
    names = [*repository.branches(), branch_name(repository.branch() or "")]
    taken = next((each for each in names if each and _cannot_both_be(each, name)), None)
    if taken is not None:
        reason = "already" if taken == name else f"already, so git cannot have a branch {name} beside it"
        raise ConflictError(
            f"There is a branch {taken} in {repository.root} {reason}; nothing was changed.",
            hint="Choose another name.",
        )
    refuse_a_branch_used_elsewhere(repository, f"refs/heads/{name}", way_out="or choose another name.")


def _cannot_both_be(one: str, other: str) -> bool:
    """Whether the names are the same, or one would be the folder that the other lies in."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


# Moving


def move_branch(move: BranchMove, reason: str) -> None:
    """Move the branch, if it is still at the old commit."""
    repository, started = move.repository, time.time() - _GRACE_SECONDS
    if move.is_checked_out and repository.branch() != move.ref:
        raise _cannot_move(repository, "another branch is checked out now")
    # Through HEAD, so that its reflog has the move too; a branch can only be deleted by its own name.
    name = "HEAD" if move.is_checked_out and move.new else move.ref or "HEAD"
    nothing = "0" * len(move.new or move.old or "")
    args = [name, move.new, move.old or nothing] if move.new else ["-d", name, move.old or nothing]
    try:
        run_git(["update-ref", "-m", reason, *args], cwd=repository.root)
    except GitFailed as failure:
        is_locked = Cause.LOCKED.is_in(failure.complaint)
        raise _cannot_move(repository, failure.complaint, is_locked=is_locked) from failure
    place = (repository.common_dir / move.ref).parent if move.ref else repository.git_dir
    if place.is_dir():
        sync_directory(place)
    remove_stale_locks(move, started)  # locks that git could not remove, and that no other program would


def _cannot_move(repository: GitRepository, reason: str, *, is_locked: bool = False) -> ConflictError:
    if_none = "if none is running, remove that file. Then" if is_locked else "then"
    return ConflictError(
        f"A branch of {repository.root} could not be moved; nothing was changed: {reason}.",
        hint=f"Wait for other git commands there to end; {if_none} run the command again.",
    )


def move_branch_back(move: BranchMove, reason: str) -> None:
    """Undo ``move_branch``, if it happened, even if another branch was checked out since."""
    name = move.ref or ("HEAD" if move.repository.branch() is None else None)
    if name is None or move.old == move.new or move.repository.commit_of(name) != move.new:
        return
    is_checked_out = move.is_checked_out and move.repository.branch() == move.ref
    move_branch(msgspec.structs.replace(move.reversed, is_checked_out=is_checked_out), reason)


def remove_stale_locks(move: BranchMove, since: float) -> None:
    """Remove the locks of a git that was killed while it moved the branch for us; no other program does.

    A lock is ours if it is not older than the operation and contains one of its commits, or the beginning of one.
    """
    ours = [f"{commit}\n".encode() for commit in (move.old, move.new) if commit]
    found = {lock: lock.stat() for lock in _lock_files(move) if lock.exists()}
    if found:
        time.sleep(_GRACE_SECONDS)
    for lock, status in found.items():
        with suppress(FileNotFoundError):
            is_still_there = lock.stat().st_ino == status.st_ino and status.st_mtime >= since
            content = lock.read_bytes()
            if is_still_there and (lock.name == _PACKED_LOCK or any(each.startswith(content) for each in ours)):
                lock.unlink()


def _lock_files(move: BranchMove) -> list[Path]:
    repository = move.repository
    locks = [repository.git_dir / "HEAD.lock"] if move.is_checked_out else []
    if move.ref is not None:
        locks.append(repository.common_dir / f"{move.ref}.lock")
    if None in (move.old, move.new):  # deleting a branch also changes the packed refs
        locks.append(repository.common_dir / _PACKED_LOCK)
    return locks
