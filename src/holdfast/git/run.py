"""The one place that runs git: with a clean environment, and with its failures as errors of ours."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from holdfast.errors import SandboxError
from holdfast.git.complaints import Cause
from holdfast.system.stopping import run_stoppable

# The settings of a repository must not start programs that we do not know of, or that still run after git has ended.
# What git wrote must be on the disk when git ends: by default an object may be empty after a power cut.
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "core.fsync=all",
    "core.fsyncMethod=fsync",
)
_ENVIRONMENT = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
# Who the user is and where their settings are; other variables could point git at another repository.
_KEPT = frozenset(
    [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL", "DATE")]
    + ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"]
)
# No repository and no settings at all: a patch is applied to plain files, and it cannot run a filter or a hook.
NO_REPOSITORY = {"GIT_DIR": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
_MOST_LINES = 3


class GitFailed(SandboxError):
    def __init__(self, command: str, complaint: str, *, hint: str = "") -> None:
        super().__init__(f"git {command} failed: {complaint}", hint=hint)
        self.complaint = complaint

    @property
    def is_of_system(self) -> bool:
        """Git could not do its work; otherwise it says something of the repository."""
        return Cause.NOT_WRITTEN.is_in(self.complaint)


class GitKilled(GitFailed):
    """It has not answered at all."""

    is_of_system = True


def run_git(
    args: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path,
    input: bytes | None = None,  # noqa: A002 - as in subprocess.run
    stdin: IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run git; unless ``check`` is off, a failure raises a GitFailed that ends with git's message.

    A git that was killed has not answered, so that is always a failure.
    """
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
    try:
        completed = run_stoppable(
            ["git", *settings, *args],
            cwd=cwd,
            env={**inherited, **_ENVIRONMENT, **(env or {})},
            capture_output=True,
            **({"given": input or b""} if stdin is None else {"stdin": stdin}),
        )
    except OSError as error:
        raise _cannot_run(cwd, error) from error
    if completed.returncode < 0:
        raise GitKilled(_command_in(args), complaint_of(completed), hint="Run the command again.")
    if check and completed.returncode != 0:
        raise GitFailed(_command_in(args), complaint_of(completed))
    return completed


def _command_in(args: Sequence[str | os.PathLike[str]]) -> str:
    """The name of the command, which settings and options of git itself may come before."""
    words = iter([os.fspath(word) for word in args])
    for word in words:
        if word == "-c":
            next(words)
        elif not word.startswith("-"):
            return word
    return ""


def complaint_of(completed: subprocess.CompletedProcess[bytes]) -> str:
    """The error of a failed git in one line, without its advice."""
    lines = completed.stderr.decode("utf-8", errors="replace").splitlines()
    wrong = [line.partition(": ")[2] for line in lines if line.startswith(("fatal: ", "error: "))]
    return "; ".join(wrong[:_MOST_LINES] or said_by_git(completed)[-1:]).rstrip(".")


def said_by_git(completed: subprocess.CompletedProcess[bytes]) -> list[str]:
    """The lines that a failed git printed, without their prefixes; at least one."""
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
