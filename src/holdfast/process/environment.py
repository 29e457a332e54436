"""Which variables of the user's environment a step gets, and whether a program can be started with them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import filter as fnmatch_all
from pathlib import Path

from holdfast.errors import ProgramError, UsageError
from holdfast.names import name_text

_WILD = frozenset("*?[")
_VARIABLE = re.compile(r"[A-Za-z_*][A-Za-z0-9_*]*")

# poll(2) counts milliseconds in 32 bits, so waiting for a step longer than 24 days would fail at once.
LONGEST_TIMEOUT_SECONDS = 2_000_000


def is_variable_pattern(text: str) -> bool:
    """Whether the text is the name of a variable, in which ``*`` stands for any characters."""
    return _VARIABLE.fullmatch(text) is not None


def passed_variables(environment: Mapping[str, str], patterns: Iterable[str]) -> dict[str, str]:
    wanted = frozenset(patterns)
    names = wanted.intersection(environment)
    for pattern in wanted:
        if not _WILD.isdisjoint(pattern):
            names = names.union(fnmatch_all(environment, pattern))
    return {name: value for name, value in environment.items() if name in names}


def unset_variables(names: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """The names among these that are not set; a pattern may match nothing."""
    return [name for name in names if "*" not in name and name not in environment]


def refuse_what_cannot_be_passed(names: Iterable[str], environment: Mapping[str, str]) -> None:
    """Refuse names that are not variables or not set; a pattern may match nothing."""
    for name in names:
        variable, is_assignment, _ = name.partition("=")
        if is_assignment and is_variable_pattern(variable):
            raise UsageError(
                f"A variable is passed by its name alone, so {name_text(variable)}=… cannot be passed.",
                hint=f"Set it for this call: `{variable}=… holdfast run --pass-env {variable} …`.",
            )
        if not is_variable_pattern(name):
            raise UsageError(f'Expected the name of an environment variable to pass, found "{name_text(name)}".')
        if unset_variables([name], environment):
            raise UsageError(
                f"The variable {name} is not set, so it cannot be passed.",
                hint="Set and export it first, or do not ask for it. The setting `sandbox.pass-env` takes variables "
                "that are only set at times.",
            )


def refuse_unknown_program(program: str, search_path: str, folder: Path, root: Path) -> None:
    """Refuse a program that surely cannot be started in the sandbox's copy of ``folder``, which lies in ``root``.

    A relative path that leaves ``root`` leads to another file from the sandbox than from here, so it is not refused.
    """
    if "/" in program:
        places, where = [Path(program)], ""
    else:
        places, where = [Path(each, program) for each in search_path.split(os.pathsep)], " on the PATH that it sees"
    reason = errno.ENOENT
    for place in places if program else ():
        found = Path(os.path.normpath(folder / place))
        if not place.is_absolute() and not found.is_relative_to(root):
            return
        if os.path.isfile(found):
            if os.access(found, os.X_OK):
                return
            reason = errno.EACCES
        elif "/" in program and os.path.isdir(found):
            reason = errno.EISDIR
    shown = name_text(program) or '""'
    raise ProgramError(
        f"The program {shown} cannot be started: {os.strerror(reason)}{where}.",
        hint="Nothing was created. Check how it is spelled, and that it may be executed. What is built into your shell "
        "is started with `sh -c`; give the command that an alias stands for.",
    )


def resource_variable(name: str) -> str:
    """The environment variable that tells a step where this resource's sandbox is."""
    return "HOLDFAST_RESOURCE_" + name.upper().replace("-", "_")
