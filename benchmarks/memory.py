"""The most memory that Holdfast needs: for a tree of many files, and for a file much larger than that memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.peers import HoldfastPeer
from benchmarks.progress import say
from benchmarks.trees import append_random, change_files, make_tree

LARGE_FILE_BYTES = 2 << 30
FROM_FILES = 100_000
"""Below that, memory is no question; and looking at it takes a minute."""
_SAMPLE_SECONDS = 0.02


@dataclass(frozen=True)
class Peak:
    what: str
    process_bytes: int
    together_bytes: int
    """With the processes that read for it; what they share is counted once for each, so this is an upper bound."""


def peaks(folder: Path, files: int) -> list[Peak]:
    if files < FROM_FILES:
        return []
    say(f"memory for {files:,} files")
    tree = folder / "many" / "tree"
    make_tree(tree, files)
    many = _peak(f"{files:,} files", tree, folder / "many-store", lambda: change_files(tree, files, 10, 1))
    say("memory for a large file")
    lone = folder / "large" / "tree"
    lone.mkdir(parents=True)
    append_random(lone / "large.bin", LARGE_FILE_BYTES)
    large = _peak(
        f"one file of {LARGE_FILE_BYTES >> 30} GB",
        lone,
        folder / "large-store",
        lambda: append_random(lone / "large.bin", 1 << 20),
    )
    return [many, large]


def _peak(what: str, tree: Path, store: Path, change: Callable[[], None]) -> Peak:
    """Of a process that takes a first checkpoint, one of a change, and rolls another change back."""
    peer = HoldfastPeer(tree, store, level="snapshot", name="Holdfast")
    peer.start()
    try:
        with _sampled(peer.pid) as sampled:
            peer.checkpoint()
            peer.watch()
            change()
            peer.checkpoint()
            change()
            peer.rollback()
            own = int(peer.ask("peak")["bytes"])
        return Peak(what, own, max(own, *sampled))
    finally:
        peer.stop()


@contextmanager
def _sampled(pid: int) -> Iterator[list[int]]:
    """Looks again and again at how much memory a process and its children have."""
    samples: list[int] = [0]
    done = threading.Event()

    def sample() -> None:
        process = psutil.Process(pid)
        while not done.wait(_SAMPLE_SECONDS):
            total = 0
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    total += each.memory_info().rss
            samples.append(total)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()
