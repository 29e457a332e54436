"""What can be done to a plan while another process executes it: that process is asked, at its door."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.db.lease import holder_of
from holdfast.door.asking import ask
from holdfast.door.wire import Request, RestorePaths, TakeCheckpoint
from holdfast.execution.folders import door_place
from holdfast.locking import Locking, Verb
from holdfast.model import Checkpoint, Plan, RollbackResult
from holdfast.parts import Declined, Parts
from holdfast.rollback.rollback import RollbackPreview


class Asking:
    """Each method returns None if there is no such process, or if it cannot do it now: then the lease decides."""

    def __init__(self, parts: Parts, locking: Locking) -> None:
        self._parts, self._locking = parts, locking

    def create_checkpoint(self, plan: Plan, label: str | None) -> Checkpoint | None:
        found = self._ask(Locking.CREATE_CHECKPOINT, plan, TakeCheckpoint(plan.plan_id, label))
        return None if found is None else self._parts.store.get(Checkpoint, str(found))

    def restore_paths(
        self,
        plan: Plan,
        wanted: Checkpoint,
        only: Sequence[str],
        confirm: Callable[[RollbackPreview], bool] | None,
    ) -> RollbackResult | Declined | None:
        if confirm is not None:
            preview = self.restore_preview(plan, wanted, only)
            if preview is None:
                return None
            if not confirm(preview):
                return Declined()
        found = self._ask_to_restore(plan, wanted, only, is_preview=False)
        return None if found is None else msgspec.convert(found, RollbackResult)

    def restore_preview(self, plan: Plan, wanted: Checkpoint, only: Sequence[str]) -> RollbackPreview | None:
        found = self._ask_to_restore(plan, wanted, only, is_preview=True)
        return None if found is None else msgspec.convert(found, RollbackPreview)

    def _ask_to_restore(self, plan: Plan, wanted: Checkpoint, only: Sequence[str], *, is_preview: bool) -> Any | None:
        request = RestorePaths(plan.plan_id, wanted.checkpoint_id, tuple(only), is_preview)
        return self._ask(Locking.ROLLBACK, plan, request)

    def _ask(self, verb: Verb, plan: Plan, request: Request) -> Any | None:
        root = self._locking.root_for(verb, plan)
        if holder_of(self._parts.store, root.plan_id) is None:
            return None
        return ask(door_place(root), request)
