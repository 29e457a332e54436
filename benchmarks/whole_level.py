"""Holdfast's whole checkpoint, as it is measured: the snapshot and its records, in a plan, under a lease."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from benchmarks.snapshot_level import open_manager
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.db.lease import leased
from holdfast.db.store import open_store
from holdfast.model import Checkpoint, Moment, Phase, Plan, Policy, Resource, ResourceType, Revision, Step, now
from holdfast.system.ids import new_id


class WholeLevel:
    """``CheckpointService``: the snapshot, and the group, the checkpoint and the plan in the records, under a lease."""

    def __init__(self, tree: Path, store: Path) -> None:
        self._opened, self._watching = ExitStack(), ExitStack()
        self.manager = open_manager(store)
        self._opened.callback(self._close_manager)
        records = self._opened.enter_context(open_store(None, store))
        self._service = CheckpointService(records, self.manager)
        project = records.plans.project_for(str(tree))
        plans = records.plans.of_project(project.project_id)
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
        target = self._service.store.get(Checkpoint, self._plan.last_checkpoint_id)
        self._plan = self._service.rollback_to_checkpoint(self._plan, self._lease, target, reason="measured").plan

    def stored_bytes(self) -> int:
        """The content that all checkpoints together have added."""
        return sum(each.size_bytes for each in self._service.list_checkpoints(self._plan.plan_id))

    def watch(self) -> None:
        self._watching.enter_context(self._service.sandboxes.watching(self._plan))

    def rest(self) -> None:
        self._watching.close()

    def close(self) -> None:
        self.rest()
        self._opened.close()

    def _close_manager(self) -> None:
        self.manager.remember()
        self.manager.objects.close()
