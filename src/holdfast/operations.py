"""Putting right what a crash left: operations begun and not finished, a step that was cut short, a lost sandbox.

Every verb that changes a plan calls ``recover`` as soon as it holds the plan's lease.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.checkpoints import CheckpointService
from holdfast.model import Lease, Operation, OperationKind, Phase, Plan, PlanState, RunStatus, StepRun, now
from holdfast.process import end_leftovers

Recovery = Callable[[Plan, Lease, Operation], Plan]


def recover(
    plan_id: str, lease: Lease, service: CheckpointService, recoveries: Mapping[OperationKind, Recovery]
) -> Plan:
    """The plan as it is after everything a dead process left undone was finished or undone."""
    store = service.store
    plan = store.get(Plan, plan_id)
    for operation in store.unfinished_operations(plan_id):
        plan = recoveries[operation.kind](plan, lease, operation)
    if plan.state is PlanState.PROCESSING:
        plan = _interrupt(plan, lease, service)
    return plan


def _interrupt(plan: Plan, lease: Lease, service: CheckpointService) -> Plan:
    """Its owner died: end what it left running, and note that the step under way did not come to its end."""
    runs = service.store.unfinished_runs(plan.plan_id)
    for run in runs:
        end_leftovers(run.run_id)
    last = service.store.latest_run(plan.plan_id)
    failed_here = last is not None and last.status is RunStatus.FAILED and last.step_index == plan.next_step
    if last is not None and failed_here and not last.is_superseded:
        # It died before it could do what the plan's policy says about failures: the step counts as interrupted.
        runs.append(last)
    where = f"step {runs[-1].step_index + 1} ({runs[-1].step})" if runs else "the execution"
    plan = plan.changed(phase=Phase.EXECUTE, state=PlanState.QUEUED, error=f"{where} was interrupted")
    with service.store.transaction(lease):
        for run in runs:
            service.store.save(run.model_copy(update={"status": RunStatus.INTERRUPTED, "finished_at": now()}))
        service.store.save(plan)
    return plan


def cut_short(plan: Plan, service: CheckpointService) -> StepRun | None:
    """The run of the plan's next step, if that is how it ended and its half-done work may be in the sandboxes."""
    run = service.store.latest_run(plan.plan_id)
    if run is None or run.is_superseded or run.step_index != plan.next_step:
        return None
    return run if run.status is RunStatus.INTERRUPTED else None


def make_missing_sandboxes(plan: Plan, service: CheckpointService) -> list[str]:
    """Make sandboxes that something removed anew from the last group; their names."""
    missing = [resource for resource in plan.resources if not Path(resource.sandbox_path).is_dir()]
    for resource in missing:
        service.restore_sandbox(plan, resource)
    return [resource.name for resource in missing]
