"""``holdfast checkpoint delete``: delete a checkpoint for good."""

from __future__ import annotations

import click

from holdfast import checkpoint_title
from holdfast.cli.completion import complete_checkpoint, complete_plan
from holdfast.cli.data import unfreed
from holdfast.cli.invocation import Invocation, command, yes_option
from holdfast.cli.output import Reply, counted
from holdfast.model import Checkpoint, DamagedCheckpoint


@command(
    "delete",
    examples=(
        ("holdfast checkpoint delete latest cp_01M7H3WX8C", "Delete a checkpoint, after a question."),
        ("holdfast checkpoint delete --yes 01M7H3WWVB good", "Delete the one with the label good."),
    ),
)
@yes_option
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
@click.argument("checkpoint", metavar="CHECKPOINT_ID", shell_complete=complete_checkpoint)
def delete_checkpoint(invocation: Invocation, yes: bool, plan: str, checkpoint: str) -> Reply:
    """Delete a checkpoint for good, with the others of its moment, and free the content that only they need."""
    invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        found: Checkpoint | DamagedCheckpoint | None = holdfast.find_damaged_checkpoint(plan, checkpoint)
        if found is not None:
            kind, group_id = "damaged checkpoint", None
            question = f"The record of checkpoint {found.checkpoint_id} is damaged. Delete it for good?"
        else:
            view = holdfast.checkpoint(checkpoint, holdfast.find_plan(plan).plan_id)
            found, kind, group_id = view.checkpoint, "checkpoint", view.checkpoint.group_id
            question = f"Delete checkpoint {view.display_id} ({checkpoint_title(found, view.group)}) for good?"
        invocation.confirm(question, yes=yes)
        deleted = holdfast.delete_checkpoint(found.plan_id, found.checkpoint_id)
        messages = unfreed(holdfast)
    data = {
        "plan_id": found.plan_id, "checkpoint_id": found.checkpoint_id, "group_id": group_id, "deleted": deleted,
    }  # fmt: skip
    return Reply(data, lambda screen: screen.line(f"Deleted {counted(deleted, kind)}."), messages=messages)
