"""GoingOn: from any moment of a plan, its files become the result, or a program goes on with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.checkpoints.recorder import Occasion
from holdfast.errors import StateError
from holdfast.execution.preflight import refuse_what_is_gone
from holdfast.model import (
    DEFAULT_SETTLE_SECONDS,
    Checkpoint,
    CheckpointGroup,
    Lease,
    Moment,
    Plan,
    PlanState,
    RollbackResult,
    RunSettings,
    Step,
)
from holdfast.parts import Declined, Parts
from holdfast.plans.creating import create_program_step
from holdfast.rollback.from_moment import Continuation, carry_out_unless_declined, go_on, keep, preview
from holdfast.rollback.rollback import RollbackPreview, refuse_if_disabled

if TYPE_CHECKING:
    from holdfast.events import Listener
    from holdfast.locking import Locking
    from holdfast.views.checkpoints import CheckpointViews

Confirm = Callable[[RollbackPreview], bool]


class GoingOn:
    """``Holdfast.going_on``."""

    def __init__(self, parts: Parts, locking: Locking, views: CheckpointViews) -> None:
        self._parts, self._locking, self._views = parts, locking, views

    def keep(
        self, reference: str, checkpoint: str, *, confirm: Confirm | None = None, listener: Listener | None = None
    ) -> RollbackResult | Declined:
        """Make the files of a checkpoint the complete result, ready to apply. No step and no validation is run."""
        locking = self._locking
        with (
            self._parts.reserve.given_up_if_full(),
            locking.recovered(locking.KEEP, reference, listener=listener) as (plan, lease),
            self._parts.service.sandboxes.looking(),
        ):
            return self._carry_out(self._keeping(plan, checkpoint), lease, confirm)

    def keep_preview(self, reference: str, checkpoint: str) -> RollbackPreview:
        """What ``keep`` would do; changes nothing, and refuses what it would refuse."""
        with self._parts.reserve.given_up_if_full():
            plan = self._locking.idle(self._locking.KEEP, reference)
            with self._locking.with_way_out(plan), self._parts.service.sandboxes.looking():
                return preview(self._keeping(plan, checkpoint), self._parts.service, self._parts)

    def with_program(
        self,
        reference: str,
        argv: Sequence[str],
        *,
        at: str | None = None,
        folder: Path | None = None,
        settings: RunSettings | None = None,
        confirm: Confirm | None = None,
        listener: Listener | None = None,
    ) -> RollbackResult | Declined:
        """Let a program go on in the sandboxes of a plan, from now or from a checkpoint; ``execute`` then runs it.

        Steps that remain there are dropped. The same program as the last one of the plan gets what that was given,
        unless ``settings`` name variables or places; any other gets only what they name.
        ``confirm`` is asked only if the plan is rolled back.
        """
        locking = self._locking
        with (
            self._parts.reserve.given_up_if_full(),
            locking.recovered(locking.RUN_IN, reference, listener=listener) as (plan, lease),
            self._parts.service.sandboxes.looking(),
        ):
            _refuse_to_go_on(plan)
            step = self._step(argv, plan, folder or Path.cwd(), settings or RunSettings())
            if at is not None:
                refuse_if_disabled(plan)
                wanted = self._views.find_checkpoint(plan, at)
                return self._carry_out(go_on(plan, self._parts.service, wanted, step), lease, confirm)
            plan, present = self._present(plan, lease, step)
            return self._carry_out(go_on(plan, self._parts.service, present, step), lease, None)

    def _keeping(self, plan: Plan, checkpoint: str) -> Continuation:
        refuse_if_disabled(plan)
        return keep(plan, self._parts.service, self._views.find_checkpoint(plan, checkpoint))

    def _step(self, argv: Sequence[str], plan: Plan, folder: Path, settings: RunSettings) -> Step:
        before = next((step for step in reversed(plan.steps) if step.is_program), None)
        remembered = before.run_settings if before is not None else None
        if settings.settle_seconds is None:
            settle_seconds = remembered.settle_seconds if remembered is not None else None
            settings = settings.model_copy(update={"settle_seconds": settle_seconds or DEFAULT_SETTLE_SECONDS})
        names_any = settings.pass_env or settings.allow_write
        if before is not None and remembered is not None and not names_any and _is_same_program(argv, before):
            refuse_what_is_gone(plan, [before], self._parts.environment, self._parts.asked_paths)
            given = {"pass_env": remembered.pass_env, "allow_write": remembered.allow_write}
            settings = settings.model_copy(update={**given, "agent": settings.agent or remembered.agent})
        return create_program_step(argv, plan, folder, settings, self._parts)

    def _present(self, plan: Plan, lease: Lease, step: Step) -> tuple[Plan, Checkpoint]:
        """A checkpoint of the sandboxes as they are now, taken if there is none."""
        service = self._parts.service
        service.sandboxes.refuse_missing(plan)
        occasion = Occasion((Moment.MANUAL,), source="run", reason=f"before going on with {step.name}")
        plan = service.create_checkpoint(plan, lease, occasion, only_if_changed=True)
        return plan, service.checkpoints_at(service.store.get(CheckpointGroup, plan.head_group_id or ""))[0]

    def _carry_out(
        self, continuation: Continuation, lease: Lease, confirm: Confirm | None
    ) -> RollbackResult | Declined:
        # The result lists the effects outside of the sandboxes, so no listener is told.
        done = carry_out_unless_declined(
            continuation, lease, self._parts.service, self._parts, self._parts.compensator(), confirm
        )
        return done or Declined()


def _is_same_program(argv: Sequence[str], step: Step) -> bool:
    return bool(argv) and Path(argv[0]).name == Path(step.args["argv"][0]).name


def _refuse_to_go_on(plan: Plan) -> None:
    if plan.state is PlanState.APPLIED:
        raise StateError(
            f"Plan {plan.plan_id} is applied: its result is in the real files.",
            hint=f"Undo that first: `holdfast plan unapply {plan.plan_id}`; or start anew: `holdfast run -- COMMAND`.",
        )
    if plan.state is PlanState.CONSTRAINED:
        raise StateError(
            f"Plan {plan.plan_id} waits until its conflicts are resolved.",
            hint=f"See them with `holdfast plan status {plan.plan_id}`. Resolve them and resume, or roll back first.",
        )
    if plan.head_group_id is None:
        raise StateError(
            f"Plan {plan.plan_id} has no sandboxes yet.", hint=f"Run `holdfast plan execute {plan.plan_id}`."
        )
