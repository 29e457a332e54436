"""JSON as a text that is edited: a member is put in or taken out, and every other character stays as it is.

Comments are understood if the program that reads the file does so; what that program would refuse is refused here, too,
with its line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_PLAIN = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MARK = "\ufeff"
_DEEPEST = 200
_CLOSING = {"{": "}", "[": "]"}


class BrokenText(Exception):
    def __init__(self, reason: str, text: str, place: int) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, text.count("\n", 0, place) + 1


class Node(NamedTuple):
    """A value in the text. The members of an object have keys; those of an array have none."""

    begin: int
    end: int
    value: Any
    members: tuple[Member, ...] = ()

    def member(self, key: str) -> Node | None:
        return next((each.node for each in self.members if each.key == key), None)


class Member(NamedTuple):
    key: str
    begin: int
    """Where its key begins, or the value if it has none."""
    node: Node


def parsed(text: str, *, with_comments: bool) -> Node:
    return _Parser(text, with_comments).document()


class _Parser:
    def __init__(self, text: str, with_comments: bool) -> None:
        self._text, self._with_comments = text, with_comments

    def document(self) -> Node:
        node = self._node(len(_MARK) if self._text.startswith(_MARK) else 0, 0)
        if (end := self._after_space(node.end)) < len(self._text):
            raise self._broken("something follows the end", end)
        return node

    def _broken(self, reason: str, place: int) -> BrokenText:
        return BrokenText(reason, self._text, place)

    def _after_space(self, place: int) -> int:
        while True:
            found = _SPACE.match(self._text, place)
            place = found.end() if found else place
            comment = _COMMENT.match(self._text, place)
            if comment is None:
                return place
            if not self._with_comments:
                raise self._broken("there is a comment, which its reader does not understand", place)
            place = comment.end()

    def _node(self, place: int, depth: int) -> Node:
        place = self._after_space(place)
        sign = self._text[place : place + 1]
        if depth > _DEEPEST:
            raise self._broken("it is nested too deeply", place)
        if sign in _CLOSING:
            return self._container(place, sign, depth)
        found = _STRING.match(self._text, place) or _PLAIN.match(self._text, place)
        if found is None:
            raise self._broken("a value is expected", place)
        return Node(place, found.end(), json.loads(found[0]))

    def _container(self, begin: int, sign: str, depth: int) -> Node:
        members: list[Member] = []
        place = self._after_space(begin + 1)
        while self._text[place : place + 1] != _CLOSING[sign]:
            if members:
                if self._text[place : place + 1] != ",":
                    raise self._broken(f"a comma or {_CLOSING[sign]} is expected", place)
                place = self._after_space(place + 1)
            member = self._member(place, depth) if sign == "{" else self._item(place, depth)
            if sign == "{" and any(each.key == member.key for each in members):
                raise self._broken(f'"{member.key}" is there twice', place)
            members.append(member)
            place = self._after_space(member.node.end)
        values = [each.node.value for each in members]
        keys = [each.key for each in members]
        whole = dict(zip(keys, values, strict=True)) if sign == "{" else values
        return Node(begin, place + 1, whole, tuple(members))

    def _member(self, place: int, depth: int) -> Member:
        key = _STRING.match(self._text, place)
        if key is None:
            raise self._broken("a key is expected", place)
        colon = self._after_space(key.end())
        if self._text[colon : colon + 1] != ":":
            raise self._broken("a colon is expected", colon)
        return Member(json.loads(key[0]), place, self._node(colon + 1, depth + 1))

    def _item(self, place: int, depth: int) -> Member:
        node = self._node(place, depth + 1)
        return Member("", node.begin, node)


def appended(text: str, container: Node, value: Any, key: str | None = None) -> str:
    """The text with one more member at the end of this object or array."""
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = _indentation_unit(text)
    inside = text[container.begin + 1 : container.end - 1]
    last = container.members[-1].node.end if container.members else container.begin + 1
    before = text[:last] + ("," if container.members else "")
    after = text[last : container.end - 1].rstrip()
    if container.members:
        is_in_lines = "\n" in text[container.begin : container.members[0].begin]
    else:
        is_in_lines = bool(inside.strip()) or "\n" in text.strip() or text.strip(f"{_MARK} \t\r\n") == "{}"
    rendered = json.dumps(value, indent=unit if is_in_lines else None, ensure_ascii=False)
    if key is not None:
        rendered = f"{json.dumps(key, ensure_ascii=False)}: {rendered}"
    if not is_in_lines:
        space = " " if container.members else ""
        return f"{before}{after}{space}{rendered}{text[container.end - 1 :]}"
    outer = _indentation_at(text, container.begin)
    lines = rendered.replace("\n", f"{newline}{outer}{unit}")
    return f"{before}{after}{newline}{outer}{unit}{lines}{newline}{outer}{text[container.end - 1 :]}"


def removed(text: str, container: Node, index: int) -> str:
    """The text without that member of this object or array, and with all comments."""
    begin, end = container.members[index].begin, container.members[index].node.end
    if index:
        before = container.members[index - 1].node.end
        return text[:before] + _without_comma(text[before:begin]) + text[end:]
    if len(container.members) > 1:
        after = container.members[1].begin
        return text[:begin] + _without_comma(text[end:after]).lstrip() + text[after:]
    around = text[container.begin + 1 : begin] + text[end : container.end - 1]
    return text[: container.begin + 1] + (around if around.strip() else "") + text[container.end - 1 :]


def _without_comma(between: str) -> str:
    """What stands between two members, without their comma; nothing if it is only space."""
    place = 0
    while between[place] != ",":
        comment = _COMMENT.match(between, place)
        place = comment.end() if comment else place + 1
    rest = between[:place] + between[place + 1 :]
    return rest.rstrip() if rest.strip() else ""


def _indentation_unit(text: str) -> str:
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found[1] if found else "  "


def _indentation_at(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip())].lstrip(_MARK)


def found_at(root: Node, keys: Sequence[str]) -> Node | None:
    """The value below these keys."""
    node: Node | None = root
    for key in keys:
        node = node.member(key) if node is not None else None
    return node
