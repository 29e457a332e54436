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
    show_next,
    show_table,
    time_text,
)
from holdfast.cli.records import (
    PENDING,
    current_run,
    file_label,
    in_force,
    steps_data,
    validation_data,
)
from holdfast.model import Decision, DecisionType, Plan, PlanState, RunStatus, StepRun

if TYPE_CHECKING:
    from holdfast.app import Holdfast, PlanStatus
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
    PlanState.CONSTRAINED: "bad",
}
_STEP_WORDS: Mapping[str, tuple[str, str]] = {
    RunStatus.SUCCEEDED: ("ok", "good"),
    RunStatus.FAILED: ("failed", "bad"),
    RunStatus.INTERRUPTED: ("stopped", "warn"),
    RunStatus.RUNNING: ("running", "warn"),
    RunStatus.CONSTRAINED: ("conflict", "bad"),
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
    show_table(screen, list(_step_rows(status, decisions)), flexible=2)
    if status.conflicts:
        _show_conflicts(screen, status)
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


def _step_rows(status: PlanStatus, decisions: Sequence[Decision]) -> Iterable[Row]:
    plan, runs = status.plan, status.runs
    step_of = {each.decision_id: each.step_index for each in decisions}
    for step in steps_data(plan, runs):
        yield [(f"{step['index'] + 1:>3}", "dim"), _STEP_WORDS[step["state"]], step["name"], _took(step)]
        for subplan in status.subplans:
            if not subplan.is_superseded and step_of.get(subplan.spawn_decision_id or "") == step["index"]:
                yield ["", state_span(subplan), f"  {subplan.name}", ("", "dim")]
    for check in validation_data(plan, runs):
        yield [("  =", "dim"), _STEP_WORDS[check["state"]], check["command"], _took(check)]


def _took(step: Mapping[str, Any]) -> Span:
    seconds = step["duration_seconds"]
    return ("" if seconds is None else seconds_text(seconds), "dim")


def _show_conflicts(screen: Screen, status: PlanStatus) -> None:
    from holdfast.cli.execution import show_conflicts

    screen.line()
    screen.line(("To be resolved in the sandbox:", "bad"))
    show_conflicts(screen, status.conflicts)


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
    verb = "resume" if status.plan.state is PlanState.CONSTRAINED else "execute"
    going_on = Next("go on" if status.plan.head_group_id else "run it", f"holdfast plan {verb} {plan_id}")
    looking = Next("go back", f"holdfast checkpoint list {plan_id}")
    if status.plan.state is PlanState.COMPLETE:
        return [
            Next("look", f"holdfast plan diff {plan_id}"),
            looking,
            Next("apply", f"holdfast plan apply {plan_id}"),
        ]
    if status.plan.state is PlanState.APPLIED:
        return [
            Next("look", f"holdfast plan diff {plan_id}"),
            Next("take it back", f"holdfast plan unapply {plan_id}"),
        ]
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


# plan resume


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
        "subplans": list(preview.subplans),
    }

    def show(screen: Screen) -> None:
        for operation in preview.operations:
            end = "finished" if operation in ("rollback", "restore_paths") else "undone"
            screen.line(f"first    the {operation.replace('_', ' of ')} that was cut short is {end}")
        if back is not None:
            screen.line(f"then     the sandboxes go back to {back}: the step did not come to its end")
        where = f"{plan.next_step + 1} {step.name}" if step else "all steps are done; the result is checked again"
        screen.line(f"goes on  {where}")
        if preview.subplans:
            screen.line(f"with     {', '.join(preview.subplans)}; the other subplans are done")
        screen.line()
        show_next(screen, [Next("go on", f"holdfast plan resume {plan.plan_id}")])

    return Reply(data, show)
