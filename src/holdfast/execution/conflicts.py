"""Conflicts between subplans, which a person resolves: which are still open, and the plan that waits for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.checkpoints.service import CheckpointService
from holdfast.content.difference import StateReader
from holdfast.content.format import DIRECTORY, Entry, State
from holdfast.errors import ConflictError
from holdfast.model import Conflict, Lease, Phase, Plan, PlanState, RunStatus, StepRun
from holdfast.names import name_text
from holdfast.system.directories import with_ancestors

_MARKS = (b"<<<<<<< ", b">>>>>>> ")


def restore_waiting(plan: Plan, lease: Lease, service: CheckpointService) -> Plan | None:
    """Set the plan to wait for a person again if one of its steps does, however the execution ended; otherwise None."""
    runs = service.store.runs.unfinished(plan.plan_id)
    constrained = [run for run in runs if run.status is RunStatus.CONSTRAINED]
    if not constrained:
        return None
    if plan.state is not PlanState.CONSTRAINED:
        plan = plan.changed(phase=Phase.EXECUTE, state=PlanState.CONSTRAINED, error=constrained[0].error)
        with service.store.transaction(lease):
            service.store.save(plan)
    return plan


def refuse_unresolved(plan: Plan, run: StepRun | None, service: CheckpointService, *, take_as_is: bool = False) -> None:
    """Refuse to go on with a constrained plan while a conflict is as the merge left it; ``run``: the last in force.

    ``take_as_is``: the person says that all conflicts of this plan are resolved.
    """
    if run is None or run.status is not RunStatus.CONSTRAINED:
        return
    subplans = service.history(plan).spawned_by(run)
    for subplan in subplans:
        if subplan.state is PlanState.CONSTRAINED:
            last_run = service.store.runs.latest_in_force(subplan.plan_id)
            refuse_unresolved(subplan, last_run, service, take_as_is=take_as_is)
    if take_as_is or not run.conflicts:
        return
    last = [subplan for subplan in subplans if subplan.merged_states is not None][-1]
    open_conflicts = _unresolved(plan, service, run.conflicts, last.merged_states or {})
    if open_conflicts:
        raise ConflictError(
            f"These conflicts are not resolved yet:\n{_conflict_lines(plan, open_conflicts)}",
            hint="Edit the files there, then run `holdfast plan resume` again; `--resolved` takes them as they are.",
            paths=tuple(conflict.path for conflict in open_conflicts),
        )


def _unresolved(
    plan: Plan, service: CheckpointService, conflicts: Sequence[Conflict], left: dict[str, str]
) -> list[Conflict]:
    reader, found = service.manager.reader, []
    present = service.sandboxes.states_now(plan)
    for conflict in conflicts:
        path = b"" if conflict.path == "." else os.fsencode(conflict.path)
        entry = _at_or_above(reader, reader.state(present[conflict.resource]), path)
        if conflict.is_marked:
            lines = b"".join(reader.content(entry)).splitlines() if entry is not None and entry.is_file else []
            if any(line.startswith(_MARKS) for line in lines):
                found.append(conflict)
        elif entry == _at_or_above(reader, reader.state(left[conflict.resource]), path):
            found.append(conflict)
    return found


def _at_or_above(reader: StateReader, state: State, path: bytes) -> Entry | None:
    """The entry at that path, or the first above it that is not a folder; None if it or a folder above is missing."""
    down_to_it = (reader.find(state, place) for place in sorted(with_ancestors([path])))
    return next((each for each in down_to_it if each is None or each.kind != DIRECTORY), reader.find(state, path))


def _conflict_lines(plan: Plan, conflicts: Sequence[Conflict]) -> str:
    """One line for each conflict: the file to edit, and the reason."""
    roots = {each.name: Path(each.sandbox_path) for each in plan.resources}
    return "\n".join(f"  {name_text(str(roots[each.resource] / each.path))}: {each.reason}" for each in conflicts)
