"""A YAML document with the place of every value, and the problems found in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from holdfast.errors import PlanFileError
from holdfast.names import name_text
from holdfast.planfile.unstored import shortened

KeyPath = tuple[str | int, ...]

# Each level of subplans takes four levels of YAML. Python's recursion limit is not far above, and gives no clean error.
DEEPEST_LEVEL = 120
# Aliases let a small file stand for a huge one.
MOST_VALUES = 100_000


@dataclass(frozen=True, order=True)
class Place:
    line: int
    column: int


START = Place(1, 1)


@dataclass
class Document:
    """A file's content as JSON-like values, the place of each, and the problems found so far."""

    file: Path
    folder: Path
    """What paths in it are relative to."""
    content: Any = None
    places: dict[KeyPath, Place] = field(default_factory=dict)
    key_places: dict[KeyPath, Place] = field(default_factory=dict)
    written: dict[KeyPath, str] = field(default_factory=dict)
    """Numbers and truth values as they are written in the file, for messages."""
    problems: set[tuple[Place, str]] = field(default_factory=set)

    def wrong(self, path: KeyPath, message: str) -> None:
        """Add a problem with the value at this path, or with the nearest value around it that the file has."""
        while path not in self.places and path:
            path = path[:-1]
        self.wrong_at(self.places.get(path, START), message)

    def wrong_key(self, path: KeyPath, message: str) -> None:
        self.wrong_at(self.key_places[path], message)

    def wrong_at(self, place: Place, message: str) -> None:
        self.problems.add((place, message))

    def where(self, place: Place) -> str:
        return f"{name_text(str(self.file))}:{place.line}:{place.column}"

    def refuse_if_wrong(self) -> None:
        if self.problems:
            raise refused([f"{self.where(place)}: {message}" for place, message in sorted(self.problems)])


def refused(problems: Sequence[str]) -> PlanFileError:
    return PlanFileError(
        "\n".join(problems),
        hint="`holdfast plan schema` prints what a plan file may hold.",
        problems=tuple(problems),
    )


_YAML = "tag:yaml.org,2002:"
_TEXT_TAGS = {_YAML + "str", _YAML + "value", _YAML + "merge"}


class _Loader(yaml.SafeLoader):
    """PyYAML's loader with our limit of nesting."""

    level = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if parent is not None and self.level > DEEPEST_LEVEL:
            raise _yaml_error(f"nested deeper than {DEEPEST_LEVEL} levels", parent)
        self.level += 1
        node = super().compose_node(parent, index)
        self.level -= 1
        return node


class _Reader:
    """Turns YAML nodes into values, by way of PyYAML's own readers of numbers and truth values."""

    def __init__(self, document: Document, loader: yaml.SafeLoader) -> None:
        self.document = document
        self.loader = loader
        self.ancestors: list[yaml.Node] = []
        self.values = 0

    def read(self, node: yaml.Node, path: KeyPath) -> Any:
        self._refuse_endless(node)
        self.document.places[path] = _place(node.start_mark)
        self.ancestors.append(node)
        try:
            match node:
                case yaml.MappingNode():
                    return self._mapping(node, path)
                case yaml.SequenceNode():
                    return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
                case _:
                    return self._scalar(node, path)
        finally:
            self.ancestors.pop()

    def _refuse_endless(self, node: yaml.Node) -> None:
        self.values += 1
        if any(node is ancestor for ancestor in self.ancestors):
            raise _yaml_error("an alias refers to a value that contains it", node)
        if len(self.ancestors) > DEEPEST_LEVEL:
            raise _yaml_error(f"nested deeper than {DEEPEST_LEVEL} levels, aliases followed", node)
        if self.values > MOST_VALUES:
            raise _yaml_error(f"more than {MOST_VALUES} values, aliases counted each time", node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        mapping = {}
        for key, (key_node, value_node) in self._entries(node).items():
            self.document.key_places[(*path, key)] = _place(key_node.start_mark)
            mapping[key] = self.read(value_node, (*path, key))
        return mapping

    def _entries(self, node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """The entries of a mapping: first those it merges, then its own, which win."""
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merges = False
        for key_node, value_node in node.value:
            is_merge = key_node.tag == _YAML + "merge"
            key = "<<" if is_merge else self._key(key_node)
            if key in own or (is_merge and merges):
                self.document.wrong_at(_place(key_node.start_mark), f'the key "{key}" is here a second time')
            elif is_merge:
                merges, merged = True, self._merged(value_node)
            elif key is not None:
                own[key] = (key_node, value_node)
        return {**merged, **own}

    def _merged(self, node: yaml.Node) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        self._refuse_endless(node)
        self.ancestors.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._entries(node)
            if not isinstance(node, yaml.SequenceNode):
                raise _yaml_error("expected a mapping to merge, or a list of them", node)
            entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
            for item in node.value:
                if not isinstance(item, yaml.MappingNode):
                    raise _yaml_error("expected a mapping to merge", item)
                entries = {**self._merged(item), **entries}
            return entries
        finally:
            self.ancestors.pop()

    def _key(self, node: yaml.Node) -> str | None:
        place = _place(node.start_mark)
        if not isinstance(node, yaml.ScalarNode):
            self.document.wrong_at(place, "expected text as a key")
            return None
        if node.tag not in _TEXT_TAGS:
            self.document.wrong_at(place, f"expected text as a key, found {node.value or 'nothing'}{quote(node.value)}")
        return self._clean(node)

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        if node.tag in _TEXT_TAGS:
            return self._clean(node)
        self.document.written[path] = node.value
        match node.tag.removeprefix(_YAML):
            case "null":
                return None
            case "bool" | "int" | "float" as kind:
                return self._number(node, kind)
            case "timestamp":
                return self._unusable(node, f"{node.value} without quotes is a date{quote(node.value)}")
            case _:
                return self._unusable(node, f"the YAML tag {node.tag.replace(_YAML, '!!')} has no meaning here")

    def _number(self, node: yaml.Node, kind: str) -> Any:
        if ":" in node.value:
            return self._unusable(node, f"{node.value} without quotes is a number to base 60{quote(node.value)}")
        try:
            number = getattr(self.loader, f"construct_yaml_{kind}")(node)
        except (ValueError, KeyError, IndexError):
            return self._unusable(node, f"{shortened(node.value)} is not a value of type {kind}")
        if (kind == "int" and abs(number) >= 2**63) or (kind == "float" and not math.isfinite(number)):
            return self._unusable(node, f"{shortened(node.value)} is not a number that can be stored")
        return number

    def _clean(self, node: yaml.Node) -> str:
        text: str = node.value
        encodable = text.encode(errors="replace").decode()
        if encodable != text or "\0" in text:
            self.document.wrong_at(_place(node.start_mark), "expected text without NUL and lone surrogates")
        return encodable.replace("\0", "?")

    def _unusable(self, node: yaml.Node, message: str) -> Any:
        self.document.wrong_at(_place(node.start_mark), message)
        return node.value


def _place(mark: yaml.Mark) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _yaml_error(message: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)


def quote(written: str) -> str:
    return f'; put it in quotes: "{written}"' if written else ""


_ADVICE = {
    "mapping values are not allowed here": 'text with ": " in it needs quotes, or a block that begins with |',
    "found character '\\t' that cannot start any token": "indent with spaces, not with tabs",
    "found character '%' that cannot start any token": "text that begins with % needs quotes",
    "found character '@' that cannot start any token": "text that begins with @ needs quotes",
    "found character '`' that cannot start any token": "text that begins with ` needs quotes",
    "but found another document": "a plan file is one document, without further lines of ---",
}


def parse(text: str, document: Document) -> None:
    """Fill the document; errors in the YAML become its problems."""
    loader: yaml.SafeLoader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            document.content = _Reader(document, loader).read(node, ())
    except yaml.reader.ReaderError as error:
        document.wrong_at(_place_in(text, error.position), f"the character U+{error.character:04X} is not allowed")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        advice = _ADVICE.get(error.problem or "")
        document.wrong_at(_place(mark) if mark else START, message + (f"; {advice}" if advice else ""))
    except (ValueError, OverflowError):
        # PyYAML lets these out of escapes beyond Unicode and out of absurd version numbers.
        place = _place(loader.get_mark()) if loader else START
        document.wrong_at(place, "this escape or number is beyond what YAML allows")


def _place_in(text: str, position: int) -> Place:
    before = text[:position]
    return Place(before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)
