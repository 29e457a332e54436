"""What the plan commands say to people, and the replies that need more than a few lines of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import (
    Next,
    Reply,
    Row,
    Screen,
    Span,
    counted,
    first_line,
    fits,
    output_lines,
    seconds_text,
    show_facts,
    show_next,
    show_plan,
    show_table,
    time_text,
)
from holdfast.cli.records import (
    PENDING,
    current_run,
    file_label,
    steps_data,
    validation_data,
)
from holdfast.model import CheckpointGroup, Decision, OperationKind, Plan, PlanState, RunStatus, StepRun
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast.app import Holdfast, PlanStatus
    from holdfast.checkpoints.file_diffs import FileDiff
    from holdfast.execution.executor import Choices
    from holdfast.execution.resume import ResumePreview

MOST_FILES_SHOWN = 30
_STATUS_TAIL_LINES = 4
_PLAN_COLUMNS = ("plan", "state", "steps", "name", "created")
_PLAN_NAME = _PLAN_COLUMNS.index("name")
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
_SUBPLAN_WORDS = {
    PlanState.QUEUED: _STEP_WORDS[PENDING],
    PlanState.PROCESSING: _STEP_WORDS[RunStatus.RUNNING],
    PlanState.COMPLETE: _STEP_WORDS[RunStatus.SUCCEEDED],
    PlanState.APPLIED: _STEP_WORDS[RunStatus.SUCCEEDED],
    PlanState.ERRORED: _STEP_WORDS[RunStatus.FAILED],
    PlanState.CANCELLED: _STEP_WORDS[RunStatus.INTERRUPTED],
    PlanState.CONSTRAINED: _STEP_WORDS[RunStatus.CONSTRAINED],
}
_FINISHED_LATER = (OperationKind.ROLLBACK, OperationKind.RESTORE_PATHS)
"""What was cut short and is then finished; all else is undone."""
_SIGNS = {"added": ("A", "good"), "removed": ("D", "bad"), "changed": ("M", "warn"), "restored": ("restored", "good")}


def state_span(plan: Plan) -> Span:
    return (plan.state.value, _STATE_STYLES.get(plan.state, "strong"))


# plan status


def show_status(screen: Screen, status: PlanStatus, decisions: Sequence[Decision], last: str | None) -> None:
    plan = status.plan
    show_plan(screen, plan.plan_id, plan.name)
    done = f"{plan.next_step} of {counted(len(plan.steps), 'step')} done"
    attempt = f", attempt {plan.attempt}" if plan.attempt > 1 else ""
    screen.line(f"{plan.phase} / ", state_span(plan), f", {done}{attempt}")
    show_facts(screen, _facts(status, last))
    screen.line()
    show_table(screen, list(_step_rows(status, decisions)), flexible=2)
    if status.conflicts:
        _show_conflicts(screen, status)
    failed = current_run(plan, status.runs)
    if failed is not None and failed.output.strip():
        _show_output(screen, failed)
    screen.line()
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
    for kind in status.cut_short:
        end = "finishes" if kind in _FINISHED_LATER else "undoes"
        yield "cut short", f"the {kind.replace('_', ' of ')}; the next command that changes the plan {end} it first"
    if status.interrupted:
        yield "interrupted", "its process is gone; `plan resume` goes on safely, or says what to choose"
    if last is not None:
        yield "checkpoint", f"{last} is the last of {status.checkpoints}"
    yield "confinement", _confinement_text(status)
    yield "created", time_text(plan.created_at)
    for resource in plan.resources:
        yield resource.name, f"{resource.strategy} of {name_text(resource.path)}"
        yield "sandbox", name_text(resource.sandbox_path)


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
                yield ["", _SUBPLAN_WORDS[subplan.state], f"  {subplan.name}", ("", "dim")]
    for check in validation_data(plan, runs):
        yield [("  =", "dim"), _STEP_WORDS[check["state"]], check["command"], _took(check)]


def _took(step: Mapping[str, Any]) -> Span:
    seconds = step["duration_seconds"]
    return ("" if seconds is None else seconds_text(seconds), "dim")


def _show_conflicts(screen: Screen, status: PlanStatus) -> None:
    from holdfast.cli.screen.execution import show_conflicts

    screen.line()
    screen.line(("To be resolved in the sandbox:", "bad"))
    show_conflicts(screen, status.conflicts)


def _show_output(screen: Screen, run: StepRun) -> None:
    from holdfast.cli.screen.execution import show_tail

    screen.line()
    screen.line(("The end of what it printed:", "dim"))
    show_tail(screen, run.output, _STATUS_TAIL_LINES)


def _next_after_status(status: PlanStatus) -> list[Next]:
    plan_id = status.plan.plan_id
    if status.holder is not None:
        stopping = [Next("stop it", f"holdfast plan cancel {status.root_id}")] if status.holder.can_be_stopped else []
        return [Next("look", f"holdfast log {plan_id}"), *stopping]
    verb = "resume" if status.interrupted or status.plan.state is PlanState.CONSTRAINED else "execute"
    if plan_id != status.root_id:
        return [Next("the whole plan", f"holdfast plan status {status.root_id}")]
    going_on = Next("go on" if status.plan.head_group_id else "run it", f"holdfast plan {verb} {plan_id}")
    looking = Next("look", f"holdfast plan diff {plan_id}")
    going_back = Next("go back", f"holdfast checkpoint list {plan_id}")
    correcting = Next("correct", f"holdfast plan tree {plan_id}")
    if status.cut_short:
        return [Next("what first", f"holdfast plan resume --dry-run {plan_id}"), going_on]
    if status.plan.state is PlanState.COMPLETE:
        return [looking, going_back, correcting, Next("apply", f"holdfast plan apply {plan_id}")]
    if status.plan.state is PlanState.APPLIED:
        return [looking, Next("take it back", f"holdfast plan unapply {plan_id}")]
    keeping = [Next("keep its work", f"holdfast plan resume --skip {plan_id}")] if _is_of_a_program(status) else []
    return [going_on, *keeping, going_back, correcting] if status.checkpoints else [going_on]


def _is_of_a_program(status: PlanStatus) -> bool:
    """Whether a program was cut short whose work can be kept."""
    run = current_run(status.plan, status.runs)
    step = status.plan.interrupted_step(run)
    return run is not None and not run.is_superseded and step is not None and step.is_program


# plan list


def show_plans(
    screen: Screen, plans: Sequence[Plan], projects: Mapping[str, str], root: Path | None, interrupted: Collection[str]
) -> None:
    """``root``: the project whose plans they are, if not of all; ``interrupted``: those that say they are being
    processed, and whose process is dead."""
    if not plans:
        screen.line(f"There are no plans in {name_text(str(root))}." if root else "There are no plans in any project.")
        commands = [Next("make one", "holdfast plan create FILE"), Next("see all", "holdfast plan list --all")]
        show_next(screen, commands if root else commands[:1])
        return
    if root is not None:
        _show_plan_table(screen, [_plan_row(plan, interrupted) for plan in plans], [*_PLAN_COLUMNS])
        return
    rows = [[*_plan_row(plan, interrupted), (name_text(projects.get(plan.project_id, "")), "dim")] for plan in plans]
    if fits([[*_PLAN_COLUMNS, "project"], *rows], screen.width, _PLAN_NAME):
        show_table(screen, rows, flexible=_PLAN_NAME, header=[*_PLAN_COLUMNS, "project"])
        return
    for number, project in enumerate(dict.fromkeys(plan.project_id for plan in plans)):
        if number:
            screen.line()
        screen.line((name_text(projects.get(project, "")), "strong"))
        listed = [_plan_row(plan, interrupted) for plan in plans if plan.project_id == project]
        _show_plan_table(screen, listed, [])


def _show_plan_table(screen: Screen, rows: Sequence[Row], header: Sequence[str]) -> None:
    kept = slice(None) if fits([*rows, _PLAN_COLUMNS], screen.width, _PLAN_NAME) else slice(_PLAN_NAME + 1)
    show_table(screen, [row[kept] for row in rows], flexible=_PLAN_NAME, header=header[kept])


def _plan_row(plan: Plan, interrupted: Collection[str]) -> Row:
    return [
        (plan.plan_id, "id"),
        ("interrupted", "warn") if plan.plan_id in interrupted else state_span(plan),
        f"{plan.next_step}/{len(plan.steps)}",
        plan.name,
        (f"{plan.created_at.astimezone():%Y-%m-%d %H:%M}", "dim"),
    ]


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
        if screen.width is None:  # it may be for `git apply`, so it is left as it is, to its last space
            screen.part(line)
            screen.line()
        else:
            screen.line(_patch_span(output_lines(line)[0]))


def _patch_span(line: str) -> Span:
    styles = {"+": "good", "-": "bad", "@": "id", "\\": "dim"}
    return (line, styles[line[0]]) if line and line[0] in styles else line


# plan resume


def resume_reply(holdfast: Holdfast, preview: ResumePreview) -> Reply:
    """From where a plan would go on."""
    plan = preview.plan
    step = None if preview.step_index is None else preview.steps[preview.step_index]
    back = None
    if preview.group_id is not None:
        before = holdfast.store.get(CheckpointGroup, preview.group_id)
        back = holdfast.service.checkpoints_at(before)[0].checkpoint_id
    data = {
        "plan_id": plan.plan_id,
        "step_index": preview.step_index,
        "step": step.name if step else None,
        "skipped": preview.skipped,
        "checkpoint_id": back,
        "operations": list(preview.operations),
        "subplans": list(preview.subplans),
        "made_anew": list(preview.made_anew),
    }

    def show(screen: Screen) -> None:
        show_plan(screen, plan.plan_id, plan.name)
        show_facts(screen, _resume_facts(preview, back))
        screen.line("Nothing was changed.")
        commands = [Next("go on", f"holdfast plan resume {_said(preview.choices)}{plan.plan_id}")]
        if preview.can_skip:
            commands.append(Next("keep its work", f"holdfast plan resume --skip {plan.plan_id}"))
        show_next(screen, commands)

    return Reply(data, show)


def _resume_facts(preview: ResumePreview, back: str | None) -> Iterable[tuple[str, str]]:
    for operation in preview.operations:
        end = "finished" if operation in _FINISHED_LATER else "undone"
        yield "first", f"the {operation.replace('_', ' of ')} that was cut short is {end}"
    if preview.made_anew:
        yield "makes anew", f"{', '.join(preview.made_anew)}, from the last checkpoint: the sandbox is gone"
    if back is not None:
        why = "what steps did since is gone" if preview.is_lost else "the step did not come to its end"
        yield "goes back", f"the sandboxes to {back}: {why}"
    if preview.skipped is not None:
        files = "the files are those of the last checkpoint" if preview.made_anew else "the files stay as it left them"
        yield "skips", f"{preview.skipped}, which counts as done; {files}"
    yield _going_on(preview)
    if preview.subplans:
        yield "with", f"{', '.join(preview.subplans)}; the other subplans are done"


def _going_on(preview: ResumePreview) -> tuple[str, str]:
    if preview.runs_nothing:
        is_done = preview.plan.state is PlanState.COMPLETE
        return "then", "nothing: the plan is complete" if is_done else "waits: the conflicts are to be resolved there"
    if preview.step_index is None:
        return "goes on", "all steps are done; the result is checked again"
    return "goes on", f"{preview.step_index + 1} {preview.steps[preview.step_index].name}"


def _said(choices: Choices) -> str:
    """The options that say the same."""
    interrupted = f"--{choices.interrupted_step} " if choices.interrupted_step is not None else ""
    return interrupted + ("--resolved " if choices.conflicts_are_resolved else "")
