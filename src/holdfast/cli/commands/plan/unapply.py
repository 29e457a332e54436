"""``holdfast plan unapply``: an applied result out of the real files again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.commands.plan.apply import common_data, show_changes
from holdfast.cli.completion import complete_plan
from holdfast.cli.invocation import Invocation, command, unless_declined, yes_option
from holdfast.cli.output import NOTHING_CHANGED, Next, Reply, Screen, counted, show_next
from holdfast.cli.screen.listeners import PutBackListener

if TYPE_CHECKING:
    from holdfast import UnapplyPreview

_SIGNS = {"removed": ("removed", "bad"), "restored": ("restored", "good")}
"""As a rollback says it."""


@command("unapply")
@yes_option
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def unapply(invocation: Invocation, yes: bool, dry_run: bool, plan: str) -> Reply:
    """Put the real files back as they were before the plan was applied: of all resources, or of none.

    Refuses if they were changed since. The plan is complete again, and can be applied again or rolled back.
    """
    if not dry_run:
        invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        if dry_run:
            return _reply(holdfast.unapply_preview(plan), dry_run=True)

        def confirm(preview: UnapplyPreview) -> bool:
            if yes:
                return True
            show_changes(invocation.screen, preview.plan, preview.changes, _SIGNS)
            return invocation.ask(_question(preview))

        result = holdfast.unapply(plan, confirm=confirm, listener=PutBackListener(invocation))
    return _reply(unless_declined(result), dry_run=False)


def _question(preview: UnapplyPreview) -> str:
    if preview.branch is not None:
        return f"Delete the branch {preview.branch}, which holds the result?"
    return f"Put {counted(len(preview.changes), 'file')} back as before the plan was applied?"


def _reply(preview: UnapplyPreview, *, dry_run: bool) -> Reply:
    plan = preview.plan
    if dry_run:
        commands = [Next("take it back", f"holdfast plan unapply {plan.plan_id}")]
    else:
        commands = [Next("apply again", f"holdfast plan apply {plan.plan_id}")]
    data = {
        **common_data(plan, preview.changes, commands),
        "commits": preview.commits,
        "branch": preview.branch,
        "dry_run": dry_run,
    }

    def show(screen: Screen) -> None:
        show_changes(screen, plan, preview.changes, _SIGNS)
        files = counted(len(preview.changes), "file")
        if dry_run:
            screen.line(f"{files} would be put back.")
        else:
            screen.line(("Taken back. ", "good"), f"{files} of yours put back; the plan is {plan.state} again.")
        for name, commit in preview.commits.items():
            word = "would be off" if dry_run else "is off"
            screen.line((f"{name}  ", "dim"), f"commit {commit[:12]} {word} {preview.branch or 'your branch'}")
        if dry_run:
            screen.line(NOTHING_CHANGED)
        show_next(screen, commands)

    return Reply(data, show)
