"""Loading the settings: one value for each, from defaults, files, environment and arguments.

A later layer wins: default < the user's file < the project's file < environment < arguments. A project's file is
part of a repository that others can edit, so it may not set a key that only the user may set.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from holdfast.config.keys import KEYS, VARIABLE_PREFIX, Key, Scope, find_key
from holdfast.errors import ConfigError, UsageError
from holdfast.model import CopyLimit, CopyRules, Policy, Trigger, Unprotected, View

USER_FILE = "config.toml"
PROJECT_FILE = "holdfast.toml"


class Layer(StrEnum):
    DEFAULT = "default"
    USER = "user"
    PROJECT = "project"
    ENVIRONMENT = "environment"
    ARGUMENT = "argument"


class Origin(msgspec.Struct, frozen=True):
    """Where a value came from: the layer, and the file, the variable or the option."""

    layer: Layer
    where: str = ""

    def __str__(self) -> str:
        return f"{self.layer.value} ({self.where})" if self.where else self.layer.value


class Setting(msgspec.Struct, frozen=True):
    """One key as ``config list`` and ``config get`` show it."""

    key: Key
    value: Any
    origin: Origin

    @property
    def shown(self) -> Any:
        """The value in a form that JSON can hold, without a password."""
        return self.key.kind.shown(self.value)


class Settings(msgspec.Struct, frozen=True):
    auto_create_on: tuple[Trigger, ...]
    max_checkpoints: int
    max_bytes: int | None
    include_ignored: tuple[str, ...]
    exclude: tuple[str, ...]
    copy_ignored_limit: CopyLimit
    apply_ignored: tuple[str, ...]
    spares: int
    pass_env: tuple[str, ...]
    confine: bool
    view: View | None
    """Where steps find the sandboxes; None: at the real folders' places if the kernel allows it."""
    allow_write: tuple[str, ...]
    on_failure: Unprotected
    output_limit_bytes: int
    step_timeout_seconds: float | None
    database_url: str | None
    origins: Mapping[str, Origin]

    @property
    def policy(self) -> Policy:
        """What a plan does if its file says nothing else."""
        return Policy(max_checkpoints=self.max_checkpoints, auto_create_on=self.auto_create_on)

    def copy_rules(self, include: Sequence[str], exclude: Sequence[str]) -> CopyRules:
        """What the sandboxes of a new plan get, with patterns for this plan alone."""
        return CopyRules(
            include=(*self.include_ignored, *include),
            exclude=(*self.exclude, *exclude),
            limit=self.copy_ignored_limit,
        )

    def get(self, name: str) -> Setting:
        key = find_key(name)
        return Setting(key, getattr(self, key.attribute), self.origins[key.name])

    def entries(self) -> tuple[Setting, ...]:
        return tuple(self.get(name) for name in KEYS)


class ConfigFile(msgspec.Struct, frozen=True):
    """A file of settings, and whose it is."""

    path: Path
    layer: Layer

    def key(self, name: str, at: str) -> Key:
        """The key of that name, found ``at`` a place in the file; refused if the file may not set it."""
        try:
            key = find_key(name)
        except ConfigError as error:
            raise ConfigError(f"{at}: {error.message}", hint=error.hint) from None
        if key.scope is Scope.USER and self.layer is Layer.PROJECT:
            raise ConfigError(
                f"{at}: {key.name} may not be set by a project, only by its user",
                hint=f"Set it in your own {USER_FILE}, or as {key.variable}.",
            )
        return key


def home_directory(environ: Mapping[str, str]) -> Path:
    """``HOLDFAST_HOME``, or the platform's place for a user's state."""
    if home := environ.get("HOLDFAST_HOME"):
        return Path(home).absolute()
    from platformdirs import user_state_path

    return user_state_path("holdfast", appauthor=False)


def user_file(home: Path) -> ConfigFile:
    return ConfigFile(home / USER_FILE, Layer.USER)


def project_file(project_root: Path) -> ConfigFile:
    return ConfigFile(project_root / PROJECT_FILE, Layer.PROJECT)


def parse_overrides(pairs: Sequence[str]) -> dict[str, str]:
    """``KEY=VALUE`` texts from a command line; the last one wins."""
    overrides = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f'"{pair}" is not KEY=VALUE', hint="Write, for example, step.timeout=600.")
        overrides[find_key(name.strip()).name] = text
    return overrides


def load_settings(
    home: Path,
    project_root: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """One value for each key. An override that is a text is parsed as on the command line."""
    values: dict[str, object] = {key.name: key.default for key in KEYS.values()}
    origins = dict.fromkeys(KEYS, Origin(Layer.DEFAULT))
    files = [user_file(home)] + ([project_file(project_root)] if project_root else [])
    for key, value, origin in (
        *(found for file in files for found in _from_file(file)),
        *_from_environment(environ),
        *_from_overrides(overrides or {}),
    ):
        values[key.name], origins[key.name] = value, origin
    fields: dict[str, Any] = {KEYS[name].attribute: value for name, value in values.items()}
    return Settings(**fields, origins=origins)


def _from_file(file: ConfigFile) -> Iterator[tuple[Key, object, Origin]]:
    text = read_text(file.path)
    seen: dict[str, str] = {}
    for path, value in leaves(parsed(text, file.path)):
        name = ".".join(path)
        at = _location(file.path, text, path[-1])
        key = file.key(name, at)
        if key.name in seen:
            raise ConfigError(f'{at}: "{name}" was already given as "{seen[key.name]}"', hint="Keep one of the two.")
        seen[key.name] = name
        yield key, key.checked(value, at), Origin(file.layer, str(file.path))


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[Key, object, Origin]]:
    variables = {key.variable: key for key in KEYS.values()}
    for variable in sorted(environ):
        if key := variables.get(variable):
            where = f"environment variable {variable}"
            value = key.checked(key.from_text(environ[variable], where), where)
            yield key, value, Origin(Layer.ENVIRONMENT, variable)
        elif meant := _nearly_named(variable, variables):
            raise ConfigError(f"there is no setting for {variable}; did you mean {meant}?", hint="Rename or unset it.")


def _nearly_named(variable: str, variables: Mapping[str, Key]) -> str | None:
    """The variable of a setting with nearly that name. Not every variable that begins with HOLDFAST_ is a setting."""
    if not variable.startswith(VARIABLE_PREFIX):
        return None
    names = {known.removeprefix(VARIABLE_PREFIX): known for known in variables}
    from difflib import get_close_matches  # rarely needed, and slow to import

    close = get_close_matches(variable.removeprefix(VARIABLE_PREFIX), names, n=1, cutoff=0.85)
    return names[close[0]] if close else None


def _from_overrides(overrides: Mapping[str, object]) -> Iterator[tuple[Key, object, Origin]]:
    for name, given in overrides.items():
        key = find_key(name)
        where = f"--config {key.name}"
        raw = key.from_text(given, where) if isinstance(given, str) else given
        value = key.checked(list(raw) if isinstance(raw, tuple) else raw, where)
        yield key, value, Origin(Layer.ARGUMENT, "--config")


def read_text(path: Path) -> str:
    """The file's text; empty if there is no such file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path} is not a file", hint="Move it away: a file of that name holds settings.")
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="Make it readable for you.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text", hint="Save it as UTF-8.") from error


def parsed(text: str, path: Path) -> dict[str, Any]:
    if not text:
        return {}
    import tomllib  # slow to import, and often there is no file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="Correct the named line.") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply", hint="Settings are never nested that deeply.") from error


def leaves(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """The values of a table and of those inside it, each with its path."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _location(path: Path, text: str, leaf: str) -> str:
    """``file:line`` if only one line can be meant, else just the file."""
    assignment = re.compile(rf"""(^|[\s.{{,])["']?{re.escape(leaf)}["']?\s*=""")
    lines = [number for number, line in enumerate(text.splitlines(), start=1) if assignment.search(line)]
    return f"{path}:{lines[0]}" if len(lines) == 1 else str(path)
