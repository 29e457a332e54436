"""Profiles of coding agents: one TOML file each, ours in ``profiles/``, the user's in ``agents`` in the home.

A file of the user replaces ours of the same name. It is found by the name of the program, or by its own.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path, PurePath

import msgspec

from holdfast.errors import ConfigError, UsageError
from holdfast.model import NO_AGENT
from holdfast.names import did_you_mean, name_text

FOLDER = "agents"
"""Of the home, with the user's own profiles."""
_SHIPPED = Path(__file__).parent / "profiles"
_SUFFIX = ".toml"


class Argument(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """Words that are put after the name of the program, unless the user gave one of those in ``unless``."""

    add: tuple[str, ...]
    unless: tuple[str, ...] = ()


class Profile(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """What an agent needs. In paths ``~`` is the user's home, and ``${NAME:-ELSE}`` a variable or else a text."""

    title: str
    programs: tuple[str, ...]
    """The names under which it is started."""
    pass_env: tuple[str, ...] = ()
    """Variables that it may see if they are set; ``*`` stands for any characters."""
    pass_env_if: dict[str, tuple[str, ...]] = {}
    """More of them, if the variable that is the key is set."""
    pass_env_except: tuple[str, ...] = ()
    """Those that it may not see although they fit: they lead to programs outside."""
    folders: tuple[str, ...] = ()
    """Where it may write; made if they are missing, as the agent itself would."""
    files: tuple[str, ...] = ()
    """Files that it may write and replace, with the locks and temporary files beside them."""
    variables: dict[str, str] = {}
    variables_as_root: dict[str, str] = {}
    """Set in addition if the user is root."""
    arguments: tuple[Argument, ...] = ()
    hidden: tuple[str, ...] = ()
    """Folders of sockets through which a process outside would do the work; the agent finds them empty."""
    reads_git: bool = False
    """It reads repositories with a library of its own (GitPython), and not only with git."""


def find_profile(argv: Sequence[str], wanted: str | None, home: Path) -> Profile | None:
    """The profile of that name, or else the one for this program; None if there is none, or if none is wanted."""
    if wanted == NO_AGENT:
        return None
    files = _files(home)
    if wanted is None:
        return _profile_for(PurePath(argv[0]).name, files) if argv else None
    if wanted not in files:
        raise UsageError(
            f'There is no agent "{name_text(wanted)}"{did_you_mean(wanted, files)}',
            hint=f"The agents are {', '.join(sorted(files))}, or {NO_AGENT}. A profile of your own is a file "
            f"{name_text(str(home / FOLDER / 'NAME.toml'))}.",
        )
    return _read(files[wanted])


def _files(home: Path) -> dict[str, Path]:
    """The files of all profiles by name, the user's last, because they replace ours."""
    return {file.stem: file for folder in (_SHIPPED, home / FOLDER) for file in sorted(folder.glob(f"*{_SUFFIX}"))}


def _profile_for(program: str, files: dict[str, Path]) -> Profile | None:
    for file in files.values():
        # Most programs are no agent: what cannot list the name is not parsed.
        if program and _may_list(program, _text(file)):
            profile = _read(file)
            if program in profile.programs:
                return profile
    return None


def _may_list(program: str, text: str) -> bool:
    lists = [part.partition("]")[0] for part in text.split("programs")[1:]]
    return any(f"{quote}{program}{quote}" in listed for listed in lists for quote in ("'", '"'))


def _read(file: Path) -> Profile:
    try:
        return msgspec.toml.decode(_text(file), type=Profile)
    except msgspec.MsgspecError as error:
        raise _unusable(file, f"{error}") from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise _unusable(file, reason or errno.errorcode[errno.EIO]) from error


def _unusable(file: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"The profile {name_text(str(file))} cannot be used: {name_text(reason)}.",
        hint="Correct it, see docs/reference/agents.md, or use `--agent none`.",
    )


def with_arguments(profile: Profile, argv: Sequence[str]) -> tuple[str, ...]:
    """The words with the arguments of the profile behind the one that names the program, which another may start."""
    place = next((place for place, word in enumerate(argv, 1) if _names(word, profile)), 1)
    added = [
        word
        for argument in profile.arguments
        if not any(_is_given(each, argument.unless) for each in argv[place:])
        for word in argument.add
    ]
    return (*argv[:place], *added, *argv[place:])


def _names(word: str, profile: Profile) -> bool:
    """Also the name of a package, as in ``npx @scope/program@latest``."""
    name = PurePath(word).name
    return name in profile.programs or name.partition("@")[0] in profile.programs


def _is_given(word: str, options: Sequence[str]) -> bool:
    """``--option=value`` gives ``--option`` as well."""
    return word in options or word.partition("=")[0] in options
