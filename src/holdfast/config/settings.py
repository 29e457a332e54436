"""The settings: registered keys, and one value for each out of defaults, files, environment and arguments.

A later layer wins: default < the user's file < the project's file < environment < arguments. A project's file is
part of a repository that others can edit, so it may not set a key that is the user's alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from holdfast.checkpoints.triggers import parse_triggers
from holdfast.errors import ConfigError, UsageError
from holdfast.model import DEFAULT_MAX_CHECKPOINTS, DEFAULT_PASSED_VARIABLES, DEFAULT_TRIGGERS, Policy, Trigger
from holdfast.names import did_you_mean
from holdfast.process.environment import LONGEST_TIMEOUT_SECONDS, is_variable_pattern

USER_FILE = "config.toml"
PROJECT_FILE = "holdfast.toml"
VARIABLE_PREFIX = "HOLDFAST_"

DEFAULT_OUTPUT_LIMIT_BYTES = 64 * 1024
LARGEST_OUTPUT_LIMIT_BYTES = 64 * 1024**2
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_UNITS = {"b": 1, "kb": 1000, "kib": 1024, "mb": 1000**2, "mib": 1024**2, "gb": 1000**3, "gib": 1024**3}


class Scope(StrEnum):
    """Whose files may hold a key."""

    USER = "user"
    ANY = "any"


class Layer(StrEnum):
    DEFAULT = "default"
    USER = "user"
    PROJECT = "project"
    ENVIRONMENT = "environment"
    ARGUMENT = "argument"


@dataclass(frozen=True)
class Kind:
    """A type of value: how text becomes what a TOML file would hold, and how that becomes the setting.

    Both raise a ConfigError that says what was expected; who knows where the value stands puts that in front.
    """

    name: str
    from_text: Callable[[str], object]
    check: Callable[[object], object]


@dataclass(frozen=True)
class Key:
    name: str
    attribute: str
    """Its name in ``Settings``."""
    kind: Kind
    default: object
    description: str
    scope: Scope = Scope.ANY

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.name.upper().replace(".", "_").replace("-", "_")


def _list_from_text(text: str) -> object:
    """A JSON or TOML array, or words with commas between them."""
    stripped = text.strip()
    if not stripped.startswith("["):
        return [word.strip() for word in stripped.split(",")] if stripped else []
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError):
        pass
    try:
        return tomllib.loads(f"value = {stripped}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        raise ConfigError("expected a list: words with commas between them, or a TOML or JSON array") from None


def _number_from_text(text: str) -> object:
    stripped = text.strip()
    try:
        return int(stripped) if re.fullmatch(r"[+-]?[0-9]+", stripped) else float(stripped)
    except ValueError:
        return stripped


def _truth_from_text(text: str) -> object:
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else word


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError("expected true or false")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError("expected a list of texts")
    return value


def _triggers(value: object) -> tuple[Trigger, ...]:
    return parse_triggers(_texts(value))


def _globs(value: object) -> tuple[str, ...]:
    globs = _texts(value)
    for glob in globs:
        # A pattern that leaves the resource would copy the user's other files into the reach of a plan.
        if not glob or "\0" in glob or PurePosixPath(glob).is_absolute() or ".." in PurePosixPath(glob).parts:
            raise ConfigError(f'expected patterns inside the resource, found "{glob}"')
    return tuple(globs)


def _variables(value: object) -> tuple[str, ...]:
    names = _texts(value)
    for name in names:
        if not is_variable_pattern(name):
            raise ConfigError(f'expected names of environment variables, found "{name}"')
    return tuple(names)


def _places(value: object) -> tuple[str, ...]:
    places = _texts(value)
    for place in places:
        # Nothing relative: it would mean another place with every folder that a command is run in.
        if "\0" in place or not (place.startswith("~/") or PurePosixPath(place).is_absolute()):
            raise ConfigError(f'expected absolute paths, or paths that begin with ~/, found "{place}"')
    return tuple(places)


def _whole_number(value: object, least: int, largest: int | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (largest and value > largest):
        at_most = f" and at most {largest}" if largest else ""
        raise ConfigError(f"expected a whole number of at least {least}{at_most}")
    return value


def _max_checkpoints(value: object) -> int:
    return _whole_number(value, 2)


def _output_limit(value: object) -> int:
    return _bytes(value, LARGEST_OUTPUT_LIMIT_BYTES)


def _max_bytes(value: object) -> int | None:
    return None if value in ("", "none") else _bytes(value)


def _bytes(value: object, largest: int | None = None) -> int:
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", value.strip(), re.IGNORECASE | re.ASCII)
        unit = _UNITS.get(match[2].lower() or "b") if match else None
        if match is None or unit is None:
            raise ConfigError('expected a number of bytes, such as 65536, "64KiB" or "1MB"')
        value = int(match[1]) * unit
    return _whole_number(value, 1, largest)


def _seconds(value: object) -> float | None:
    if value in ("", "none"):
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= LONGEST_TIMEOUT_SECONDS:
        raise ConfigError(f'expected seconds, more than 0 and at most {LONGEST_TIMEOUT_SECONDS}, or "none"')
    return float(value)


def _database_url(value: object) -> str | None:
    if value in ("", "none"):
        return None
    if not isinstance(value, str) or not re.match(r"[a-z][a-z0-9+]*://", value):
        raise ConfigError("expected an address such as postgresql://host/name")
    return value


KEYS: Mapping[str, Key] = {
    key.name: key
    for key in (
        Key(
            "sandbox.checkpoint.auto-create-on",
            "auto_create_on",
            Kind("list of triggers", _list_from_text, _triggers),
            DEFAULT_TRIGGERS,
            "When a checkpoint is taken by itself; an empty list turns automatic checkpoints off.",
        ),
        Key(
            "sandbox.checkpoint.max-checkpoints-per-plan",
            "max_checkpoints",
            Kind("whole number", _number_from_text, _max_checkpoints),
            DEFAULT_MAX_CHECKPOINTS,
            "How many checkpoints of a plan are kept; the oldest beyond that are removed.",
        ),
        Key(
            "sandbox.checkpoint.max-bytes",
            "max_bytes",
            Kind("bytes or none", str.strip, _max_bytes),
            None,
            "How much space saved content may take in all; beyond it checkpoints are pruned, and then refused.",
            Scope.USER,
        ),
        Key(
            "sandbox.include-ignored",
            "include_ignored",
            Kind("list of globs", _list_from_text, _globs),
            (),
            "Files that git ignores and a plan's sandbox gets nevertheless.",
        ),
        Key(
            "sandbox.pass-env",
            "pass_env",
            Kind("list of names", _list_from_text, _variables),
            DEFAULT_PASSED_VARIABLES,
            "Which variables of your environment a step sees; * stands for any characters.",
            Scope.USER,
        ),
        Key(
            "sandbox.confine",
            "confine",
            Kind("true or false", _truth_from_text, _truth),
            True,
            "Whether steps can write only into their plan's sandboxes, where the kernel can enforce it (Landlock).",
            Scope.USER,
        ),
        Key(
            "sandbox.allow-write",
            "allow_write",
            Kind("list of paths", _list_from_text, _places),
            (),
            "Where steps may write besides their sandboxes; what they write there no rollback takes back.",
            Scope.USER,
        ),
        Key(
            "step.output-limit",
            "output_limit_bytes",
            Kind("bytes", str.strip, _output_limit),
            DEFAULT_OUTPUT_LIMIT_BYTES,
            "How much of what a step prints is stored; the end is kept.",
        ),
        Key(
            "step.timeout",
            "step_timeout_seconds",
            Kind("seconds or none", _number_from_text, _seconds),
            None,
            "How long a step may run if neither the plan nor the tool says so.",
        ),
        Key(
            "database.url",
            "database_url",
            Kind("address or none", str.strip, _database_url),
            None,
            "Where the records are; none is an SQLite file in Holdfast's home.",
            Scope.USER,
        ),
    )
}

ALIASES = {"max-checkpoints-per-plan": "sandbox.checkpoint.max-checkpoints-per-plan"}


@dataclass(frozen=True)
class Origin:
    """Where a value came from: the layer, and the file, the variable or the option."""

    layer: Layer
    where: str = ""

    def __str__(self) -> str:
        return f"{self.layer.value} ({self.where})" if self.where else self.layer.value


@dataclass(frozen=True)
class Setting:
    """One key as ``config list`` and ``config get`` show it."""

    key: Key
    value: Any
    origin: Origin

    @property
    def shown(self) -> Any:
        """The value as JSON can hold it, without a password."""
        if isinstance(self.value, tuple):
            return [str(item) for item in self.value]
        return _without_password(self.value) if self.key.name == "database.url" and self.value else self.value


def _without_password(url: str) -> str:
    # Up to the last @: a password may hold one itself, and then showing part of it is no better than showing it.
    masked = re.sub(r"(://[^:/?#@]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&]password=)[^&]*", r"\1***", masked, flags=re.IGNORECASE)


@dataclass(frozen=True)
class Settings:
    auto_create_on: tuple[Trigger, ...]
    max_checkpoints: int
    max_bytes: int | None
    include_ignored: tuple[str, ...]
    pass_env: tuple[str, ...]
    confine: bool
    allow_write: tuple[str, ...]
    output_limit_bytes: int
    step_timeout_seconds: float | None
    database_url: str | None
    origins: Mapping[str, Origin]

    @property
    def policy(self) -> Policy:
        """What a plan does where its file says nothing."""
        return Policy(max_checkpoints=self.max_checkpoints, auto_create_on=self.auto_create_on)

    def get(self, name: str) -> Setting:
        key = find_key(name)
        return Setting(key, getattr(self, key.attribute), self.origins[key.name])

    def entries(self) -> tuple[Setting, ...]:
        return tuple(self.get(name) for name in KEYS)


@dataclass(frozen=True)
class ConfigFile:
    """A file of settings, and whose it is."""

    path: Path
    layer: Layer


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


def find_key(name: str) -> Key:
    """The key of that name; ``_`` may stand for ``-``."""
    canonical = name.replace("_", "-")
    key = KEYS.get(ALIASES.get(canonical, canonical))
    if key is None:
        raise ConfigError(
            f'there is no setting "{name}"{did_you_mean(canonical, KEYS)}',
            hint=f"The settings are {', '.join(KEYS)}.",
        )
    return key


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
    """One value for each key; an override that is a text is read as on the command line."""
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
    text = _read(file.path)
    seen: dict[str, str] = {}
    for path, value in _leaves(_parse(text, file.path)):
        name = ".".join(path)
        at = _location(file.path, text, path[-1])
        key = _key_in_file(name, file, at)
        if key.name in seen:
            raise ConfigError(f'{at}: "{name}" was already given as "{seen[key.name]}"', hint="Keep one of the two.")
        seen[key.name] = name
        yield key, _checked(key, value, at), Origin(file.layer, str(file.path))


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[Key, object, Origin]]:
    variables = {key.variable: key for key in KEYS.values()}
    for variable in sorted(environ):
        if key := variables.get(variable):
            where = f"environment variable {variable}"
            value = _checked(key, _raw(key, environ[variable], where), where)
            yield key, value, Origin(Layer.ENVIRONMENT, variable)
        elif meant := _misspelled(variable, variables):
            raise ConfigError(f"there is no setting for {variable}; did you mean {meant}?", hint="Rename or unset it.")


def _misspelled(variable: str, variables: Mapping[str, Key]) -> str | None:
    """The setting a variable nearly names. Other variables that begin with HOLDFAST_ are not settings at all."""
    if not variable.startswith(VARIABLE_PREFIX):
        return None
    names = {known.removeprefix(VARIABLE_PREFIX): known for known in variables}
    close = get_close_matches(variable.removeprefix(VARIABLE_PREFIX), names, n=1, cutoff=0.85)
    return names[close[0]] if close else None


def _from_overrides(overrides: Mapping[str, object]) -> Iterator[tuple[Key, object, Origin]]:
    for name, given in overrides.items():
        key = find_key(name)
        where = f"--config {key.name}"
        raw = _raw(key, given, where) if isinstance(given, str) else given
        value = _checked(key, list(raw) if isinstance(raw, tuple) else raw, where)
        yield key, value, Origin(Layer.ARGUMENT, "--config")


def _key_in_file(name: str, file: ConfigFile, at: str) -> Key:
    try:
        key = find_key(name)
    except ConfigError as error:
        raise ConfigError(f"{at}: {error.message}", hint=error.hint) from None
    if key.scope is Scope.USER and file.layer is Layer.PROJECT:
        raise ConfigError(
            f"{at}: {key.name} may not be set by a project, only by its user",
            hint=f"Set it in your own {USER_FILE}, or as {key.variable}.",
        )
    return key


def _raw(key: Key, text: str, where: str) -> object:
    try:
        return key.kind.from_text(text)
    except ConfigError as error:
        raise _wrong(key, where, error) from None


def _checked(key: Key, value: object, where: str) -> object:
    try:
        return key.kind.check(value)
    except ConfigError as error:
        raise _wrong(key, where, error) from None


def _wrong(key: Key, where: str, error: ConfigError) -> ConfigError:
    return ConfigError(f"{where}: {key.name}: {error.message}", hint=error.hint or f"{key.name}: {key.description}")


def _read(path: Path) -> str:
    """The file's text; an absent file is an empty one."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path} is not a file", hint="Move it away; a TOML file of that name holds settings.")
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="Make it readable for you.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text", hint="Save it as UTF-8.") from error


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="Correct the named line.") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply", hint="Settings are never nested that deeply.") from error


def _leaves(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _location(path: Path, text: str, leaf: str) -> str:
    """``file:line`` if only one line can be meant, else just the file."""
    assignment = re.compile(rf"""(^|[\s.{{,])["']?{re.escape(leaf)}["']?\s*=""")
    lines = [number for number, line in enumerate(text.splitlines(), start=1) if assignment.search(line)]
    return f"{path}:{lines[0]}" if len(lines) == 1 else str(path)


def set_value(file: ConfigFile, name: str, text: str) -> None:
    """Write one setting into a file and leave the rest of it as it is."""
    key = _key_in_file(name, file, str(file.path))
    raw = _raw(key, text, str(file.path))
    _checked(key, raw, str(file.path))
    _refuse_what_is_not_text(key, raw, file)
    _edit(file, key, raw)


def _refuse_what_is_not_text(key: Key, raw: object, file: ConfigFile) -> None:
    """The name of a file need not be UTF-8, but a TOML file is."""
    for text in map(str, raw if isinstance(raw, list) else [raw]):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            how = "Write ? for every byte that is none, or set it" if key.attribute == "include_ignored" else "Set it"
            raise ConfigError(
                f"{file.path}: {key.name}: {text} is not UTF-8 text, and a file of settings holds nothing else",
                hint=f"{how} as {key.variable}, which takes any name.",
            ) from error


def unset_value(file: ConfigFile, name: str) -> bool:
    """Take one setting out of a file; False if it was not there."""
    return _edit(file, find_key(name), None)


def _edit(file: ConfigFile, key: Key, raw: object) -> bool:
    """Set the key, or remove it if ``raw`` is None; True if the file held it before."""
    # A user's own file may be a link to where they keep such files. A project's link may lead anywhere.
    path = Path(os.path.realpath(file.path)) if file.layer is Layer.USER else file.path
    try:
        if file.layer is Layer.USER:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _sole_editor(path.parent):
            text = _read(path)
            before = dict(_leaves(_parse(text, path)))
            held = next((leaf for leaf in before if _names(leaf, key)), None)
            if raw is None and held is None:
                return False
            target = held or tuple(key.name.split("."))
            edited = _edited(text, path, target, raw)
            expected = {leaf: value for leaf, value in before.items() if leaf != target}
            if raw is not None:
                expected[target] = raw
            if dict(_leaves(_parse(edited, path))) != expected:
                raise _by_hand(path)
            _replace(path, edited, private=file.layer is Layer.USER)
            return held is not None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint="Make its folder writable.") from error


def _names(leaf: Sequence[str], key: Key) -> bool:
    canonical = ".".join(leaf).replace("_", "-")
    return ALIASES.get(canonical, canonical) == key.name


def _edited(text: str, path: Path, target: Sequence[str], raw: object) -> str:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document: Any = tomlkit.parse(text)
        table = document
        for part in target[:-1]:
            if part not in table:
                inline = isinstance(table, tomlkit.items.InlineTable)
                table[part] = tomlkit.inline_table() if inline else tomlkit.table(is_super_table=part != target[-2])
            table = table[part]
        if raw is None:
            del table[target[-1]]
        else:
            table[target[-1]] = raw
        return tomlkit.dumps(document)
    except (TOMLKitError, ValueError, TypeError, AttributeError) as error:
        # Also where a plain value stands in place of a table, which then holds no keys.
        raise _by_hand(path) from error


def _by_hand(path: Path) -> ConfigError:
    return ConfigError(f"{path} is laid out so that it cannot be edited safely", hint="Change the setting by hand.")


@contextmanager
def _sole_editor(folder: Path) -> Iterator[None]:
    """Two editors at once would lose the change of one of them; a lock on the folder needs no file to clean up."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str, *, private: bool) -> None:
    """Put the text in place of the file, durably; at every moment the file is the old one or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    # Whoever was killed here before left it; a link of that name must not be followed.
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    with open(descriptor, "w", encoding="utf-8", newline="") as stream:
        if not private and path.is_file():
            os.fchmod(descriptor, path.stat().st_mode & 0o777)
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)
    os.replace(fresh, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
