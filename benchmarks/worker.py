"""Holdfast in a process of its own, as with a plan: it reads what to do and answers how long that took.

Time is taken inside this process, so neither the interpreter's start nor the conversation counts.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from benchmarks.snapshot_level import SnapshotLevel
from holdfast.snapshot.manager import CheckpointManager

Answer = dict[str, Any]


class Level(Protocol):
    """How much of Holdfast takes part in a checkpoint."""

    manager: CheckpointManager

    def checkpoint(self, *, thorough: bool = False) -> str: ...

    def rollback(self) -> None: ...

    def watch(self) -> None: ...

    def rest(self) -> None:
        """Watch no more."""
        ...

    def close(self) -> None: ...


def open_level(name: str, tree: Path, store: Path) -> Level:
    if name == "snapshot":
        return SnapshotLevel(tree, store)
    # A new process that only takes a snapshot must not pay for importing what records need.
    from benchmarks.whole_level import WholeLevel

    return WholeLevel(tree, store)


def serve(level: Level) -> None:
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(level, line.strip())) + "\n")
        sys.stdout.flush()


def _answer(level: Level, order: str) -> Answer:
    if order == "peak":
        return {"bytes": peak_bytes()}
    if order == "remember":
        state = level.checkpoint(thorough=True)
        level.manager.remember()
        return {"value": state}
    begin = time.perf_counter()
    value = _do(level, order)
    return {"seconds": time.perf_counter() - begin, "value": value}


def _do(level: Level, order: str) -> str | None:
    match order:
        case "checkpoint":
            return level.checkpoint()
        case "rollback":
            level.rollback()
        case "rest":
            level.rest()
        case "watch":
            level.watch()
            return level.checkpoint()
        case _:
            raise ValueError(order)
    return None


def scan(tree: Path, store: Path) -> Answer:
    """What the first checkpoint of a new process costs, from opening the store to the state hash."""
    begin = time.perf_counter()
    state = SnapshotLevel(tree, store).checkpoint()
    return {"seconds": time.perf_counter() - begin, "value": state}


def peak_bytes() -> int:
    """The most memory this program has had; unlike ru_maxrss it does not begin with what its parent had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError("VmHWM")


def main() -> None:
    what, tree, store = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if what == "scan":
        sys.stdout.write(json.dumps(scan(tree, store)) + "\n")
        return
    level = open_level(what, tree, store)
    try:
        serve(level)
    finally:
        level.close()


if __name__ == "__main__":
    main()
