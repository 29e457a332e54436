"""``holdfast log``: show the timeline of a plan as a graph; every rollback starts a branch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast import checkpoint_title
from holdfast.cli.completion import complete_plan
from holdfast.cli.data import left_out, plan_data
from holdfast.cli.invocation import Invocation, command, limit_option, no_pager_option
from holdfast.cli.output import (
    NARROWEST,
    Reply,
    Screen,
    Span,
    blocks,
    cell_width,
    first_line,
    plain_text,
    shortened,
    show_messages,
    show_next,
    show_older,
    show_plan,
)
from holdfast.cli.screen.graph import Node, drawn
from holdfast.cli.screen.plans import commands_below_checkpoints, state_span, steps_text
from holdfast.model import Plan, Trigger

if TYPE_CHECKING:
    from holdfast import Holdfast, MomentView, Timeline


@command("log", only_looks=True)
@limit_option("moments")
@no_pager_option
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
def log(invocation: Invocation, asked: int | None, plan: str) -> Reply:
    """Show the timeline of a plan, newest moment on top: steps, decisions, checkpoints, and the present state (@).

    A rollback starts a branch: the abandoned moments stay beside it, and you can roll back to them.
    """
    holdfast = invocation.open()
    timeline = holdfast.timeline(plan, moments=invocation.limit(asked))
    if invocation.is_for_programs:
        return Reply(_data(timeline), lambda _: None, messages=left_out(holdfast))
    return Reply({}, lambda screen: _show(screen, holdfast, timeline, is_cut=asked is None), is_long=True)


def _data(timeline: Timeline) -> dict[str, Any]:
    plan = timeline.plan
    return {
        **plan_data(plan),
        "moments": [
            {
                "group_id": each.group.group_id,
                "parent_group_id": each.group.parent_group_id,
                "restored_group_id": each.group.restored_group_id,
                "checkpoint_ids": [view.checkpoint.checkpoint_id for view in each.checkpoints],
                "triggers": each.group.triggers,
                "title": checkpoint_title(each.checkpoints[0].checkpoint, each.group),
                "step_index": each.group.step_index,
                "step": each.group.step,
                "decision_id": each.group.decision_id,
                "label": each.group.label,
                "attempt": each.group.attempt,
                "created_at": each.group.created_at,
                "is_now": each.group.group_id == plan.head_group_id,
                "superseded": each.is_superseded,
            }
            for each in timeline.newest_first()
        ],
    }


def _show(screen: Screen, holdfast: Holdfast, timeline: Timeline, *, is_cut: bool) -> None:
    plan = timeline.plan
    done = steps_text(plan)
    show_plan(screen, plan.plan_id, plan.name)
    screen.line(f"{plan.phase} / ", state_span(plan), f", {done}")
    screen.line()
    has_moments = False
    for line in drawn(_nodes(timeline), timeline.has):
        has_moments = True
        if line.node is None:
            screen.line((line.before, "dim"))
        else:
            _show_moment(screen, plan, line.before, line.node.content, line.after)
    if has_moments:
        show_older(screen, timeline.older if is_cut else 0, "moment")
        screen.line()
    else:
        screen.line("It has no checkpoints yet.")
    show_next(screen, commands_below_checkpoints(holdfast, plan, has_checkpoints=has_moments))
    show_messages(screen, left_out(holdfast))


class _Content(NamedTuple):
    moment: MomentView
    id_width: int


def _nodes(timeline: Timeline) -> Iterator[Node[_Content]]:
    width = 0
    for block in blocks(timeline.newest_first()):
        width = max(width, *(len(each.checkpoints[0].display_id) for each in block))
        for each in block:
            yield Node(each.group.group_id, each.group.parent_group_id, _Content(each, width))


def _show_moment(screen: Screen, plan: Plan, before: str, content: _Content, after: str) -> None:
    moment, is_now = content.moment, content.moment.group.group_id == plan.head_group_id
    mark, style = _mark(moment, is_now)
    shown = f"{moment.checkpoints[0].display_id:<{content.id_width}}"
    first: list[Span] = [
        (before, "dim"), (mark, style), (after, "dim"), "  ", (shown, "dim" if moment.is_superseded else "id"), "  ",
    ]  # fmt: skip
    last: list[Span] = [(f"  {moment.group.created_at.astimezone():%H:%M:%S}", "dim")]
    words = checkpoint_title(moment.checkpoints[0].checkpoint, moment.group)
    if moment.decision is not None and Trigger.ON_DECISION in moment.group.triggers:
        words += f"  → {first_line(moment.decision.chosen)}"
    if screen.width is not None:
        room = screen.width - cell_width(plain_text(first)) - cell_width(plain_text(last))
        words = shortened(words, max(NARROWEST, room))
    screen.line(*first, (words, "dim" if moment.is_superseded else "strong" if is_now else "plain"), *last)


def _mark(moment: MomentView, is_now: bool) -> tuple[str, str]:
    if is_now:
        return "@", "good"
    if Trigger.ON_ERROR in moment.group.triggers:
        return "✗", "bad"
    if moment.group.label:
        return "◆", "warn"
    return "○", "dim" if moment.is_superseded else "id"
