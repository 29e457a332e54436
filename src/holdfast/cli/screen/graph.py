"""A history with branches, drawn as a graph of characters: newest on top, one column for each branch."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Node(Generic[T]):
    key: Hashable
    parent: Hashable | None
    content: T


@dataclass(frozen=True)
class Line(Generic[T]):
    """One line of the drawing; a line without a node only joins columns."""

    before: str
    node: Node[T] | None
    after: str


def drawn(nodes: Sequence[Node[T]]) -> Iterator[Line[T]]:
    """The lines for these nodes, newest first; if a node's parent is not among them, its branch ends."""
    known = {node.key for node in nodes}
    columns: list[Hashable] = []
    for node in nodes:
        if node.key not in columns:
            columns.append(node.key)
        place = columns.index(node.key)
        yield Line(before="│ " * place, node=node, after=" │" * (len(columns) - place - 1))
        children = [index for index, waiting in enumerate(columns) if waiting == node.key]
        parent = node.parent if node.parent in known else None
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
