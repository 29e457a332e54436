"""Holdfast's snapshots alone, as they are measured: no records, no plan."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from holdfast.content.store import ObjectStore
from holdfast.model import Phase
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.scan.watching import ChangeTracker
from holdfast.system.ids import new_id

_PLAN_ID = new_id()


def open_manager(store: Path) -> CheckpointManager:
    caches = store / "indexes"
    caches.mkdir(parents=True, exist_ok=True)
    return CheckpointManager(ObjectStore(store / "objects.db"), caches)


class SnapshotLevel:
    """``CheckpointManager``: content in, state hash out, durably; what the git way does with objects and an index."""

    def __init__(self, tree: Path, store: Path) -> None:
        self._tree, self._aside = tree, store / "aside"
        self.manager = open_manager(store)
        self._opened, self._watching = ExitStack(), ExitStack()
        self._opened.callback(self._close_manager)
        self.state: str | None = None

    def checkpoint(self, *, thorough: bool = False) -> str:
        with self.manager.storing() as batch:
            taken = self.manager.take(
                batch,
                sandbox_id=f"{_PLAN_ID}/tree",
                plan_id=_PLAN_ID,
                phase=Phase.EXECUTE,
                path=self._tree,
                metadata={},
                previous_state=self.state,
                thorough=thorough,
            )
            batch.commit()
        self.state = taken.state_hash
        return self.state

    def rollback(self) -> None:
        """Back to the last checkpoint; what is there now is given up, as the git way does."""
        assert self.state is not None
        self.manager.restore(self._tree, self.state, aside=self._aside)

    def watch(self) -> None:
        self._watching.enter_context(self.manager.watching([self._tree]))

    def rest(self) -> None:
        self._watching.close()

    def close(self) -> None:
        self.rest()
        self._opened.close()

    def _close_manager(self) -> None:
        self.manager.remember()
        self.manager.objects.close()


def can_be_watched(tree: Path) -> bool:
    """Whether the kernel grants as many watches as the tree has directories."""
    tracker = ChangeTracker(tree)
    granted = tracker.start()
    tracker.stop()
    return granted
