"""What the plan commands say to people, and the replies that need more than a few lines of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import (
    WIDE,
    Next,
    Reply,
    Row,
    Screen,
    Span,
    counted,
    first_line,
    name_text,
    output_lines,
    seconds_text,
    shortened,
    show_next,
    show_table,
    time_text,
)
from holdfast.cli.records import (
    PENDING,
    changes_data,
    current_run,
    decision_data,
    file_label,
    in_force,
    plan_data,
    steps_data,
    validation_data,
)
from holdfast.model import Decision, DecisionType, FileChange, Plan, PlanState, RollbackResult, RunStatus, StepRun

if TYPE_CHECKING:
    from holdfast.app import Holdfast, PlanStatus
    from holdfast.apply import ApplyResult
    from holdfast.correct import CorrectionPreview
    from holdfast.diff import FileDiff
    from holdfast.resume import ResumePreview

MOST_FILES_SHOWN = 30
_STATUS_TAIL_LINES = 8
_STATE_STYLES = {
    PlanState.COMPLETE: "good",
    PlanState.APPLIED: "good",
    PlanState.ERRORED: "bad",
    PlanState.CANCELLED: "warn",
    PlanState.PROCESSING: "warn",
}
_STEP_WORDS: Mapping[str, tuple[str, str]] = {
    RunStatus.SUCCEEDED: ("ok", "good"),
    RunStatus.FAILED: ("failed", "bad"),
    RunStatus.INTERRUPTED: ("stopped", "warn"),
    RunStatus.RUNNING: ("running", "warn"),
    PENDING: ("-", "dim"),
}
_SIGNS = {"added": ("A", "good"), "removed": ("D", "bad"), "changed": ("M", "warn"), "restored": ("restored", "good")}


def state_span(plan: Plan) -> Span:
    return (plan.state.value, _STATE_STYLES.get(plan.state, "strong"))


# plan status


def show_status(screen: Screen, status: PlanStatus, decisions: Sequence[Decision], last: str | None) -> None:
    plan = status.plan
    screen.line(("Plan ", "strong"), (plan.plan_id, "id"), "  ", plan.name)
    done = f"{plan.next_step} of {counted(len(plan.steps), 'step')} done"
    attempt = f", attempt {plan.attempt}" if plan.attempt > 1 else ""
    screen.line(f"{plan.phase} / ", state_span(plan), f", {done}{attempt}")
    for name, value in _facts(status, last):
        screen.line((f"{name:<11} ", "dim"), value)
    screen.line()
    show_table(screen, list(_step_rows(plan, status.runs)), flexible=2)
    failed = current_run(plan, status.runs)
    if failed is not None and failed.output.strip():
        _show_output(screen, failed)
    screen.line()
    _show_resources(screen, plan)
    _show_decisions(screen, in_force(plan, status.runs, decisions))
    show_next(screen, _next_after_status(status))


def _facts(status: PlanStatus, last: str | None) -> Iterable[tuple[str, str]]:
    plan = status.plan
    if plan.error:
        yield "error", first_line(plan.error)
    if plan.guidance:
        yield "guidance", first_line(plan.guidance)
    if status.holder is not None:
        holder = status.holder
        yield "in use by", f"{holder.command} (process {holder.pid} on {holder.host})"
    if status.interrupted:
        yield "interrupted", "its process is gone; executing it goes on safely"
    if last is not None:
        yield "checkpoint", f"{last} is the last of {status.checkpoints}"
    yield "confinement", _confinement_text(status)
    yield "created", time_text(plan.created_at)


def _confinement_text(status: PlanStatus) -> str:
    if status.confinement != "on":
        return f"{status.confinement}: steps can write wherever you can, and no rollback takes that back"
    allowed = ", ".join(name_text(str(path)) for path in status.outside_of_rollback)
    return f"on; outside of rollback: {allowed}" if allowed else "on"


def _step_rows(plan: Plan, runs: Sequence[StepRun]) -> Iterable[Row]:
    for step in steps_data(plan, runs):
        yield [(f"{step['index'] + 1:>3}", "dim"), _STEP_WORDS[step["state"]], step["name"], _took(step)]
    for check in validation_data(plan, runs):
        yield [("  =", "dim"), _STEP_WORDS[check["state"]], check["command"], _took(check)]


def _took(step: Mapping[str, Any]) -> Span:
    seconds = step["duration_seconds"]
    return ("" if seconds is None else seconds_text(seconds), "dim")


def _show_output(screen: Screen, run: StepRun) -> None:
    from holdfast.cli.execution import show_tail

    screen.line()
    screen.line((f"The end of what {run.step} printed:", "dim"))
    show_tail(screen, run.output, _STATUS_TAIL_LINES)


def _show_resources(screen: Screen, plan: Plan) -> None:
    rows: list[Row] = []
    for resource in plan.resources:
        rows.append([resource.name, (resource.strategy.value, "dim"), name_text(resource.path)])
        rows.append(["", ("sandbox", "dim"), (name_text(resource.sandbox_path), "dim")])
    show_table(screen, rows)
    screen.line()


def _show_decisions(screen: Screen, decisions: Sequence[Decision]) -> None:
    rows: list[Row] = []
    for each in decisions:
        if each.type is DecisionType.PROMPT_DEFINITION:
            continue
        step = "" if each.step_index is None else f"step {each.step_index + 1}"
        where = "guidance" if each.is_correction else step
        rows.append([(each.decision_id, "id"), (where, "dim"), first_line(each.chosen)])
    if rows:
        screen.line(("Decisions", "strong"), (" (correct one with `holdfast plan correct`)", "dim"))
        show_table(screen, rows, flexible=2)
        screen.line()


def _next_after_status(status: PlanStatus) -> list[Next]:
    plan_id = status.plan.plan_id
    if status.holder is not None:
        return []
    going_on = Next("go on" if status.plan.head_group_id else "run it", f"holdfast plan execute {plan_id}")
    looking = Next("go back", f"holdfast checkpoint list {plan_id}")
    if status.plan.state is PlanState.COMPLETE:
        return [
            Next("look", f"holdfast plan diff {plan_id}"),
            looking,
            Next("apply", f"holdfast plan apply {plan_id}"),
        ]
    if status.plan.state is PlanState.APPLIED:
        return [Next("look", f"holdfast plan diff {plan_id}")]
    return [going_on, looking] if status.checkpoints else [going_on]


# plan list


def show_plans(screen: Screen, plans: Sequence[Plan], projects: Mapping[str, str], root: Path) -> None:
    if not plans:
        screen.line(f"There are no plans in {name_text(str(root))}.")
        show_next(screen, [Next("make one", "holdfast plan create FILE"), Next("see all", "holdfast plan list --all")])
        return
    columns = ["plan", "state", "steps", "name", "created", "project"]
    if not projects:
        columns.remove("project")
    if screen.width is not None and screen.width < WIDE:
        columns.remove("created")
    rows = [[_plan_cells(plan, projects)[name] for name in columns] for plan in plans]
    show_table(screen, rows, flexible=columns.index("name"), header=columns)


def _plan_cells(plan: Plan, projects: Mapping[str, str]) -> dict[str, Span]:
    return {
        "plan": (plan.plan_id, "id"),
        "state": state_span(plan),
        "steps": f"{plan.next_step}/{len(plan.steps)}",
        "name": plan.name,
        "created": (f"{plan.created_at.astimezone():%Y-%m-%d %H:%M}", "dim"),
        "project": (name_text(projects.get(plan.project_id, "")), "dim"),
    }


# plan diff


def show_diff(screen: Screen, plan: Plan, files: Sequence[FileDiff], style: str) -> None:
    if style == "names":
        for each in files:
            screen.line(name_text(file_label(plan, each.resource, each.path)))
        return
    if not files:
        screen.line("Nothing changed.")
        return
    if style == "patch":
        for each in files:
            _show_patch(screen, plan, each)
        return
    rows = [_stat_row(plan, each) for each in files]
    show_table(screen, rows, flexible=1)
    added, removed = (sum(getattr(each, name) for each in files) for name in ("added_lines", "removed_lines"))
    screen.line((f"{counted(len(files), 'file')}, {counted(added, 'line')} added, {removed} removed", "dim"))


def _stat_row(plan: Plan, each: FileDiff) -> Row:
    lines: Span = ("binary", "dim") if each.is_binary else f"+{each.added_lines} -{each.removed_lines}"
    return [_SIGNS[each.status], name_text(file_label(plan, each.resource, each.path)), lines, (each.note, "dim")]


def _show_patch(screen: Screen, plan: Plan, each: FileDiff) -> None:
    label = name_text(file_label(plan, each.resource, each.path))
    note = f" ({each.note})" if each.note else ""
    if each.is_binary or not each.patch:
        screen.line((f"{each.status} {label}{note}{': binary' if each.is_binary else ''}", "strong"))
        return
    old = "/dev/null" if each.status == "added" else f"a/{label}"
    new = "/dev/null" if each.status == "removed" else f"b/{label}"
    screen.line((f"--- {old}", "strong"))
    screen.line((f"+++ {new}", "strong"))
    for line in each.patch[2:]:
        screen.line(_patch_span(output_lines(line)[0]))


def _patch_span(line: str) -> Span:
    styles = {"+": "good", "-": "bad", "@": "id", "\\": "dim"}
    return (line, styles[line[0]]) if line and line[0] in styles else line


# plan rollback


def rollback_reply(holdfast: Holdfast, result: RollbackResult) -> Reply:
    plan, checkpoint = result.plan, result.checkpoint
    left = holdfast.store.checkpoints_of_group(result.left_group_id) if result.left_group_id else []
    commands = [Next("go on", f"holdfast plan execute {plan.plan_id}")]
    if left:
        commands.append(Next("undo this", f"holdfast plan rollback {plan.plan_id} {left[0].checkpoint_id}"))
    data = {
        "plan_id": plan.plan_id,
        "checkpoint_id": checkpoint.checkpoint_id,
        "group_id": checkpoint.group_id,
        "rollback_summary": {
            "plan": plan.plan_id,
            "checkpoint": checkpoint.checkpoint_id,
            "label": checkpoint.metadata.label,
            "files_reverted": result.files_reverted,
        },
        "changes_reverted": changes_data(plan, result.changes),
        "impact": result.impact.model_dump(),
        "post_rollback_state": {
            "phase": plan.phase,
            "state": plan.state,
            "checkpoints_remaining": result.checkpoints_remaining,
        },
        "last_checkpoint_id": plan.last_checkpoint_id,
        "left_group_id": result.left_group_id,
        "left_checkpoint_id": left[0].checkpoint_id if left else None,
        "set_aside": result.set_aside,
        "next_commands": [each.command for each in commands],
    }
    return Reply(data, lambda screen: _show_rollback(screen, result, commands))


def _show_rollback(screen: Screen, result: RollbackResult, commands: Sequence[Next]) -> None:
    plan, metadata = result.plan, result.checkpoint.metadata
    summary: list[Row] = [
        [("plan", "dim"), (plan.plan_id, "id"), plan.name],
        [("checkpoint", "dim"), (result.checkpoint.checkpoint_id, "id"), metadata.label or metadata.reason],
        [("files reverted", "dim"), str(result.files_reverted)],
    ]
    screen.panel("Rollback Summary", summary, flexible=2)
    screen.panel("Changes Reverted", _reverted_rows(plan, result.changes))
    impact = result.impact
    consequences: list[Row] = [
        [("decisions superseded", "dim"), str(impact.decisions_after_cp)],
        [("tool calls undone", "dim"), str(impact.tool_calls_after_cp)],
        [("subplans invalidated", "dim"), str(impact.child_plans_invalidated)],
    ]
    consequences += [[("sandbox", "dim"), name_text(resource.sandbox_path)] for resource in plan.resources]
    consequences += [[("set aside", "dim"), name_text(path)] for path in result.set_aside]
    screen.panel("Impact", consequences)
    step = "at its end" if plan.is_finished else f"at step {plan.next_step + 1}, {plan.steps[plan.next_step].name}"
    screen.panel(
        "Post-Rollback State",
        [
            [("state", "dim"), f"{plan.phase} / {plan.state}, {step}"],
            [("checkpoints", "dim"), str(result.checkpoints_remaining)],
        ],
    )
    show_next(screen, commands)


def _reverted_rows(plan: Plan, changes: Sequence[FileChange]) -> list[Row]:
    if not changes:
        return [[("no file was different", "dim")]]
    styles = {"restored": "good", "removed": "bad"}
    rows: list[Row] = [
        [(each.action, styles.get(each.action, "warn")), name_text(file_label(plan, each.resource, each.file))]
        for each in changes[:MOST_FILES_SHOWN]
    ]
    if len(changes) > MOST_FILES_SHOWN:
        rows.append([("", "dim"), (f"and {len(changes) - MOST_FILES_SHOWN} more", "dim")])
    return rows


# plan correct


def correction_question(preview: CorrectionPreview) -> str:
    return (
        f"Undo “{shortened(first_line(preview.decision.chosen), 60)}” and all that followed from it: "
        f"{counted(len(preview.superseded), 'decision')} superseded, "
        f"{counted(len(preview.files), 'file')} taken back in the sandboxes. Go on?"
    )


def correction_reply(plan: Plan, preview: CorrectionPreview, mode: str) -> Reply:
    """What a correction would do; nothing of it was done."""
    checkpoint_id = preview.checkpoint.checkpoint_id if preview.checkpoint else None
    data = {
        **plan_data(plan),
        "dry_run": True,
        "mode": mode,
        "decision": decision_data(preview.decision),
        "checkpoint_id": checkpoint_id,
        "superseded_decisions": [decision_data(each) for each in preview.superseded],
        "files": preview.files,
        "resumes_at_step": preview.resumes_at,
        "steps": [{"index": index, "name": step.name, "tool": step.tool} for index, step in enumerate(preview.steps)],
    }

    def show(screen: Screen) -> None:
        screen.line(("Decision ", "strong"), (preview.decision.decision_id, "id"))
        screen.line("  ", first_line(preview.decision.chosen))
        if mode == "revert":
            is_undone = not preview.superseded and not preview.files
            screen.line(("Would be undone", "strong"), " nothing more: it is rolled back already" if is_undone else "")
            for each in preview.superseded:
                screen.line("  ", (each.decision_id, "id"), "  ", first_line(each.chosen))
            for file in preview.files[:MOST_FILES_SHOWN]:
                screen.line("  ", name_text(file))
            if len(preview.files) > MOST_FILES_SHOWN:
                screen.line(f"  and {counted(len(preview.files) - MOST_FILES_SHOWN, 'more file')}")
        screen.line(("Would run", "strong"))
        for index, step in list(enumerate(preview.steps))[preview.resumes_at :]:
            screen.line((f"  {index + 1:>2}  ", "dim"), step.name)
        screen.line("Nothing was changed.")

    return Reply(data, show)


# plan apply


def show_changes(screen: Screen, plan: Plan, changes: Sequence[FileChange]) -> None:
    rows: list[Row] = [
        [_SIGNS[each.action], name_text(file_label(plan, each.resource, each.file))]
        for each in changes[:MOST_FILES_SHOWN]
    ]
    show_table(screen, rows)
    if len(changes) > MOST_FILES_SHOWN:
        screen.line((f"and {len(changes) - MOST_FILES_SHOWN} more", "dim"))


def apply_reply(result: ApplyResult) -> Reply:
    plan = result.plan
    data = {
        **plan_data(plan),
        "changes": changes_data(plan, result.changes),
        "files_changed": len(result.changes),
        "commits": result.commits,
        "left_out": result.left_out,
    }

    def show(screen: Screen) -> None:
        show_changes(screen, plan, result.changes)
        screen.line(("Applied. ", "good"), f"{counted(len(result.changes), 'file')} of yours changed.")
        for name, commit in result.commits.items():
            screen.line((f"{name}  ", "dim"), f"commit {commit[:12]}")
        if result.left_out:
            named = ", ".join(name_text(path) for path in result.left_out[:3])
            more = f" and {len(result.left_out) - 3} more" if len(result.left_out) > 3 else ""
            screen.line(("left in the sandbox, as git ignores it  ", "dim"), named + more)

    return Reply(data, show)


def resume_reply(holdfast: Holdfast, preview: ResumePreview) -> Reply:
    """From where a plan would go on."""
    plan = preview.plan
    step = None if preview.step_index is None else plan.steps[preview.step_index]
    back = None
    if preview.group_id is not None:
        back = holdfast.store.checkpoints_of_group(preview.group_id)[0].checkpoint_id
    data = {
        "plan_id": plan.plan_id,
        "step_index": preview.step_index,
        "step": step.name if step else None,
        "checkpoint_id": back,
        "operations": list(preview.operations),
    }

    def show(screen: Screen) -> None:
        for operation in preview.operations:
            end = "finished" if operation == "rollback" else "undone"
            screen.line(f"first    the {operation} that was cut short is {end}")
        if back is not None:
            screen.line(f"then     the sandboxes go back to {back}: the step did not come to its end")
        where = f"{plan.next_step + 1} {step.name}" if step else "all steps are done; the result is checked again"
        screen.line(f"goes on  {where}")
        screen.line()
        show_next(screen, [Next("go on", f"holdfast plan resume {plan.plan_id}")])

    return Reply(data, show)
