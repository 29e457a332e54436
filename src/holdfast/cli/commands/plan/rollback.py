"""``holdfast plan rollback``: go back to a checkpoint, or restore single files of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast import checkpoint_title
from holdfast.cli.completion import complete_checkpoint, complete_plan
from holdfast.cli.data import changes_data, file_label
from holdfast.cli.invocation import Invocation, command, unless_declined, yes_option
from holdfast.cli.output import NOTHING_CHANGED, Next, Reply, Row, Screen, counted, first_line, show_envelope, show_next
from holdfast.cli.screen.diff import MOST_FILES_SHOWN
from holdfast.cli.screen.listeners import OutsideListener, effect_lines, effects_sentence
from holdfast.model import Plan, PlanState, RollbackResult
from holdfast.names import lasting_ids, name_text

if TYPE_CHECKING:
    from holdfast import Holdfast, RollbackPreview


@command("rollback")
@yes_option
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option(
    "--only",
    metavar="PATH",
    multiple=True,
    help="Restore only this file or folder, PATH or RESOURCE:PATH; everything else stays. May be repeated.",
)
@click.option(
    "--without-keeping",
    "is_unkept",
    is_flag=True,
    help="Take no checkpoint of the state that is left: for a full disk. What no checkpoint holds is lost.",
)
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
@click.argument("checkpoint", metavar="CHECKPOINT_ID", shell_complete=complete_checkpoint)
def rollback(
    invocation: Invocation,
    yes: bool,
    dry_run: bool,
    only: tuple[str, ...],
    is_unkept: bool,
    plan: str,
    checkpoint: str,
) -> Reply:
    """Take a plan back to a checkpoint: its files exactly as they were, its position, its decisions.

    CHECKPOINT_ID is an id, a display id (cp_...), a unique beginning, or a label. The state that is left gets a
    checkpoint of its own, so a rollback can be rolled back. If the disk has no room for that, --without-keeping goes
    back all the same: what changed since the last checkpoint is lost, and the question names it.

    With --only single files or folders are restored into the sandbox, relative to the resource's root; one that the
    checkpoint does not have is removed. The plan stays at its step, and its decisions stay.
    """
    if not dry_run:
        invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        if dry_run:
            preview = holdfast.rollback_preview(plan, checkpoint, only=only, keeps_present=not is_unkept)
            return _preview_reply(invocation, preview, checkpoint)

        def confirm(preview: RollbackPreview) -> bool:
            return yes or invocation.ask(_question(preview, checkpoint))

        # The result tells what this rollback did; this is for one that was cut short and is finished first.
        listener = OutsideListener(invocation)
        result = holdfast.rollback(
            plan, checkpoint, only=only, keeps_present=not is_unkept, confirm=confirm, listener=listener
        )
        return _reply(invocation, holdfast, unless_declined(result))


def _question(preview: RollbackPreview, checkpoint: str) -> str:
    files = counted(preview.files, "file")
    where = f"{checkpoint} ({checkpoint_title(preview.expected.checkpoint, preview.group)})"
    if preview.expected.only:
        return f"From {where}: {files} will be restored or removed in the sandboxes, all else stays. Restore?"
    return (
        f"Go back to {where}: {files} will be restored or removed in the sandboxes and "
        f"{counted(preview.decisions, 'decision')} superseded. {effects_sentence(preview.expected.impact)}"
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


def _reply(invocation: Invocation, holdfast: Holdfast, result: RollbackResult) -> Reply:
    plan = result.plan
    shown = lasting_ids(holdfast.checkpoint_ids(plan.plan_id))
    messages = _messages(result, shown)
    left_group = holdfast.find_group(result.left_group_id)
    left = holdfast.checkpoints_at(left_group)[0].checkpoint_id if left_group is not None else None
    commands = [Next("go on", f"holdfast plan execute {plan.plan_id}")]
    if plan.state is PlanState.COMPLETE:
        commands = []
    if left is not None:
        commands.append(Next("undo this", f"holdfast plan rollback {plan.plan_id} {shown.get(left, left)}"))
    data = {
        **_rollback_data(result, commands),
        "dry_run": False,
        "left_checkpoint_id": left,
    }

    def show(screen: Screen) -> None:
        _show_rollback(screen, result)
        show_envelope(screen, invocation.started, invocation.seconds, messages)
        show_next(screen, commands)

    return Reply(data, show, messages=messages, shows_messages=True)


def _messages(result: RollbackResult, shown: Mapping[str, str]) -> tuple[str, ...]:
    checkpoint = shown.get(result.checkpoint.checkpoint_id, result.checkpoint.checkpoint_id)
    files = counted(result.files_reverted, "file")
    if result.only:
        return (f"From {checkpoint} {files} restored or removed; the plan stays where it is.",)
    return (f"Went back to {checkpoint}; {files} restored or removed.",)


def _preview_reply(invocation: Invocation, preview: RollbackPreview, checkpoint: str) -> Reply:
    """What a rollback would do; nothing of it was done."""
    result = preview.expected
    only = " ".join(f"--only {shlex.quote(path)} " for path in result.only)
    target = f"{'--without-keeping ' if result.is_unkept else ''}{preview.plan.plan_id} {shlex.quote(checkpoint)}"
    commands = [Next("do it", f"holdfast plan rollback {only}{target}")]

    def show(screen: Screen) -> None:
        _show_rollback(screen, result)
        show_envelope(screen, invocation.started, invocation.seconds, [NOTHING_CHANGED])
        show_next(screen, commands)

    data = {**_rollback_data(result, commands), "dry_run": True, "left_checkpoint_id": None}
    return Reply(data, show, messages=(NOTHING_CHANGED,), shows_messages=True)


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
