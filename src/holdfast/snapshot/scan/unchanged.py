"""Finds the unchanged directories of a known tree, with several cores.

Nearly all of the time goes into system calls, one for each file. Threads would hand the interpreter lock back and forth
around each of them, so the work is shared with forks, which have the known tree at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.snapshot.scan.nodes import Node
from holdfast.system.calls import open_beneath, stamps_of
from holdfast.system.place import open_in_place

_FORKS_FROM_DIRECTORIES = 200
"""Below that, forking costs more than it saves."""
_MOST_PROCESSES = 4
_YES, _NO = b"\1", b"\0"

Known = Sequence[tuple[bytes, Node]]


def unchanged_directories(root: Path, nodes: Iterable[tuple[bytes, Node]]) -> frozenset[Node]:
    """The directories in which no name and no file changed; the others must be scanned."""
    # With other threads a fork could inherit a lock that is never released.
    if threading.active_count() > 1:
        return frozenset()
    known = list(nodes)
    if len(known) < _FORKS_FROM_DIRECTORIES:
        return frozenset()
    count = min(os.cpu_count() or 1, _MOST_PROCESSES)
    own, *others = (known[number::count] for number in range(count))
    forks = [_Fork(root, share) for share in others]
    try:
        found = _chosen(own, _answers(root, own))
    finally:
        said = [fork.result() for fork in forks]
    for share, answers in zip(others, said, strict=True):
        found += _chosen(share, answers)
    return frozenset(found)


class _Fork:
    """Checks its share of the directories and answers with a byte for each; without one, a directory has changed."""

    def __init__(self, root: Path, share: Known) -> None:
        self._reading, writing = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            # Nothing but this: the fork must not do what the parent was about to do.
            with suppress(BaseException):
                os.write(writing, _answers(root, share))
            os._exit(0)
        os.close(writing)

    def result(self) -> bytes:
        with os.fdopen(self._reading, "rb") as answers:
            said = answers.read()
        os.waitpid(self._process, 0)
        return said


def _chosen(share: Known, answers: bytes) -> list[Node]:
    return [node for (_, node), answer in zip(share, answers, strict=False) if answer == _YES[0]]


def _answers(root: Path, share: Known) -> bytes:
    descriptor = open_in_place(root)
    try:
        return b"".join(_YES if _is_unchanged(descriptor, path, node) else _NO for path, node in share)
    finally:
        os.close(descriptor)


def _is_unchanged(root: int, path: bytes, node: Node) -> bool:
    try:
        descriptor = open_beneath(root, path or b".")
    except OSError:
        return False
    if descriptor < 0:
        return False
    try:
        return is_as_known(node, descriptor)
    finally:
        os.close(descriptor)


def is_as_known(node: Node, descriptor: int) -> bool:
    """Whether neither the directory nor a file in it changed; its own ctime shows whether a name came or went."""
    found = os.fstat(descriptor)
    if node.stamp != (found.st_ino, found.st_ctime_ns):
        return False
    names, stamps = node.packed_stamps
    return stamps_of(descriptor, names) == stamps
