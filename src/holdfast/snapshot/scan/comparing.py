"""Finds the directories of a known tree in which anything changed, with several cores.

Nearly all of the time goes into system calls, one for each file. The compiled ``compare_stamps`` makes them without the
interpreter's lock, so threads share the work.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from holdfast.snapshot.scan.known_tree import KnownTree
from holdfast.system.calls import ARE_COMPILED, compare_stamps
from holdfast.system.stopping import stop_if_asked

_AT_ONCE = 250
"""So many directories are compared in one call; before each we may be asked to stop."""
_CHANGED = b"\1"
_MOST_THREADS = 4 if ARE_COMPILED else 1


def changed_directories(tree: KnownTree, root: int) -> set[bytes]:
    """The directories in which a name or a file changed since it was noted; only these must be scanned.

    The ctime of a directory shows whether a name came or went. ``root`` is a descriptor.
    """
    changed: set[bytes] = set()
    for packed in tree.packed:
        shares = [
            packed.stamps(first, min(first + _AT_ONCE, packed.count)) for first in range(0, packed.count, _AT_ONCE)
        ]
        if changed:  # what was packed later counts
            changed.difference_update(packed.paths())
        changed.update(map(packed.path_at, _numbers_of_changed(root, shares)))
    loaded = dict(tree.loaded())
    named = [path for path, node in loaded.items() if node.is_named]
    stamps = [loaded[path].packed_stamps(path) for path in named]
    shares = [memoryview(b"".join(stamps[first : first + _AT_ONCE])) for first in range(0, len(named), _AT_ONCE)]
    changed.difference_update(named)
    changed.update(path for path, node in loaded.items() if not node.is_named)
    changed.update(map(named.__getitem__, _numbers_of_changed(root, shares)))
    return changed


def _numbers_of_changed(root: int, shares: Sequence[memoryview]) -> Iterator[int]:
    answers = b"".join(_compared(root, shares))
    number = answers.find(_CHANGED)
    while number >= 0:
        yield number
        number = answers.find(_CHANGED, number + 1)


def _compared(root: int, shares: Sequence[memoryview]) -> list[bytes]:
    answers = [b""] * len(shares)
    numbers = iter(range(len(shares)))

    def compare() -> None:
        for number in numbers:
            stop_if_asked()
            answers[number] = compare_stamps(root, shares[number])

    helpers = [threading.Thread(target=compare, daemon=True) for _ in range(_helpers(len(shares)))]
    try:
        with suppress(RuntimeError):  # no more threads are allowed
            for helper in helpers:
                helper.start()
        compare()
    finally:
        for _ in numbers:
            pass  # if we were stopped, the others stop too
        for helper in helpers:
            if helper.ident is not None:
                helper.join()
    # Normally all are answered by now; if a thread failed, we find out why.
    return [answer or compare_stamps(root, share) for answer, share in zip(answers, shares, strict=True)]


def _helpers(shares: int) -> int:
    return max(0, min(os.cpu_count() or 1, _MOST_THREADS, shares) - 1)
