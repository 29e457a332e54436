"""``holdfast checkpoint``: look at the checkpoints of a plan, take, delete and verify them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from holdfast.cli.completion import complete_checkpoint, complete_plan
from holdfast.cli.invocation import Invocation, OrderedGroup, command, with_common_options
from holdfast.cli.output import (
    Next,
    Reply,
    Row,
    Screen,
    Span,
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
    from holdfast.app import CheckpointView, Holdfast
    from holdfast.checkpoints.file_diffs import FileDiff
    from holdfast.checkpoints.verification import VerifyResult
    from holdfast.model import Checkpoint, CheckpointGroup, DamagedCheckpoint, GitHead, Plan

_MOST_FILES_SHOWN = 50


@dataclass(frozen=True)
class Footer:
    """What stands below a list of checkpoints."""

    root_id: str
    """Of the plan that is executed for it."""
    can_go_back: bool

    @classmethod
    def of(cls, holdfast: Holdfast, plan: Plan) -> Footer:
        return cls(holdfast.store.plans.root_of(plan).plan_id, holdfast.can_go_back(plan))

    def commands(self, plan: Plan) -> list[Next]:
        looking = Next("look", f"holdfast checkpoint show --plan {plan.plan_id} CHECKPOINT")
        going_back = Next("go back", f"holdfast plan rollback {plan.plan_id} CHECKPOINT")
        return [looking, going_back] if self.can_go_back else [looking]


@click.group("checkpoint", cls=OrderedGroup)
@with_common_options
def group() -> None:
    """Look at the checkpoints of a plan, take and delete them; go back to one with `holdfast plan rollback`."""


@command(group, "list", short_help="The checkpoints of a plan, oldest first.")
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
def list_checkpoints(invocation: Invocation, plan: str) -> Reply:
    """The checkpoints of a plan, oldest first."""
    from holdfast.cli.records import checkpoint_data, damaged_checkpoint_data

    with invocation.opened() as holdfast:
        found = holdfast.find_plan(plan)
        views = holdfast.checkpoints(found.plan_id)
        damaged = holdfast.damaged_checkpoints(found.plan_id)
        footer = Footer.of(holdfast, found)
    listed = [checkpoint_data(each) for each in views]
    listed += [damaged_checkpoint_data(*each) for each in damaged]
    data = {"plan_id": found.plan_id, "checkpoints": sorted(listed, key=lambda each: each["checkpoint_id"])}
    return Reply(data, lambda screen: _show_list(screen, found, views, damaged, footer), is_long=True)


def _show_list(
    screen: Screen,
    plan: Plan,
    views: Sequence[CheckpointView],
    damaged: Sequence[tuple[DamagedCheckpoint, str]],
    footer: Footer,
) -> None:
    show_plan(screen, plan.plan_id, plan.name)
    if not views and not damaged:
        screen.line("It has no checkpoints yet.")
        show_next(screen, [Next("run it", f"holdfast plan execute {footer.root_id}")])
        return
    screen.line()
    before = [None, *(each.group.group_id for each in views)]
    dated = [
        (each.checkpoint.checkpoint_id, _row(each, is_first=each.group.group_id != group_id))
        for each, group_id in zip(views, before, strict=False)
    ]
    dated += [(each.checkpoint_id, _damaged_row(display_id)) for each, display_id in damaged]
    rows = [row for _, row in sorted(dated, key=lambda each: each[0])]
    header = ["checkpoint", "moment", "resource", "time", "new"]
    kept = slice(None) if fits([header, *rows], screen.width, flexible=1) else slice(3)
    show_table(screen, [row[kept] for row in rows], flexible=1, header=header[kept])
    screen.line()
    show_next(
        screen,
        [
            *footer.commands(plan),
            *(Next("remove it", f"holdfast checkpoint delete {plan.plan_id} {each[1]}") for each in damaged[:1]),
        ],
    )


def _damaged_row(display_id: str) -> Row:
    return [(display_id, "bad"), ("its record is damaged", "bad"), "", "", ""]


def _row(view: CheckpointView, *, is_first: bool) -> Row:
    """``is_first``: the others of its group are of the same moment, and are gone back to together with it."""
    return [
        (view.display_id, "dim" if view.is_superseded else "id"),
        _moment_span(view) if is_first else (_SAME_MOMENT, "dim"),
        (view.checkpoint.resource_id, "dim"),
        (f"{view.group.created_at.astimezone():%H:%M:%S}", "dim"),
        (bytes_text(view.checkpoint.size_bytes), "dim"),
    ]


def _moment_span(view: CheckpointView) -> Span:
    moment = title_text(view.checkpoint, view.group)
    return (f"{moment} (undone)", "dim") if view.is_superseded else moment


_SAME_MOMENT = "  and"


def title_text(checkpoint: Checkpoint, group: CheckpointGroup) -> str:
    """What a checkpoint is called, after its label if it has one; earlier versions stored no title."""
    from holdfast.checkpoints.titles import title_of

    title = checkpoint.metadata.title or title_of(group)
    return f'"{group.label}" {title}' if group.label else title


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
        can_go_back = holdfast.can_go_back(owner, view.group)
    data = {**full_checkpoint_data(view), "changes": diff_data(owner, files, with_patch=False)}
    return Reply(data, lambda screen: _show_one(screen, owner, view, files, can_go_back))


def _show_one(screen: Screen, plan: Plan, view: CheckpointView, files: Sequence[FileDiff], can_go_back: bool) -> None:
    checkpoint, metadata, group_of = view.checkpoint, view.checkpoint.metadata, view.group
    facts = {
        "plan": f"{plan.plan_id}  {plan.name}",
        "title": metadata.title,
        "label": metadata.label,
        "taken": time_text(checkpoint.created_at),
        "why": f"{', '.join(metadata.triggers)}: {metadata.reason}",
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
        screen.line((f"Not held of {name} (a rollback leaves these alone)", "strong"))
        show_table(screen, [[name_text(each.path), (each.reason, "dim")] for each in listed], indent="  ")
    _show_files(screen, plan, view, files)
    if not view.group.parent_group_id:
        screen.line("It is the first checkpoint of the plan.")
    screen.line()
    if can_go_back:
        show_next(screen, [Next("go back", f"holdfast plan rollback {plan.plan_id} {view.display_id}")])


def _head_text(head: GitHead | None) -> str | None:
    if head is None:
        return None
    return f"{name_text(head.branch or 'no branch')} at {head.commit or 'no commit yet'}"


def _show_files(screen: Screen, plan: Plan, view: CheckpointView, files: Sequence[FileDiff]) -> None:
    from holdfast.cli.screen.plan_text import show_diff

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
        can_go_back = holdfast.can_go_back(holdfast.find_plan(view.checkpoint.plan_id), view.group)
    back = Next("go back", f"holdfast plan rollback {view.checkpoint.plan_id} {view.display_id}")

    def show(screen: Screen) -> None:
        screen.line(("Checkpoint ", "strong"), (view.checkpoint.checkpoint_id, "id"))
        if can_go_back:
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
        damaged = holdfast.find_damaged_checkpoint(plan, checkpoint)
        if damaged is not None:
            return _delete_damaged(invocation, holdfast, damaged, yes)
        view = holdfast.checkpoint(checkpoint, holdfast.find_plan(plan).plan_id)
        if not yes and not invocation.ask(
            f"Delete checkpoint {view.display_id} ({title_text(view.checkpoint, view.group)}) for good?"
        ):
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


def _delete_damaged(invocation: Invocation, holdfast: Holdfast, damaged: DamagedCheckpoint, yes: bool) -> Reply:
    from holdfast.cli.records import unfreed
    from holdfast.errors import StateError

    question = f"The record of checkpoint {damaged.checkpoint_id} is damaged. Delete it for good?"
    if not yes and not invocation.ask(question):
        raise StateError("You said no; nothing was changed.")
    deleted = holdfast.delete_checkpoint(damaged.plan_id, damaged.checkpoint_id)
    data = {
        "plan_id": damaged.plan_id, "checkpoint_id": damaged.checkpoint_id, "group_id": None, "deleted": deleted,
    }  # fmt: skip
    text = f"Deleted {counted(deleted, 'damaged checkpoint')}."
    return Reply(data, lambda screen: screen.line(text), messages=unfreed(holdfast))


@command(group, "prune", short_help="Delete the oldest checkpoints now.")
@click.option("--keep", type=click.IntRange(min=2), metavar="N", help="How many stay; by default what the plan says.")
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def prune(invocation: Invocation, keep: int | None, plan: str) -> Reply:
    """Delete the oldest checkpoints now; the first, the last and labelled ones always stay."""
    from holdfast.cli.records import unfreed

    with invocation.opened() as holdfast:
        found = holdfast.find_plan(plan)
        deleted = holdfast.prune(found.plan_id, keep)
        left = holdfast.store.checkpoints.count(found.plan_id)
        size = holdfast.service.manager.objects.content_bytes()
        messages = unfreed(holdfast)
    data = {"plan_id": found.plan_id, "deleted": deleted, "checkpoints_remaining": left, "content_bytes": size}
    text = f"Deleted {counted(deleted, 'checkpoint')}, {left} stay; saved content takes {bytes_text(size)} in all."
    return Reply(data, lambda screen: screen.line(text), messages=messages)


@command(group, "release", short_help="Give up content of records that are gone for ever.")
@_yes
def release(invocation: Invocation, yes: bool) -> Reply:
    """Give up the saved content of plans that no records at hand know, because their records are gone for ever.

    Content is kept for every database that this home was used with. While one of them cannot be asked, or is older than
    the content, nothing is freed. Put the newest backup of it back if there is one: what is given up here is lost.
    """
    from holdfast.cli.records import unfreed
    from holdfast.errors import StateError

    invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        held_back = holdfast.held_back()
        if held_back and not yes:
            show_table(invocation.screen, [[each.plan_id, each.place, (each.reason, "dim")] for each in held_back])
            if not invocation.ask(f"Give up what only {counted(len(held_back), 'plan')} of these records may need?"):
                raise StateError("You said no; nothing was changed.")
        freed = holdfast.release(held_back) if held_back else 0
        messages = unfreed(holdfast)
    data = {
        "released": [{"plan_id": each.plan_id, "records": each.place, "reason": each.reason} for each in held_back],
        "freed_bytes": freed,
    }
    text = f"Released {counted(len(held_back), 'plan')}; {bytes_text(freed)} were freed."
    return Reply(data, lambda screen: screen.line(text if held_back else "Nothing is held back."), messages=messages)


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
