"""``holdfast checkpoint release``: give up saved content whose records are lost."""

from __future__ import annotations

from holdfast.cli.data import unfreed
from holdfast.cli.invocation import Invocation, command, yes_option
from holdfast.cli.output import Reply, counted, show_table
from holdfast.names import bytes_text


@command(
    "release",
    examples=(
        ("holdfast checkpoint release", "Show what is held back, and ask."),
        ("holdfast checkpoint release --yes", "Give it up without a question."),
    ),
)
@yes_option
def release(invocation: Invocation, yes: bool) -> Reply:
    """Give up the saved content of plans whose records are lost for good.

    Content is kept for every database that this home was used with. While one of them cannot be reached, or is older
    than the content, nothing is freed. If you have a backup of it, restore that instead: what you give up is lost.
    """
    invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        held_back = holdfast.held_back()
        if held_back and not yes:
            show_table(invocation.screen, [[each.plan_id, each.place, (each.reason, "dim")] for each in held_back])
            plans = counted(len(held_back), "plan")
            invocation.confirm(f"Give up the saved content that only {plans} of these records may need?", yes=yes)
        freed = holdfast.release(held_back) if held_back else 0
        messages = unfreed(holdfast)
    data = {
        "released": [{"plan_id": each.plan_id, "records": each.place, "reason": each.reason} for each in held_back],
        "freed_bytes": freed,
    }
    text = f"Released {counted(len(held_back), 'plan')}; {bytes_text(freed)} freed."
    return Reply(data, lambda screen: screen.line(text if held_back else "Nothing is held back."), messages=messages)
