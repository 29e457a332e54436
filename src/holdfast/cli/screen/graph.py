"""A history with branches, drawn as a graph of characters: newest on top, one column for each branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, tee, zip_longest
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Node(NamedTuple, Generic[T]):
    key: str
    parent: str | None
    content: T


class Line(NamedTuple, Generic[T]):
    """One line of the drawing; a line without a node only joins columns."""

    before: str
    node: Node[T] | None
    after: str


def drawn(nodes: Iterable[Node[T]], is_drawn: Callable[[str], bool]) -> Iterator[Line[T]]:
    """The lines for these nodes, newest first, while they are read; if a node's parent is not drawn, its branch ends.

    ``is_drawn``: whether there is a node with that key; asked only if nothing else tells.
    """
    columns: list[str] = []
    for node, following in _with_next(nodes):
        if node.key not in columns:
            columns.append(node.key)
        place = columns.index(node.key)
        yield Line(before="│ " * place, node=node, after=" │" * (len(columns) - place - 1))
        children = [index for index, waiting in enumerate(columns) if waiting == node.key]
        parent = node.parent
        if parent is not None and parent not in columns and not (following and following.key == parent):
            parent = parent if is_drawn(parent) else None
        elsewhere = columns.index(parent) if parent is not None and parent in columns else None
        for index in reversed(children[1:]):
            del columns[index]
        if parent is None:
            del columns[place]
        elif elsewhere is None:
            columns[place] = parent
        else:
            yield Line(before=_joined(min(place, elsewhere), max(place, elsewhere), len(columns)), node=None, after="")
            columns[min(place, elsewhere)] = parent
            del columns[max(place, elsewhere)]


def _with_next(nodes: Iterable[Node[T]]) -> Iterator[tuple[Node[T], Node[T] | None]]:
    present, ahead = tee(nodes)
    return zip_longest(present, islice(ahead, 1, None))


def _joined(left: int, right: int, count: int) -> str:
    """A line that joins the right column into the left one."""
    cells = ["│"] * count
    cells[left], cells[right] = "├", "╯"
    text = ""
    for index, cell in enumerate(cells):
        inside = left <= index < right
        crossed = "┼" if left < index < right else cell
        text += crossed + ("─" if inside else " ")
    return text.rstrip()
