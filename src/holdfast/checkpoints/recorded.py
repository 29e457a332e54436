"""RecordedSnapshots: the snapshots in the records, one for every moment, also if nothing had changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.db.store import Store
from holdfast.model import Checkpoint, CheckpointGroup

if TYPE_CHECKING:
    from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint

# The model takes long to import, and most commands list no snapshots.


class RecordedSnapshots:
    """Complements the catalogue of a ``CheckpointManager``, which lists each state only once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of_sandbox(self, sandbox_id: str) -> list[SandboxCheckpoint]:
        """The snapshots of a sandbox in their order, without those whose records are damaged."""
        from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint

        plan_id = sandbox_id.partition("/")[0]
        groups = {group.group_id: group for group in self._store.groups.of(plan_id, sound_only=True)}
        return [
            SandboxCheckpoint.recorded(each, groups[each.group_id])
            for each in self._store.checkpoints.of(plan_id)
            if each.sandbox_ref == sandbox_id and each.group_id in groups
        ]

    def find(self, checkpoint_id: str) -> SandboxCheckpoint | None:
        from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint

        found = self._store.find(Checkpoint, checkpoint_id)
        if found is None:
            return None
        return SandboxCheckpoint.recorded(found, self._store.get(CheckpointGroup, found.group_id))
