"""From any moment of a plan: its files become the result, or a program goes on with them.

Both roll the plan back to that moment. In the same operation other steps take the place of those that would follow: no
step, or one that runs the program. Work of a step that was half done at that moment stays, and the step does not run
again.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.checkpoints.history import is_of
from holdfast.checkpoints.rollback import Compensate, RollbackDecision
from holdfast.checkpoints.service import CheckpointService
from holdfast.checkpoints.titles import checkpoint_title, shortened
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    Correction,
    Lease,
    Plan,
    PlanState,
    RollbackResult,
    Step,
)
from holdfast.rollback.compensation import ToolEffects
from holdfast.rollback.rollback import RollbackPreview, carry_out, preview_rollback


class Continuation(msgspec.Struct, frozen=True):
    """A rollback to a moment, and what the plan does from there; nothing is changed yet."""

    rollback: RollbackDecision
    correction: Correction
    title: str
    """Of the moment at which the plan is then."""

    @property
    def plan(self) -> Plan:
        """The plan as it will be."""
        before = self.rollback.history.position_at(self.rollback.target)
        state = PlanState.COMPLETE if self.correction.is_result else PlanState.QUEUED
        return before.changed(steps=self.correction.steps, state=state, error=None)


def keep(plan: Plan, service: CheckpointService, checkpoint: Checkpoint) -> Continuation:
    """The files of the checkpoint become the complete result; all steps that remain there are dropped."""
    decided = _decided(plan, service, checkpoint)
    title = checkpoint_title(decided.checkpoint, decided.target)
    correction = _correction(decided, (), "What is the result?", f"keep: {title}")
    return Continuation(
        decided, correction.model_copy(update={"is_result": True}), f"kept as the result: {shortened(title)}"
    )


def go_on(plan: Plan, service: CheckpointService, checkpoint: Checkpoint, step: Step) -> Continuation:
    """The step goes on with the files of the checkpoint, instead of all steps that remain there."""
    decided = _decided(plan, service, checkpoint)
    correction = _correction(decided, (step,), "What goes on from here?", f"go on with: {step.name}")
    return Continuation(decided, correction, f"going on with {shortened(step.name)}")


def _decided(plan: Plan, service: CheckpointService, checkpoint: Checkpoint) -> RollbackDecision:
    history = service.history(plan)
    run = history.run_held_by(service.store.get(CheckpointGroup, checkpoint.group_id))
    half_done = [] if run is None else [each.sequence for each in history.decisions if is_of(each, run)]
    return service.rollback.decide(plan, checkpoint, undone=half_done)


def _correction(decided: RollbackDecision, steps: tuple[Step, ...], question: str, chosen: str) -> Correction:
    before = decided.history.position_at(decided.target)
    return Correction(
        question=question,
        guidance=chosen,
        alternatives=tuple(step.name for step in before.steps[before.next_step :]),
        steps=(*before.steps[: before.next_step], *steps),
        undone=decided.undone,
    )


def preview(continuation: Continuation, service: CheckpointService, tools: ToolEffects) -> RollbackPreview:
    """What it would do; refuses whatever carrying it out would refuse."""
    found = preview_rollback(continuation.rollback, service, tools)
    expected = found.expected.model_copy(update={"plan": continuation.plan})
    return msgspec.structs.replace(found, expected=expected)


def carry_out_unless_declined(
    continuation: Continuation,
    lease: Lease,
    service: CheckpointService,
    tools: ToolEffects,
    compensate: Compensate,
    confirm: Callable[[RollbackPreview], bool] | None,
) -> RollbackResult | None:
    """Do it; if ``confirm``, which is shown what will happen, says no, change nothing and return None."""
    if confirm is not None:
        if not confirm(preview(continuation, service, tools)):
            return None
        # The answer may have taken long, and not every write is reported.
        service.sandboxes.states_now(continuation.rollback.plan)
    return carry_out(
        continuation.rollback,
        lease,
        service,
        tools,
        compensate,
        reason=continuation.title,
        correction=continuation.correction,
        title=continuation.title,
    )
