"""``holdfast plan rollback``: roll back to a checkpoint, or restore single files from it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast import checkpoint_title
from holdfast.cli.completion import complete_checkpoint, complete_plan
from holdfast.cli.data import changes_data, file_label
from holdfast.cli.invocation import Invocation, command, unless_declined, yes_option
from holdfast.cli.output import NOTHING_CHANGED, Next, Reply, Row, Screen, counted, first_line, show_envelope, show_next
from holdfast.cli.screen.diff import MOST_FILES_SHOWN
from holdfast.cli.screen.listeners import RepairListener, effect_lines, effects_sentence
from holdfast.cli.screen.plans import going_on_with
from holdfast.model import Plan, PlanState, RollbackResult
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import Holdfast, RollbackPreview


@command(
    "rollback",
    examples=(
        ("holdfast plan rollback --dry-run latest cp_01M7H3WX8C", "Show what a rollback would change."),
        ("holdfast plan rollback latest cp_01M7H3WX8C --only src", "Restore only the folder src."),
    ),
)
@yes_option
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
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
    help="Do not save the present state first, for a full disk. Changes since the last checkpoint are lost.",
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
    """Roll back a plan to a checkpoint: its files, exactly as they were, its position and its decisions.

    CHECKPOINT_ID is an id, a display id (cp_...), a unique prefix, a label, or a moment (@-2, @{10 minutes ago},
    start). The present state is saved in a checkpoint first, so you can undo a rollback. If the disk has no room for
    that, --without-keeping rolls back anyway: changes since the last checkpoint are lost, and the question lists them.

    With --only, single files or folders are restored in the sandbox; paths are relative to the resource's root. A path
    that the checkpoint does not contain is removed. The plan stays at its step and keeps its decisions.
    """
    if not dry_run:
        invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        if dry_run:
            preview = holdfast.rollback_preview(plan, checkpoint, only=only, keeps_present=not is_unkept)
            return _preview_reply(invocation, preview, _lasting(holdfast, preview, checkpoint))

        return roll_back(invocation, holdfast, plan, checkpoint, only=only, yes=yes, keeps_present=not is_unkept)


def roll_back(
    invocation: Invocation,
    holdfast: Holdfast,
    plan: str,
    checkpoint: str,
    *,
    only: Sequence[str] = (),
    yes: bool = False,
    keeps_present: bool = True,
) -> Reply:
    """Show what would happen, ask unless ``yes``, and do it."""

    def question(preview: RollbackPreview) -> str:
        return _question(preview, checkpoint)

    # The result describes this rollback; the listener is for one that was cut short and is finished first.
    result = holdfast.rollback(
        plan,
        checkpoint,
        only=only,
        keeps_present=keeps_present,
        confirm=invocation.asking(question, yes),
        listener=RepairListener(invocation),
    )
    return _result_reply(invocation, holdfast, unless_declined(result))


def _lasting(holdfast: Holdfast, preview: RollbackPreview, checkpoint: str) -> str:
    """The checkpoint as it was named; ``@`` and its kind may soon mean another one, so then its id."""
    if not checkpoint.startswith("@"):
        return checkpoint
    return holdfast.lasting_id(preview.plan.plan_id, preview.expected.checkpoint.checkpoint_id)


def _question(preview: RollbackPreview, checkpoint: str) -> str:
    files = counted(preview.files, "file")
    where = f"{checkpoint} ({checkpoint_title(preview.expected.checkpoint, preview.group)})"
    if preview.expected.only:
        return f"From {where}: {files} will be restored or removed in the sandboxes, everything else stays. Restore?"
    return f"{rollback_sentence(preview, checkpoint, _going_on(preview.expected.plan))}Roll back?"


def rollback_sentence(preview: RollbackPreview, checkpoint: str, then: str = "") -> str:
    """What a rollback would do, for the question before it; ``then``: what the plan does after it."""
    where = f"{checkpoint} ({checkpoint_title(preview.expected.checkpoint, preview.group)})"
    return (
        f"Roll back to {where}: {counted(preview.files, 'file')} will be restored or removed in the sandboxes and "
        f"{counted(preview.decisions, 'decision')} superseded. {then}{effects_sentence(preview.expected.impact)}"
        f"{_lost(preview.expected)}"
    )


def _going_on(plan: Plan) -> str:
    """What the plan does after it, which a person who wants to keep those files may not expect."""
    if plan.is_finished:
        return ""
    step = first_line(plan.steps[plan.next_step].name)
    return f"The plan then goes on with {step}; `holdfast plan keep` makes that moment the result instead. "


def _lost(result: RollbackResult) -> str:
    """The part of the question about changes that no checkpoint contains."""
    if not result.is_unkept:
        return ""
    if not result.lost:
        return "The present state is not saved; nothing is lost, because the last checkpoint contains it. "
    more = len(result.lost) - MOST_FILES_SHOWN
    listed = ", ".join(map(name_text, result.lost[:MOST_FILES_SHOWN])) + (f" and {more} more" if more > 0 else "")
    return f"The present state is not saved; these are lost for good: {listed}. "


def _preview_reply(invocation: Invocation, preview: RollbackPreview, checkpoint: str) -> Reply:
    result = preview.expected
    target = f"{'--without-keeping ' if result.is_unkept else ''}{preview.plan.plan_id} {shlex.quote(checkpoint)}"
    commands = [Next("do it", f"holdfast plan rollback {_only_options(result)}{target}")]
    return reply_to_rollback(invocation, result, commands, NOTHING_CHANGED, dry_run=True, left=None)


def _only_options(result: RollbackResult) -> str:
    return "".join(f"--only {shlex.quote(path)} " for path in result.only)


def _result_reply(invocation: Invocation, holdfast: Holdfast, result: RollbackResult) -> Reply:
    plan = result.plan
    left_group = holdfast.find_group(result.left_group_id)
    left = holdfast.checkpoints_at(left_group)[0].checkpoint_id if left_group is not None else None
    commands, goes_on = [], plan.state is PlanState.PROCESSING
    if plan.state is not PlanState.COMPLETE and not goes_on:
        commands.append(Next("continue", f"holdfast plan execute {plan.plan_id}"))
    if not result.only and plan.state is not PlanState.COMPLETE:
        kept = holdfast.lasting_id(plan.plan_id, result.checkpoint.checkpoint_id)
        commands.append(Next("keep this", f"holdfast plan keep {plan.plan_id} {kept}"))
        commands.append(going_on_with(plan))
    if left is not None:
        shown = holdfast.lasting_id(plan.plan_id, left)
        only = _only_options(result) if goes_on else ""  # all of it cannot be rolled back while it runs
        commands.append(Next("undo this", f"holdfast plan rollback {only}{plan.plan_id} {shown}"))
    checkpoint = holdfast.lasting_id(plan.plan_id, result.checkpoint.checkpoint_id)
    files = f"{counted(result.files_reverted, 'file')} restored or removed"
    message = f"{files} as in {checkpoint}; the plan {'goes on' if goes_on else 'stays at its step'}."
    if not result.only:
        message = f"Rolled back to {checkpoint}; {files}."
    return reply_to_rollback(invocation, result, commands, message, dry_run=False, left=left)


def reply_to_rollback(
    invocation: Invocation,
    result: RollbackResult,
    commands: Sequence[Next],
    message: str,
    *,
    dry_run: bool,
    left: str | None,
) -> Reply:
    """``left``: the checkpoint of the state before the rollback."""

    def show(screen: Screen) -> None:
        _show_rollback(screen, result)
        show_envelope(screen, invocation.started, invocation.seconds, [message])
        show_next(screen, commands)

    data = {**_rollback_data(result, commands), "dry_run": dry_run, "left_checkpoint_id": left}
    return Reply(data, show, messages=(message,), shows_messages=True)


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
    called = metadata.label or metadata.title or metadata.reason
    summary: list[Row] = [
        [("plan", "dim"), (plan.plan_id, "id"), plan.name],
        [("checkpoint", "dim"), (result.checkpoint.checkpoint_id, "id"), called],
    ]
    summary += [[("only", "dim"), name_text(path)] for path in result.only[:MOST_FILES_SHOWN]]
    if (more := len(result.only) - MOST_FILES_SHOWN) > 0:
        summary.append([("only", "dim"), (f"and {more} more", "dim")])
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
