"""``holdfast checkpoint delete``: delete a checkpoint for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast import checkpoint_title
from holdfast.cli.completion import complete_checkpoint, complete_plan
from holdfast.cli.data import unfreed
from holdfast.cli.invocation import Invocation, command, yes_option
from holdfast.cli.output import Reply, counted
from holdfast.model import DamagedCheckpoint

if TYPE_CHECKING:
    from holdfast import Holdfast


@command("delete")
@yes_option
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
@click.argument("checkpoint", metavar="CHECKPOINT_ID", shell_complete=complete_checkpoint)
def delete_checkpoint(invocation: Invocation, yes: bool, plan: str, checkpoint: str) -> Reply:
    """Delete a checkpoint for good, with those of the same moment, and free what only they need."""
    invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        damaged = holdfast.find_damaged_checkpoint(plan, checkpoint)
        if damaged is not None:
            return _delete_damaged(invocation, holdfast, damaged, yes)
        view = holdfast.checkpoint(checkpoint, holdfast.find_plan(plan).plan_id)
        if not yes:
            title = checkpoint_title(view.checkpoint, view.group)
            invocation.confirm(f"Delete checkpoint {view.display_id} ({title}) for good?")
        deleted = holdfast.delete_checkpoint(view.checkpoint.plan_id, view.checkpoint.checkpoint_id)
        messages = unfreed(holdfast)
    data = {
        "plan_id": view.checkpoint.plan_id,
        "checkpoint_id": view.checkpoint.checkpoint_id,
        "group_id": view.checkpoint.group_id,
        "deleted": deleted,
    }
    return Reply(data, lambda screen: screen.line(f"Deleted {counted(deleted, 'checkpoint')}."), messages=messages)


def _delete_damaged(invocation: Invocation, holdfast: Holdfast, damaged: DamagedCheckpoint, yes: bool) -> Reply:
    question = f"The record of checkpoint {damaged.checkpoint_id} is damaged. Delete it for good?"
    if not yes:
        invocation.confirm(question)
    deleted = holdfast.delete_checkpoint(damaged.plan_id, damaged.checkpoint_id)
    data = {
        "plan_id": damaged.plan_id, "checkpoint_id": damaged.checkpoint_id, "group_id": None, "deleted": deleted,
    }  # fmt: skip
    text = f"Deleted {counted(deleted, 'damaged checkpoint')}."
    return Reply(data, lambda screen: screen.line(text), messages=unfreed(holdfast))
