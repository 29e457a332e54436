"""The registered settings: their names, the values each one takes, and what it means."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

import msgspec

from holdfast.checkpoints.triggers import parse_triggers
from holdfast.errors import ConfigError, UsageError
from holdfast.model import (
    DEFAULT_COPY_LIMIT,
    DEFAULT_MAX_CHECKPOINTS,
    DEFAULT_PASSED_VARIABLES,
    DEFAULT_TRIGGERS,
    CopyLimit,
    Trigger,
    Unprotected,
    View,
)
from holdfast.names import did_you_mean
from holdfast.process.environment import LONGEST_TIMEOUT_SECONDS, is_variable_pattern

VARIABLE_PREFIX = "HOLDFAST_"

DEFAULT_OUTPUT_LIMIT_BYTES = 64 * 1024
LARGEST_OUTPUT_LIMIT_BYTES = 64 * 1024**2
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_AUTO = "auto"
_FILES = re.compile(r"\s*([0-9]{1,15})\s*files?\s*", re.ASCII)
_UNITS = {"b": 1, "kb": 1000, "kib": 1024, "mb": 1000**2, "mib": 1024**2, "gb": 1000**3, "gib": 1024**3}


class Scope(StrEnum):
    """Which files may set a key: only the user's, or a project's as well."""

    USER = "user"
    ANY = "any"


class Kind(msgspec.Struct, frozen=True):
    """A type of value: ``from_text`` makes a TOML value of a text, ``check`` makes the setting of a TOML value.

    Both raise a ConfigError that says what was expected; ``Key`` adds where the value was found.
    """

    name: str
    from_text: Callable[[str], object]
    check: Callable[[object], object]
    shown: Callable[[Any], Any] = lambda value: [str(item) for item in value] if isinstance(value, tuple) else value
    """The value in a form that JSON can hold, without a password."""
    takes_patterns: bool = False
    """A value may hold ``?`` for any character."""


class Key(msgspec.Struct, frozen=True):
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

    def from_text(self, text: str, where: str) -> object:
        """The TOML value for this text, which was found at ``where``."""
        try:
            return self.kind.from_text(text)
        except ConfigError as error:
            raise self._wrong(where, error) from None

    def checked(self, value: object, where: str) -> object:
        """The setting for this TOML value, which was found at ``where``."""
        try:
            return self.kind.check(value)
        except ConfigError as error:
            raise self._wrong(where, error) from None

    def _wrong(self, where: str, error: ConfigError) -> ConfigError:
        hint = error.hint or f"{self.name}: {self.description}"
        return ConfigError(f"{where}: {self.name}: {error.message}", hint=hint)


def _list_from_text(text: str) -> object:
    """A JSON or TOML array, or words with commas between them."""
    stripped = text.strip()
    if not stripped.startswith("["):
        return [word.strip() for word in stripped.split(",")] if stripped else []
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError):
        pass
    import tomllib  # rarely needed, and slow to import

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


def _view(value: object) -> View | None:
    """Where steps find the sandboxes; None leaves it to the system."""
    if value == _AUTO:
        return None
    try:
        return View(str(value))
    except ValueError:
        raise ConfigError(f"expected {_AUTO}, {View.SAME_PATH} or {View.OWN_PATH}") from None


def _on_failure(value: object) -> Unprotected:
    try:
        return Unprotected(str(value))
    except ValueError:
        raise ConfigError(f"expected {Unprotected.BLOCK} or {Unprotected.WARN}") from None


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError("expected a list of texts")
    return value


def _triggers(value: object) -> tuple[Trigger, ...]:
    return parse_triggers(_texts(value))


def checked_patterns(value: object) -> tuple[str, ...]:
    """Lines of a ``.gitignore`` that say something; git would skip some of the others without a word."""
    patterns = _texts(value)
    for pattern in patterns:
        parts = PurePosixPath(pattern.removeprefix("!")).parts
        if not pattern.strip(" !/") or ".." in parts or any(end in pattern for end in "\0\n\r"):
            raise ConfigError(f'expected patterns inside the resource, found "{pattern}"')
        if pattern.startswith("#"):
            raise ConfigError(f'"{pattern}" is a comment', hint=f"Write \\{pattern} for a name that begins with #.")
    return tuple(patterns)


def refuse_patterns(option: str, patterns: Sequence[str]) -> None:
    """Refuse a pattern that was given with an option and says nothing."""
    try:
        checked_patterns(list(patterns))
    except ConfigError as error:
        hint = error.hint or "Patterns are in the syntax of a .gitignore."
        raise UsageError(f"{option}: {error.message}", hint=hint) from error


def _variables(value: object) -> tuple[str, ...]:
    names = _texts(value)
    for name in names:
        if not is_variable_pattern(name):
            raise ConfigError(f'expected names of environment variables, found "{name}"')
    return tuple(names)


def _places(value: object) -> tuple[str, ...]:
    places = _texts(value)
    for place in places:
        # A relative path would mean another place in every folder that a command is run in.
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


def _spares(value: object) -> int:
    return _whole_number(value, 0)


def _output_limit(value: object) -> int:
    return _bytes(value, LARGEST_OUTPUT_LIMIT_BYTES)


def _max_bytes(value: object) -> int | None:
    return None if value in ("", "none") else _bytes(value)


def _bytes(value: object, largest: int | None = None, least: int = 1) -> int:
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", value.strip(), re.IGNORECASE | re.ASCII)
        unit = _UNITS.get(match[2].lower() or "b") if match else None
        if match is None or unit is None:
            raise ConfigError('expected a number of bytes, such as 65536, "64KiB" or "1MB"')
        value = int(match[1]) * unit
    return _whole_number(value, least, largest)


def _copy_limit(value: object) -> CopyLimit:
    if value == "none":
        return CopyLimit()
    parts = value.split(",") if isinstance(value, str) else [value]
    files = [found for found in map(_FILES.fullmatch, map(str, parts)) if found]
    sizes = [part for part in parts if not _FILES.fullmatch(str(part))]
    # In "200,000 files" the comma separates thousands.
    if len(files) > 1 or len(sizes) > 1 or (files and str(*sizes).strip().isdecimal()):
        raise ConfigError('expected a size, a number of files or both, such as "2GB, 200000 files", or "none"')
    size_bytes = _bytes(sizes[0], least=0) if sizes else None
    return CopyLimit(size_bytes=size_bytes, files=int(files[0][1]) if files else None)


def _copy_limit_text(limit: CopyLimit) -> str:
    size = [] if limit.size_bytes is None else [_bytes_text(limit.size_bytes)]
    files = [] if limit.files is None else [f"{limit.files} files"]
    return ", ".join([*size, *files]) or "none"


def _bytes_text(size_bytes: int) -> str:
    """The same number with the largest unit that fits."""
    unit = next(unit for unit in ("gb", "mb", "kb", "b") if size_bytes % _UNITS[unit] == 0)
    return f"{size_bytes // _UNITS[unit]}{unit.upper()}"


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


def _without_password(url: str | None) -> str | None:
    if not url:
        return url
    # Up to the last @: a password may contain one, and no part of it may be shown.
    masked = re.sub(r"(://[^:/?#@]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&]password=)[^&]*", r"\1***", masked, flags=re.IGNORECASE)


KEYS: Mapping[str, Key] = {
    key.name: key
    for key in (
        Key(
            "sandbox.checkpoint.auto-create-on",
            "auto_create_on",
            Kind("list of triggers", _list_from_text, _triggers),
            DEFAULT_TRIGGERS,
            "When a checkpoint is taken automatically; an empty list turns automatic checkpoints off.",
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
            "How much space saved content may take; beyond that, checkpoints are pruned, and then refused.",
            Scope.USER,
        ),
        Key(
            "sandbox.include-ignored",
            "include_ignored",
            Kind("list of patterns", _list_from_text, checked_patterns, takes_patterns=True),
            (),
            "Ignored files that are always copied into a sandbox, and applied; in the syntax of a .gitignore.",
        ),
        Key(
            "sandbox.exclude",
            "exclude",
            Kind("list of patterns", _list_from_text, checked_patterns, takes_patterns=True),
            (),
            "Ignored and untracked files that are left out of sandboxes, and any that sessions in place do not keep.",
        ),
        Key(
            "sandbox.copy-ignored-limit",
            "copy_ignored_limit",
            Kind("size, files, or none", str.strip, _copy_limit, _copy_limit_text),
            DEFAULT_COPY_LIMIT,
            "How much of what git ignores a sandbox gets; beyond that, the largest folders are left out.",
        ),
        Key(
            "apply.include-ignored",
            "apply_ignored",
            Kind("list of patterns", _list_from_text, checked_patterns, takes_patterns=True),
            (),
            "Ignored files whose changes apply brings into the real files; in the syntax of a .gitignore.",
        ),
        Key(
            "sandbox.spares",
            "spares",
            Kind("whole number", _number_from_text, _spares),
            1,
            "How many sandboxes of deleted plans are kept for each folder, so that the next plan starts at once.",
            Scope.USER,
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
            "Whether steps can write only into their plan's sandboxes, if the kernel can enforce it (Landlock).",
            Scope.USER,
        ),
        Key(
            "sandbox.view",
            "view",
            Kind("auto, same-path or own-path", str.strip, _view, lambda view: view or _AUTO),
            None,
            "Where steps find the sandboxes: at the places of the real folders, or at their own in Holdfast's home.",
            Scope.USER,
        ),
        Key(
            "sandbox.allow-write",
            "allow_write",
            Kind("list of paths", _list_from_text, _places),
            (),
            "Where steps may write besides their sandboxes; a rollback does not undo what they write there.",
            Scope.USER,
        ),
        Key(
            "agents.on-failure",
            "on_failure",
            Kind("block or warn", str.strip, _on_failure),
            Unprotected.BLOCK,
            "Whether an agent's tool is blocked, or runs with a warning, if no checkpoint can be taken before it.",
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
            Kind("address or none", str.strip, _database_url, _without_password),
            None,
            "Where the records are; none means an SQLite file in Holdfast's home.",
            Scope.USER,
        ),
    )
}

ALIASES = {"max-checkpoints-per-plan": "sandbox.checkpoint.max-checkpoints-per-plan"}


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
