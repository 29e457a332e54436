"""What can be done to a plan while another process executes it: that process is asked, at its door."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.db.lease import holder_of
from holdfast.errors import ConflictError
from holdfast.locking import Locking, Verb
from holdfast.model import Checkpoint, Plan, RollbackResult
from holdfast.parts import Declined, Parts
from holdfast.plans.finding import Plans

if TYPE_CHECKING:
    from holdfast.door.wire import Request
    from holdfast.rollback.rollback import RollbackPreview

T = TypeVar("T")

# What a function imports is rarely needed: most commands work alone.


class Asking:
    """Asks the process that executes the plan; a method returns None if that cannot do it now, or has ended."""

    def __init__(self, parts: Parts, plans: Plans, locking: Locking) -> None:
        self._parts, self._plans, self._locking = parts, plans, locking

    def alone_or_asked(self, reference: str, alone: Callable[[], T], asked: Callable[[Plan], T | None]) -> T:
        """What is done ``alone``; if another process works on the plan, what that one did when it was ``asked``."""
        try:
            return alone()
        except ConflictError:
            plan = self._plans.find_plan(reference)
            root = self._parts.store.plans.root_of(plan)
            if holder_of(self._parts.store, root.plan_id) is None:
                raise  # the conflict is another one
        found = asked(plan)
        return alone() if found is None else found

    def create_checkpoint(self, plan: Plan, label: str | None) -> Checkpoint | None:
        from holdfast.door.wire import TakeCheckpoint

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
        from holdfast.rollback.rollback import RollbackPreview

        found = self._ask_to_restore(plan, wanted, only, is_preview=True)
        return None if found is None else msgspec.convert(found, RollbackPreview)

    def _ask_to_restore(self, plan: Plan, wanted: Checkpoint, only: Sequence[str], *, is_preview: bool) -> Any | None:
        from holdfast.door.wire import RestorePaths

        request = RestorePaths(plan.plan_id, wanted.checkpoint_id, tuple(only), is_preview)
        return self._ask(Locking.ROLLBACK, plan, request)

    def _ask(self, verb: Verb, plan: Plan, request: Request) -> Any | None:
        from holdfast.door.asking import ask
        from holdfast.execution.folders import door_place

        return ask(door_place(self._locking.root_for(verb, plan)), request)
