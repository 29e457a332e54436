"""Grant: what one run of an agent is given, by its profile and by what is set on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.agents.profiles import Profile, find_profile, with_arguments
from holdfast.errors import SandboxError
from holdfast.model import Grant
from holdfast.names import name_text
from holdfast.process.environment import passed_variables

_VARIABLE = re.compile(r"\$\{(\w+):-([^${}]*)\}")
"""``${NAME:-ELSE}``; in ELSE may be another one, which is filled in first."""


class Given(NamedTuple):
    """What a program that is an agent gets, and its words with the arguments of the profile among them."""

    grant: Grant
    argv: tuple[str, ...]


def given_to(
    argv: Sequence[str], wanted: str | None, *, environment: Mapping[str, str], user_home: Path, home: Path
) -> Given | None:
    """What the program gets; None if it is no agent that is known, or if ``wanted`` says ``none``."""
    profile = find_profile(argv, wanted, home)
    if profile is None:
        return None
    return Given(_grant_of(profile, environment, user_home), with_arguments(profile, argv))


def _grant_of(profile: Profile, environment: Mapping[str, str], user_home: Path) -> Grant:
    def places(texts: Sequence[str]) -> tuple[str, ...]:
        found = (_place(text, environment, user_home) for text in texts)
        # A relative one lies in the folder that the program starts in, which is a sandbox.
        return tuple(str(each) for each in found if each.is_absolute())

    folders = places(profile.folders)
    files = [each for each in places(profile.files) if not any(Path(each).is_relative_to(one) for one in folders)]
    passed = passed_variables(environment, _patterns(profile, environment))
    return Grant(
        title=profile.title,
        pass_env=tuple(sorted(passed.keys() - passed_variables(passed, profile.pass_env_except))),
        folders=folders,
        files=tuple(files),
        environment={**profile.variables, **(profile.variables_as_root if os.geteuid() == 0 else {})},
        hidden=places(profile.hidden),
        reads_git=profile.reads_git,
    )


def _patterns(profile: Profile, environment: Mapping[str, str]) -> Iterator[str]:
    """Also the variables that say where the folders are: the agent must find the same ones."""
    yield from profile.pass_env
    for name, more in profile.pass_env_if.items():
        if environment.get(name):
            yield from more
    for text in (*profile.folders, *profile.files, *profile.hidden):
        yield from (found[1] for found in re.finditer(r"\$\{(\w+):-", text))


def _place(text: str, environment: Mapping[str, str], user_home: Path) -> Path:
    count = 1
    while count:
        text, count = _VARIABLE.subn(lambda found: environment.get(found[1]) or found[2], text)
    return Path(f"{user_home}{text[1:]}" if text == "~" or text.startswith("~/") else text)


def make_folders(grant: Grant) -> None:
    """Make the folders of the agent that are missing, closed to others, as the agent itself makes them."""
    for folder in map(Path, (*grant.folders, *grant.hidden)):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SandboxError(
                f"{name_text(str(folder))}, which {grant.title} needs, cannot be made: {error.strerror}.",
                hint="Make it, or use `--agent none` and say what the program may do.",
            ) from error


def refuse_reachable_daemons(grant: Grant, reason: str | None) -> None:
    """Refuse an agent whose daemon is running outside, if its socket cannot be hidden, for this ``reason``."""
    for folder in map(Path, grant.hidden):
        if reason is not None and any(each.is_socket() for each in folder.iterdir()):
            raise SandboxError(
                f"A daemon of {grant.title} listens in {name_text(str(folder))}. It would do the work outside of the "
                f"sandbox, and its socket cannot be hidden: {reason}.",
                hint="Stop the daemon, then run the command again. `holdfast doctor` says what this system lacks.",
            )
