"""``holdfast checkpoint create``: take a checkpoint now."""

from __future__ import annotations

import click

from holdfast.cli.completion import complete_plan
from holdfast.cli.data import full_checkpoint_data
from holdfast.cli.invocation import Invocation, command
from holdfast.cli.output import Reply, Screen, show_next
from holdfast.cli.screen.plans import back_to


@command(
    "create",
    examples=(
        ("holdfast checkpoint create latest", "Take a checkpoint now."),
        ("holdfast checkpoint create --label good latest", "Take one that is never pruned."),
    ),
)
@click.option("--label", metavar="TEXT", help="A name for the checkpoint; checkpoints with a label are never pruned.")
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def create_checkpoint(invocation: Invocation, label: str | None, plan: str) -> Reply:
    """Take a checkpoint of a plan's sandboxes as they are now."""
    if label is not None and not label.strip():
        raise click.BadParameter("it is empty; give a name, or leave it out.", param_hint="--label")
    with invocation.opened() as holdfast:
        view = holdfast.create_checkpoint(plan, label)
        found = holdfast.find_plan(view.checkpoint.plan_id)
        can_roll_back = holdfast.can_roll_back(found, view.group)

    def show(screen: Screen) -> None:
        screen.line(("Checkpoint ", "strong"), (view.checkpoint.checkpoint_id, "id"))
        if can_roll_back:
            show_next(screen, [back_to(found, view.display_id)])

    return Reply(full_checkpoint_data(view), show)
