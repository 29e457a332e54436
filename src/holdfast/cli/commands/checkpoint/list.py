"""``holdfast checkpoint list``: list the checkpoints of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast import checkpoint_title
from holdfast.cli.completion import complete_plan
from holdfast.cli.data import checkpoint_data, damaged_checkpoint_data
from holdfast.cli.invocation import Invocation, command, limit_option
from holdfast.cli.output import (
    Next,
    Reply,
    Row,
    Screen,
    Span,
    fits,
    show_next,
    show_older,
    show_plan,
    show_table,
)
from holdfast.cli.screen.plans import commands_below_checkpoints
from holdfast.model import Checkpoint, DamagedCheckpoint, Plan
from holdfast.names import bytes_text

if TYPE_CHECKING:
    from holdfast import CheckpointView

T = TypeVar("T")

_SAME_MOMENT = "  and"


@command("list", only_looks=True)
@limit_option("moments")
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
def list_checkpoints(invocation: Invocation, asked: int | None, plan: str) -> Reply:
    """List the checkpoints of a plan, oldest first."""
    with invocation.opened() as holdfast:
        timeline = holdfast.timeline(plan, moments=invocation.limit(asked))
        found, views, older = timeline.plan, timeline.checkpoints, timeline.older
        since = views[0].group.sequence if older else None
        damaged = holdfast.damaged_checkpoints(found.plan_id, since=since)
        commands = commands_below_checkpoints(holdfast, found, has_checkpoints=bool(views or damaged))
    commands += [Next("delete it", f"holdfast checkpoint delete {found.plan_id} {each}") for _, each in damaged[:1]]
    data = _data(found, views, damaged) if invocation.is_for_programs else {}

    def show(screen: Screen) -> None:
        show_plan(screen, found.plan_id, found.name)
        show_older(screen, older if asked is None else 0, "moment")
        _show_list(screen, views, damaged, commands)

    return Reply(data, show, is_long=True)


def _data(
    plan: Plan, views: Sequence[CheckpointView], damaged: Sequence[tuple[DamagedCheckpoint, str]]
) -> dict[str, Any]:
    listed = [(_place(each.checkpoint), checkpoint_data(each)) for each in views]
    listed += [(_place(each), damaged_checkpoint_data(each, display_id)) for each, display_id in damaged]
    return {"plan_id": plan.plan_id, "checkpoints": _in_order(listed)}


def _place(checkpoint: Checkpoint | DamagedCheckpoint) -> tuple[int, str]:
    """The sort key: the sequence number comes first, because ids begin with a clock that may be set back."""
    return checkpoint.sequence, checkpoint.checkpoint_id


def _in_order(placed: Iterable[tuple[tuple[int, str], T]]) -> list[T]:
    return [each for _, each in sorted(placed, key=lambda one: one[0])]


def _show_list(
    screen: Screen,
    views: Sequence[CheckpointView],
    damaged: Sequence[tuple[DamagedCheckpoint, str]],
    commands: Sequence[Next],
) -> None:
    if not views and not damaged:
        screen.line("It has no checkpoints yet.")
        show_next(screen, commands)
        return
    screen.line()
    before = [None, *(each.group.group_id for each in views)]
    placed = [
        (_place(each.checkpoint), _row(each, is_first=each.group.group_id != group_id))
        for each, group_id in zip(views, before, strict=False)
    ]
    placed += [(_place(each), _damaged_row(display_id)) for each, display_id in damaged]
    rows = _in_order(placed)
    header = ["checkpoint", "moment", "resource", "time", "new"]
    kept = slice(None) if fits([header, *rows], screen.width, flexible=1) else slice(3)
    show_table(screen, [row[kept] for row in rows], flexible=1, header=header[kept])
    screen.line()
    show_next(screen, commands)


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
