"""``holdfast checkpoint prune``: delete the oldest checkpoints now."""

from __future__ import annotations

import click

from holdfast.cli.completion import complete_plan
from holdfast.cli.data import unfreed
from holdfast.cli.invocation import Invocation, command
from holdfast.cli.output import Reply, counted
from holdfast.names import bytes_text


@command(
    "prune",
    examples=(
        ("holdfast checkpoint prune latest", "Keep as many as the policy says."),
        ("holdfast checkpoint prune --keep 10 latest", "Keep ten."),
    ),
)
@click.option(
    "--keep", type=click.IntRange(min=2), metavar="N", help="How many to keep; by default the plan's max_checkpoints."
)
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def prune(invocation: Invocation, keep: int | None, plan: str) -> Reply:
    """Delete the oldest checkpoints now; the first, the last and labelled ones always stay."""
    with invocation.opened() as holdfast:
        found = holdfast.find_plan(plan)
        deleted = holdfast.prune(found.plan_id, keep)
        left = holdfast.count_checkpoints(found.plan_id)
        size = holdfast.content_bytes()
        messages = unfreed(holdfast)
    data = {"plan_id": found.plan_id, "deleted": deleted, "checkpoints_remaining": left, "content_bytes": size}
    text = f"Deleted {counted(deleted, 'checkpoint')}, {left} remain; saved content takes {bytes_text(size)} in all."
    return Reply(data, lambda screen: screen.line(text), messages=messages)
