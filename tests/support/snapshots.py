"""A directory with a snapshot manager of its own, as the tests of snapshots use it."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path

from blake3 import blake3

from holdfast.content.batch import Batch
from holdfast.content.store import ObjectStore
from holdfast.model import Phase
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.restore.write import Restored
from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint
from holdfast.system import sqlite

PLAN_ID = "01K0000000000000000000SNAP"
SANDBOX_ID = f"{PLAN_ID}/app"
# Everything here uses one SQLite library: the locks that two in one process have on a file undo each other.


class Place:
    """``root`` is the tree; content and caches lie in ``store``; ``aside`` takes what stands in a restore's way."""

    def __init__(self, folder: Path, root: Path | None = None, *, watching: bool = False) -> None:
        self.folder = folder
        self._is_watching = watching
        self.root = root or folder / "tree"
        self.root.mkdir(exist_ok=True)
        self.store = folder / "store"
        (self.store / "indexes").mkdir(parents=True, exist_ok=True)
        self.aside = folder / "aside"
        self._open()

    def _open(self) -> None:
        self.manager = CheckpointManager(ObjectStore(self.store / "objects.db"), self.store / "indexes")
        self._watch = ExitStack()
        if self._is_watching:
            self._watch.enter_context(self.manager.watching([self.root]))

    def close(self) -> None:
        self._watch.close()
        self.manager.objects.close()

    def next_process(self, *, remembering: bool = False) -> None:
        """Go on with a new manager, as the next command would; a command that ends well remembers what it saw."""
        if remembering:
            self.manager.remember()
        self.close()
        self._open()

    def take(self, previous: SandboxCheckpoint | None = None) -> SandboxCheckpoint:
        with self.manager.storing() as batch:
            checkpoint = self.take_into(batch, previous)
            batch.commit()
        return checkpoint

    def take_into(self, batch: Batch, previous: SandboxCheckpoint | None = None) -> SandboxCheckpoint:
        return self.manager.create_checkpoint(
            batch,
            sandbox_id=SANDBOX_ID,
            plan_id=PLAN_ID,
            phase=Phase.EXECUTE,
            path=self.root,
            metadata={},
            previous_state=previous.state_hash if previous else None,
        )

    def go_back(self, to: SandboxCheckpoint | str) -> Restored:
        state = to if isinstance(to, str) else to.state_hash
        unheld = () if isinstance(to, str) else [each.path for each in to.unheld]
        aside = self.aside / secrets.token_hex(4)
        return self.manager.restore(self.root, state, aside=aside, unheld=unheld)[1]

    def found_anew(self) -> str:
        """The state that somebody finds who knows nothing of the tree."""
        fresh = Place(self.folder, self.root)
        try:
            return fresh.take().state_hash
        finally:
            fresh.close()

    @property
    def unheld(self) -> dict[str, str]:
        """What a snapshot taken now could not hold, and why."""
        return {each.path: each.reason for each in self.take().unheld}

    @property
    def caches(self) -> list[Path]:
        return list((self.store / "indexes").iterdir())

    # Damage

    def damage(self, content: bytes) -> None:
        """Flip one bit of the stored form of that content, as a failing disk would."""
        digest, data = self._stored(content)
        rotten = bytearray(data)
        rotten[len(rotten) // 2] ^= 0x10
        self._edit("UPDATE object SET data = ? WHERE digest = ?", bytes(rotten), digest)

    def lose(self, content: bytes) -> None:
        digest, _ = self._stored(content)
        self._edit("DELETE FROM object WHERE digest = ?", digest)

    def stored_damage(self) -> int:
        """How many objects are noted as damaged."""
        connection = sqlite.module.connect(self.store / "objects.db")
        try:
            return int(connection.execute("SELECT count(*) FROM damaged").fetchone()[0])
        finally:
            connection.close()

    def _stored(self, content: bytes) -> tuple[bytes, bytes]:
        self.close()
        digest = blake3(content).digest()
        connection = sqlite.module.connect(self.store / "objects.db")
        try:
            row = connection.execute("SELECT data FROM object WHERE digest = ?", (digest,)).fetchone()
        finally:
            connection.close()
        assert row is not None, "the content is not in the store"
        return digest, row[0]

    def _edit(self, sql: str, *parameters: bytes) -> None:
        connection = sqlite.module.connect(self.store / "objects.db")
        try:
            with connection:
                assert connection.execute(sql, parameters).rowcount == 1
        finally:
            connection.close()
        self._open()
