"""``holdfast checkpoint``: look at the checkpoints of a plan, take, delete and verify them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from holdfast.cli.completion import complete_checkpoint, complete_plan
from holdfast.cli.invocation import Invocation, OrderedGroup, command, with_common_options
from holdfast.cli.output import (
    Next,
    Reply,
    Row,
    Screen,
    bytes_text,
    counted,
    fits,
    show_facts,
    show_next,
    show_plan,
    show_table,
    time_text,
)
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast.app import CheckpointView
    from holdfast.checkpoints import VerifyResult
    from holdfast.diff import FileDiff
    from holdfast.model import CheckpointGroup, Plan

_MOST_FILES_SHOWN = 50


@click.group("checkpoint", cls=OrderedGroup)
@with_common_options
def group() -> None:
    """Look at the checkpoints of a plan, take and delete them; go back to one with `holdfast plan rollback`."""


@command(group, "list", short_help="The checkpoints of a plan, oldest first.")
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
def list_checkpoints(invocation: Invocation, plan: str) -> Reply:
    """The checkpoints of a plan, oldest first."""
    from holdfast.cli.records import checkpoint_data

    with invocation.opened() as holdfast:
        found = holdfast.find_plan(plan)
        views = holdfast.checkpoints(found.plan_id)
    data = {"plan_id": found.plan_id, "checkpoints": [checkpoint_data(each) for each in views]}
    return Reply(data, lambda screen: _show_list(screen, found, views), is_long=True)


def _show_list(screen: Screen, plan: Plan, views: Sequence[CheckpointView]) -> None:
    show_plan(screen, plan.plan_id, plan.name)
    if not views:
        screen.line("It has no checkpoints yet.")
        show_next(screen, [Next("run it", f"holdfast plan execute {plan.plan_id}")])
        return
    screen.line()
    rows = [_row(list(members)) for _, members in groupby(views, key=lambda view: view.group.group_id)]
    header = ["checkpoint", "moment", "resource", "time", "new"]
    kept = slice(None) if fits([header, *rows], screen.width, flexible=1) else slice(3)
    show_table(screen, [row[kept] for row in rows], flexible=1, header=header[kept])
    screen.line()
    show_next(
        screen,
        [
            Next("look", f"holdfast checkpoint show --plan {plan.plan_id} CHECKPOINT"),
            Next("go back", f"holdfast plan rollback {plan.plan_id} CHECKPOINT"),
        ],
    )


def _row(members: Sequence[CheckpointView]) -> Row:
    """One moment: the checkpoints of a group are gone back to together, so the first stands for all."""
    first = members[0]
    return [
        (first.display_id, "dim" if first.is_superseded else "id"),
        (moment_text(first.group) + " (undone)", "dim") if first.is_superseded else moment_text(first.group),
        (",".join(each.checkpoint.resource_id for each in members), "dim"),
        (f"{first.group.created_at.astimezone():%H:%M:%S}", "dim"),
        (bytes_text(sum(each.checkpoint.size_bytes for each in members)), "dim"),
    ]


_MOMENTS = {
    "before_step": "before {step}",
    "on_tool_write": "before {step}",
    "on_tool_write_complete": "after {step}",
    "on_error": "failed: {step}",
    "pre_execute": "start",
    "post_execute": "end",
    "pre_apply": "before apply",
    "before_rollback": "left by going back",
    "rollback": "back at {step}",
    "settled": "during {step}",
}


def moment_text(group: CheckpointGroup) -> str:
    """The moment of a group in a few words."""
    edge = "the start" if group.last_completed_step < 0 else "the end"
    step = edge if group.step_index is None else f"{group.step_index + 1} {group.step}"
    words = _MOMENTS.get(group.triggers[0], "{reason}").format(step=step, reason=group.reason)
    return f'"{group.label}" {words}' if group.label else words


@command(group, "show", short_help="All about one checkpoint.")
@click.option("--plan", metavar="PLAN_ID", help="Of this plan; needed only where the id alone is not enough.")
@click.argument("checkpoint", metavar="CHECKPOINT", shell_complete=complete_checkpoint)
def show_checkpoint(invocation: Invocation, plan: str | None, checkpoint: str) -> Reply:
    """All about one checkpoint: when and why, what it could not hold, what changed since the one before.

    CHECKPOINT is an id, a display id (cp_...), a unique beginning, or a label.
    """
    from holdfast.cli.records import diff_data, full_checkpoint_data

    with invocation.opened() as holdfast:
        view = holdfast.checkpoint(checkpoint, plan)
        owner = holdfast.find_plan(view.checkpoint.plan_id)
        files = holdfast.changed_files(view)
    data = {**full_checkpoint_data(view), "changes": diff_data(owner, files, with_patch=False)}
    return Reply(data, lambda screen: _show_one(screen, owner, view, files))


def _show_one(screen: Screen, plan: Plan, view: CheckpointView, files: Sequence[FileDiff]) -> None:
    checkpoint, metadata, group_of = view.checkpoint, view.checkpoint.metadata, view.group
    facts = {
        "plan": f"{plan.plan_id}  {plan.name}",
        "label": metadata.label,
        "taken": time_text(checkpoint.created_at),
        "why": f"{', '.join(metadata.triggers)}: {metadata.reason}",
        "step": None if metadata.step_index is None else f"{metadata.step_index + 1} {metadata.step}",
        "decision": checkpoint.decision_id,
        "resource": checkpoint.resource_id,
        "state": metadata.state_hash,
        "group": checkpoint.group_id,
        "attempt": str(group_of.attempt),
        "new content": bytes_text(checkpoint.size_bytes),
        "sandbox": name_text(checkpoint.filesystem_path),
    }
    undone = "  (undone by a rollback or correction since)" if view.is_superseded else ""
    screen.line(("Checkpoint ", "strong"), (checkpoint.checkpoint_id, "id"), (undone, "dim"))
    show_facts(screen, [(name, value) for name, value in facts.items() if value])
    screen.line()
    for name, listed in group_of.unheld.items():
        screen.line((f"Not held of {name} (a rollback leaves these alone)", "strong"))
        show_table(screen, [[name_text(each.path), (each.reason, "dim")] for each in listed], indent="  ")
    _show_files(screen, plan, view, files)
    if not view.group.parent_group_id:
        screen.line("It is the first checkpoint of the plan.")
    screen.line()
    show_next(screen, [Next("go back", f"holdfast plan rollback {plan.plan_id} {view.display_id}")])


def _show_files(screen: Screen, plan: Plan, view: CheckpointView, files: Sequence[FileDiff]) -> None:
    from holdfast.cli.plan_text import show_diff

    if not view.group.parent_group_id:
        return
    screen.line(("Changed since the checkpoint before", "strong"))
    show_diff(screen, plan, files[:_MOST_FILES_SHOWN], "stat")
    if len(files) > _MOST_FILES_SHOWN:
        screen.line(f"and {counted(len(files) - _MOST_FILES_SHOWN, 'more file')}")


@command(group, "create", short_help="Take a checkpoint now.")
@click.option("--label", metavar="TEXT", help="A name for it; one with a label is never pruned.")
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def create_checkpoint(invocation: Invocation, label: str | None, plan: str) -> Reply:
    """Take a checkpoint of a plan's sandboxes as they are now."""
    from holdfast.cli.records import full_checkpoint_data

    if label is not None and not label.strip():
        raise click.BadParameter("say something, or leave it out.", param_hint="--label")
    with invocation.opened() as holdfast:
        view = holdfast.create_checkpoint(plan, label)
    back = Next("go back", f"holdfast plan rollback {view.checkpoint.plan_id} {view.display_id}")

    def show(screen: Screen) -> None:
        screen.line(("Checkpoint ", "strong"), (view.checkpoint.checkpoint_id, "id"))
        show_next(screen, [back])

    return Reply(full_checkpoint_data(view), show)


_yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


@command(group, "delete", short_help="Delete a checkpoint for good.")
@_yes
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
@click.argument("checkpoint", metavar="CHECKPOINT_ID", shell_complete=complete_checkpoint)
def delete_checkpoint(invocation: Invocation, yes: bool, plan: str, checkpoint: str) -> Reply:
    """Delete a checkpoint for good, with those of the same moment, and free what only they need."""
    from holdfast.cli.records import unfreed
    from holdfast.errors import StateError

    invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        view = holdfast.checkpoint(checkpoint, holdfast.find_plan(plan).plan_id)
        if not yes and not invocation.ask(f"Delete checkpoint {view.display_id} ({moment_text(view.group)}) for good?"):
            raise StateError("You said no; nothing was changed.")
        deleted = holdfast.delete_checkpoint(view.checkpoint.plan_id, view.checkpoint.checkpoint_id)
        messages = unfreed(holdfast)
    data = {
        "plan_id": view.checkpoint.plan_id,
        "checkpoint_id": view.checkpoint.checkpoint_id,
        "group_id": view.checkpoint.group_id,
        "deleted": deleted,
    }
    return Reply(data, lambda screen: screen.line(f"Deleted {counted(deleted, 'checkpoint')}."), messages=messages)


@command(group, "prune", short_help="Delete the oldest checkpoints now.")
@click.option("--keep", type=click.IntRange(min=2), metavar="N", help="How many stay; by default what the plan says.")
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def prune(invocation: Invocation, keep: int | None, plan: str) -> Reply:
    """Delete the oldest checkpoints now; the first, the last and labelled ones always stay."""
    from holdfast.cli.records import unfreed

    with invocation.opened() as holdfast:
        found = holdfast.find_plan(plan)
        deleted = holdfast.prune(found.plan_id, keep)
        left = holdfast.store.checkpoint_count(found.plan_id)
        size = holdfast.service.manager.objects.content_bytes()
        messages = unfreed(holdfast)
    data = {"plan_id": found.plan_id, "deleted": deleted, "checkpoints_remaining": left, "content_bytes": size}
    text = f"Deleted {counted(deleted, 'checkpoint')}, {left} stay; saved content takes {bytes_text(size)} in all."
    return Reply(data, lambda screen: screen.line(text), messages=messages)


@command(group, "verify", short_help="Read everything saved back and check it.")
@click.argument("plan", metavar="[PLAN_ID]", required=False, shell_complete=complete_plan)
def verify(invocation: Invocation, plan: str | None) -> Reply:
    """Read everything the checkpoints of a plan need back and check every digest; without a plan, of all of them.

    The structure of the file all content is in is checked, too. Exit code 7 if something is damaged or missing.
    """
    from holdfast.errors import ContentError

    with invocation.opened() as holdfast:
        result = holdfast.verify(plan)
    data = {
        "checkpoints": result.checkpoints,
        "objects": result.objects,
        "structure": list(result.structure),
        "damaged": [
            {
                "object": each.digest,
                "problem": "damaged" if each.is_there else "missing",
                "checkpoints": [
                    {"plan_id": affected.plan_id, "checkpoint_id": affected.checkpoint_id}
                    for affected in each.checkpoints
                ],
            }
            for each in result.damaged
        ],
    }
    exit_code = 0 if result.is_sound else ContentError.exit_code
    return Reply(data, lambda screen: _show_verified(screen, result), exit_code=exit_code)


def _show_verified(screen: Screen, result: VerifyResult) -> None:
    if result.structure:
        screen.line(("the structure of objects.db is damaged", "bad"), "; copy it, then restore it from a backup:")
        for line in result.structure:
            screen.line("  ", line)
    for each in result.damaged:
        problem = "is damaged" if each.is_there else "is missing"
        screen.line(
            (f"object {each.digest[:16]} {problem}", "bad"), f"; {counted(len(each.checkpoints), 'checkpoint')}:"
        )
        rows = [[found.plan_id, found.checkpoint_id, found.metadata.reason] for found in each.checkpoints]
        show_table(screen, rows, indent="  ", flexible=2)
    read = f"{counted(result.objects, 'object')} of {counted(result.checkpoints, 'checkpoint')}"
    problems = len(result.damaged) + bool(result.structure)
    screen.line(f"{read} read back; {counted(problems, 'problem')}.")
