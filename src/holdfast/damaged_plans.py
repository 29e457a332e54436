"""A plan whose own record, that of a subplan, or its lease is damaged: deleted without relying on what they say."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path

from holdfast.checkpoints.service import CheckpointService
from holdfast.db.lease import leased
from holdfast.db.store import Store
from holdfast.errors import ContentError, StateError
from holdfast.model import Plan
from holdfast.process.leftovers import end_leftovers
from holdfast.system.trees import remove_tree, sync_directory


def find_damaged_plan(store: Store, plan_id: str) -> str | None:
    """The id of that plan, if it can only be deleted; it must be named in full."""
    plan_id = plan_id.strip().upper()
    damaged = {*store.damaged.plans(), *store.damaged.leases()}
    if damaged.isdisjoint(_family(store, plan_id)):
        return None
    parent = store.damaged.parent_of_plan(plan_id)
    if parent is not None:
        raise StateError(
            f"Plan {plan_id} is damaged, and says that it is a subplan of {parent}.",
            hint=f"It goes with the whole plan: `holdfast plan delete {parent}`.",
        )
    return plan_id


def delete_damaged_plan(service: CheckpointService, home: Path, plan_id: str, *, is_shared: bool) -> None:
    """Delete its sandboxes and its records; refused if it may have left something half done outside of them."""
    store = service.store
    family = _family(store, plan_id)
    sandboxes = [home / "sandboxes" / each for each in family]
    if is_shared and not any(folder.is_dir() for folder in sandboxes):
        raise StateError(
            f"Plan {plan_id} is damaged, and there is no sandbox of it here: it may be another machine's.",
            hint="Run the command on the machine that made it.",
        )
    # Under a damaged lease nobody can record anything, and nobody can get another.
    is_nobodys = plan_id in store.damaged.leases()
    with nullcontext() if is_nobodys else leased(store, plan_id, "plan delete") as lease:
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
            service.release.let_go(plan_id)
        with store.transaction(lease):
            store.delete(Plan, plan_id)


def _refuse_half_done(store: Store, plan_id: str) -> None:
    for operation in store.operations.unfinished(plan_id):
        raise StateError(
            f"The {operation.kind} of plan {plan_id} was cut short, and cannot be put right while its record is "
            "damaged.",
            hint="Restore the database from a backup, then run the command again.",
        )


def _family(store: Store, plan_id: str) -> list[str]:
    """The plan and all below it; a damaged record may say that it is below itself."""
    found = [plan_id]
    for each in found:
        found += [below for below in store.plans.ids_below(each) if below not in found]
    return found
