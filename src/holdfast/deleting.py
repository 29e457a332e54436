"""Deleting a plan: its sandboxes, its records and the content that only it needs.

A plan whose own record, that of a subplan, or its lease is damaged is deleted without relying on what they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from holdfast.apply.real_folders import unmark_settled
from holdfast.apply.undo import undo_change
from holdfast.db.lease import leased
from holdfast.db.store import Store
from holdfast.errors import ContentError, DatabaseError, StateError
from holdfast.model import Lease, Operation, OperationKind, Plan
from holdfast.parts import Parts
from holdfast.plans import family_of
from holdfast.process.leftovers import end_leftovers
from holdfast.recovery import Recovery, put_right_outside
from holdfast.system.trees import remove_tree, sync_directory


def delete_plan(plan: Plan, below: Sequence[Plan], lease: Lease, parts: Parts) -> None:
    """``below``: all its subplans. What was left undone outside of the sandboxes is put right first."""
    service, home = parts.service, parts.home
    put_right_outside(plan.plan_id, lease, service, _recoveries(parts))
    unmark_settled(plan, service)
    family = (*below, plan)
    for resource in plan.resources:
        service.manager.forget(Path(resource.sandbox_path))
    # The records go last: killed before that, the plan can be deleted again.
    for each in family:
        remove_tree(home / "sandboxes" / each.plan_id)
    sync_directory(home / "sandboxes")
    with suppress(ContentError):  # a damaged content store is no reason to keep the plan, and frees nothing
        service.release.let_go(plan.plan_id)
    with service.store.transaction(lease):
        with suppress(DatabaseError):  # a damaged record is no reason to keep the plan
            service.garbage.note_given_up(
                [each for one in family for each in service.store.checkpoints.of(one.plan_id)]
            )
        service.store.delete(Plan, plan.plan_id)


def _recoveries(parts: Parts) -> dict[OperationKind, Recovery]:
    """How the part of an operation is put right that lies outside of the sandboxes."""

    def compensate(plan: Plan, lease: Lease, operation: Operation) -> Plan:
        parts.service.rollback.compensate_unfinished(plan, lease, operation, parts.compensator())
        return plan

    def undo(plan: Plan, lease: Lease, operation: Operation) -> Plan:
        return undo_change(plan, lease, parts.service, operation, even_if_gone=True)

    return {OperationKind.ROLLBACK: compensate, OperationKind.APPLY: undo, OperationKind.UNAPPLY: undo}


def delete_damaged_plan(plan_id: str, parts: Parts) -> None:
    """Delete its sandboxes and its records; refused if it may have left something half done outside of them."""
    store, home = parts.store, parts.home
    family = family_of(store, plan_id)
    sandboxes = [home / "sandboxes" / each for each in family]
    if parts.is_shared and not any(folder.is_dir() for folder in sandboxes):
        raise StateError(
            f"Plan {plan_id} is damaged, and there is no sandbox of it here: it may be another machine's.",
            hint="Run the command on the machine that made it.",
        )
    # Under a damaged lease no process can record anything, and none can get another.
    has_no_lease = plan_id in store.damaged.leases()
    with nullcontext() if has_no_lease else leased(store, plan_id, "plan delete") as lease:
        for each in family:
            _refuse_half_done(store, each)
            for run in store.runs.of(each, sound_only=True):
                if run.finished_at is None:
                    end_leftovers(run.run_id)
        # The records go last: killed before that, the plan can be deleted again.
        for folder in sandboxes:
            remove_tree(folder)
        with suppress(FileNotFoundError):
            sync_directory(home / "sandboxes")
        with suppress(ContentError):  # a damaged content store is no reason to keep the plan, and frees nothing
            parts.service.release.let_go(plan_id)
        with store.transaction(lease):
            store.delete(Plan, plan_id)


def _refuse_half_done(store: Store, plan_id: str) -> None:
    for operation in store.operations.unfinished(plan_id):
        raise StateError(
            f"The {operation.kind} of plan {plan_id} was cut short, and cannot be put right while its record is "
            "damaged.",
            hint="Restore the database from a backup, then run the command again.",
        )
