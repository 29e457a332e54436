"""What several commands show of a session: its calls, and what undoing them changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import Screen, counted, first_line, shortened
from holdfast.cli.screen.diff import MOST_FILES_SHOWN
from holdfast.model import FileChange, Moment, Plan
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import Call, InPlace, MomentView

_INDENT = 3
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


class Prompts:
    """The prompts of a session, each shown below the moments that followed from it, newest first."""

    def __init__(self, screen: Screen, in_place: InPlace, plan: Plan) -> None:
        self._screen = screen
        self._prompts = {each.number: each for each in in_place.prompts(plan)}
        self._number_of = {each.after_id: each.prompt_number for each in in_place.calls(plan)}
        self._by_decision = {each.decision_id: each.number for each in self._prompts.values()}
        self._shown: int | None = None

    def show_before(self, moment: MomentView) -> None:
        """Show the prompt of the moments above this one, if this one came before it."""
        group = moment.group
        number = self._number_of.get(group.group_id) or self._by_decision.get(group.decision_id or "")
        is_older = number is not None and self._shown is not None and number < self._shown
        if is_older or Moment.PRE_EXECUTE in group.triggers:
            self.show_last()
        self._shown = number if number is not None else self._shown

    def show_last(self) -> None:
        if self._shown is not None and self._shown in self._prompts:
            prompt = self._prompts[self._shown]
            text = f"prompt {prompt.number}: {first_line(prompt.text)}"
            width = self._screen.width
            self._screen.line(("│  ", "dim"), (text if width is None else shortened(text, width - _INDENT), "strong"))
        self._shown = None
