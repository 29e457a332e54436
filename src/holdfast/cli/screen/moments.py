"""What changed at one moment, as lines: counts of lines, or patches; cut if there is too much of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.output import NARROWEST, Screen, Span, counted
from holdfast.cli.screen.diff import (
    MOST_FILES_SHOWN,
    DiffStyle,
    folded_text,
    patch_rows,
    show_patch_row,
    stat_rows,
    totals_text,
)
from holdfast.model import Plan

if TYPE_CHECKING:
    from holdfast import FileDiff, Holdfast, MomentChange, MomentChanges, MomentView

Command = Callable[[], str]
"""Makes the command that shows all; it is only asked for if something is cut."""
MOST_LINES_SHOWN = 300


class Below(NamedTuple):
    """Shows below the line of each moment what changed."""

    holdfast: Holdfast
    changes: MomentChanges
    style: DiffStyle

    def show(self, screen: Screen, plan: Plan, moment: MomentView, before: str) -> None:
        """``before``: what the lines begin with, such as the columns of a graph."""
        change = self.changes.at(moment.group)
        first: Span = (f"{before}  ", "dim")
        width = None if screen.width is None else max(NARROWEST, screen.width - len(before) - 2)
        command = partial(diff_command, self.holdfast, plan, moment, change, self.style)
        for row in change_rows(plan, change, self.style, width, command):
            if self.style == "patch":
                show_patch_row(screen, [first, *row])
            else:
                screen.line(first, *row)


def diff_command(holdfast: Holdfast, plan: Plan, moment: MomentView, change: MomentChange, style: DiffStyle) -> str:
    """The command that shows the whole difference of a moment."""
    assert change.before is not None  # otherwise nothing is compared, and so nothing is cut
    before = holdfast.checkpoints_at(change.before)[0].checkpoint_id
    ends = f"{holdfast.display_id(plan.plan_id, before)} {moment.checkpoints[0].display_id}"
    return f"holdfast plan diff {'--patch ' if style == 'patch' else ''}{plan.plan_id} {ends}"


def change_rows(
    plan: Plan, change: MomentChange, style: DiffStyle, width: int | None, command: Command
) -> Iterator[list[Span]]:
    """The lines for one moment; none if nothing changed."""
    if change.problem is not None:
        yield [(f"What changed cannot be shown: {change.problem}", "warn")]
    if style == "patch":
        yield from _patches(plan, change, width is None, command)
    elif change.count:
        yield from _stat(plan, change, width, command)
    if change.ignored_count:
        yield [(folded_text(change.ignored_count), "dim")]


def _stat(plan: Plan, change: MomentChange, width: int | None, command: Command) -> Iterator[list[Span]]:
    files: list[FileDiff] = list(islice(change.files(), MOST_FILES_SHOWN))
    yield from stat_rows(plan, files, width)
    if change.count > len(files):
        yield from _cut(f"{counted(change.count - len(files), 'more file')}", command)
    else:
        yield [(totals_text(files), "dim")]


def _patches(plan: Plan, change: MomentChange, is_exact: bool, command: Command) -> Iterator[list[Span]]:
    left = MOST_LINES_SHOWN
    for number, each in enumerate(change.files()):
        rows = list(islice(patch_rows(plan, each, is_exact=is_exact), left + 1))
        yield from rows[:left]
        if len(rows) > left:
            yield from _cut(_rest(change.count - number), command)
            return
        left -= len(rows)


def _rest(files: int) -> str:
    return "the rest of this file" + (f" and {counted(files - 1, 'more file')}" if files > 1 else "")


def _cut(what: str, command: Command) -> Iterator[list[Span]]:
    yield [(f"… {what}: {command()}", "dim")]
