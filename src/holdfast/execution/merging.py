"""Merges the result of a subplan with the files of its parent, and removes what is no longer needed after that."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from holdfast.checkpoints.service import CheckpointService
from holdfast.content.batch import Batch
from holdfast.content.difference import Difference
from holdfast.execution.folders import conflict_folder, plan_folder
from holdfast.model import CheckpointGroup, Conflict, MergeStrategy, Plan, RunStatus
from holdfast.names import name_text
from holdfast.sandbox.protocol import sandbox_for
from holdfast.snapshot.merge import Merged, PathConflict, merge_states
from holdfast.snapshot.selection import change
from holdfast.system.directories import shown, with_ancestors
from holdfast.system.trash import Trash
from holdfast.system.trees import remove_tree


def base_of(subplan: Plan, service: CheckpointService) -> dict[str, str]:
    """The states that the subplan started from."""
    return service.store.groups.first(subplan.plan_id).states


def merge(
    plan: Plan, subplan: Plan, strategy: MergeStrategy, service: CheckpointService, batch: Batch
) -> tuple[dict[str, str], tuple[Conflict, ...]]:
    """Merge the subplan's result with the plan's files and store that with ``batch``; the states and the conflicts.

    No sandbox is changed. The versions of both sides of every conflict are kept as files.
    """
    ours = service.sandboxes.states_now(plan, thorough=False)
    theirs = service.store.get(CheckpointGroup, subplan.head_group_id or "").states
    base = base_of(subplan, service)
    merged = {
        resource.name: merge_states(
            service.manager.reader,
            batch,
            base=base[resource.name],
            ours=ours[resource.name],
            theirs=theirs[resource.name],
            labels=(plan.name, "before", subplan.name),
            hides=sandbox_for(plan, resource).hides,
            theirs_wins=strategy is MergeStrategy.LAST_WINS,
        )
        for resource in plan.resources
    }
    versions = conflict_folder(plan) / subplan.plan_id
    remove_tree(versions)  # an interrupted merge may have left some
    sides = {"ours": ours, "theirs": theirs}
    conflicts = tuple(
        conflict
        for name, result in merged.items()
        for conflict in _conflicts_of(name, result, subplan, versions, sides, service)
    )
    return {name: each.state for name, each in merged.items()}, conflicts


def _conflicts_of(
    name: str,
    result: Merged,
    subplan: Plan,
    versions: Path,
    sides: Mapping[str, Mapping[str, str]],
    service: CheckpointService,
) -> Iterator[Conflict]:
    kept: dict[bytes, list[str]] = {each.path: [] for each in result.conflicts}
    for side, states in sides.items() if kept else ():
        place = versions / side / name
        for path in _keep_versions(place, states[name], result.conflicts, service):
            kept[path].append(os.fsdecode(os.path.join(os.fsencode(place), path)))
    for each in result.conflicts:
        yield Conflict(
            resource=name,
            path=shown(each.path),
            subplan=subplan.name,
            reason=each.reason,
            is_marked=each.is_marked,
            kept=tuple(kept[each.path]),
        )


def _keep_versions(
    folder: Path, state_hash: str, conflicts: Sequence[PathConflict], service: CheckpointService
) -> list[bytes]:
    """Write one side's version of every conflict into a folder for the user; the paths that this side has."""
    reader = service.manager.reader
    state = reader.state(state_hash)
    held = [each for each in conflicts if each.path and reader.find(state, each.path) is not None]
    entries = {path: reader.find(state, path) for path in with_ancestors(each.path for each in held) if path}
    for each in held:
        if not each.is_of_folders:
            entries |= reader.walk(state, each.path)
    folder.mkdir(parents=True, mode=0o700)
    made = [Difference(path, None, entry) for path, entry in entries.items()]
    change(folder, reader, made, is_real=False)
    return [each.path for each in held]


def conflict_text(subplan: Plan, conflicts: Sequence[Conflict]) -> str:
    listed = ", ".join(f"{name_text(each.path)} ({each.reason})" for each in conflicts)
    return f"subplan {subplan.name} conflicts with what the plan has: {listed}"


def clear_away(plan: Plan, merged: Sequence[Plan]) -> None:
    """Remove the sandboxes of merged subplans, and the versions of files whose conflicts are resolved."""
    kept, trash = conflict_folder(plan), Trash(plan_folder(plan).parent)
    for subplan in merged:
        trash.put(plan_folder(subplan))
        remove_tree(kept / subplan.plan_id)
    trash.tidy()
    if kept.is_dir() and not any(kept.iterdir()):
        kept.rmdir()


def clear_away_again(plan: Plan, service: CheckpointService) -> None:
    """Repeat ``clear_away`` for every finished step with subplans: a power cut may have undone the removal."""
    history = service.history(plan)
    if history.subplans:
        for run in history.runs:
            if run.status is RunStatus.SUCCEEDED and not run.is_superseded:
                clear_away(plan, history.spawned_by(run))
