"""``holdfast plan cancel``: stop a plan."""

from __future__ import annotations

import click

from holdfast.cli.completion import complete_plan
from holdfast.cli.data import plan_data
from holdfast.cli.invocation import Invocation, command
from holdfast.cli.output import Next, Reply, Screen, counted, show_next


@command(
    "cancel",
    examples=(
        ("holdfast plan cancel latest", "Stop the newest plan."),
        ("holdfast plan cancel 01M7H3WWVB", "Stop a plan that runs in another terminal."),
    ),
)
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def cancel(invocation: Invocation, plan: str) -> Reply:
    """Stop a plan, even one that runs in another terminal. Its sandboxes and checkpoints stay: you can continue it."""
    with invocation.opened() as holdfast:
        stopped = holdfast.cancel(plan)
    commands = [
        Next("continue", f"holdfast plan resume {stopped.plan_id}"),
        Next("roll back", f"holdfast checkpoint list {stopped.plan_id}"),
    ]

    def show(screen: Screen) -> None:
        done = f"{stopped.next_step} of {counted(len(stopped.steps), 'step')} done"
        screen.line(f"Cancelled, {done}; its sandboxes and checkpoints are kept.")
        show_next(screen, commands)

    return Reply({**plan_data(stopped), "next_commands": [each.command for each in commands]}, show)
