"""``holdfast log``: show the timeline of a plan as a graph; every rollback starts a branch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from holdfast import checkpoint_title
from holdfast.cli.completion import complete_plan
from holdfast.cli.data import left_out, plan_data
from holdfast.cli.invocation import Invocation, command, limit_option
from holdfast.cli.output import (
    NARROWEST,
    Next,
    Reply,
    Screen,
    Span,
    cell_width,
    counted,
    first_line,
    plain_text,
    shortened,
    show_next,
    show_older,
    show_plan,
)
from holdfast.cli.screen.graph import Node, drawn
from holdfast.cli.screen.plans import commands_below_checkpoints, state_span
from holdfast.model import Decision, Plan, Trigger

if TYPE_CHECKING:
    from holdfast import CheckpointView, Timeline


@command("log", only_looks=True)
@limit_option("moments")
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
def log(invocation: Invocation, asked: int | None, plan: str) -> Reply:
    """Show the timeline of a plan, newest moment on top: steps, decisions, checkpoints, and the present state (@).

    A rollback starts a branch: the abandoned moments stay beside it, and you can roll back to them.
    """
    with invocation.opened() as holdfast:
        timeline = holdfast.timeline(plan, moments=invocation.limit(asked))
        messages = left_out(holdfast)
        commands = commands_below_checkpoints(holdfast, timeline.plan, has_checkpoints=bool(timeline.checkpoints))
    moments, older = _moments(timeline), timeline.older if asked is None else 0
    data = _data(timeline.plan, moments) if invocation.is_for_programs else {}
    return Reply(
        data,
        lambda screen: _show(screen, timeline.plan, moments, older, commands),
        messages=messages,
        is_long=True,
    )


class _Moment:
    """A group with its checkpoints."""

    def __init__(self, views: Sequence[CheckpointView], decision: Decision | None, is_now: bool) -> None:
        self.views, self.group, self.decision, self.is_now = views, views[0].group, decision, is_now
        self.is_superseded = views[0].is_superseded


def _moments(timeline: Timeline) -> list[_Moment]:
    """Newest first."""
    plan, decisions = timeline.plan, timeline.decisions
    groups = [list(members) for _, members in groupby(timeline.checkpoints, key=lambda view: view.group.group_id)]
    return [
        _Moment(members, decisions.get(members[0].group.decision_id or ""), _is_head(plan, members))
        for members in reversed(groups)
    ]


def _is_head(plan: Plan, members: Sequence[CheckpointView]) -> bool:
    return members[0].group.group_id == plan.head_group_id


def _data(plan: Plan, moments: Sequence[_Moment]) -> dict[str, Any]:
    return {
        **plan_data(plan),
        "moments": [
            {
                "group_id": each.group.group_id,
                "parent_group_id": each.group.parent_group_id,
                "restored_group_id": each.group.restored_group_id,
                "checkpoint_ids": [view.checkpoint.checkpoint_id for view in each.views],
                "triggers": each.group.triggers,
                "title": checkpoint_title(each.views[0].checkpoint, each.group),
                "step_index": each.group.step_index,
                "step": each.group.step,
                "decision_id": each.group.decision_id,
                "label": each.group.label,
                "attempt": each.group.attempt,
                "created_at": each.group.created_at,
                "is_now": each.is_now,
                "superseded": each.is_superseded,
            }
            for each in moments
        ],
    }


def _show(screen: Screen, plan: Plan, moments: Sequence[_Moment], older: int, commands: Sequence[Next]) -> None:
    done = f"{plan.next_step} of {counted(len(plan.steps), 'step')} done"
    show_plan(screen, plan.plan_id, plan.name)
    screen.line(f"{plan.phase} / ", state_span(plan), f", {done}")
    screen.line()
    if not moments:
        screen.line("It has no checkpoints yet.")
        show_next(screen, commands)
        return
    nodes = [Node(each.group.group_id, each.group.parent_group_id, each) for each in moments]
    id_width = max(len(each.views[0].display_id) for each in moments)
    for line in drawn(nodes):
        if line.node is None:
            screen.line((line.before, "dim"))
        else:
            _show_moment(screen, line.before, line.node.content, line.after, id_width)
    show_older(screen, older, "moment")
    screen.line()
    show_next(screen, commands)


def _show_moment(screen: Screen, before: str, moment: _Moment, after: str, id_width: int) -> None:
    mark, style = _mark(moment)
    first: list[Span] = [
        (before, "dim"), (mark, style), (after, "dim"), "  ",
        (f"{moment.views[0].display_id:<{id_width}}", "dim" if moment.is_superseded else "id"), "  ",
    ]  # fmt: skip
    last: list[Span] = [(f"  {moment.group.created_at.astimezone():%H:%M:%S}", "dim")]
    words = checkpoint_title(moment.views[0].checkpoint, moment.group)
    if moment.decision is not None and Trigger.ON_DECISION in moment.group.triggers:
        words += f"  → {first_line(moment.decision.chosen)}"
    if screen.width is not None:
        room = screen.width - cell_width(plain_text(first)) - cell_width(plain_text(last))
        words = shortened(words, max(NARROWEST, room))
    screen.line(*first, (words, "dim" if moment.is_superseded else "strong" if moment.is_now else "plain"), *last)


def _mark(moment: _Moment) -> tuple[str, str]:
    if moment.is_now:
        return "@", "good"
    if Trigger.ON_ERROR in moment.group.triggers:
        return "✗", "bad"
    if moment.group.label:
        return "◆", "warn"
    return "○", "dim" if moment.is_superseded else "id"
