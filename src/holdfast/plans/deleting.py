"""Deleting a plan: its sandboxes, its records and the content that only it needs.

If the record of the plan, of a subplan, or the lease is damaged, the plan is deleted without relying on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from holdfast.apply.real_folders import unmark_settled
from holdfast.checkpoints.missing import is_of_this_boot
from holdfast.checkpoints.service import CheckpointService
from holdfast.db.lease import leased
from holdfast.db.store import Store
from holdfast.errors import ContentError, DatabaseError, StateError
from holdfast.execution.folders import STANDING
from holdfast.execution.stand_in import finish_all
from holdfast.model import Checkpoint, CheckpointGroup, Lease, Plan
from holdfast.parts import Parts
from holdfast.plans.finding import family_of
from holdfast.process.leftovers import end_leftovers, mark_of
from holdfast.recovery import Recovery
from holdfast.sandbox.spares import Spares
from holdfast.system.reserve import is_short_of_space
from holdfast.system.trees import sync_directory


def delete_plan(plan: Plan, below: Sequence[Plan], lease: Lease, parts: Parts) -> int:
    """``below``: all its subplans. What a dead process left half done outside of the sandboxes is undone first.

    Returns how much content its checkpoints had added, as far as that is known.
    """
    service, home = parts.service, parts.home
    Recovery(service, lease, parts.compensator).recover_before_deletion(plan.plan_id)
    unmark_settled(plan, service)
    family = (*below, plan)
    _keep_spares(plan, service)
    for resource in plan.resources:
        service.manager.indexes.forget(Path(resource.sandbox_path))
    # The records go last: killed before that, the plan can be deleted again.
    for each in family:
        finish_all(home / "sandboxes" / each.plan_id / STANDING)
        parts.trash.put(home / "sandboxes" / each.plan_id)
    sync_directory(home / "sandboxes")
    with suppress(ContentError):  # a damaged content store is no reason to keep the plan, and frees nothing
        service.release.let_go(plan.plan_id)
    gone: list[Checkpoint] = []
    with service.store.transaction(lease):
        with suppress(DatabaseError):  # a damaged record is no reason to keep the plan
            gone = [each for one in family for each in service.store.checkpoints.of(one.plan_id)]
            service.garbage.note_given_up(gone)
        service.store.delete(Plan, plan.plan_id)
    return sum(checkpoint.size_bytes for checkpoint in gone)


def _keep_spares(plan: Plan, service: CheckpointService) -> None:
    """Keep sandboxes for the next plan on the same folders; if space is short, give up the others as well."""
    if service.spares is None:
        return
    if is_short_of_space(service.store.home):
        service.spares.give_up_all()
    elif plan.head_group_id is not None and is_of_this_boot(plan):
        _keep_spares_of(plan, plan.head_group_id, service.spares, service)


def _keep_spares_of(plan: Plan, head: str, spares: Spares, service: CheckpointService) -> None:
    with suppress(DatabaseError):  # a damaged record is no reason to keep the plan
        states = service.store.get(CheckpointGroup, head).states
        for resource in plan.resources:
            if resource.is_in_place:
                continue
            index = service.manager.indexes.file_of(Path(resource.sandbox_path))
            spares.keep(resource, index, states[resource.name])


def delete_damaged_plan(plan_id: str, parts: Parts) -> None:
    """Delete its sandboxes and records. Refused if something may be half done outside of the sandboxes."""
    store, home = parts.store, parts.home
    family = family_of(store, plan_id)
    sandboxes = [home / "sandboxes" / each for each in family]
    if parts.is_shared and not any(folder.is_dir() for folder in sandboxes):
        raise StateError(
            f"Plan {plan_id} is damaged and has no sandbox here: it may belong to another machine.",
            hint="Run the command on the machine that made it.",
        )
    # Under a damaged lease no process can record anything, and none can get another.
    has_no_lease = store.damaged.is_lease_damaged(plan_id)
    with nullcontext() if has_no_lease else leased(store, plan_id, "plan delete") as lease:
        for each in family:
            _refuse_half_done(store, each)
            for run in store.runs.of(each, sound_only=True):
                if run.finished_at is None:
                    end_leftovers(mark_of(run.run_id, store.home))
        # The records go last: killed before that, the plan can be deleted again.
        for folder in sandboxes:
            finish_all(folder / STANDING)
            parts.trash.put(folder)
        with suppress(FileNotFoundError):
            sync_directory(home / "sandboxes")
        with suppress(ContentError):  # a damaged content store is no reason to keep the plan, and frees nothing
            parts.service.release.let_go(plan_id)
        with store.transaction(lease):
            store.delete(Plan, plan_id)


def _refuse_half_done(store: Store, plan_id: str) -> None:
    for operation in store.operations.unfinished(plan_id):
        raise StateError(
            f"The {operation.kind.noun} of plan {plan_id} was cut short, and cannot be undone while a record of it is "
            "damaged.",
            hint="Restore the database from a backup, then run the command again.",
        )
