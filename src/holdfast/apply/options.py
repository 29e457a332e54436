"""What a caller may ask of an apply."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, TypedDict

import msgspec

from holdfast.errors import UsageError


class ApplyWishes(TypedDict, total=False):
    """What a caller may ask for; what is missing is as in ``ApplyOptions``, which explains each."""

    commit: bool
    branch: str | None
    include_ignored: Sequence[str]
    """Patterns besides those of the settings."""
    commits: Literal["keep", "squash"] | None
    message: str | None
    only: Sequence[str]


class ApplyOptions(msgspec.Struct, frozen=True):
    commit: bool = True
    """For git: make a commit of the change; otherwise only the files are changed."""
    branch: str | None = None
    """For git: leave the commit on a new branch of this name, and change nothing else."""
    include_ignored: Collection[str] = ()
    """Patterns of ignored files whose changes are applied, in the syntax of a ``.gitignore``."""
    commits: Literal["keep", "squash"] | None = None
    """For git: carry over the commits that were made in the sandbox, or make one commit of all; None: keep if that is
    possible."""
    message: str | None = None
    """For git: what the commit says; by default the plan's name, its steps and decisions."""
    only: Sequence[str] = ()
    """Apply just these files and folders (``PATH`` or ``RESOURCE:PATH``); by default all."""

    def __post_init__(self) -> None:
        if self.branch is not None and not self.commit:
            raise _exclusive("A branch is a commit", "--branch", "--no-commit")
        if self.branch is not None and self.only:
            raise _exclusive("A branch gets the whole result", "--branch", "--only")
        if self.commits == "keep" and not self.commit:
            raise _exclusive("Commits are kept or none is made", "--commits keep", "--no-commit")
        if self.commits == "keep" and self.only:
            raise _exclusive("Of a part one commit is made", "--commits keep", "--only")
        if self.message is not None and not self.commit:
            raise _exclusive("Without a commit there is no message", "-m", "--no-commit")
        if self.message is not None and (not self.message.strip() or "\0" in self.message):
            raise UsageError("The message of a commit needs a text.", hint="Leave `-m` out for the plan's name.")


def _exclusive(why: str, one: str, other: str) -> UsageError:
    return UsageError(f"{why}: `{one}` and `{other}` exclude each other.", hint="Use one.")
