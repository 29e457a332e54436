"""``holdfast checkpoint release``: give up content of records that are gone for ever."""

from __future__ import annotations

from holdfast.cli.data import unfreed
from holdfast.cli.invocation import Invocation, command, yes_option
from holdfast.cli.output import Reply, bytes_text, counted, show_table


@command("release")
@yes_option
def release(invocation: Invocation, yes: bool) -> Reply:
    """Give up the saved content of plans that no records at hand know, because their records are gone for ever.

    Content is kept for every database that this home was used with. While one of them cannot be asked, or is older than
    the content, nothing is freed. Put the newest backup of it back if there is one: what is given up here is lost.
    """
    invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        held_back = holdfast.held_back()
        if held_back and not yes:
            show_table(invocation.screen, [[each.plan_id, each.place, (each.reason, "dim")] for each in held_back])
            invocation.confirm(f"Give up what only {counted(len(held_back), 'plan')} of these records may need?")
        freed = holdfast.release(held_back) if held_back else 0
        messages = unfreed(holdfast)
    data = {
        "released": [{"plan_id": each.plan_id, "records": each.place, "reason": each.reason} for each in held_back],
        "freed_bytes": freed,
    }
    text = f"Released {counted(len(held_back), 'plan')}; {bytes_text(freed)} were freed."
    return Reply(data, lambda screen: screen.line(text if held_back else "Nothing is held back."), messages=messages)
