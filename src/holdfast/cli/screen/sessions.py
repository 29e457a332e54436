"""What several commands show of a session: its calls, and what undoing them changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import Screen, counted
from holdfast.cli.screen.diff import MOST_FILES_SHOWN
from holdfast.model import FileChange, Plan
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import Call

_SIGNS = {"removed": ("removed ", "bad"), "restored": ("restored", "good")}


def session_name(plan: Plan) -> str:
    """Who works in the session."""
    info = plan.session
    if info is None or not info.agent:
        return "you and your programs"
    return f"{info.agent} {info.version}".rstrip()


def call_data(call: Call) -> dict[str, Any]:
    return {
        "call": call.number,
        "prompt": call.prompt_number,
        "tool": call.tool,
        "what": call.what,
        "call_id": call.call_id,
        "decision_id": call.decision_id,
        "started_at": call.started_at,
        "finished_at": call.finished_at,
        "failed": call.is_failed,
        "undone": call.is_undone,
        "changed_something": call.changed_something,
    }


def show_calls(screen: Screen, calls: Sequence[Call]) -> None:
    for call in calls:
        word = "call" if call.tool else "change"
        screen.line((f"{word} {call.number:>3}  ", "id"), f"{call.tool} {name_text(call.what)}".rstrip())


def show_changes(screen: Screen, changes: Sequence[FileChange]) -> None:
    for each in changes[:MOST_FILES_SHOWN]:
        word, style = _SIGNS[each.action]
        screen.line((f"  {word}  ", style), name_text(each.file))
    more = len(changes) - MOST_FILES_SHOWN
    if more > 0:
        screen.line((f"  and {counted(more, 'more file')}", "dim"))
