"""The moments of a plan as lines of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast import checkpoint_title
from holdfast.cli.output import NARROWEST, Span, blocks, cell_width, first_line, plain_text, shortened
from holdfast.cli.screen.graph import Line, Node, drawn
from holdfast.model import Moment, Plan, Trigger

if TYPE_CHECKING:
    from holdfast import MomentView, Timeline


class Content(NamedTuple):
    moment: MomentView
    id_width: int


def moment_lines(timeline: Timeline) -> Iterator[Line[Content]]:
    """The lines of the graph, newest first, while the moments are read."""
    return drawn(_nodes(timeline), timeline.has)


def _nodes(timeline: Timeline) -> Iterator[Node[Content]]:
    width = 0
    for block in blocks(timeline.newest_first()):
        width = max(width, *(len(each.checkpoints[0].display_id) for each in block))
        for each in block:
            yield Node(each.group.group_id, each.group.parent_group_id, Content(each, width))


def moment_row(plan: Plan, line: Line[Content], width: int | None) -> list[Span]:
    """One line; its title is shortened if it does not fit."""
    if line.node is None:
        return [(line.before, "dim")]
    content, before, after = line.node.content, line.before, line.after
    moment, is_now = content.moment, content.moment.group.group_id == plan.head_group_id
    is_left = moment.is_superseded or _is_undone(plan, moment)
    mark, style = _mark(moment, is_now, is_left=is_left)
    shown = f"{moment.checkpoints[0].display_id:<{content.id_width}}"
    first: list[Span] = [
        (before, "dim"), (mark, style), (after, "dim"), "  ", (shown, "dim" if is_left else "id"), "  ",
    ]  # fmt: skip
    last: list[Span] = [(f"  {moment.group.created_at.astimezone():%H:%M:%S}", "dim")]
    words = checkpoint_title(moment.checkpoints[0].checkpoint, moment.group)
    if moment.decision is not None and Trigger.ON_DECISION in moment.group.triggers:
        words += f"  → {first_line(moment.decision.chosen)}"
    if _is_undone(plan, moment):
        words = f"(undone) {words}"
    if width is not None:
        room = width - cell_width(plain_text(first)) - cell_width(plain_text(last))
        words = shortened(words, max(NARROWEST, room))
    return [*first, (words, "dim" if is_left else "strong" if is_now else "plain"), *last]


def _is_undone(plan: Plan, moment: MomentView) -> bool:
    """Whether it is that of a call in a session which was taken back since."""
    is_of_call = Trigger.ON_TOOL_WRITE_COMPLETE in moment.group.triggers or Moment.SETTLED in moment.group.triggers
    return plan.is_session and is_of_call and moment.decision is not None and moment.decision.is_superseded


def _mark(moment: MomentView, is_now: bool, *, is_left: bool) -> tuple[str, str]:
    if is_now:
        return "@", "good"
    if Trigger.ON_ERROR in moment.group.triggers:
        return "✗", "bad"
    if moment.group.label:
        return "◆", "warn"
    return "○", "dim" if is_left else "id"
