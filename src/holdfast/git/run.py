"""The one place that runs git: with a clean environment, and with what it says in our own errors."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import SandboxError, UsageError
from holdfast.system import paths
from holdfast.system.stopping import run_stoppable
from holdfast.system.trees import temporary_folder, temporary_place

# A repository's own settings must neither start programs behind our back nor leave one running after git has ended.
# What git has written must be on the disk when it has ended: by default an object may be empty after a power cut.
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "core.fsync=all",
    "core.fsyncMethod=fsync",
)
_ENVIRONMENT = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
# Who the user is and where their settings are; anything else of theirs could point git at another repository.
_KEPT = frozenset(
    [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL", "DATE")]
    + ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"]
)
# No repository and no settings at all: a patch is applied to plain files, and no filter or hook can be run by it.
_NO_REPOSITORY = {"GIT_DIR": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
_SYMLINK_MODE = "120000"
_MOST_CONFLICTS = 127
"""What `git merge-file` can count to; a higher exit code is a failure."""
_MOST_LINES = 3
_SNIFFED_BYTES = 8000
"""How far git looks for the NUL that makes content binary."""


class GitFailed(SandboxError):
    def __init__(self, command: str, complaint: str, *, hint: str = "") -> None:
        super().__init__(f"git {command} failed: {complaint}", hint=hint)
        self.complaint = complaint


def run_git(
    args: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path,
    input: bytes | None = None,  # noqa: A002 - as in subprocess.run
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run git; a failure is a GitFailed that ends with what git said, unless ``check`` is off.

    A git that was killed has answered nothing, so that is a failure in any case.
    """
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
    try:
        completed = run_stoppable(
            ["git", *settings, *args],
            cwd=cwd,
            env={**inherited, **_ENVIRONMENT, **(env or {})},
            given=input or b"",
            capture_output=True,
        )
    except OSError as error:
        raise _cannot_run(cwd, error) from error
    if completed.returncode < 0:
        raise GitFailed(os.fspath(args[0]), complaint_of(completed), hint="Run the command again.")
    if check and completed.returncode != 0:
        raise GitFailed(os.fspath(args[0]), complaint_of(completed))
    return completed


def complaint_of(completed: subprocess.CompletedProcess[bytes]) -> str:
    """What a failed git said is wrong, in one line and without its advice."""
    lines = completed.stderr.decode("utf-8", errors="replace").splitlines()
    wrong = [line.partition(": ")[2] for line in lines if line.startswith(("fatal: ", "error: "))]
    return "; ".join(wrong[:_MOST_LINES] or _said_by_git(completed)[-1:]).rstrip(".")


def _said_by_git(completed: subprocess.CompletedProcess[bytes]) -> list[str]:
    """The lines of a failed git's complaint, without their prefixes; at least one."""
    lines = completed.stderr.decode("utf-8", errors="replace").splitlines()
    said = [line.removeprefix("fatal: ").removeprefix("error: ") for line in lines if line.strip()]
    code = completed.returncode
    return said or [f"exit code {code}" if code > 0 else f"it was ended by signal {-code}"]


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
        raise UsageError(f"the patch does not apply: {'; '.join(_said_by_git(completed)[:5])}")
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


@dataclass(frozen=True)
class MergedText:
    """What became of two changes of one text; where both changed the same lines, it holds conflict markers."""

    content: bytes
    conflicts: int


def is_text(content: bytes) -> bool:
    return b"\0" not in content[:_SNIFFED_BYTES]


def merge_texts(
    base: bytes, ours: bytes, theirs: bytes, *, labels: tuple[str, str, str], theirs_wins: bool = False
) -> MergedText | None:
    """Both changes of a text put together, byte for byte; None if a side is not text.

    ``labels`` name our side, the base and their side in the markers around lines that both changed. If theirs wins,
    these lines are theirs, and there are no conflicts.
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
    completed = run_git(args, cwd=folder, env=_NO_REPOSITORY, check=False)
    if b"Cannot merge binary files" in completed.stderr:
        return None  # what git says of a file of more than a gigabyte, too
    if not 0 <= completed.returncode <= _MOST_CONFLICTS:
        raise SandboxError(f"git merge-file failed: {complaint_of(completed)}")
    return MergedText(completed.stdout, completed.returncode)
