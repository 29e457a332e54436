"""Every error that Holdfast raises on purpose, sorted by who can act.

    HoldfastError
    ├── UsageError            2   the call was wrong: fix the command
    │   └── PlanFileError     2   the plan file was wrong: fix the named line
    ├── NotFoundError         3   no such plan, checkpoint, decision, key
    │   ├── AmbiguousError    3   several things have that name
    │   ├── CheckpointNotFoundError 3   no such checkpoint
    │   └── ProgramError    127   no such program, as shells say it
    ├── StateError            4   it exists, but is not in a state that allows this
    ├── ConflictError         5   another process works on it, or the real files changed
    │   └── LeaseLostError    5   this process was taken for dead and replaced
    ├── SandboxError          6   a sandbox, git or the operating system refused
    │   ├── QuotaError        6   saved content would take more space than it may
    │   └── ViewError         6   a sandbox cannot be shown at the place of the real folder
    ├── ContentError          7   saved content is missing or damaged
    ├── DatabaseError         8   the records cannot be read or written
    │   ├── DatabaseFullError 8   because no space is left for them
    │   ├── DatabaseDamagedError 8   because their file is not what was written
    │   └── DamagedRecordError 8  one of them is not what was written, or not understood
    └── ConfigError           9   a setting is wrong

A failed step is not an error: it is a result, and the command that ran it exits with 1.
"""

from __future__ import annotations

import os

from holdfast.names import name_text

EXIT_STEP_FAILED = 1
EXIT_INTERRUPTED = 130

HOW_TO_FREE_SPACE = (
    "Free some space on that disk, then run the command again. `holdfast plan delete` and `holdfast checkpoint prune` "
    "free some, even if nothing is left."
)


class DoctorHint(str):
    """A hint to run the doctor, which cannot give that hint itself."""


SEE_DOCTOR = DoctorHint("Run `holdfast doctor` to see what is affected.")


class HoldfastError(Exception):
    """What is wrong (``message``) and what to do next (``hint``)."""

    exit_code = 6

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def described(error: OSError) -> str:
    """What the operating system refused, after the path it is about if that is known."""
    is_known = isinstance(error.filename, str | bytes) and error.filename
    about = f"{name_text(os.fsdecode(error.filename))}: " if is_known else ""
    return f"{about}{error.strerror or error}"


class UsageError(HoldfastError):
    exit_code = 2


class PlanFileError(UsageError):
    """A plan file that cannot be used; every problem found in it, each with its line."""

    def __init__(self, message: str, *, hint: str = "", problems: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class NotFoundError(HoldfastError):
    exit_code = 3


class AmbiguousError(NotFoundError):
    pass


class CheckpointNotFoundError(NotFoundError):
    pass


class ProgramError(NotFoundError):
    """The program of ``holdfast run`` does not exist or may not be executed; found before anything is created."""

    exit_code = 127


class StateError(HoldfastError):
    exit_code = 4


class ConflictError(HoldfastError):
    """Another process works on it, or the real files have changed; ``paths`` are the files, if it is about files."""

    exit_code = 5

    def __init__(self, message: str, *, hint: str = "", paths: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.paths = paths


class LeaseLostError(ConflictError):
    pass


class SandboxError(HoldfastError):
    exit_code = 6


class QuotaError(SandboxError):
    pass


class ViewError(SandboxError):
    """``reason``: what the operating system said, if it was asked."""

    def __init__(self, message: str, *, hint: str = "", reason: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class ContentError(HoldfastError):
    exit_code = 7


class DatabaseError(HoldfastError):
    exit_code = 8


class DatabaseFullError(DatabaseError):
    pass


class DatabaseDamagedError(DatabaseError):
    pass


class DamagedRecordError(DatabaseError):
    """One record is damaged; only what needs that record is refused."""


class ConfigError(HoldfastError):
    exit_code = 9
