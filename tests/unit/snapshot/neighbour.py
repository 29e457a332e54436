"""Another process with a tree of its own in the same store: it takes checkpoints, goes back and collects, all the time.

A file in the folder of records stands for a record that names a state. It is run as a program and works until its
standard input ends; what it finds wrong is how it ends.
"""

from __future__ import annotations

import random
import select
import sys
from collections.abc import Callable, Collection
from pathlib import Path

from holdfast.content.store import ObjectStore
from holdfast.model import Phase
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint
from holdfast.system.ids import new_id
from tests.support.snapshots import collect
from tests.support.trees import Thing, compare, describe

KEPT = 3


class Records:
    """Names of states, each a file, in a folder that several processes share."""

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder, self._owner = folder, owner
        folder.mkdir(exist_ok=True)

    def add(self, state_hash: str) -> None:
        (self._folder / f"{self._owner}-{state_hash}").touch()

    def keep_only(self, state_hashes: Collection[str]) -> None:
        for path in self._folder.glob(f"{self._owner}-*"):
            if path.name.rpartition("-")[2] not in state_hashes:
                path.unlink()

    def all(self) -> set[str]:
        return {path.name.rpartition("-")[2] for path in self._folder.iterdir()}


def take(manager: CheckpointManager, root: Path, records: Records, *, sandbox_id: str) -> SandboxCheckpoint:
    """A snapshot whose content is held until a record names it, as the checkpoint service does it."""
    with manager.storing() as batch:
        checkpoint = manager.create_checkpoint(
            batch, sandbox_id=sandbox_id, plan_id=new_id(), phase=Phase.EXECUTE, path=root, metadata={}
        )
        batch.commit()
        records.add(checkpoint.state_hash)
    return checkpoint


class Neighbour:
    def __init__(self, folder: Path) -> None:
        self._chance = random.Random(1)
        self._root = folder / "neighbour"
        (self._root / "d" / "e").mkdir(parents=True)
        caches = folder / "neighbour indexes"
        caches.mkdir()
        self._manager = CheckpointManager(ObjectStore(folder / "store" / "objects.db"), caches)
        self._records = Records(folder / "records", "neighbour")
        self._taken: dict[str, dict[bytes, Thing]] = {}

    def work(self, is_over: Callable[[], bool]) -> None:
        rounds = 0
        while not is_over():
            self._change()
            before = describe(self._root)
            self._taken[take(self._manager, self._root, self._records, sandbox_id="neighbour").state_hash] = before
            if rounds % 3 == 2:
                self._go_back()
            if rounds % 5 == 4:
                self._collect()
            rounds += 1
            if rounds == 1:
                sys.stdout.write("at work\n")
                sys.stdout.flush()

    def _change(self) -> None:
        for _ in range(3):
            path = self._root / self._chance.choice(["a", "d/b", "d/e/c", "d/e/f"])
            # The same small contents as the other process has: the two share objects all the time.
            path.write_bytes(self._chance.choice([b"x", b"same", b"y" * 5000, self._chance.randbytes(20)]))

    def _go_back(self) -> None:
        state = self._chance.choice(list(self._taken))
        self._manager.restore(self._root, state, aside=self._root.with_name("neighbour aside"))
        found = compare(self._taken[state], describe(self._root))
        if found:
            raise SystemExit(f"the neighbour's tree is not what it was: {found}")

    def _collect(self) -> None:
        self._taken = {state: self._taken[state] for state in list(self._taken)[-KEPT:]}
        self._records.keep_only(self._taken)
        collect(self._manager, self._records.all)


def _input_ends() -> bool:
    return bool(select.select([sys.stdin], [], [], 0.002)[0])


if __name__ == "__main__":
    Neighbour(Path(sys.argv[1])).work(_input_ends)
