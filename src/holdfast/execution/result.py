"""ExecutionResult: how the execution of a plan ended."""

from __future__ import annotations

import msgspec

from holdfast.events import EffectsOutside, SeenAtOwnPath
from holdfast.model import CheckpointGroup, Plan, PlanState, StepRun


class ExecutionResult(msgspec.Struct, frozen=True):
    plan: Plan
    failed_run: StepRun | None = None
    """The run that failed, of a step or of a validation."""
    failure_group: CheckpointGroup | None = None
    """The group with the files as they were at the failure; None if they are only in the sandboxes."""
    returned_to: CheckpointGroup | None = None
    """The group that the failure policy rolled the plan back to."""
    effects: tuple[EffectsOutside, ...] = ()
    """For each rollback during the execution: effects outside of the sandboxes of the steps that it undid."""
    set_aside: tuple[str, ...] = ()
    """Paths to which rollbacks moved files that stood in the way and that no checkpoint holds."""
    made_anew: tuple[str, ...] = ()
    """Resources whose missing sandboxes were re-created."""
    own_path: SeenAtOwnPath | None = None
    """Set if steps did not find every sandbox at the place of its real folder."""
    pruned: int = 0
    """How many checkpoints of the plan were pruned meanwhile, because it had more than it may have."""
    program_run: StepRun | None = None
    """How the last program ended that this execution ran, if it ended by itself: with its exit code."""
    was_done: bool = False
    """The plan was complete or applied already, and nothing was run."""

    @property
    def succeeded(self) -> bool:
        return self.plan.state is PlanState.COMPLETE
