"""Applies a unified diff to the files of a directory, all of it or nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.errors import UsageError
from holdfast.git.run import NO_REPOSITORY, run_git, said_by_git
from holdfast.system import paths

_SYMLINK_MODE = "120000"


def apply_patch(directory: Path, patch: bytes, strip: int = 1) -> tuple[str, ...]:
    """Apply a unified diff, all of it or nothing; returns the paths it changed.

    A patch that does not apply, leaves the directory or crosses a symlink is a UsageError. Files keep their mode,
    except for an execute bit that the patch changes (git itself would give every changed file the default mode).
    """
    renames = _renames_of(directory, patch, strip)
    touched = sorted({path for pair in renames for path in pair})
    for path in touched:
        paths.check_path(directory, path)
    _refuse_files_behind_new_symlinks(directory, patch, strip, touched)
    before = {new: paths.find_status(directory, old) for old, new in renames}
    _git_apply(directory, patch, strip)
    for path, status in before.items():
        _keep_permissions(directory, path, status)
    return tuple(touched)


def _git_apply(directory: Path, patch: bytes, strip: int, *options: str) -> bytes:
    args = ["apply", "--whitespace=nowarn", f"-p{strip}", *options]
    completed = run_git(args, cwd=directory, input=patch, env=NO_REPOSITORY, check=False)
    if completed.returncode != 0:
        raise UsageError(f"the patch does not apply: {'; '.join(said_by_git(completed)[:5])}")
    return completed.stdout


def _renames_of(directory: Path, patch: bytes, strip: int) -> list[tuple[str, str]]:
    """Old and new path of every file in the patch: git lists the new ones, and for the reversed patch the old ones."""
    new = _paths_in(_git_apply(directory, patch, strip, "--numstat", "-z"))
    old = _paths_in(_git_apply(directory, patch, strip, "--numstat", "-z", "--reverse"))
    return list(zip(reversed(old), new, strict=True))


def _paths_in(numstat: bytes) -> list[str]:
    return [os.fsdecode(entry.split(b"\t", 2)[2]) for entry in numstat.split(b"\0") if entry]


def _refuse_files_behind_new_symlinks(directory: Path, patch: bytes, strip: int, touched: list[str]) -> None:
    """Refuse because some versions of git follow a symlink that the same patch creates."""
    summary = _git_apply(directory, patch, strip, "--summary").decode("utf-8", errors="replace")
    makes_symlink = any(f"{word} {_SYMLINK_MODE} " in summary for word in ("create mode", "=>"))
    is_nested = any(path.startswith(other + "/") for path in touched for other in touched)
    if makes_symlink and is_nested:
        raise UsageError("the patch makes a symlink and a file inside another path of its own")


def _keep_permissions(directory: Path, path: str, before: os.stat_result | None) -> None:
    after = paths.find_status(directory, path)
    if before is None or after is None or not stat.S_ISREG(before.st_mode) or not stat.S_ISREG(after.st_mode):
        return
    mode = stat.S_IMODE(before.st_mode)
    if bool(mode & 0o111) != bool(after.st_mode & 0o111):
        mode = mode | (mode & 0o444) >> 2 if after.st_mode & 0o111 else mode & ~0o111
    paths.set_permissions(directory, path, mode, before)
