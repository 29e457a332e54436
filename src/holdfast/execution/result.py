"""ExecutionResult: what came of executing a plan."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.events import EffectsOutside
from holdfast.model import CheckpointGroup, Plan, PlanState, StepRun


@dataclass(frozen=True)
class ExecutionResult:
    plan: Plan
    failed_run: StepRun | None = None
    """The run that failed, of a step or of a validation."""
    failure_group: CheckpointGroup | None = None
    """Holds the files as they were when it failed; None if no group does, and they are only in the sandboxes."""
    returned_to: CheckpointGroup | None = None
    """The group that the failure policy rolled the plan back to."""
    effects: tuple[EffectsOutside, ...] = ()
    """Of each rollback on the way, if steps that it undid had any."""
    set_aside: tuple[str, ...] = ()
    """The places that rollbacks on the way moved to what no checkpoint holds and what stood in the way."""
    made_anew: tuple[str, ...] = ()
    """Resources whose sandboxes were gone and are made anew."""
    was_done: bool = False
    """The plan was complete or applied already, and nothing was run."""

    @property
    def succeeded(self) -> bool:
        return self.plan.state is PlanState.COMPLETE
