"""``holdfast plan keep``: make a moment of a plan its complete result, without running anything."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from holdfast import checkpoint_title
from holdfast.cli.commands.plan.rollback import reply_to_rollback
from holdfast.cli.completion import complete_checkpoint
from holdfast.cli.invocation import Invocation, command, unless_declined, yes_option
from holdfast.cli.output import NOTHING_CHANGED, Next, Reply, counted
from holdfast.cli.screen.listeners import RepairListener, effects_sentence
from holdfast.model import Plan

if TYPE_CHECKING:
    from holdfast import Holdfast, RollbackPreview, RollbackResult


@command(
    "keep",
    examples=(
        ("holdfast plan keep --dry-run cp_01M7H3WX8C", "Show what would become the result of the newest plan."),
        ("holdfast plan keep latest @-2", "The files as they were two moments ago become the result."),
    ),
)
@yes_option
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.argument("words", nargs=-1, required=True, metavar="[PLAN_ID] CHECKPOINT_ID", shell_complete=complete_checkpoint)
def keep(invocation: Invocation, yes: bool, dry_run: bool, words: tuple[str, ...]) -> Reply:
    """Make a moment of a plan its complete result, ready to apply. Nothing is run.

    The files of the sandboxes become exactly those of the checkpoint, as with a rollback. The steps that would follow
    are dropped, and validations are not run; the decision is recorded. The present state is saved in a checkpoint
    first, so you can undo this with `holdfast plan rollback`. Without PLAN_ID it is the newest plan.
    """
    plan, checkpoint = _plan_and_checkpoint(words)
    if not dry_run:
        invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        if dry_run:
            preview = holdfast.going_on.keep_preview(plan, checkpoint)
            return _preview_reply(invocation, preview, checkpoint)
        return keep_moment(invocation, holdfast, plan, checkpoint, yes=yes)


def keep_moment(invocation: Invocation, holdfast: Holdfast, plan: str, checkpoint: str, *, yes: bool = False) -> Reply:
    """Make that moment the result, after a question unless ``yes``."""

    def question(preview: RollbackPreview) -> str:
        return _question(preview, checkpoint)

    result = holdfast.going_on.keep(
        plan, checkpoint, confirm=invocation.asking(question, yes), listener=RepairListener(invocation)
    )
    return _result_reply(invocation, holdfast, unless_declined(result))


def _plan_and_checkpoint(words: tuple[str, ...]) -> tuple[str, str]:
    if len(words) > 2:
        raise click.UsageError(f"Expected a plan and a checkpoint, found {len(words)} arguments.")
    return ("latest", words[0]) if len(words) == 1 else (words[0], words[1])


def _question(preview: RollbackPreview, checkpoint: str) -> str:
    where = f"{checkpoint} ({checkpoint_title(preview.expected.checkpoint, preview.group)})"
    return (
        f"Make {where} the result: {counted(preview.files, 'file')} will be restored or removed in the sandboxes, and "
        f"{counted(preview.decisions, 'decision')} superseded. {_not_run(preview.expected.plan, 'is')} "
        f"{effects_sentence(preview.expected.impact)}Keep it?"
    )


def _not_run(plan: Plan, verb: str) -> str:
    """A sentence about what is left out; ``verb``: "is" or "was"."""
    if not plan.validation:
        return f"Nothing {verb} run."
    return f"Nothing {verb} run, not even the {counted(len(plan.validation), 'validation')} of the plan."


def _preview_reply(invocation: Invocation, preview: RollbackPreview, checkpoint: str) -> Reply:
    target = f"{preview.plan.plan_id} {shlex.quote(checkpoint)}"
    commands = [Next("do it", f"holdfast plan keep {target}")]
    return reply_to_rollback(invocation, preview.expected, commands, NOTHING_CHANGED, dry_run=True, left=None)


def _result_reply(invocation: Invocation, holdfast: Holdfast, result: RollbackResult) -> Reply:
    plan = result.plan
    group = holdfast.find_group(result.left_group_id)
    left = holdfast.checkpoints_at(group)[0].checkpoint_id if group is not None else None
    commands = [
        Next("see changes", f"holdfast plan diff {plan.plan_id}"),
        Next("apply", f"holdfast plan apply {plan.plan_id}"),
    ]
    if left is not None:
        commands.append(
            Next("undo this", f"holdfast plan rollback {plan.plan_id} {holdfast.lasting_id(plan.plan_id, left)}")
        )
    checkpoint = holdfast.lasting_id(plan.plan_id, result.checkpoint.checkpoint_id)
    files = f"{counted(result.files_reverted, 'file')} restored or removed"
    message = f"The plan is complete, with the files of {checkpoint}; {files}. {_not_run(plan, 'was')}"
    return reply_to_rollback(invocation, result, commands, message, dry_run=False, left=left)
