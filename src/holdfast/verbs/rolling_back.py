"""Rolling a plan back, restoring parts of it, and taking a checkpoint of it, also while another process executes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from holdfast.checkpoints.manual import take_manual_checkpoint
from holdfast.checkpoints.service import CheckpointService
from holdfast.errors import UsageError
from holdfast.locking import Locking
from holdfast.model import Checkpoint, Plan, RollbackResult
from holdfast.parts import Declined, Parts
from holdfast.plans.finding import Plans
from holdfast.verbs.asking import Asking
from holdfast.views.checkpoints import CheckpointViews
from holdfast.views.timeline import CheckpointView

if TYPE_CHECKING:
    from holdfast.events import Listener
    from holdfast.rollback.rollback import RollbackPreview

# What a function imports is not needed to take a checkpoint.


class RollingBack:
    """Does it alone, or asks the process that has the plan at its door."""

    def __init__(self, parts: Parts, plans: Plans, locking: Locking, views: CheckpointViews) -> None:
        self._parts, self._plans, self._locking, self._views = parts, plans, locking, views
        self._asking = Asking(parts, plans, locking)

    def rollback(
        self,
        reference: str,
        checkpoint: str,
        only: Sequence[str],
        keeps_present: bool,
        confirm: Callable[[RollbackPreview], bool] | None,
        listener: Listener | None,
    ) -> RollbackResult | Declined:
        _refuse_only_unkept(only, keeps_present)
        wanted = self._views.find_checkpoint(self._plans.find_plan(reference), checkpoint)

        def alone() -> RollbackResult | Declined:
            return self._rollback_alone(reference, wanted, only, keeps_present, confirm, listener)

        def asked(plan: Plan) -> RollbackResult | Declined | None:
            return self._asking.restore_paths(plan, wanted, only, confirm)

        return self._asking.alone_or_asked(reference, alone, asked) if only else alone()

    def _rollback_alone(
        self,
        reference: str,
        wanted: Checkpoint,
        only: Sequence[str],
        keeps_present: bool,
        confirm: Callable[[RollbackPreview], bool] | None,
        listener: Listener | None,
    ) -> RollbackResult | Declined:
        from holdfast.rollback import paths, rollback

        parts, service = self._parts, self._parts.service
        with (
            parts.reserve.given_up_if_full(),
            self._locking.recovered(Locking.ROLLBACK, reference, listener=listener) as (plan, lease),
            _looking(service, keeps_present),
        ):
            if only:
                return paths.restore_paths(plan, lease, service, wanted, only, confirm) or Declined()
            # The result lists the effects outside of the sandboxes, so no listener is told.
            compensate = parts.compensator()
            done = rollback.roll_back(
                plan, lease, service, parts.tools, wanted, compensate, confirm, keeps_present=keeps_present
            )
            return done or Declined()

    def preview(self, reference: str, checkpoint: str, only: Sequence[str], keeps_present: bool) -> RollbackPreview:
        _refuse_only_unkept(only, keeps_present)

        def alone() -> RollbackPreview:
            return self._preview_alone(reference, checkpoint, only, keeps_present)

        def asked(plan: Plan) -> RollbackPreview | None:
            return self._asking.restore_preview(plan, self._views.find_checkpoint(plan, checkpoint), only)

        return self._asking.alone_or_asked(reference, alone, asked) if only else alone()

    def _preview_alone(
        self, reference: str, checkpoint: str, only: Sequence[str], keeps_present: bool
    ) -> RollbackPreview:
        from holdfast.rollback import paths, rollback

        service = self._parts.service
        with self._parts.reserve.given_up_if_full():
            plan = self._locking.idle(Locking.ROLLBACK, reference)
            wanted = self._views.find_checkpoint(plan, checkpoint)
            with self._locking.with_way_out(plan), _looking(service, keeps_present):
                if only:
                    return paths.preview_restore(plan, service, wanted, only)
                decision = rollback.decide_rollback(plan, service, wanted, keeps_present=keeps_present)
                return rollback.preview_rollback(decision, service, self._parts)

    def create_checkpoint(self, reference: str, label: str | None, listener: Listener | None) -> CheckpointView:
        def alone() -> CheckpointView:
            recovered = self._locking.recovered(Locking.CREATE_CHECKPOINT, reference, listener=listener)
            with recovered as (plan, lease):
                plan = take_manual_checkpoint(plan, lease, self._parts.service, label)
                taken = self._parts.store.get(Checkpoint, plan.last_checkpoint_id or "")
                return self._views.view_of(plan, taken)

        def asked(plan: Plan) -> CheckpointView | None:
            taken = self._asking.create_checkpoint(plan, label)
            return None if taken is None else self._views.view_of(self._plans.find_plan(plan.plan_id), taken)

        return self._asking.alone_or_asked(reference, alone, asked)


def _looking(service: CheckpointService, keeps_present: bool) -> AbstractContextManager[None]:
    """Without keeping, no scan stores anything, and each is needed."""
    return service.sandboxes.looking() if keeps_present else nullcontext()


def _refuse_only_unkept(only: Sequence[str], keeps_present: bool) -> None:
    if only and not keeps_present:
        raise UsageError(
            "Single paths cannot be restored without keeping the present state.",
            hint="Leave out either `--only` or `--without-keeping`.",
        )
