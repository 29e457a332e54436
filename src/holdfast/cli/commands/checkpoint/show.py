"""``holdfast checkpoint show``: show one checkpoint in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.completion import complete_checkpoint
from holdfast.cli.data import diff_data, full_checkpoint_data
from holdfast.cli.invocation import Invocation, command
from holdfast.cli.output import Reply, Screen, counted, show_facts, show_next, show_table, time_text
from holdfast.cli.screen.diff import show_diff
from holdfast.cli.screen.plans import back_to
from holdfast.model import GitHead, Plan
from holdfast.names import bytes_text, name_text

if TYPE_CHECKING:
    from holdfast import CheckpointView, FileDiff

_MOST_FILES_SHOWN = 50


@command(
    "show",
    only_looks=True,
    examples=(
        ("holdfast checkpoint show cp_01M7H3WX8C", "A checkpoint of the newest plan."),
        ("holdfast checkpoint show --plan 01M7H3WWVB good", "The checkpoint with the label good."),
    ),
)
@click.option(
    "--plan", metavar="PLAN_ID", help="Its plan; needed for a label or a short id unless it is the latest plan."
)
@click.argument("checkpoint", metavar="CHECKPOINT", shell_complete=complete_checkpoint)
def show_checkpoint(invocation: Invocation, plan: str | None, checkpoint: str) -> Reply:
    """Show one checkpoint in full: when and why it was taken, what it leaves out, what changed since the previous one.

    CHECKPOINT is an id, a display id (cp_...), a unique prefix, a label, or a moment (@, @-2, start).
    """
    with invocation.opened() as holdfast:
        view = holdfast.checkpoint(checkpoint, plan)
        owner = holdfast.find_plan(view.checkpoint.plan_id)
        files = holdfast.changed_files(view)
        can_roll_back = holdfast.can_roll_back(owner, view.group)
    data = {**full_checkpoint_data(view), "changes": diff_data(owner, files, with_patch=False)}
    return Reply(data, lambda screen: _show_one(screen, owner, view, files, can_roll_back))


def _show_one(screen: Screen, plan: Plan, view: CheckpointView, files: Sequence[FileDiff], can_roll_back: bool) -> None:
    checkpoint, metadata, group_of = view.checkpoint, view.checkpoint.metadata, view.group
    facts = {
        "plan": f"{plan.plan_id}  {plan.name}",
        "title": metadata.title,
        "label": metadata.label,
        "taken": time_text(checkpoint.created_at),
        "why": ": ".join(filter(None, (", ".join(metadata.triggers), metadata.reason))),
        "step": None if metadata.step_index is None else f"{metadata.step_index + 1} {metadata.step}",
        "source": metadata.source,
        "decision": checkpoint.decision_id,
        "resource": checkpoint.resource_id,
        "git": _head_text(metadata.git),
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
        screen.line((f"Left out of {name} (a rollback does not touch these)", "strong"))
        show_table(screen, [[name_text(each.path), (each.reason, "dim")] for each in listed], indent="  ")
    _show_files(screen, plan, view, files)
    if not view.group.parent_group_id:
        screen.line("It is the first checkpoint of the plan.")
    screen.line()
    if can_roll_back:
        show_next(screen, [back_to(plan, view.display_id)])


def _head_text(head: GitHead | None) -> str | None:
    if head is None:
        return None
    return f"{name_text(head.branch or 'no branch')} at {head.commit or 'no commit yet'}"


def _show_files(screen: Screen, plan: Plan, view: CheckpointView, files: Sequence[FileDiff]) -> None:
    if not view.group.parent_group_id:
        return
    screen.line(("Changed since the previous checkpoint", "strong"))
    show_diff(screen, plan, files[:_MOST_FILES_SHOWN], "stat")
    if len(files) > _MOST_FILES_SHOWN:
        screen.line(f"and {counted(len(files) - _MOST_FILES_SHOWN, 'more file')}")
