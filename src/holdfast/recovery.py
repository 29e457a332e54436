"""Recovery: finishes or undoes what a dead process left: operations, a step, lost sandboxes, real files.

Every verb that changes a plan recovers it as soon as it holds the plan's lease. Verbs that only free space leave that
to the next verb.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast.apply.real_folders import forget_indexes, unfinished_in, unmark_settled
from holdfast.checkpoints.history import History
from holdfast.checkpoints.missing import is_of_this_boot, restore_what_was_lost
from holdfast.checkpoints.rollback import Compensate
from holdfast.checkpoints.service import CheckpointService
from holdfast.db.lease import holder_of, leased
from holdfast.events import Listener, RealFilesRestored, SandboxesRestored, SetAside
from holdfast.execution.conflicts import restore_waiting
from holdfast.execution.folders import door_place
from holdfast.model import (
    Lease,
    Operation,
    OperationKind,
    OperationState,
    Phase,
    Plan,
    PlanState,
    RunStatus,
    StepRun,
    now,
)
from holdfast.process.leftovers import end_leftovers, mark_of
from holdfast.system.trees import remove_abandoned_folders, remove_tree

_NOT_KNOWN = "not known"
_UNDOING = "a command on the same folder"
"""What the lease says while a command for another plan undoes a change of real files."""


class Recovery:
    """Recovers a plan and its subplans. The caller holds the lease of the whole plan."""

    def __init__(
        self,
        service: CheckpointService,
        lease: Lease,
        compensator: Callable[[], Compensate],
        tell: Listener = lambda _: None,
    ) -> None:
        """``compensator`` is called only if effects outside of the sandboxes have to be undone."""
        self._service, self._lease, self._compensator, self._tell = service, lease, compensator, tell

    def recover(self, plan_id: str) -> Plan:
        """Finish or undo everything that a dead process left; returns the plan after that."""
        remove_abandoned_folders()
        plan, restored = self._recover(plan_id)
        if restored is not None:
            self._tell(restored)
        unmark_settled(plan, self._service)
        return plan

    def _recover(self, plan_id: str) -> tuple[Plan, SandboxesRestored | None]:
        store, lease = self._service.store, self._lease
        for subplan in store.plans.below(plan_id):
            self._recover(subplan.plan_id)
        plan = store.get(Plan, plan_id)
        _clear_away_leftovers(plan)
        # Asked now: a rollback that is finished below notes the present boot.
        is_new_boot = not is_of_this_boot(plan)
        for operation in store.operations.unfinished(plan_id):
            plan = self._finish_or_undo(plan, operation)
        if plan.is_session:
            from holdfast.sessions.undoing import record_outcome  # only sessions need it

            # Its calls are not processes of ours, and its folder is what the user made of it.
            return record_outcome(plan, lease, self._service), None
        forget_indexes(plan.resources)
        if plan.state is PlanState.PROCESSING or store.runs.unfinished(plan_id):
            plan = _interrupt(plan, lease, self._service)
        if is_new_boot or not is_of_this_boot(plan):
            from holdfast.execution.merging import clear_away_again

            clear_away_again(plan, self._service)
        return restore_what_was_lost(plan, lease, self._service)

    def _finish_or_undo(self, plan: Plan, operation: Operation) -> Plan:
        service, lease = self._service, self._lease
        match operation.kind:
            case OperationKind.ROLLBACK:
                result = service.rollback.finish(plan, lease, operation, self._compensator())
                tell_set_aside(self._tell, result.set_aside)
                return result.plan
            case OperationKind.RESTORE_PATHS:
                from holdfast.rollback.paths import finish_restore

                plan, set_aside = finish_restore(plan, lease, service, operation)
                tell_set_aside(self._tell, set_aside)
                return plan
            case OperationKind.APPLY | OperationKind.UNAPPLY | OperationKind.UNDO:
                return _undo_change(plan, lease, service, operation)

    def recover_before_deletion(self, plan_id: str) -> None:
        """End what a dead process left running, and undo what it left half done outside of the sandboxes.

        Everything else is deleted with the plan, and recovering it may take space that the disk does not have.
        """
        store = self._service.store
        for subplan in store.plans.below(plan_id):
            self.recover_before_deletion(subplan.plan_id)
        plan = store.get(Plan, plan_id)
        for run in store.runs.unfinished(plan_id):
            end_leftovers(mark_of(run.run_id, store.home))
        for operation in store.operations.unfinished(plan_id):
            plan = self._undo_outside(plan, operation)

    def _undo_outside(self, plan: Plan, operation: Operation) -> Plan:
        service, lease = self._service, self._lease
        match operation.kind:
            case OperationKind.ROLLBACK:
                service.rollback.compensate_unfinished(plan, lease, operation, self._compensator())
            case OperationKind.APPLY | OperationKind.UNAPPLY | OperationKind.UNDO:
                return _undo_change(plan, lease, service, operation, even_if_gone=True)
        return plan


def undo_changes_of_dead_processes(plan: Plan, service: CheckpointService, tell: Listener) -> None:
    """Undo what dead processes began to change in the real folders of the plan, whichever plans they worked for.

    A living process has locked the folders, and the next use of them waits for it.
    """
    store = service.store
    for other, operation in unfinished_in(plan.resources, service):
        root = store.plans.root_of(other)
        if holder_of(store, root.plan_id) is not None:
            continue
        with leased(store, root.plan_id, _UNDOING) as lease:
            service.keep_for(root, lease)
            found = store.get(Operation, operation.operation_id)
            if found.state is OperationState.BEGUN:
                _undo_change(store.get(Plan, other.plan_id), lease, service, found)
                tell(RealFilesRestored(other, operation.kind))


def _undo_change(
    plan: Plan, lease: Lease, service: CheckpointService, operation: Operation, *, even_if_gone: bool = False
) -> Plan:
    from holdfast.apply.undo import undo_change  # seldom needed, and every verb that changes a plan imports this module

    return undo_change(plan, lease, service, operation, even_if_gone=even_if_gone)


def tell_set_aside(tell: Listener, places: tuple[str, ...]) -> None:
    if places:
        tell(SetAside(places))


def _clear_away_leftovers(plan: Plan) -> None:
    """Remove the socket of a dead process, and the staging folders of a restore that died: the lease is ours."""
    if not any(resource.is_in_place for resource in plan.resources):
        with suppress(OSError):
            door_place(plan).unlink(missing_ok=True)
    for resource in plan.resources:
        if resource.is_in_place:
            continue  # beside it are files of the user
        path = Path(resource.sandbox_path)
        for leftover in path.parent.glob(f".staging-{path.name}-*"):
            # An earlier restore of this process may still be removing its own.
            with suppress(OSError):
                remove_tree(leftover)


def _interrupt(plan: Plan, lease: Lease, service: CheckpointService) -> Plan:
    """End what the dead owner left running, and note that the running step was interrupted."""
    waiting = restore_waiting(plan, lease, service)
    if waiting is not None:
        return waiting
    runs = service.store.runs.unfinished(plan.plan_id)
    for run in runs:
        end_leftovers(mark_of(run.run_id, service.store.home))
    history = service.history(plan)
    last = history.last_run
    if last is not None and last.status is RunStatus.FAILED and history.awaits_rollback(last):
        # The owner died before it did what the plan's policy says about failures: the step counts as interrupted.
        runs.append(last)
    where = _place_of(history, runs[-1]) if runs else "the execution"
    # The boot is noted as unknown, because the sandboxes may no longer be what was recorded.
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
