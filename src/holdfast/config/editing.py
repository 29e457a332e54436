"""One setting changed or removed in a file of settings, with the rest of the file left as it is."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.config.keys import ALIASES, Key, find_key
from holdfast.config.loading import ConfigFile, Layer, leaves, parsed, read_text
from holdfast.errors import ConfigError


def set_value(file: ConfigFile, name: str, text: str) -> None:
    """Write one setting into a file and leave the rest of it as it is."""
    place = str(file.path)
    key = file.key(name, place)
    raw = key.from_text(text, place)
    key.checked(raw, place)
    _refuse_what_is_not_text(key, raw, file)
    _edit(file, key, raw)


def _refuse_what_is_not_text(key: Key, raw: object, file: ConfigFile) -> None:
    """The name of a file need not be UTF-8, but a TOML file is."""
    for text in map(str, raw if isinstance(raw, list) else [raw]):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            how = "Write ? for every byte that is none, or set it" if key.kind.takes_patterns else "Set it"
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
        # Also if a plain value stands in place of a table: it holds no keys.
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
    # A process that was killed here left it; a link of that name must not be followed.
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
