"""Putting right what a crash left: operations begun and not finished, a step that was cut short, a lost sandbox.

Every verb that changes a plan calls ``recover`` as soon as it holds the plan's lease; those that only free space
leave it to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.checkpoints.history import History
from holdfast.checkpoints.missing import is_of_this_boot, put_back_what_was_lost
from holdfast.checkpoints.service import CheckpointService
from holdfast.errors import StateError
from holdfast.events import SandboxesPutBack
from holdfast.execution.conflicts import waiting_again
from holdfast.execution.merging import clear_away_what_came_back
from holdfast.model import (
    Lease,
    Operation,
    OperationKind,
    Phase,
    Plan,
    PlanState,
    RunStatus,
    StepRun,
    now,
)
from holdfast.process.leftovers import end_leftovers, mark_of
from holdfast.system.trees import remove_tree

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
    for subplan in store.plans.below(plan_id):
        recover(subplan.plan_id, lease, service, recoveries)
    plan = store.get(Plan, plan_id)
    _clear_away_stagings(plan)
    is_new_boot = not is_of_this_boot(plan)  # which a rollback that is finished now makes it
    for operation in store.operations.unfinished(plan_id):
        plan = recoveries[operation.kind](plan, lease, operation)
    if plan.state is PlanState.PROCESSING or store.runs.unfinished(plan_id):
        plan = _interrupt(plan, lease, service)
    if is_new_boot or not is_of_this_boot(plan):
        clear_away_what_came_back(plan, service)
    plan, put_back = put_back_what_was_lost(plan, lease, service)
    if put_back is not None:
        tell(put_back)
    return plan


def put_right_outside(
    plan_id: str, lease: Lease, service: CheckpointService, recoveries: Mapping[OperationKind, Recovery]
) -> None:
    """Before a plan is deleted: what a dead process left running, and what it left undone outside of the sandboxes.

    All else goes with the plan, and putting it right may take space that is not there.
    """
    store = service.store
    for subplan in store.plans.below(plan_id):
        put_right_outside(subplan.plan_id, lease, service, recoveries)
    plan = store.get(Plan, plan_id)
    for run in store.runs.unfinished(plan_id):
        end_leftovers(mark_of(run.run_id, store.home))
    for operation in store.operations.unfinished(plan_id):
        if operation.kind in recoveries:
            plan = recoveries[operation.kind](plan, lease, operation)


def refuse_cut_short(plan: Plan, root: Plan, service: CheckpointService) -> None:
    """For what only looks: the next command that changes the plan puts right what a dead process left."""
    for operation in service.store.operations.unfinished(plan.plan_id):
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
    """What a restore that died had on its way in and out; no other process restores while the lease is ours."""
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
    runs = service.store.runs.unfinished(plan.plan_id)
    for run in runs:
        end_leftovers(mark_of(run.run_id, service.store.home))
    history = service.history(plan)
    last = history.last_run
    if last is not None and last.status is RunStatus.FAILED and history.is_to_be_undone(last):
        # It died before it could do what the plan's policy says about failures: the step counts as interrupted.
        runs.append(last)
    where = _place_of(history, runs[-1]) if runs else "the execution"
    # It is no longer known whether the sandboxes are what was recorded.
    plan = plan.changed(
        phase=Phase.EXECUTE, state=PlanState.QUEUED, error=f"{where} was interrupted", boot_id=_NOT_KNOWN
    )
    with service.store.transaction(lease):
        for run in runs:
            service.store.save(run.model_copy(update={"status": RunStatus.INTERRUPTED, "finished_at": now()}))
        service.store.save(plan)
    return plan


def _place_of(history: History, run: StepRun) -> str:
    is_of_step = history.step_of(run) is not None
    return f"step {run.step_index + 1} ({run.step})" if is_of_step else f"the validation `{run.step}`"
