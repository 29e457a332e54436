"""Holdfast as it is measured: the snapshot alone, and the whole checkpoint with its records."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from holdfast.checkpoints import CheckpointService, Occasion
from holdfast.db.store import open_store
from holdfast.lease import leased
from holdfast.model import (
    Moment,
    Phase,
    Plan,
    Policy,
    Resource,
    ResourceType,
    Revision,
    Step,
    new_id,
    now,
)
from holdfast.snapshot.changes import ChangeTracker
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.objects import ObjectStore


def open_manager(store: Path) -> CheckpointManager:
    caches = store / "indexes"
    caches.mkdir(parents=True, exist_ok=True)
    return CheckpointManager(ObjectStore(store / "objects.db"), caches)


class SnapshotLevel:
    """``CheckpointManager``: content in, state hash out, durably; what the git way does with objects and an index."""

    def __init__(self, tree: Path, store: Path) -> None:
        self._tree, self._store = tree, store
        self.manager = open_manager(store)
        self._opened = ExitStack()
        self._opened.callback(self._close_manager)
        self.state: str | None = None

    def checkpoint(self, *, thorough: bool = False) -> str:
        with self.manager.taking() as batch:
            taken = self.manager.create_checkpoint(
                batch,
                sandbox_id="benchmark",
                plan_id="benchmark",
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
        """Back to the last checkpoint; what is there now is stored first, as always."""
        assert self.state is not None
        self.manager.rollback_to(self._tree, self.state, aside=self._store / "aside")

    def watch(self) -> None:
        self._opened.enter_context(self.manager.watching([self._tree]))

    def close(self) -> None:
        self._opened.close()

    def _close_manager(self) -> None:
        self.manager.remember()
        self.manager.objects.close()


class WholeLevel:
    """``CheckpointService``: the snapshot, and the group, the checkpoint and the plan in the records, under a lease."""

    def __init__(self, tree: Path, store: Path) -> None:
        self._opened = ExitStack()
        self.manager = open_manager(store)
        self._opened.callback(self._close_manager)
        records = self._opened.enter_context(open_store(None, store))
        self._service = CheckpointService(records, self.manager)
        project = records.project_for(str(tree))
        plans = records.plans_of(project.project_id)
        self._plan = plans[0] if plans else self._new_plan(tree, project.project_id)
        self._lease = self._opened.enter_context(leased(records, self._plan.plan_id, "benchmark"))

    def _new_plan(self, tree: Path, project_id: str) -> Plan:
        step = Step(name="measure", tool="shell", args={"command": "true"}, resource="tree")
        plan = Plan(
            plan_id=new_id(),
            project_id=project_id,
            name="benchmark",
            phase=Phase.EXECUTE,
            resources=(Resource(name="tree", type=ResourceType.DIRECTORY, path=str(tree), sandbox_path=str(tree)),),
            # So many that nothing is pruned: the disk use of all checkpoints is measured.
            policy=Policy(max_checkpoints=1000),
            steps=(step,),
            store_id=self.manager.objects.store_id,
            created_at=now(),
            updated_at=now(),
        )
        store = self._service.store
        with store.transaction():
            store.insert(plan)
            store.insert(Revision(plan_id=plan.plan_id, revision=1, steps=plan.steps))
        return plan

    def checkpoint(self, *, thorough: bool = False) -> str:
        triggers = (Moment.POST_EXECUTE,) if thorough else (Moment.MANUAL,)
        occasion = Occasion(triggers, reason="measured", source="benchmark", step_index=0)
        self._plan = self._service.create_checkpoint(self._plan, self._lease, occasion)
        assert self._plan.last_checkpoint_id is not None
        return self._plan.last_checkpoint_id

    def rollback(self) -> None:
        """Back to the last checkpoint, with the plan's position and decisions, journalled."""
        assert self._plan.last_checkpoint_id is not None
        target = self._service.get_checkpoint(self._plan.plan_id, self._plan.last_checkpoint_id)
        self._plan = self._service.rollback_to_checkpoint(self._plan, self._lease, target, reason="measured").plan

    def watch(self) -> None:
        self._opened.enter_context(self._service.watching(self._plan))

    def close(self) -> None:
        self._opened.close()

    def _close_manager(self) -> None:
        self.manager.remember()
        self.manager.objects.close()


Level = SnapshotLevel | WholeLevel
LEVELS: dict[str, type[SnapshotLevel] | type[WholeLevel]] = {"snapshot": SnapshotLevel, "whole": WholeLevel}


def can_be_watched(tree: Path) -> bool:
    """Whether the kernel grants as many watches as the tree has directories."""
    tracker = ChangeTracker(tree)
    granted = tracker.start()
    tracker.stop()
    return granted
