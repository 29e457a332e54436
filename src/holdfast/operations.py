"""Putting right what a crash left: operations begun and not finished, a step that was cut short, a lost sandbox.

Every verb that changes a plan calls ``recover`` as soon as it holds the plan's lease; those that only free space
leave it to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.checkpoints import CUT_SHORT, CheckpointService, Occasion
from holdfast.errors import StateError
from holdfast.events import SandboxesPutBack
from holdfast.machine import boot_id
from holdfast.model import (
    CheckpointGroup,
    Decision,
    Lease,
    Moment,
    Operation,
    OperationKind,
    Phase,
    Plan,
    PlanState,
    Resource,
    RunStatus,
    StepRun,
    is_within,
    now,
)
from holdfast.place import is_missing, is_there
from holdfast.process import end_leftovers, mark_of
from holdfast.sandbox.making import remove_tree
from holdfast.subplans import clear_away_what_came_back, spawned_by

_NOT_KNOWN = "not known"

Recovery = Callable[[Plan, Lease, Operation], Plan]


def recover(
    plan_id: str,
    lease: Lease,
    service: CheckpointService,
    recoveries: Mapping[OperationKind, Recovery],
    tell: Callable[[SandboxesPutBack], None] = lambda _: None,
) -> Plan:
    """The plan as it is after everything a dead process left undone was finished or undone."""
    store = service.store
    for subplan in store.subplans_of(plan_id):
        recover(subplan.plan_id, lease, service, recoveries)
    plan = store.get(Plan, plan_id)
    _clear_away_stagings(plan)
    is_new_boot = not _is_of_this_boot(plan)  # which a rollback that is finished now makes it
    for operation in store.unfinished_operations(plan_id):
        plan = recoveries[operation.kind](plan, lease, operation)
    if plan.state is PlanState.PROCESSING or store.unfinished_runs(plan_id):
        plan = _interrupt(plan, lease, service)
    if is_new_boot or not _is_of_this_boot(plan):
        clear_away_what_came_back(plan, service)
    plan, put_back = put_back_what_was_lost(plan, lease, service)
    if put_back is not None:
        tell(put_back)
    return plan


def _is_of_this_boot(plan: Plan) -> bool:
    return plan.boot_id in (None, boot_id())


def put_right_outside(
    plan_id: str, lease: Lease, service: CheckpointService, recoveries: Mapping[OperationKind, Recovery]
) -> None:
    """Before a plan is deleted: what a dead process left running, and what it left undone outside of the sandboxes.

    All else goes with the plan, and putting it right may take space that there is not.
    """
    store = service.store
    for subplan in store.subplans_of(plan_id):
        put_right_outside(subplan.plan_id, lease, service, recoveries)
    plan = store.get(Plan, plan_id)
    for run in store.unfinished_runs(plan_id):
        end_leftovers(mark_of(run.run_id, store.home))
    for operation in store.unfinished_operations(plan_id):
        if operation.kind in recoveries:
            plan = recoveries[operation.kind](plan, lease, operation)


def refuse_cut_short(plan: Plan, root: Plan, service: CheckpointService) -> None:
    """For those who only look: the next command that changes the plan puts right what a dead process left."""
    for operation in service.store.unfinished_operations(plan.plan_id):
        raise StateError(
            f"The {operation.kind.replace('_', ' of ')} of plan {plan.plan_id} was cut short.",
            hint=f"Run `holdfast plan execute {root.plan_id}`: it puts that right first.",
        )
    if plan.state is PlanState.PROCESSING:
        raise StateError(
            f"The execution of plan {plan.plan_id} was cut short.",
            hint=f"Run `holdfast plan resume {root.plan_id}`: it puts that right first.",
        )


def _clear_away_stagings(plan: Plan) -> None:
    """What a restore that died had on its way in and out; nobody else restores while the lease is ours."""
    for resource in plan.resources:
        path = Path(resource.sandbox_path)
        for leftover in path.parent.glob(f".staging-{path.name}-*"):
            # The restore before this one, in the same process, may still be removing its own.
            with suppress(OSError):
                remove_tree(leftover)


def _interrupt(plan: Plan, lease: Lease, service: CheckpointService) -> Plan:
    """Its owner died: end what it left running, and note that the step under way did not come to its end."""
    waiting = waiting_again(plan, lease, service)
    if waiting is not None:
        return waiting
    runs = service.store.unfinished_runs(plan.plan_id)
    for run in runs:
        end_leftovers(mark_of(run.run_id, service.store.home))
    last = service.store.latest_run_in_force(plan.plan_id)
    if last is not None and last.status is RunStatus.FAILED and _is_to_be_undone(plan, service, last):
        # It died before it could do what the plan's policy says about failures: the step counts as interrupted.
        runs.append(last)
    where = _place_of(plan, runs[-1], service) if runs else "the execution"
    # Nobody knows any more whether the sandboxes are what was recorded.
    plan = plan.changed(
        phase=Phase.EXECUTE, state=PlanState.QUEUED, error=f"{where} was interrupted", boot_id=_NOT_KNOWN
    )
    with service.store.transaction(lease):
        for run in runs:
            service.store.save(run.model_copy(update={"status": RunStatus.INTERRUPTED, "finished_at": now()}))
        service.store.save(plan)
    return plan


def _place_of(plan: Plan, run: StepRun, service: CheckpointService) -> str:
    is_of_step = service.step_of(plan, run) is not None
    return f"step {run.step_index + 1} ({run.step})" if is_of_step else f"the validation `{run.step}`"


def _is_to_be_undone(plan: Plan, service: CheckpointService, failed: StepRun) -> bool:
    """Whether going back after this failure, which supersedes the run, is still to be done."""
    # A validation changes nothing, and is simply made again.
    is_of_step = failed.step_index == plan.next_step and service.step_of(plan, failed) is not None
    return is_of_step and plan.policy.goes_back_on_failure


def waiting_again(plan: Plan, lease: Lease, service: CheckpointService) -> Plan | None:
    """The plan as it waits for a person, if a step of it does: whatever ended its execution, all is still there."""
    runs = service.store.unfinished_runs(plan.plan_id)
    constrained = [run for run in runs if run.status is RunStatus.CONSTRAINED]
    if not constrained:
        return None
    if plan.state is not PlanState.CONSTRAINED:
        plan = plan.changed(phase=Phase.EXECUTE, state=PlanState.CONSTRAINED, error=constrained[0].error)
        with service.store.transaction(lease):
            service.store.save(plan)
    return plan


def never_begun(plan: Plan, service: CheckpointService) -> list[Decision]:
    """Decisions for a step that was cut short before it began: they are made again when it does."""
    used = {run.decision_id for run in service.store.runs_of(plan.plan_id)}
    return [
        decision
        for decision in service.store.decisions_of(plan.plan_id)
        if not decision.is_superseded
        and decision.step_index == plan.next_step
        and not is_within(decision.sequence, plan.active_decisions)
        and not used.intersection((decision.decision_id, decision.parent_decision_id))
    ]


def cut_short(plan: Plan, service: CheckpointService) -> StepRun | None:
    """The run of the plan's next step, if it did not come to its end and its half-done work may be in the sandboxes."""
    run = service.run_of_next_step(plan)
    if run is not None and run.status is RunStatus.FAILED:
        return _failed_as_it_counts(plan, run) if _is_to_be_undone(plan, service, run) else None
    return run if run is not None and run.status in CUT_SHORT else None


def _failed_as_it_counts(plan: Plan, run: StepRun) -> StepRun:
    """For those who only look: where the owner died before it could undo the step, recovery makes it interrupted."""
    is_left = plan.state is PlanState.PROCESSING
    return run.model_copy(update={"status": RunStatus.INTERRUPTED}) if is_left else run


def under_way(plan: Plan, service: CheckpointService) -> StepRun | None:
    """The same, for those who look before what a dead process left is put right."""
    return cut_short(plan, service) or next(iter(service.store.unfinished_runs(plan.plan_id)), None)


def put_back_what_was_lost(
    plan: Plan, lease: Lease, service: CheckpointService
) -> tuple[Plan, SandboxesPutBack | None]:
    """The sandboxes as the last group recorded them, if the machine or the owner died before they were on the disk.

    What is found is kept as a group beside the way that led here. A step that was cut short, and a conflict that a
    person works on, are looked after elsewhere.
    """
    half_done = cut_short(plan, service)
    # One that waits because a subplan waits has nothing in its own sandboxes that a person works on.
    waits_below = half_done is not None and half_done.status is RunStatus.CONSTRAINED and not half_done.conflicts
    is_under_way = plan.state is PlanState.CONSTRAINED or half_done is not None
    looked_after = plan.state is PlanState.APPLIED or (is_under_way and not waits_below)
    # A subplan that has come to its end needs no sandbox any more.
    is_needed = plan.parent_plan_id is None or is_there(Path(plan.resources[0].sandbox_path))
    if _is_of_this_boot(plan) or plan.head_group_id is None or looked_after or not is_needed:
        return plan, None
    head = service.store.get(CheckpointGroup, plan.head_group_id)
    if missing_sandboxes(plan) or not service.is_recorded(plan, head):
        return plan, None  # first they are made anew, or nothing tells what the sandboxes should be
    recorded = head.states
    lost = service.changed_since(plan, recorded)
    trusted = plan.changed(boot_id=boot_id())
    told = None
    if lost:
        found = "what was found after the machine or its process died"
        occasion = Occasion((Moment.BEFORE_ROLLBACK,), source="recovery", reason=found, title=found)
        left = service.create_checkpoint(plan, lease, occasion, records=[plan], needed=(head.group_id,))
        service.keep_sound(plan, service.store.get(CheckpointGroup, left.head_group_id or "").states, recorded)
        service.bring_to(plan, recorded)
        told = SandboxesPutBack(lost, left.last_checkpoint_id or "")
    with service.store.transaction(lease):
        service.store.save(trusted)
    return trusted, told


def missing_sandboxes(plan: Plan) -> list[Resource]:
    """Those that something removed since they were made; refuses if something else is in the place of one."""
    resources = plan.resources if plan.head_group_id is not None else ()
    return [resource for resource in resources if is_missing(Path(resource.sandbox_path))]


def _recorded_states(plan: Plan, service: CheckpointService) -> dict[str, str] | None:
    """What the sandboxes are, if a record tells: the last merge of a step that waits or was cut short, or a group."""
    run = cut_short(plan, service)
    merged = [each.merged_states for each in spawned_by(service, run) if each.merged_states] if run is not None else []
    if merged:
        return merged[-1]
    head = service.store.get(CheckpointGroup, plan.head_group_id or "")
    return head.states if service.is_recorded(plan, head) else None


def lost_with_a_sandbox(plan: Plan, service: CheckpointService) -> CheckpointGroup | None:
    """The last group, if a sandbox is gone and what steps did since that group went with it."""
    if not missing_sandboxes(plan) or _recorded_states(plan, service) is not None:
        return None
    return service.store.get(CheckpointGroup, plan.head_group_id or "")


def make_missing_sandboxes(plan: Plan, service: CheckpointService) -> list[str]:
    """Make sandboxes that something removed anew, as the last record tells; their names."""
    missing = missing_sandboxes(plan)
    if missing:
        head = service.store.get(CheckpointGroup, plan.head_group_id or "")
        states = _recorded_states(plan, service) or head.states
        for resource in missing:
            service.restore_sandbox(resource, states[resource.name])
    return [resource.name for resource in missing]


def make_recorded_sandboxes(plan: Plan, service: CheckpointService) -> list[str]:
    """The same for a plan and the subplans that it waits for, but only if nothing that steps did is lost with them.

    Otherwise an older sandbox would stand where steps count as done.
    """
    made = [] if lost_with_a_sandbox(plan, service) is not None else make_missing_sandboxes(plan, service)
    if plan.state is PlanState.CONSTRAINED:
        for subplan in service.store.subplans_of(plan.plan_id):
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
