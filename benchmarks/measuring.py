"""The measurements of one tree: every peer does the same work on it, in rounds, in an order that rotates."""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from benchmarks.peers import Borg, GitWay, HoldfastPeer, Peer, Restic, RollingPeer
from benchmarks.progress import say
from benchmarks.snapshot_level import can_be_watched
from benchmarks.trees import append_random, change, chosen_files, make_tree

GIT, GIT_SYNCED, RESTIC, BORG = "git way", "git way, fsynced", Restic.name, Borg.name
SNAPSHOT, WHOLE = "Holdfast, snapshot", "Holdfast, whole"
CHANGED_FILES = 10
DISK_CHECKPOINTS = 100
BIG_FILE_BYTES = 100 << 20
APPENDED_BYTES = 1 << 20
OFTEN = 3
"""What takes milliseconds varies by a third from one time to the next: it is measured so many times as often."""

P = TypeVar("P", bound=Peer)


class Work(StrEnum):
    FIRST = "first checkpoint"
    NOTHING = "checkpoint, nothing changed"
    TEN = "checkpoint, 10 files changed"
    ROLLBACK = "roll back 10 files"
    APPEND = "append 1 MB to a 100 MB file, checkpoint"
    NEW_PROCESS = "new process, full scan, nothing changed"
    WATCH = "begin to watch, full scan (once a run)"


@dataclass
class Measured:
    """What was found on one tree."""

    files: int
    rounds: int
    seconds: dict[Work, dict[str, list[float]]] = field(default_factory=dict)
    disk_bytes: dict[str, int] = field(default_factory=dict)
    """What 100 checkpoints of 10 changed files added."""
    whole_process_seconds: float = 0.0
    """The new process with its interpreter's start and its imports."""

    def add(self, work: Work, peer: str, seconds: float) -> None:
        self.seconds.setdefault(work, {}).setdefault(peer, []).append(seconds)

    def times(self, work: Work, peer: str) -> list[float]:
        # Every run of these is a new process that looks at everything.
        if work is Work.NEW_PROCESS and peer in (RESTIC, BORG):
            work = Work.NOTHING
        return self.seconds.get(work, {}).get(peer, [])

    def median(self, work: Work, peer: str) -> float | None:
        times = self.times(work, peer)
        return statistics.median(times) if times else None


class Measuring:
    def __init__(self, folder: Path, files: int, rounds: int, patience_seconds: float) -> None:
        self._rounds, self._patience_seconds = rounds, patience_seconds
        self._tree = folder / "tree"
        self._turn = 0
        self.measured = Measured(files, rounds)
        git = GitWay(self._tree, folder / "git", name=GIT)
        synced = GitWay(self._tree, folder / "git-synced", name=GIT_SYNCED, is_synced=True)
        self._snapshot = HoldfastPeer(self._tree, folder / "snapshot", level="snapshot", name=SNAPSHOT)
        whole = HoldfastPeer(self._tree, folder / "whole", level="whole", name=WHOLE)
        self._levels = (self._snapshot, whole)
        self._rolling: list[RollingPeer] = [git, synced, *self._levels]
        self._fresh: list[RollingPeer] = [git, synced, self._snapshot]
        self._peers: list[Peer] = [*self._rolling]
        if shutil.which("restic"):
            self._peers.append(Restic(self._tree, folder / "restic"))
        if shutil.which("borg"):
            self._peers.append(Borg(self._tree, folder / "borg"))

    def run(self) -> Measured:
        self._say("making the tree")
        make_tree(self._tree, self.measured.files)
        if not can_be_watched(self._tree):
            raise SystemExit("The kernel grants too few watches for this tree: raise fs.inotify.max_user_watches.")
        with ExitStack() as opened:
            for peer in self._peers:
                opened.callback(peer.stop)
            self._in_rounds(Work.FIRST, self._peers, self._first)
            self._in_rounds(Work.NOTHING, self._peers, lambda peer: peer.checkpoint(), times=OFTEN)
            self._in_rounds(Work.TEN, self._peers, lambda peer: peer.checkpoint(), before=self._change_ten, times=OFTEN)
            self._in_rounds(Work.ROLLBACK, self._rolling, self._roll_back, times=OFTEN)
            self._measure_new_processes()
            self._measure_disk()
            self._measure_append()
        return self.measured

    def _in_rounds(
        self,
        work: Work,
        peers: Sequence[P],
        measure: Callable[[P], float],
        before: Callable[[], None] = lambda: None,
        times: int = 1,
    ) -> None:
        """``times``: so many times as many rounds, but for those that take seconds."""
        self._say(work)
        # Those that take seconds leave nothing of the processor's caches to those that take milliseconds.
        backups = [peer for peer in peers if peer.name in (RESTIC, BORG)]
        whole = [peer for peer in peers if peer.name == WHOLE]
        others = [peer for peer in peers if peer not in (*backups, *whole)]
        often = self._rounds * times
        for group, rounds in ((others, often), (whole, often), (backups, self._rounds)):
            for level in self._levels:
                # What is told to two takes whoever causes it longer, and a plan is not watched twice.
                level.watch_or_rest(is_on=level in group)
            for number in range(rounds if group else 0):
                before()
                first = number % len(group)
                for peer in (*group[first:], *group[:first]):
                    if sum(self.measured.times(work, peer.name)) < self._patience_seconds:
                        # Nobody waits for the disk because of what somebody else wrote.
                        os.sync()
                        self.measured.add(work, peer.name, measure(peer))

    def _first(self, peer: Peer) -> float:
        peer.start()
        os.sync()
        seconds = peer.checkpoint()
        if isinstance(peer, HoldfastPeer):
            self.measured.add(Work.WATCH, peer.name, peer.watch())
        return seconds

    def _change_ten(self) -> None:
        change(self._next_files())

    def _next_files(self) -> list[Path]:
        self._turn += 1
        return chosen_files(self._tree, self.measured.files, CHANGED_FILES, self._turn)

    def _roll_back(self, peer: RollingPeer) -> float:
        peer.checkpoint()
        files = self._next_files()
        before = [path.read_bytes() for path in files]
        change(files)
        os.sync()
        seconds = peer.rollback()
        if [path.read_bytes() for path in files] != before:
            raise SystemExit(f"{peer.name} did not roll back.")
        return seconds

    def _measure_new_processes(self) -> None:
        for peer in self._fresh:
            peer.checkpoint()
        self._snapshot.remember()
        self._in_rounds(Work.NEW_PROCESS, self._fresh, lambda peer: peer.new_process())
        self.measured.whole_process_seconds = statistics.median(self._snapshot.whole_process_seconds)

    def _measure_disk(self) -> None:
        self._say(f"disk use of {DISK_CHECKPOINTS} checkpoints")
        for peer in self._rolling:
            peer.checkpoint()
        before = {peer.name: peer.disk_bytes() for peer in self._rolling}
        for _ in range(DISK_CHECKPOINTS):
            self._change_ten()
            for peer in self._rolling:
                peer.checkpoint()
        for peer in self._rolling:
            self.measured.disk_bytes[peer.name] = peer.disk_bytes() - before[peer.name]

    def _measure_append(self) -> None:
        big = self._tree / "big.bin"
        append_random(big, BIG_FILE_BYTES)
        for peer in self._peers:
            peer.checkpoint()
        self._in_rounds(
            Work.APPEND,
            self._peers,
            lambda peer: peer.checkpoint(),
            before=lambda: append_random(big, APPENDED_BYTES),
        )

    def _say(self, what: str) -> None:
        say(f"{self.measured.files:,} files: {what}")
