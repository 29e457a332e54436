"""What the settings say of a commit: whether git knows who makes it, and whether it is to be signed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from holdfast.git.repository import GitRepository
from holdfast.git.run import GitFailed, complaint_of, run_git

_ASKED = r"^(user|author|committer)\.(name|email)$"
SIGNED = "commit.gpgsign"
_LETTER = re.compile("[A-Za-z0-9]")
"""Git removes other characters at the ends of a name, and refuses one of which nothing is left."""
_ROLES = ("author", "committer")


def is_signed(repository: GitRepository) -> bool:
    """Whether the user signs commits. It is asked when one is made: the answer may change while a person decides."""
    return repository.is_set(SIGNED)


def is_person_known(repository: GitRepository) -> bool:
    """Whether it is certain that git accepts name and address for a commit; if not, git must be asked."""
    answer = run_git(["config", "-z", "--get-regexp", _ASKED], cwd=repository.root, check=False)
    if answer.returncode > 1:
        raise GitFailed("config", complaint_of(answer))
    found: dict[str, str] = {}
    for item in answer.stdout.decode(errors="surrogateescape").split("\0")[:-1]:
        key, separator, value = item.partition("\n")
        if not separator:
            return False  # git fails at a name or address without a value, even if another one follows
        found[key] = value  # the last one counts
    return all(_is_known(role, found) for role in _ROLES)


def _is_known(role: str, settings: Mapping[str, str]) -> bool:
    name, email = (_said_of(role, what, settings) for what in ("name", "email"))
    return f"GIT_{role.upper()}_DATE" not in os.environ and bool(_LETTER.search(name) and email)


def _said_of(role: str, what: str, settings: Mapping[str, str]) -> str:
    """Git takes a variable even if it is empty, but a setting for a role only if it is not."""
    said = os.environ.get(f"GIT_{role.upper()}_{what.upper()}")
    return settings.get(f"{role}.{what}") or settings.get(f"user.{what}", "") if said is None else said
