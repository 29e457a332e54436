"""``holdfast plan delete``: delete plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.completion import complete_plan
from holdfast.cli.data import plan_data, unfreed
from holdfast.cli.invocation import Invocation, command, unless_declined, yes_option
from holdfast.cli.output import Reply, counted
from holdfast.cli.screen.deletion import deletion_data, exit_code_of, show_deleted, show_deletion

if TYPE_CHECKING:
    from holdfast import DeletionPreview, Holdfast


@command(
    "delete",
    examples=(
        ("holdfast plan delete latest", "Delete the newest plan, after a question."),
        ("holdfast plan delete --yes 01M7H3WWVB 01M7H3XPRJ", "Delete two plans without a question."),
    ),
)
@yes_option
@click.argument("plans", metavar="PLAN_ID...", nargs=-1, required=True, shell_complete=complete_plan)
def delete(invocation: Invocation, yes: bool, plans: tuple[str, ...]) -> Reply:
    """Delete plans: their sandboxes, their records, and all saved content that no other plan needs.

    If one of several plans does not exist or is in use, none is deleted. What fails later is reported, and the others
    are deleted all the same.
    """
    invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        if len(plans) > 1:
            return _delete_several(invocation, holdfast, plans, yes)
        (plan,) = plans
        damaged = holdfast.find_damaged_plan(plan)
        if damaged is not None:
            return _delete_damaged(invocation, holdfast, damaged, yes)
        found = holdfast.find_plan(plan)
        kept = counted(holdfast.count_checkpoints(found.plan_id), "checkpoint")
        invocation.confirm(f"Delete plan {found.plan_id} ({found.name}) with its {kept} for good?", yes=yes)
        holdfast.delete(found.plan_id)
        messages = unfreed(holdfast)
    return Reply(plan_data(found), lambda screen: screen.line(f"Deleted, with its {kept}."), messages=messages)


def _delete_several(invocation: Invocation, holdfast: Holdfast, references: Sequence[str], yes: bool) -> Reply:
    def question(preview: DeletionPreview) -> str:
        show_deletion(invocation.screen, preview)
        return f"Delete {counted(len(preview.ids), 'plan')} for good?"

    result = unless_declined(holdfast.delete_plans(references, confirm=invocation.asking(question, yes)))
    messages = unfreed(holdfast)
    data = deletion_data(result)
    return Reply(data, lambda screen: show_deleted(screen, result), exit_code_of(result), messages)


def _delete_damaged(invocation: Invocation, holdfast: Holdfast, plan_id: str, yes: bool) -> Reply:
    invocation.confirm(f"Records of plan {plan_id} are damaged. Delete the plan for good?", yes=yes)
    holdfast.delete_damaged(plan_id)
    text = "Deleted; its records were damaged."
    return Reply({"plan_id": plan_id}, lambda screen: screen.line(text), messages=unfreed(holdfast))
