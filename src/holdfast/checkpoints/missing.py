"""Sandboxes that are gone, or that lost writes when the machine died: made again as the last record says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.checkpoints.history import History
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.events import SandboxesPutBack
from holdfast.model import CheckpointGroup, Lease, Moment, Plan, PlanState, Resource, RunStatus
from holdfast.system.machine import boot_id
from holdfast.system.place import is_missing, is_there


def is_of_this_boot(plan: Plan) -> bool:
    return plan.boot_id in (None, boot_id())


def put_back_what_was_lost(
    plan: Plan, lease: Lease, service: CheckpointService
) -> tuple[Plan, SandboxesPutBack | None]:
    """The sandboxes as the last group recorded them, if the machine or the owner died before they were on the disk.

    What is found is kept as a group beside the way that led here. A step that was cut short, and a conflict that a
    person works on, are looked after elsewhere.
    """
    history = service.history(plan)
    half_done = history.cut_short
    # One that waits because a subplan waits has nothing in its own sandboxes that a person works on.
    waits_below = half_done is not None and half_done.status is RunStatus.CONSTRAINED and not half_done.conflicts
    is_under_way = plan.state is PlanState.CONSTRAINED or half_done is not None
    looked_after = plan.state is PlanState.APPLIED or (is_under_way and not waits_below)
    # A subplan that has come to its end needs no sandbox any more.
    is_needed = plan.parent_plan_id is None or is_there(Path(plan.resources[0].sandbox_path))
    if is_of_this_boot(plan) or plan.head_group_id is None or looked_after or not is_needed:
        return plan, None
    head = history.head
    if missing_sandboxes(plan) or not history.is_recorded:
        return plan, None  # first they are made anew, or nothing tells what the sandboxes should be
    recorded = head.states
    lost = service.sandboxes.changed_since(plan, recorded)
    trusted = plan.changed(boot_id=boot_id())
    told = None
    if lost:
        found = "what was found after the machine or its process died"
        occasion = Occasion((Moment.BEFORE_ROLLBACK,), source="recovery", reason=found, title=found)
        left = service.create_checkpoint(plan, lease, occasion, records=[plan], needed=(head.group_id,))
        service.sandboxes.keep_sound(
            plan, service.store.get(CheckpointGroup, left.head_group_id or "").states, recorded
        )
        service.sandboxes.restore_states(plan, recorded)
        told = SandboxesPutBack(lost, left.last_checkpoint_id or "")
    with service.store.transaction(lease):
        service.store.save(trusted)
    return trusted, told


def missing_sandboxes(plan: Plan) -> list[Resource]:
    """Those that something removed since they were made; refuses if something else is in the place of one."""
    resources = plan.resources if plan.head_group_id is not None else ()
    return [resource for resource in resources if is_missing(Path(resource.sandbox_path))]


def recorded_states(history: History) -> dict[str, str] | None:
    """The states of the sandboxes, if a record has them: the last merge of a step that was cut short, or the head."""
    run = history.cut_short
    merged = [each.merged_states for each in history.spawned_by(run) if each.merged_states] if run is not None else []
    if merged:
        return merged[-1]
    return history.head.states if history.is_recorded else None


def make_sandboxes(missing: Sequence[Resource], states: Mapping[str, str], service: CheckpointService) -> None:
    """Make sandboxes that something removed anew, in these states."""
    for resource in missing:
        service.sandboxes.make_again(resource, states[resource.name])


def make_recorded_sandboxes(plan: Plan, service: CheckpointService) -> list[str]:
    """Make the missing sandboxes of a plan and of the subplans that it waits for; the names of their resources.

    Not if something that steps did is lost with them: an older sandbox would stand where steps count as done.
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


def make_anew(
    plan: Plan, lease: Lease, service: CheckpointService, tell: Callable[[SandboxesPutBack], None] = lambda _: None
) -> tuple[Plan, tuple[str, ...]]:
    """Make what is missing anew, for what needs all sandboxes; the others are put right now, which waited for them."""
    made = make_recorded_sandboxes(plan, service)
    if made:
        plan, put_back = put_back_what_was_lost(plan, lease, service)
        if put_back is not None:
            tell(put_back)
    return plan, tuple(made)
