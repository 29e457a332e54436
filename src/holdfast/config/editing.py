"""Changing or removing one setting in a file of settings; the rest of the file stays as it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.config.keys import ALIASES, Key, find_key
from holdfast.config.loading import ConfigFile, Layer, leaves, parsed, read_text
from holdfast.errors import ConfigError
from holdfast.system.small_files import replace_text, sole_writer


def set_value(file: ConfigFile, name: str, text: str) -> None:
    """Write one setting into a file and leave the rest of it as it is."""
    place = str(file.path)
    key = file.key(name, place)
    raw = key.from_text(text, place)
    key.checked(raw, place)
    _refuse_what_is_not_text(key, raw, file)
    _edit(file, key, raw)


def _refuse_what_is_not_text(key: Key, raw: object, file: ConfigFile) -> None:
    """A file name may contain bytes that are not UTF-8; a TOML file may not."""
    for text in map(str, raw if isinstance(raw, list) else [raw]):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            how = "Write ? for each byte that is not UTF-8, or set it" if key.kind.takes_patterns else "Set it"
            raise ConfigError(
                f"{file.path}: {key.name}: {text} is not UTF-8 text, and a file of settings can hold nothing else",
                hint=f"{how} as {key.variable}, which takes any name.",
            ) from error


def unset_value(file: ConfigFile, name: str) -> bool:
    """Remove one setting from a file; False if the file did not have it."""
    return _edit(file, find_key(name), None)


def _edit(file: ConfigFile, key: Key, raw: object) -> bool:
    """Set the key, or remove it if ``raw`` is None; True if the file held it before."""
    # A user may keep the file elsewhere and link to it. A link in a project may lead anywhere, so it is replaced.
    path = Path(os.path.realpath(file.path)) if file.layer is Layer.USER else file.path
    try:
        if file.layer is Layer.USER:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with sole_writer(path.parent):
            text = read_text(path)
            before = dict(leaves(parsed(text, path)))
            held = next((leaf for leaf in before if _names(leaf, key)), None)
            if raw is None and held is None:
                return False
            target = held or tuple(key.name.split("."))
            edited = _edited(text, path, target, raw)
            expected = {leaf: value for leaf, value in before.items() if leaf != target}
            if raw is not None:
                expected[target] = raw
            if dict(leaves(parsed(edited, path))) != expected:
                raise _by_hand(path)
            _write(path, edited, is_private=file.layer is Layer.USER)
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
        # Also if there is a plain value where a table should be.
        raise _by_hand(path) from error


def _by_hand(path: Path) -> ConfigError:
    return ConfigError(f"{path} has a layout that cannot be edited safely", hint="Change the setting by hand.")


def _write(path: Path, text: str, *, is_private: bool) -> None:
    if is_private:
        replace_text(path, text, new_file_mode=0o600)
    else:
        replace_text(path, text, mode=path.stat().st_mode & 0o777 if path.is_file() else None)
