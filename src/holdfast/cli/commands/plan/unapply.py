"""``holdfast plan unapply``: undo an apply in the real files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.commands.plan.apply import common_data, show_changes
from holdfast.cli.completion import complete_plan
from holdfast.cli.invocation import Invocation, command, unless_declined, yes_option
from holdfast.cli.output import NOTHING_CHANGED, Next, Reply, Screen, counted, show_next
from holdfast.cli.screen.listeners import RepairListener

if TYPE_CHECKING:
    from holdfast import Holdfast, UnapplyPreview

_SIGNS = {"removed": ("removed", "bad"), "restored": ("restored", "good")}
"""The same words as for a rollback."""


@command(
    "unapply",
    examples=(
        ("holdfast plan unapply --dry-run latest", "Show what would change."),
        ("holdfast plan unapply --yes latest", "Undo the apply without a question."),
    ),
)
@yes_option
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def unapply(invocation: Invocation, yes: bool, dry_run: bool, plan: str) -> Reply:
    """Restore the real files as they were before the plan was applied: of all resources, or of none.

    Refuses if they were changed since. Afterwards the plan is complete; you can apply it again or roll it back. If it
    was applied in parts, the last part is undone.
    """
    if not dry_run:
        invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        return undo_apply(invocation, holdfast, plan, yes=yes, dry_run=dry_run)


def undo_apply(invocation: Invocation, holdfast: Holdfast, plan: str, *, yes: bool, dry_run: bool) -> Reply:
    if dry_run:
        return _reply(holdfast.unapply_preview(plan), dry_run=True)

    def question(preview: UnapplyPreview) -> str:
        show_changes(invocation.screen, preview.plan, preview.changes, _SIGNS)
        return _question(preview)

    confirm = invocation.asking(question, yes)
    result = holdfast.unapply(plan, confirm=confirm, listener=RepairListener(invocation))
    return _reply(unless_declined(result), dry_run=False)


def _question(preview: UnapplyPreview) -> str:
    if preview.branch is not None:
        return f"Delete the branch {preview.branch}, which holds the result?"
    return f"Undo the apply: restore or remove {counted(len(preview.changes), 'file')}?"


def _reply(preview: UnapplyPreview, *, dry_run: bool) -> Reply:
    plan = preview.plan
    if dry_run:
        commands = [Next("undo", f"holdfast plan unapply {plan.plan_id}")]
    else:
        commands = [Next("apply again", f"holdfast plan apply {plan.plan_id}")]
    counts = preview.commit_counts
    data = {
        **common_data(plan, preview.changes, commands),
        "commits": preview.commits,
        "commit_counts": counts,
        "branch": preview.branch,
        "dry_run": dry_run,
    }

    def show(screen: Screen) -> None:
        show_changes(screen, plan, preview.changes, _SIGNS)
        files = counted(len(preview.changes), "file")
        if dry_run:
            screen.line(f"{files} would be restored or removed.")
        else:
            screen.line(("Undone. ", "good"), f"{files} of yours restored or removed; the plan is {plan.state} again.")
        for name, commit in preview.commits.items():
            more = counts[name] - 1
            which = f"commit {commit[:12]}" + (f" and {more} before it" if more else "")
            word = "would be" if dry_run else "are" if more else "is"
            screen.line((f"{name}  ", "dim"), f"{which} {word} removed from {preview.branch or 'your branch'}")
        if dry_run:
            screen.line(NOTHING_CHANGED)
        show_next(screen, commands)

    return Reply(data, show)
