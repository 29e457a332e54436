"""Restores sandboxes that are missing, or that lost writes when the machine died, from the last records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.checkpoints.history import History
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.events import SandboxesRestored
from holdfast.model import CheckpointGroup, Lease, Moment, Plan, PlanState, Resource, RunStatus
from holdfast.system.machine import boot_id
from holdfast.system.place import is_missing, is_there


def is_of_this_boot(plan: Plan) -> bool:
    return plan.boot_id in (None, boot_id())


def restore_what_was_lost(
    plan: Plan, lease: Lease, service: CheckpointService
) -> tuple[Plan, SandboxesRestored | None]:
    """Restore the sandboxes to the last group if the machine or the owner died and they differ from it.

    What is found is kept in a group of its own, which is not an ancestor of the plan's head. A half-done step and a
    conflict that a person works on are handled elsewhere.
    """
    history = service.history(plan)
    half_done = history.half_done_run
    # If the plan waits only because a subplan waits, no person works in its own sandboxes.
    waits_below = half_done is not None and half_done.status is RunStatus.CONSTRAINED and not half_done.conflicts
    is_unfinished = plan.state is PlanState.CONSTRAINED or half_done is not None
    is_handled_elsewhere = plan.state is PlanState.APPLIED or (is_unfinished and not waits_below)
    # A subplan that has ended no longer needs its sandbox.
    is_needed = plan.parent_plan_id is None or is_there(Path(plan.resources[0].sandbox_path))
    if is_of_this_boot(plan) or plan.head_group_id is None or is_handled_elsewhere or not is_needed:
        return plan, None
    head = history.head
    if missing_sandboxes(plan) or not history.head_holds_all_work:
        return plan, None  # they are re-created first, or no record says what the sandboxes should contain
    recorded = head.states
    lost = service.sandboxes.changed_since(plan, recorded)
    trusted = plan.changed(boot_id=boot_id())
    event = None
    if lost:
        found = "what was found after the machine or its process died"
        occasion = Occasion((Moment.BEFORE_ROLLBACK,), source="recovery", reason=found, title=found)
        left = service.create_checkpoint(plan, lease, occasion, records=[plan], needed=(head.group_id,))
        service.sandboxes.keep_sound(
            plan, service.store.get(CheckpointGroup, left.head_group_id or "").states, recorded
        )
        service.sandboxes.restore_states(plan, recorded)
        event = SandboxesRestored(lost, left.last_checkpoint_id or "")
    with service.store.transaction(lease):
        service.store.save(trusted)
    return trusted, event


def missing_sandboxes(plan: Plan) -> list[Resource]:
    """Resources whose sandboxes were removed; refuses if something else is in the place of one."""
    resources = plan.resources if plan.head_group_id is not None else ()
    return [resource for resource in resources if is_missing(Path(resource.sandbox_path))]


def recorded_states(history: History) -> dict[str, str] | None:
    """The states to re-create sandboxes from: the last merge of a half-done step, or the head; None if work is lost."""
    run = history.half_done_run
    merged = [each.merged_states for each in history.spawned_by(run) if each.merged_states] if run is not None else []
    if merged:
        return merged[-1]
    return history.head.states if history.head_holds_all_work else None


def make_sandboxes(missing: Sequence[Resource], states: Mapping[str, str], service: CheckpointService) -> None:
    """Re-create missing sandboxes in these states."""
    for resource in missing:
        service.sandboxes.recreate(resource, states[resource.name])


def make_recorded_sandboxes(plan: Plan, service: CheckpointService) -> list[str]:
    """Re-create the missing sandboxes of a plan and of the subplans that it waits for; the names of their resources.

    Not if work of steps is lost with a sandbox: an older state would be taken for the work of finished steps.
    """
    missing, made = missing_sandboxes(plan), []
    states = recorded_states(service.history(plan)) if missing else None
    if states is not None:
        make_sandboxes(missing, states, service)
        made = [resource.name for resource in missing]
    if plan.state is PlanState.CONSTRAINED:
        for subplan in service.store.plans.below(plan.plan_id):
            if subplan.state is PlanState.CONSTRAINED and not subplan.is_superseded:
                made += [f"{name} ({subplan.name})" for name in make_recorded_sandboxes(subplan, service)]
    return made


def recreate_missing(
    plan: Plan, lease: Lease, service: CheckpointService, tell: Callable[[SandboxesRestored], None] = lambda _: None
) -> tuple[Plan, tuple[str, ...]]:
    """Re-create missing sandboxes; then restore the others, which ``restore_what_was_lost`` had left for later."""
    made = make_recorded_sandboxes(plan, service)
    if made:
        plan, restored = restore_what_was_lost(plan, lease, service)
        if restored is not None:
            tell(restored)
    return plan, tuple(made)
