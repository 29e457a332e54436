"""``holdfast log``: show the timeline of a plan as a graph; every rollback starts a branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast import checkpoint_title
from holdfast.cli.completion import complete_plan
from holdfast.cli.data import diff_data, left_out, names_data, plan_data
from holdfast.cli.invocation import Invocation, command, limit_option, no_pager_option
from holdfast.cli.output import Reply, Screen, show_messages, show_next, show_older, show_plan
from holdfast.cli.screen.plans import commands_below_checkpoints, state_spans
from holdfast.cli.screen.sessions import Prompts
from holdfast.cli.screen.timeline import moment_lines, moment_row
from holdfast.model import Plan

if TYPE_CHECKING:
    from holdfast import Holdfast, MomentChange, MomentChanges, Timeline
    from holdfast.cli.screen.diff import DiffStyle
    from holdfast.cli.screen.moments import Below


@command(
    "log",
    only_looks=True,
    examples=(
        ("holdfast log --stat", "The timeline of the newest plan, with the files that each moment changed."),
        ("holdfast log 01M7H3WWVB --limit 20", "The 20 newest moments of this plan."),
    ),
)
@click.option("--stat", "style", flag_value="stat", help="Show below each moment the files that it changed.")
@click.option("--patch", "-p", "style", flag_value="patch", help="Show below each moment the lines that it changed.")
@click.option("--interactive", "-i", "is_picker", is_flag=True, help="Choose a moment, and what to do with it.")
@limit_option("moments")
@no_pager_option
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
def log(invocation: Invocation, style: DiffStyle | None, is_picker: bool, asked: int | None, plan: str) -> Reply:
    """Show the timeline of a plan, newest moment on top: steps, decisions, checkpoints, and the present state (@).

    A rollback starts a branch: the abandoned moments stay beside it, and you can roll back to them. With --stat and
    --patch each moment is compared with the one before it in the graph.

    With -i you choose a moment on the terminal and see what it changed; Enter shows what you can do with it: roll back,
    or restore files. You are asked before anything happens.
    """
    holdfast = invocation.open()
    if is_picker:
        return _picked(invocation, holdfast, plan, asked)
    timeline = holdfast.timeline(plan, moments=invocation.limit(asked))
    changes = None if style is None else holdfast.moment_changes(timeline.plan)
    if invocation.is_for_programs:
        data = _data(timeline, changes, with_patch=style == "patch")
        return Reply(data, lambda _: None, messages=left_out(holdfast))
    below = None if changes is None or style is None else _below(holdfast, changes, style)
    return Reply({}, lambda screen: _show(screen, holdfast, timeline, below, is_cut=asked is None), is_long=True)


def _picked(invocation: Invocation, holdfast: Holdfast, plan: str, asked: int | None) -> Reply:
    from holdfast.cli.commands.picker import pick  # not needed by a log that is printed

    return pick(invocation, holdfast, holdfast.timeline(plan, moments=asked or None))


def _below(holdfast: Holdfast, changes: MomentChanges, style: DiffStyle) -> Below:
    from holdfast.cli.screen.moments import Below  # not needed by a log without differences

    return Below(holdfast, changes, style)


def _data(timeline: Timeline, changes: MomentChanges | None, *, with_patch: bool) -> dict[str, Any]:
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
                **({} if changes is None else _changed(plan, changes.at(each.group), with_patch=with_patch)),
            }
            for each in timeline.newest_first()
        ],
    }


def _changed(plan: Plan, change: MomentChange, *, with_patch: bool) -> dict[str, Any]:
    return {
        "files": diff_data(plan, change.files(), with_patch=with_patch),
        "ignored_files": names_data(plan, change.ignored_files()),
        "problem": change.problem,
    }


def _show(screen: Screen, holdfast: Holdfast, timeline: Timeline, below: Below | None, *, is_cut: bool) -> None:
    plan = timeline.plan
    show_plan(screen, plan.plan_id, plan.name)
    screen.line(*state_spans(plan))
    screen.line()
    has_moments = False
    prompts = Prompts(screen, holdfast.in_place, plan) if plan.is_session else None
    for line in moment_lines(timeline):
        has_moments = True
        if prompts is not None and line.node is not None:
            prompts.show_before(line.node.content.moment)
        screen.line(*moment_row(plan, line, screen.width))
        if below is not None and line.node is not None:
            column = "│" if line.node.parent is not None else " "
            below.show(screen, plan, line.node.content.moment, f"{line.before}{column}{line.after}")
    if prompts is not None:
        prompts.show_last()
    if has_moments:
        show_older(screen, timeline.older if is_cut else 0, "moment")
        screen.line()
    else:
        screen.line("It has no checkpoints yet.")
    show_next(screen, commands_below_checkpoints(holdfast, plan, has_checkpoints=has_moments))
    show_messages(screen, left_out(holdfast))
