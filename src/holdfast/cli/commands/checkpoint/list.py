"""``holdfast checkpoint list``: list the checkpoints of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast import checkpoint_title
from holdfast.cli.completion import complete_plan
from holdfast.cli.data import checkpoint_data, damaged_checkpoint_data
from holdfast.cli.invocation import Invocation, command, limit_option, no_pager_option
from holdfast.cli.output import (
    Next,
    Reply,
    Row,
    Screen,
    Span,
    show_long_table,
    show_next,
    show_older,
    show_plan,
)
from holdfast.cli.screen.plans import commands_below_checkpoints
from holdfast.model import Checkpoint, DamagedCheckpoint
from holdfast.names import bytes_text

if TYPE_CHECKING:
    from holdfast import CheckpointView, Holdfast, Timeline

_SAME_MOMENT = "  and"


@command(
    "list",
    only_looks=True,
    examples=(
        ("holdfast checkpoint list", "The checkpoints of the newest plan."),
        ("holdfast checkpoint list 01M7H3WWVB --limit 10", "The ten newest of this plan."),
    ),
)
@limit_option("moments")
@no_pager_option
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
def list_checkpoints(invocation: Invocation, asked: int | None, plan: str) -> Reply:
    """List the checkpoints of a plan, oldest first; last those whose records are damaged."""
    holdfast = invocation.open()
    timeline = holdfast.timeline(plan, moments=invocation.limit(asked))
    if invocation.is_for_programs:
        return Reply(_data(holdfast, timeline), lambda _: None)
    return Reply({}, lambda screen: _show(screen, holdfast, timeline, is_cut=asked is None), is_long=True)


def _data(holdfast: Holdfast, timeline: Timeline) -> dict[str, Any]:
    listed = [
        (_place(each.checkpoint), checkpoint_data(each))
        for moment in timeline.oldest_first()
        for each in moment.checkpoints
    ]
    damaged = holdfast.damaged_checkpoints(timeline.plan.plan_id, since=timeline.since)
    listed += [(_place(each), damaged_checkpoint_data(each, display_id)) for each, display_id in damaged]
    listed.sort(key=lambda one: one[0])
    return {"plan_id": timeline.plan.plan_id, "checkpoints": [each for _, each in listed]}


def _place(checkpoint: Checkpoint | DamagedCheckpoint) -> tuple[int, str]:
    """The sort key: the sequence number comes first, because ids begin with a clock that may be set back."""
    return checkpoint.sequence, checkpoint.checkpoint_id


def _show(screen: Screen, holdfast: Holdfast, timeline: Timeline, *, is_cut: bool) -> None:
    plan = timeline.plan
    show_plan(screen, plan.plan_id, plan.name)
    if not holdfast.count_checkpoints(plan.plan_id):
        screen.line("It has no checkpoints yet.")
        show_next(screen, commands_below_checkpoints(holdfast, plan, has_checkpoints=False))
        return
    show_older(screen, timeline.older if is_cut else 0, "moment")
    screen.line()
    damaged: list[str] = []
    header = ["checkpoint", "moment", "resource", "time", "new"]
    show_long_table(screen, _rows(holdfast, timeline, damaged), header, flexible=1, fewest=3)
    screen.line()
    commands = commands_below_checkpoints(holdfast, plan, has_checkpoints=True)
    commands += [Next("delete it", f"holdfast checkpoint delete {plan.plan_id} {each}") for each in damaged[:1]]
    show_next(screen, commands)


def _rows(holdfast: Holdfast, timeline: Timeline, damaged: list[str]) -> Iterator[Row]:
    """A row for each checkpoint; the display ids of damaged ones are added to ``damaged``."""
    plan_id, since, sound = timeline.plan.plan_id, timeline.since, 0
    for moment in timeline.oldest_first():
        for number, each in enumerate(moment.checkpoints):
            yield _row(each, is_first=number == 0)
        sound += len(moment.checkpoints)
    # Looking for damaged records reads all again, so it is done only if not all were sound.
    if since is not None or sound != holdfast.count_checkpoints(plan_id):
        damaged += [display_id for _, display_id in holdfast.damaged_checkpoints(plan_id, since=since)]
        yield from map(_damaged_row, damaged)


def _damaged_row(display_id: str) -> Row:
    return [(display_id, "bad"), ("its record is damaged", "bad"), "", "", ""]


def _row(view: CheckpointView, *, is_first: bool) -> Row:
    """``is_first``: of its group. The others belong to the same moment, and a rollback restores all of them."""
    return [
        (view.display_id, "dim" if view.is_superseded else "id"),
        _moment_span(view) if is_first else (_SAME_MOMENT, "dim"),
        (view.checkpoint.resource_id, "dim"),
        (f"{view.group.created_at.astimezone():%H:%M:%S}", "dim"),
        (bytes_text(view.checkpoint.size_bytes), "dim"),
    ]


def _moment_span(view: CheckpointView) -> Span:
    moment = checkpoint_title(view.checkpoint, view.group)
    return (f"{moment} (undone)", "dim") if view.is_superseded else moment
