"""What ``plan rollback`` and ``plan correct`` say, of what they did and of what they would do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import (
    Next,
    Reply,
    Row,
    Screen,
    counted,
    first_line,
    shortened,
    show_envelope,
    show_next,
    show_table,
)
from holdfast.cli.records import changes_data, decision_data, effect_lines, file_label, plan_data
from holdfast.cli.screen.bar import Bar
from holdfast.cli.screen.execution import lasting_ids
from holdfast.cli.screen.plan_text import MOST_FILES_SHOWN
from holdfast.events import EffectsOutside, Event, SetAside, Working
from holdfast.model import Plan, PlanState, RollbackImpact, RollbackResult
from holdfast.names import name_text
from holdfast.rollback.compensation import with_effects

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.cli.invocation import Invocation
    from holdfast.decisions.correct import CorrectionPreview
    from holdfast.rollback.rollback import RollbackPreview

_NOTHING_CHANGED = "Nothing was changed."


class OutsideHeard:
    """Listens for what became of effects outside of the sandboxes, and of what was set aside, and says it at once."""

    def __init__(self, invocation: Invocation) -> None:
        self._screen, self._is_for_programs = invocation.screen, invocation.is_for_programs
        self._bar = Bar(self._screen) if self._screen.is_live else None
        self._heard: list[EffectsOutside] = []
        self.set_aside: list[str] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, EffectsOutside):
            self._heard.append(event)
            for line in () if self._is_for_programs else effect_lines(event):
                self._screen.line((line, "warn"))
        elif isinstance(event, SetAside):
            self.set_aside += event.places
            for place in () if self._is_for_programs else event.places:
                self._screen.line(("set aside  ", "warn"), name_text(place))
        elif isinstance(event, Working) and self._bar is not None:
            self._bar(event)

    def in_place_of_expected(self, impact: RollbackImpact) -> RollbackImpact:
        return with_effects(impact, self._heard[-1]) if self._heard else impact


# plan rollback


def rollback_question(preview: RollbackPreview, checkpoint: str) -> str:
    from holdfast.cli.commands.checkpoint import title_text

    files = counted(preview.files, "file")
    where = f"{checkpoint} ({title_text(preview.expected.checkpoint, preview.group)})"
    if preview.expected.only:
        return f"From {where}: {files} will be restored or removed in the sandboxes, all else stays. Restore?"
    return (
        f"Go back to {where}: {files} will be restored or removed in the sandboxes and "
        f"{counted(preview.decisions, 'decision')} superseded. {_stays(preview.expected.impact)}"
        f"{_lost(preview.expected)}Go back?"
    )


def _lost(result: RollbackResult) -> str:
    """What is not kept, for the question."""
    if not result.is_unkept:
        return ""
    if not result.lost:
        return "The present state gets no checkpoint; nothing is lost, as the last one holds it. "
    more = len(result.lost) - MOST_FILES_SHOWN
    listed = ", ".join(map(name_text, result.lost[:MOST_FILES_SHOWN])) + (f" and {more} more" if more > 0 else "")
    return f"The present state is not kept; this is lost for good: {listed}. "


def _stays(impact: RollbackImpact) -> str:
    lines = effect_lines(impact)
    said = "; ".join(lines)
    return f"{said[:1].upper()}{said[1:]}. " if lines else ""


def rollback_reply(invocation: Invocation, holdfast: Holdfast, result: RollbackResult) -> Reply:
    plan = result.plan
    messages = _messages(holdfast, result)
    left = holdfast.store.checkpoints.of_group(result.left_group_id) if result.left_group_id else []
    commands = [Next("go on", f"holdfast plan execute {plan.plan_id}")]
    if plan.state is PlanState.COMPLETE:
        commands = []
    if left:
        shown = lasting_ids(each.checkpoint_id for each in holdfast.store.checkpoints.of(plan.plan_id))
        commands.append(Next("undo this", f"holdfast plan rollback {plan.plan_id} {shown[left[0].checkpoint_id]}"))
    data = {
        **_rollback_data(result, commands),
        "dry_run": False,
        "left_checkpoint_id": left[0].checkpoint_id if left else None,
    }

    def show(screen: Screen) -> None:
        _show_rollback(screen, result)
        show_envelope(screen, invocation.started, invocation.seconds, messages)
        show_next(screen, commands)

    return Reply(data, show, messages=messages, shows_messages=True)


def _messages(holdfast: Holdfast, result: RollbackResult) -> tuple[str, ...]:
    ids = lasting_ids(each.checkpoint_id for each in holdfast.store.checkpoints.of(result.plan.plan_id))
    checkpoint = ids.get(result.checkpoint.checkpoint_id, result.checkpoint.checkpoint_id)
    files = counted(result.files_reverted, "file")
    if result.only:
        return (f"From {checkpoint} {files} restored or removed; the plan stays where it is.",)
    return (f"Went back to {checkpoint}; {files} restored or removed.",)


def rollback_preview_reply(invocation: Invocation, preview: RollbackPreview, checkpoint: str) -> Reply:
    """What a rollback would do; nothing of it was done."""
    result = preview.expected
    only = " ".join(f"--only {shlex.quote(path)} " for path in result.only)
    target = f"{'--without-keeping ' if result.is_unkept else ''}{preview.plan.plan_id} {shlex.quote(checkpoint)}"
    commands = [Next("do it", f"holdfast plan rollback {only}{target}")]

    def show(screen: Screen) -> None:
        _show_rollback(screen, result)
        show_envelope(screen, invocation.started, invocation.seconds, [_NOTHING_CHANGED])
        show_next(screen, commands)

    data = {**_rollback_data(result, commands), "dry_run": True, "left_checkpoint_id": None}
    return Reply(data, show, messages=(_NOTHING_CHANGED,), shows_messages=True)


def _rollback_data(result: RollbackResult, commands: Sequence[Next]) -> dict[str, Any]:
    plan, checkpoint = result.plan, result.checkpoint
    return {
        "plan_id": plan.plan_id,
        "checkpoint_id": checkpoint.checkpoint_id,
        "group_id": checkpoint.group_id,
        "only": result.only,
        "rollback_summary": {
            "plan": plan.plan_id,
            "checkpoint": checkpoint.checkpoint_id,
            "label": checkpoint.metadata.label,
            "files_reverted": result.files_reverted,
        },
        "changes_reverted": changes_data(plan, result.changes),
        "repositories_reverted": result.repositories,
        "impact": result.impact.model_dump(),
        "post_rollback_state": {
            "phase": plan.phase,
            "state": plan.state,
            "checkpoints_remaining": result.checkpoints_remaining,
        },
        "last_checkpoint_id": plan.last_checkpoint_id,
        "left_group_id": result.left_group_id,
        "is_unkept": result.is_unkept,
        "lost": result.lost,
        "set_aside": result.set_aside,
        "next_commands": [each.command for each in commands],
    }


def _show_rollback(screen: Screen, result: RollbackResult) -> None:
    plan, metadata = result.plan, result.checkpoint.metadata
    summary: list[Row] = [
        [("plan", "dim"), (plan.plan_id, "id"), plan.name],
        [("checkpoint", "dim"), (result.checkpoint.checkpoint_id, "id"), metadata.label or metadata.reason],
    ]
    summary += [[("only", "dim"), name_text(path)] for path in result.only]
    summary.append([("files reverted", "dim"), str(result.files_reverted)])
    screen.panel("Rollback Summary", summary, flexible=2)
    screen.panel("Changes Reverted", _reverted_rows(plan, result))
    screen.panel("Impact", _impact_rows(result))
    screen.panel("Post-Rollback State", _state_rows(result))


def _impact_rows(result: RollbackResult) -> list[Row]:
    impact = result.impact
    rows: list[Row] = [
        [("decisions superseded", "dim"), str(impact.decisions_after_cp)],
        [("tool calls undone", "dim"), str(impact.tool_calls_after_cp)],
        [("subplans invalidated", "dim"), str(impact.child_plans_invalidated)],
    ]
    staying = "its result stays in the real files"
    rows += [[("subplan applied", "dim"), (f"{name}: {staying}", "warn")] for name in impact.child_plans_applied]
    rows += [[("sandbox", "dim"), name_text(resource.sandbox_path)] for resource in result.plan.resources]
    rows += [[("set aside", "dim"), name_text(path)] for path in result.set_aside]
    rows += [[("lost", "dim"), (name_text(path), "warn")] for path in result.lost[:MOST_FILES_SHOWN]]
    if (more := len(result.lost) - MOST_FILES_SHOWN) > 0:
        rows.append([("lost", "dim"), (f"and {more} more", "warn")])
    rows += [[("side effects", "dim"), (line, "warn")] for line in effect_lines(impact)]
    for each in impact.effects_gone:
        gone = f"step {each.step_index + 1} ({first_line(each.step)}) counts as done; undoing its effect: {each.note}"
        rows.append([("side effects", "dim"), (gone, "warn")])
    return rows


def _state_rows(result: RollbackResult) -> list[Row]:
    plan = result.plan
    step = "at its end" if plan.is_finished else f"at step {plan.next_step + 1}, {plan.steps[plan.next_step].name}"
    rows: list[Row] = [
        [("state", "dim"), f"{plan.phase} / {plan.state}, {step}"],
        [("checkpoints", "dim"), str(result.checkpoints_remaining)],
    ]
    if result.only and plan.is_finished and plan.state is PlanState.QUEUED:
        rows.append([("result", "dim"), "changed; executing the plan validates it again and makes it complete"])
    return rows


def _reverted_rows(plan: Plan, result: RollbackResult) -> list[Row]:
    changes = result.changes
    repositories: list[Row] = [[("git", "warn"), f"HEAD, branches or tags of {name}"] for name in result.repositories]
    if not changes:
        return repositories or [[("no file was different", "dim")]]
    styles = {"restored": "good", "removed": "bad"}
    rows: list[Row] = [
        [(each.action, styles.get(each.action, "warn")), name_text(file_label(plan, each.resource, each.file))]
        for each in changes[:MOST_FILES_SHOWN]
    ]
    if len(changes) > MOST_FILES_SHOWN:
        rows.append([("", "dim"), (f"and {len(changes) - MOST_FILES_SHOWN} more", "dim")])
    return rows + repositories


# plan correct


def correction_question(preview: CorrectionPreview) -> str:
    if preview.checkpoint is None:
        new = preview.steps[len(preview.plan.steps) :]
        named = ", ".join(shortened(first_line(step.name), 30) for step in new[:3]) + (", …" if len(new) > 3 else "")
        return f"Undo nothing, and add {counted(len(new), 'step')} at the end: {named}. Go on?"
    subplans = f"{counted(len(preview.subplans), 'subplan')} invalidated, " if preview.subplans else ""
    return (
        f"Undo “{shortened(first_line(preview.decision.chosen), 60)}” and all that followed from it: "
        f"{counted(len(preview.superseded), 'decision')} superseded, {subplans}"
        f"{counted(len(preview.files), 'file')} taken back in the sandboxes. {_stays(preview.impact)}Go on?"
    )


def correction_reply(preview: CorrectionPreview, mode: str, guidance: str, steps_file: Path | None) -> Reply:
    """What a correction would do; nothing of it was done."""
    steps = ["--with", str(steps_file)] if steps_file else []
    said = shlex.join(["--mode", mode, "--guidance", guidance, *steps, preview.decision.decision_id])
    commands = [Next("do it", f"holdfast plan correct {said}")]
    data = {
        **plan_data(preview.plan),
        "dry_run": True,
        "mode": mode,
        "decision": decision_data(preview.decision),
        "checkpoint_id": preview.checkpoint.checkpoint_id if preview.checkpoint else None,
        "superseded_decisions": [decision_data(each) for each in preview.superseded],
        "subplans_invalidated": [plan_data(each) for each in preview.subplans],
        "files": preview.files,
        "impact": preview.impact.model_dump(),
        "resumes_at_step": preview.resumes_at,
        "steps": [{"index": index, "name": step.name, "tool": step.tool} for index, step in enumerate(preview.steps)],
        "next_commands": [each.command for each in commands],
    }

    def show(screen: Screen) -> None:
        _show_correction(screen, preview)
        show_next(screen, commands)

    return Reply(data, show)


def _show_correction(screen: Screen, preview: CorrectionPreview) -> None:
    screen.line(("Decision ", "strong"), (preview.decision.decision_id, "id"))
    show_table(screen, [[first_line(preview.decision.chosen)]], flexible=0, indent="  ")
    if preview.checkpoint is not None:
        _show_undone(screen, preview)
    screen.line(("Would run", "strong"))
    steps = list(enumerate(preview.steps, 1))[preview.resumes_at :]
    show_table(screen, [[(f"{number:>2}", "dim"), step.name] for number, step in steps], flexible=1, indent="  ")
    screen.line(_NOTHING_CHANGED)


def _show_undone(screen: Screen, preview: CorrectionPreview) -> None:
    is_undone = preview.decision.is_superseded
    screen.line(("Would be undone", "strong"), " (its step is rolled back already)" if is_undone else "")
    rows: list[Row] = [[(each.decision_id, "id"), first_line(each.chosen)] for each in preview.superseded]
    show_table(screen, rows, flexible=1, indent="  ")
    for subplan in preview.subplans:
        screen.line("  ", (subplan.plan_id, "id"), "  subplan ", subplan.name)
    for file in preview.files[:MOST_FILES_SHOWN]:
        resource, _, path = file.partition(": ")
        screen.line("  ", name_text(file_label(preview.plan, resource, path)))
    if len(preview.files) > MOST_FILES_SHOWN:
        screen.line(f"  and {counted(len(preview.files) - MOST_FILES_SHOWN, 'more file')}")
    for line in effect_lines(preview.impact):
        screen.line("  ", (line, "warn"))
