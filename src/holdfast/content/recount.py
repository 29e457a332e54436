"""Recount: how the counts change if states are added and removed, computed before anything is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from holdfast.content.counts import NAMING, STATE, CountsInDoubt, Node
from holdfast.content.difference import StateReader
from holdfast.content.format import DIRECTORY

Stored = Callable[[Iterable[Node]], Mapping[Node, int]]


def nothing_counted(nodes: Iterable[Node]) -> Mapping[Node, int]:
    return dict.fromkeys(nodes, 0)


class Recount:
    """Additions come first, so that a count which falls to 0 stays there.

    An object is read only if its count rises from 0, or falls to 0: only then do the counts of what it names change.
    """

    def __init__(self, reader: StateReader, stored: Stored) -> None:
        self._reader, self._read_stored = reader, stored
        self._stored: dict[Node, int] = {}
        self._change: Counter[Node] = Counter()

    def add(self, states: Iterable[bytes]) -> None:
        """Count what these states need."""
        nodes = [(state, STATE) for state in states]
        self._load(nodes)
        pending = [node for node in nodes if not self._count(node)]
        self._change.update(pending)
        while pending:
            named = self._named_by(pending.pop())
            pending += {node for node in named if node[1] in NAMING and not self._count(node)}
            self._change.update(named)

    def remove(self, states: Iterable[bytes]) -> None:
        """Subtract what these states needed."""
        nodes = [(state, STATE) for state in states]
        self._load(nodes)
        pending = [node for node in nodes if self._count(node)]
        self._change.subtract(pending)
        while pending:
            named = self._named_by(pending.pop())
            self._change.subtract(named)
            pending += {node for node in named if node[1] in NAMING and not self._count(node)}

    def counts(self) -> dict[Node, int]:
        """The new counts of all that changed."""
        changed = {node: change for node, change in self._change.items() if change}
        self._load(changed)
        counts = {node: self._count(node) for node in changed}
        if any(count < 0 for count in counts.values()):
            raise CountsInDoubt("an object is named less often than never")
        return counts

    def _named_by(self, node: Node) -> list[Node]:
        """What the object names, once for each time it does."""
        digest, kind = node
        if kind == STATE:
            named = [(self._reader.state(digest.hex()).root.content, DIRECTORY)]
        else:
            named = self._reader.named_by(digest, kind)
        self._load(each for each in named if each[1] in NAMING)
        return named

    def _load(self, nodes: Iterable[Node]) -> None:
        if unknown := [node for node in nodes if node not in self._stored]:
            self._stored.update(self._read_stored(unknown))

    def _count(self, node: Node) -> int:
        return self._stored[node] + self._change[node]
