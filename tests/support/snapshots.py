"""A directory with a snapshot manager of its own, as the tests of snapshots use it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from pathlib import Path

from blake3 import blake3

from holdfast.content.batch import Batch
from holdfast.content.counts import STATE
from holdfast.content.difference import StateReader
from holdfast.content.format import DIRECTORY, FILE, PIECES
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

    def collect(self, kept: Callable[[], set[str]]) -> int:
        return collect(self.manager, kept)

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


class StatesKept:
    """Stands for records that need exactly the states that ``kept`` returns (``content.garbage.Claims``)."""

    def __init__(self, objects: ObjectStore, kept: Callable[[], set[str]]) -> None:
        self._objects = objects
        self._kept = kept

    def refuse_others(self) -> None: ...

    def begin(self) -> None: ...

    def given_up(self) -> set[bytes]:
        rows = self._objects.database.rows("SELECT digest FROM reference WHERE kind = ?", (STATE,))
        return {row[0] for row in rows} - self.needed()

    def needed_among(self, states: Collection[bytes]) -> set[bytes]:
        return self.needed().intersection(states)

    def needed(self) -> set[bytes]:
        return set(map(bytes.fromhex, self._kept()))

    def note_collected(self) -> None: ...

    def end(self) -> None: ...


def collect(manager: CheckpointManager, kept: Callable[[], set[str]]) -> int:
    """Remove what none of these states needs."""
    return manager.collect(StatesKept(manager.objects, kept))


def needed_objects(reader: StateReader, states: Iterable[str]) -> set[bytes]:
    """The digests of all objects that these states need, found by walking each of them."""
    found = set(map(bytes.fromhex, states))
    for state in list(found):
        for _, entry in reader.walk(reader.state(state.hex())):
            if entry.kind in (FILE, PIECES, DIRECTORY) and entry.content:
                found.add(entry.content)
                found.update(reader.pieces(entry) if entry.kind == PIECES else ())
    return found
