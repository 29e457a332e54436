"""The one place that runs git: with a clean environment, and with what it says in our own errors."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast import paths
from holdfast.errors import SandboxError, UsageError

# A repository's own settings must neither start programs behind our back nor leave one running after git has ended.
_SETTINGS = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false")
_ENVIRONMENT = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
# Who the user is and where their settings are; anything else of theirs could point git at another repository.
_KEPT = frozenset(
    [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL", "DATE")]
    + ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"]
)
# No repository and no settings at all: a patch is applied to plain files, and no filter or hook can be run by it.
_NO_REPOSITORY = {"GIT_DIR": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
_SYMLINK_MODE = "120000"


def run_git(
    args: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path,
    input: bytes | None = None,  # noqa: A002 - as in subprocess.run
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run git; a failure is a SandboxError that ends with what git said, unless ``check`` is off."""
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
    try:
        completed = subprocess.run(
            ["git", *settings, *args],
            cwd=cwd,
            env={**inherited, **_ENVIRONMENT, **(env or {})},
            input=input or b"",
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise _cannot_run(cwd, error) from error
    if check and completed.returncode != 0:
        raise SandboxError(f"git {os.fspath(args[0])} failed: {said_by_git(completed)[-1]}")
    return completed


def said_by_git(completed: subprocess.CompletedProcess[bytes]) -> list[str]:
    """The lines of a failed git's complaint, without their prefixes; at least one."""
    lines = completed.stderr.decode("utf-8", errors="replace").splitlines()
    said = [line.removeprefix("fatal: ").removeprefix("error: ") for line in lines if line.strip()]
    return said or [f"exit code {completed.returncode}"]


def _cannot_run(cwd: Path, error: OSError) -> SandboxError:
    if not cwd.is_dir():
        return SandboxError(f"{cwd} is not a directory")
    if isinstance(error, FileNotFoundError):
        return SandboxError("git is not installed, or not on the PATH", hint="Install git 2.38 or newer.")
    return SandboxError(f"git cannot be started: {error.strerror}")


def apply_patch(directory: Path, patch: bytes, strip: int = 1) -> tuple[str, ...]:
    """Apply a unified diff to the files of a directory, all of it or nothing; the paths it changed.

    A patch that does not apply, leaves the directory or crosses a symlink is a UsageError. Files keep their mode, but
    for the execute bit where the patch says so (git itself would give every file it changes the default mode).
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
    completed = run_git(args, cwd=directory, input=patch, env=_NO_REPOSITORY, check=False)
    if completed.returncode != 0:
        raise UsageError(f"the patch does not apply: {'; '.join(said_by_git(completed)[:5])}")
    return completed.stdout


def _renames_of(directory: Path, patch: bytes, strip: int) -> list[tuple[str, str]]:
    """Old and new path of every file in the patch: git names the new one, and of the reversed patch the old one."""
    new = _paths_in(_git_apply(directory, patch, strip, "--numstat", "-z"))
    old = _paths_in(_git_apply(directory, patch, strip, "--numstat", "-z", "--reverse"))
    return list(zip(reversed(old), new, strict=True))


def _paths_in(numstat: bytes) -> list[str]:
    return [os.fsdecode(entry.split(b"\t", 2)[2]) for entry in numstat.split(b"\0") if entry]


def _refuse_files_behind_new_symlinks(directory: Path, patch: bytes, strip: int, touched: list[str]) -> None:
    """Some versions of git follow a symlink that the same patch has just made."""
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
