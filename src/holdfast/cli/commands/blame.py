"""``holdfast blame``: who changed a file of the folder, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.invocation import Invocation, command
from holdfast.cli.output import Reply, Row, Screen, show_table, time_text
from holdfast.cli.screen.sessions import call_data, session_name
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import Blamed

_YOU = "you, or a program of yours"


@command(
    "blame",
    only_looks=True,
    examples=(
        ("holdfast blame src/app.py", "Who changed this file, newest first."),
        ("holdfast blame docs --format json", "The same of a folder, for a program."),
    ),
)
@click.argument("path", metavar="PATH")
def blame(invocation: Invocation, path: str) -> Reply:
    """Show who changed a file or a folder, as far as sessions recorded it: which call of which agent, or you.

    PATH is relative to the project's folder. What happened between the beginning and the end of a call counts as its
    work; if several calls ran at that time, all of them are named.
    """
    with invocation.opened() as holdfast:
        found = holdfast.in_place.blame(path)
        shown = {each.group.group_id: _checkpoint(holdfast, each) for each in found}
    data = {"path": path, "changes": [_data(each) for each in found]}

    def show(screen: Screen) -> None:
        if not found:
            screen.line(f"No session recorded a change of {name_text(path)}.")
        rows: list[Row] = [
            [(time_text(each.at), "dim"), (shown[each.group.group_id], "id"), each.did, _who(each)] for each in found
        ]
        show_table(screen, rows, flexible=3)

    return Reply(data, show)


def _checkpoint(holdfast: Any, each: Blamed) -> str:
    view = holdfast.checkpoints_at(each.group)[0]
    return str(holdfast.display_id(each.plan.plan_id, view.checkpoint_id))


def _who(each: Blamed) -> str:
    if each.is_undo:
        return f"undo or redo, in the session of {session_name(each.plan)}"
    if not each.calls:
        return _YOU
    if not each.calls[0].tool:
        return f"{_YOU}, change {each.calls[0].number}"
    calls = ", together with ".join(f"call {call.number}: {call.tool} {name_text(call.what)}" for call in each.calls)
    return f"{session_name(each.plan)}, {calls}"


def _data(each: Blamed) -> dict[str, Any]:
    return {
        "at": each.at,
        "did": each.did,
        "plan_id": each.plan.plan_id,
        "agent": (each.plan.session.agent if each.plan.session else "") or None,
        "group_id": each.group.group_id,
        "calls": [call_data(call) for call in each.calls],
        "by_undo": each.is_undo,
    }
