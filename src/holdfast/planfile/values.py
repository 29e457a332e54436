"""The content of a plan that is built in code: read as a plan file is, except that a problem names a value's path."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from holdfast.names import name_text
from holdfast.planfile.document import DEEPEST_LEVEL, MOST_VALUES, Document, KeyPath, Place
from holdfast.planfile.unstored import shortened


@dataclass
class Values(Document):
    """Values of a program as JSON-like values. Instead of lines they have numbers, in the order of reading."""

    paths: list[KeyPath] = field(default_factory=list)

    def where(self, place: Place) -> str:
        return path_text(self.paths[place.line])

    def read(self, content: Mapping[str, Any]) -> None:
        self.content = self._read(content, ())

    def _read(self, value: object, path: KeyPath) -> Any:
        self.places[path] = self.key_places[path] = Place(len(self.paths), 1)
        self.paths.append(path)
        if len(path) > DEEPEST_LEVEL:
            return self._unusable(path, f"nested deeper than {DEEPEST_LEVEL} levels")
        if len(self.paths) > MOST_VALUES:
            return self._unusable(path, f"more than {MOST_VALUES} values")
        return self._converted(value, path)

    def _converted(self, value: object, path: KeyPath) -> Any:
        match value:
            case Enum():
                return self._converted(value.value, path)
            case os.PathLike():
                return self._converted(os.fspath(value), path)
            case None | bool():
                return value
            case str():
                return self._text(value, path)
            case int() | float():
                return self._number(value, path)
            case Mapping():
                return self._mapping(value, path)
            case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
                return [self._read(each, (*path, index)) for index, each in enumerate(value)]
            case _:
                kinds = "text, a number, True, False, a list or a mapping"
                return self._unusable(path, f"expected {kinds}, found a value of type {type(value).__name__}")

    def _mapping(self, value: Mapping[Any, Any], path: KeyPath) -> dict[str, Any]:
        found = {}
        for key, each in value.items():
            name = key.value if isinstance(key, Enum) else key
            if isinstance(name, str):
                text = self._text(name, path)
                found[text] = self._read(each, (*path, text))
            else:
                self.wrong(path, f"expected text as a key, found {shortened(repr(name))}")
        return found

    def _text(self, text: str, path: KeyPath) -> str:
        encodable = text.encode(errors="replace").decode()
        if encodable != text or "\0" in text:
            self.wrong(path, "expected text without NUL and lone surrogates")
        return encodable.replace("\0", "?")

    def _number(self, number: float, path: KeyPath) -> Any:
        if (isinstance(number, int) and abs(number) >= 2**63) or not math.isfinite(number):
            return self._unusable(path, f"{shortened(str(number))} is not a number that can be stored")
        return number

    def _unusable(self, path: KeyPath, message: str) -> None:
        self.wrong(path, message)


def path_text(path: KeyPath) -> str:
    """The path of a value as it would be written in code, such as ``steps[1].args.path``."""
    text = "".join(f"[{each}]" if isinstance(each, int) else f".{name_text(each)}" for each in path)
    return text.removeprefix(".") or "the plan"
