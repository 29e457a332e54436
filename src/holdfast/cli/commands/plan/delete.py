"""``holdfast plan delete``: delete a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.completion import complete_plan
from holdfast.cli.data import plan_data, unfreed
from holdfast.cli.invocation import Invocation, command, yes_option
from holdfast.cli.output import Reply, counted

if TYPE_CHECKING:
    from holdfast import Holdfast


@command(
    "delete",
    examples=(
        ("holdfast plan delete latest", "Delete the newest plan, after a question."),
        ("holdfast plan delete --yes 01M7H3WWVB 01M7H3XPRJ", "Delete two plans without a question."),
    ),
)
@yes_option
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def delete(invocation: Invocation, yes: bool, plan: str) -> Reply:
    """Delete a plan: its sandboxes, its records, and all saved content that no other plan needs."""
    invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        damaged = holdfast.find_damaged_plan(plan)
        if damaged is not None:
            return _delete_damaged(invocation, holdfast, damaged, yes)
        found = holdfast.find_plan(plan)
        kept = counted(holdfast.count_checkpoints(found.plan_id), "checkpoint")
        invocation.confirm(f"Delete plan {found.plan_id} ({found.name}) with its {kept} for good?", yes=yes)
        holdfast.delete(found.plan_id)
        messages = unfreed(holdfast)
    return Reply(plan_data(found), lambda screen: screen.line(f"Deleted, with its {kept}."), messages=messages)


def _delete_damaged(invocation: Invocation, holdfast: Holdfast, plan_id: str, yes: bool) -> Reply:
    invocation.confirm(f"Records of plan {plan_id} are damaged. Delete the plan for good?", yes=yes)
    holdfast.delete_damaged(plan_id)
    text = "Deleted; its records were damaged."
    return Reply({"plan_id": plan_id}, lambda screen: screen.line(text), messages=unfreed(holdfast))
