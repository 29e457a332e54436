"""Plans, steps, checkpoints and differences as data for the envelope, with full ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.model import Conflict, DamagedCheckpoint, Decision, FileChange, Lease, Plan, PlanState, RunStatus, StepRun

if TYPE_CHECKING:
    from holdfast import CheckpointView, FileDiff, Holdfast, PlanStatus

PENDING = "pending"


def plan_data(plan: Plan) -> dict[str, Any]:
    """The fields that every answer about a plan begins with."""
    return {
        "plan_id": plan.plan_id,
        "name": plan.name,
        "phase": plan.phase,
        "state": plan.state,
        "attempt": plan.attempt,
        "last_completed_step": plan.last_completed_step,
        "last_checkpoint_id": plan.last_checkpoint_id,
        "error": plan.error,
        "created_at": plan.created_at,
        **session_data(plan),
    }


def session_data(plan: Plan) -> dict[str, Any]:
    """Whether it is a plan of steps or a session, and who works in that."""
    info = plan.session
    if info is None:
        return {"kind": "plan"}
    return {
        "kind": "session",
        "agent": info.agent or None,
        "agent_version": info.version or None,
        "session_id": info.session_id or None,
    }


def program_data(run: StepRun | None) -> dict[str, Any]:
    """How the last program of a plan ended, if it has ended: with which exit code, and what was wrong."""
    return {
        "program_exit_code": run.exit_code if run is not None else None,
        "program_error": run.error if run is not None else None,
    }


def has_failed(run: StepRun | None) -> bool:
    """Whether it is the run of a program that ended with an error; its work is kept all the same."""
    return run is not None and run.status is RunStatus.SUCCEEDED and run.exit_code not in (None, 0)


def resources_data(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "name": resource.name,
            "type": resource.type,
            "path": resource.path,
            "sandbox_path": resource.sandbox_path,
            "strategy": resource.strategy,
            "view": resource.view,
            "left_out": [{"path": each.path, "reason": each.reason} for each in resource.left_out],
        }
        for resource in plan.resources
    ]


def status_data(status: PlanStatus, decisions: Sequence[Decision]) -> dict[str, Any]:
    plan = status.plan
    return {
        **plan_data(plan),
        **program_data(status.program_run),
        "updated_at": plan.updated_at,
        "source_file": plan.source_file,
        "parent_plan_id": plan.parent_plan_id,
        "guidance": plan.guidance,
        "policy": plan.policy.model_dump(),
        "resources": resources_data(plan),
        "steps": steps_data(plan, status.runs),
        "validation": validation_data(plan, status.runs),
        "checkpoints": status.checkpoints,
        "decisions": [decision_data(each) for each in in_force(plan, status.runs, decisions)],
        "subplans": subplans_data(status.subplans),
        "conflicts": conflicts_data(status.conflicts),
        "holder": holder_data(status.holder),
        "interrupted": status.interrupted,
        "cut_short": list(status.cut_short),
        "confinement": status.confinement,
        "outside_of_rollback": status.outside_of_rollback,
        "applied_parts": status.applied_parts,
    }


def steps_data(plan: Plan, runs: Sequence[StepRun], only: range | None = None) -> list[dict[str, Any]]:
    shown = shown_runs(plan, runs)
    return [
        {
            "index": index,
            "name": plan.steps[index].name,
            "tool": plan.steps[index].tool,
            "resource": plan.steps[index].resource,
            **_run_data(shown.get(index), index <= plan.last_completed_step),
        }
        for index in (range(len(plan.steps)) if only is None else only)
    ]


def _run_data(run: StepRun | None, is_done: bool) -> dict[str, Any]:
    return {
        "state": run.status if run else RunStatus.SUCCEEDED if is_done else PENDING,
        "exit_code": run.exit_code if run else None,
        "error": run.error if run else None,
        "output": run.output if run else "",
        "output_bytes": run.output_bytes if run else 0,
        "decision_id": run.decision_id if run else None,
        "try_number": run.try_number if run else None,
        "started_at": run.started_at if run else None,
        "finished_at": run.finished_at if run else None,
        "duration_seconds": duration_seconds(run) if run else None,
    }


def validation_data(plan: Plan, runs: Sequence[StepRun]) -> list[dict[str, Any]]:
    is_over = plan.is_finished
    found = {run.step: run for run in runs if run.step_index == len(plan.steps) and not run.is_superseded and is_over}
    return [{"command": command, **_run_data(found.get(command), False)} for command in plan.validation]


def shown_runs(plan: Plan, runs: Sequence[StepRun]) -> dict[int, StepRun]:
    """For each step index the run that describes the step's present state: how it was done, or why not."""
    shown = {
        run.step_index: run
        for run in runs
        if run.status is RunStatus.SUCCEEDED and not run.is_superseded and run.step_index <= plan.last_completed_step
    }
    last = current_run(plan, runs)
    if last is not None and last.step_index < len(plan.steps):
        shown[last.step_index] = last
    return shown


def current_run(plan: Plan, runs: Sequence[StepRun]) -> StepRun | None:
    """The run that is running or that stopped the plan, even if it was rolled back since."""
    last = runs[-1] if runs else None
    if last is None or last.status is RunStatus.SUCCEEDED or last.attempt != plan.attempt:
        return None
    is_stopped = plan.state in (
        PlanState.PROCESSING, PlanState.ERRORED, PlanState.CANCELLED, PlanState.CONSTRAINED
    )  # fmt: skip
    return last if is_stopped or plan.error is not None else None


def in_force(plan: Plan, runs: Sequence[StepRun], decisions: Iterable[Decision]) -> list[Decision]:
    """The decisions that led to the plan's present state, and the decision of the step that failed."""
    last = current_run(plan, runs)
    failed = last.decision_id if last else None
    return [each for each in decisions if not each.is_superseded or each.decision_id == failed]


def conflicts_data(conflicts: Iterable[tuple[Plan, Conflict]]) -> list[dict[str, Any]]:
    return [
        {
            "resource": each.resource,
            "path": each.path,
            "sandbox_file": str(Path(plan.resource(each.resource).sandbox_path) / each.path),
            "subplan": each.subplan,
            "reason": each.reason,
            "is_marked": each.is_marked,
            "kept": list(each.kept),
        }
        for plan, each in conflicts
    ]


def subplans_data(subplans: Iterable[Plan]) -> list[dict[str, Any]]:
    return [
        {
            "plan_id": each.plan_id,
            "name": each.name,
            "state": each.state,
            "error": each.error,
            "spawn_decision_id": each.spawn_decision_id,
            "superseded": bool(each.is_superseded),
            "steps": len(each.steps),
            "last_completed_step": each.last_completed_step,
        }
        for each in subplans
    ]


def decision_data(decision: Decision) -> dict[str, Any]:
    return decision.model_dump(exclude={"plan_id"})


def holder_data(holder: Lease | None) -> dict[str, Any] | None:
    if holder is None:
        return None
    return {"command": holder.command, "host": holder.host, "pid": holder.pid, "since": holder.acquired_at}


def duration_seconds(run: StepRun) -> float | None:
    return None if run.finished_at is None else round((run.finished_at - run.started_at).total_seconds(), 3)


def checkpoint_data(view: CheckpointView) -> dict[str, Any]:
    checkpoint, metadata = view.checkpoint, view.checkpoint.metadata
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "display_id": view.display_id,
        "group_id": checkpoint.group_id,
        "resource_id": checkpoint.resource_id,
        "triggers": metadata.triggers,
        "step_index": metadata.step_index,
        "step": metadata.step,
        "decision_id": checkpoint.decision_id,
        "title": metadata.title,
        "label": metadata.label,
        "source": metadata.source,
        "git": None if metadata.git is None else metadata.git.model_dump(),
        "state_hash": metadata.state_hash,
        "size_bytes": checkpoint.size_bytes,
        "created_at": checkpoint.created_at,
        "superseded": view.is_superseded,
        "damaged": None,
    }


_CHECKPOINT_KEYS = (
    "checkpoint_id", "display_id", "group_id", "resource_id", "triggers", "step_index", "step", "decision_id", "title",
    "label", "source", "git", "state_hash", "size_bytes", "created_at", "superseded", "damaged",
)  # fmt: skip


def damaged_checkpoint_data(damaged: DamagedCheckpoint, display_id: str) -> dict[str, Any]:
    """A checkpoint of which only the id is known; the other fields of ``checkpoint_data`` are null."""
    known = {"checkpoint_id": damaged.checkpoint_id, "display_id": display_id, "damaged": damaged.problem}
    return {**dict.fromkeys(_CHECKPOINT_KEYS), **known}


def full_checkpoint_data(view: CheckpointView) -> dict[str, Any]:
    checkpoint, group = view.checkpoint, view.group
    return {
        "plan_id": checkpoint.plan_id,
        **checkpoint_data(view),
        "sequence": checkpoint.sequence,
        "checkpoint_type": checkpoint.checkpoint_type,
        "sandbox_ref": checkpoint.sandbox_ref,
        "filesystem_path": checkpoint.filesystem_path,
        "reason": checkpoint.metadata.reason,
        "phase": checkpoint.metadata.phase,
        "attempt": group.attempt,
        "revision": group.revision,
        "last_completed_step": group.last_completed_step,
        "parent_group_id": group.parent_group_id,
        "restored_group_id": group.restored_group_id,
        "states": group.states,
        "unheld": [
            {"resource": name, "path": each.path, "reason": each.reason}
            for name, listed in group.unheld.items()
            for each in listed
        ],
    }


def diff_data(plan: Plan, files: Iterable[FileDiff], *, with_patch: bool) -> list[dict[str, Any]]:
    return [
        {
            "file": file_label(plan, each.resource, each.path),
            "resource": each.resource,
            "path": each.path,
            "status": each.status,
            "added_lines": each.added_lines,
            "removed_lines": each.removed_lines,
            "is_binary": each.is_binary,
            "note": each.note,
            **({"patch": "".join(f"{line}\n" for line in each.patch)} if with_patch else {}),
        }
        for each in files
    ]


def names_data(plan: Plan, files: Iterable[FileDiff]) -> list[dict[str, Any]]:
    """Which files differ, without their lines."""
    return [
        {
            "file": file_label(plan, each.resource, each.path),
            "resource": each.resource,
            "path": each.path,
            "status": each.status,
        }
        for each in files
    ]


def changes_data(plan: Plan, changes: Iterable[FileChange]) -> list[dict[str, Any]]:
    return [
        {"file": file_label(plan, each.resource, each.file), "action": each.action, "resource": each.resource}
        for each in changes
    ]


def changes_with_ignored(plan: Plan, changes: Sequence[FileChange]) -> dict[str, Any]:
    """What a plan changed in its sandboxes, and what of that git ignores."""
    return {
        "changes": changes_data(plan, (each for each in changes if not each.is_ignored)),
        "ignored_changes": changes_data(plan, (each for each in changes if each.is_ignored)),
    }


def file_label(plan: Plan, resource: str, path: str) -> str:
    """The path in its resource; with the resource's name in front if the plan has several resources."""
    return path if len(plan.resources) == 1 else f"{resource}/{path}"


def switched_off(plan: Plan) -> tuple[str, ...]:
    """A message if the plan takes no automatic checkpoints."""
    if plan.policy.auto_create_on:
        return ()
    only = "you can roll back only to its start and its end"
    return (f"Automatic checkpoints are turned off for this plan (auto_create_on is empty): {only}.",)


def left_out(holdfast: Holdfast) -> tuple[str, ...]:
    """A message about damaged records that the answer leaves out."""
    skipped = holdfast.store.skipped
    if not skipped:
        return ()
    return (f"Not shown, because the records are damaged: {', '.join(skipped)}. See `holdfast doctor`.",)


def unfreed(holdfast: Holdfast) -> tuple[str, ...]:
    """A message if saved content could not be freed."""
    text = holdfast.unfreed()
    return () if text is None else (text,)
