"""``holdfast plan``: make plans, run them, look at them, go back, correct, apply."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.commands.log import add_command as add_log_command
from holdfast.cli.commands.plan_apply import add_commands as add_apply_commands
from holdfast.cli.commands.plan_rollback import add_commands as add_rollback_commands
from holdfast.cli.commands.plan_tree import add_commands as add_decision_commands
from holdfast.cli.completion import complete_checkpoint, complete_plan, complete_plan_or_file
from holdfast.cli.invocation import (
    FileOrInput,
    Invocation,
    OrderedGroup,
    command,
    declined,
    with_common_options,
    yes_option,
)
from holdfast.cli.output import Next, Reply, Screen, counted, show_next, show_plan

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.model import Plan

_PLAN_FILE_ENDINGS = (".yaml", ".yml")
_MOST = 1_000_000_000
"""A database cannot count to just any number."""


@click.group("plan", cls=OrderedGroup)
@with_common_options
def group() -> None:
    """Make plans, run them, go back, correct, apply.

    PLAN_ID is a plan's id, a unique beginning of it, or `latest`: the newest plan of this project.
    """


@command(group, "create", short_help="Make a plan from a file, without running it.")
@click.argument("file", type=FileOrInput())
def create(invocation: Invocation, file: Path) -> Reply:
    """Make a plan from a plan file, without running it; see `holdfast plan schema` for the format.

    FILE may be a pipe, or - for standard input; paths in it are then relative to the current folder.
    """
    from holdfast.cli.records import plan_data, resources_data, steps_data, switched_off

    with invocation.opened() as holdfast:
        plan = holdfast.create_plan(file)
    commands = [Next("run it", f"holdfast plan execute {plan.plan_id}")]
    data = {**plan_data(plan), "resources": resources_data(plan), "steps": steps_data(plan, ())}

    def show(screen: Screen) -> None:
        show_plan(screen, plan.plan_id, plan.name)
        resources = ", ".join(resource.name for resource in plan.resources)
        screen.line(f"{counted(len(plan.steps), 'step')} on {resources}; nothing has run yet.")
        show_next(screen, commands)

    return Reply({**data, "next_commands": [each.command for each in commands]}, show, messages=switched_off(plan))


@command(group, "execute", short_help="Run a plan, or go on with it.")
@click.argument("plan", metavar="PLAN_ID|FILE", shell_complete=complete_plan_or_file)
def execute(invocation: Invocation, plan: str) -> Reply:
    """Run a plan, or go on with it where it stopped; with a plan file (- is standard input), make the plan first.

    All work is done in private sandboxes. Ctrl-C stops the step under way; execute goes on from there.
    """
    from holdfast.cli.screen.execution import run_plan

    with invocation.opened() as holdfast:
        return run_plan(invocation, holdfast, _plan_or_new(holdfast, plan))


def _plan_or_new(holdfast: Holdfast, named: str) -> Plan:
    from holdfast.app import LATEST
    from holdfast.errors import AmbiguousError, NotFoundError

    # Also a pipe: what exists and is no folder.
    if named == "-" or named.endswith(_PLAN_FILE_ENDINGS) or (os.path.exists(named) and not os.path.isdir(named)):
        return holdfast.create_plan(Path(os.fsdecode(FileOrInput()(named))))
    try:
        return holdfast.find_plan(named)
    except NotFoundError as error:
        if named == LATEST or isinstance(error, AmbiguousError):
            raise
        raise NotFoundError(error.message, hint=f"{error.hint} There is no file of that name either.") from error


@command(group, "resume", short_help="Go on after a crash, a kill, a failure or a cancel.")
@click.option("--dry-run", is_flag=True, help="Only say from where.")
@click.option("--rerun", is_flag=True, help="Run an interrupted step with outside effects again.")
@click.option(
    "--skip", is_flag=True, help="Take an interrupted step with outside effects, or an interrupted program, as done."
)
@click.option("--resolved", is_flag=True, help="Take files in conflict as they are now in the sandbox.")
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def resume(invocation: Invocation, dry_run: bool, rerun: bool, skip: bool, resolved: bool, plan: str) -> Reply:
    """Go on after a crash, a kill, a failure, a cancel or a conflict, from the last checkpoint.

    A step that did not come to its end starts again from the state before it. One that does something outside of the
    sandboxes is not run twice by itself: say --rerun or --skip. Of a program that `holdfast run` started, --skip keeps
    what it made: the files as it left them are the result.
    """
    from holdfast.cli.screen.execution import run_plan
    from holdfast.cli.screen.plan_text import resume_reply
    from holdfast.execution.executor import AfterInterruption, Choices

    if rerun and skip:
        raise click.UsageError("--rerun and --skip do not go together.")
    with invocation.opened() as holdfast:
        interrupted = AfterInterruption.RERUN if rerun else AfterInterruption.SKIP if skip else None
        choices = Choices(interrupted, resolved)
        preview = holdfast.resume_preview(plan, choices=choices, is_dry_run=dry_run)
        if dry_run:
            return resume_reply(holdfast, preview)
        return run_plan(invocation, holdfast, preview.plan, choices)


@command(group, "cancel", short_help="Stop a plan; it can go on later.")
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def cancel(invocation: Invocation, plan: str) -> Reply:
    """Stop a plan, also one that runs in another terminal. Sandboxes and checkpoints stay, and it can go on later."""
    from holdfast.cli.records import plan_data

    with invocation.opened() as holdfast:
        stopped = holdfast.cancel(plan)
    commands = [
        Next("go on", f"holdfast plan resume {stopped.plan_id}"),
        Next("go back", f"holdfast checkpoint list {stopped.plan_id}"),
    ]

    def show(screen: Screen) -> None:
        done = f"{stopped.next_step} of {counted(len(stopped.steps), 'step')} done"
        screen.line(f"Cancelled, {done}; its sandboxes and checkpoints are kept.")
        show_next(screen, commands)

    return Reply({**plan_data(stopped), "next_commands": [each.command for each in commands]}, show)


@command(group, "delete", short_help="Forget a plan, its sandboxes and its checkpoints.")
@yes_option
@click.argument("plan", metavar="PLAN_ID", shell_complete=complete_plan)
def delete(invocation: Invocation, yes: bool, plan: str) -> Reply:
    """Forget a plan: its sandboxes, its records, and all saved content that no other plan needs."""
    from holdfast.cli.records import plan_data, unfreed

    invocation.refuse_to_guess(yes)
    with invocation.opened() as holdfast:
        damaged = holdfast.find_damaged_plan(plan)
        if damaged is not None:
            return _delete_damaged(invocation, holdfast, damaged, yes)
        found = holdfast.find_plan(plan)
        kept = counted(holdfast.store.checkpoints.count(found.plan_id), "checkpoint")
        if not yes and not invocation.ask(f"Delete plan {found.plan_id} ({found.name}) with its {kept} for good?"):
            raise declined()
        holdfast.delete(found.plan_id)
        messages = unfreed(holdfast)
    return Reply(plan_data(found), lambda screen: screen.line(f"Deleted, with its {kept}."), messages=messages)


def _delete_damaged(invocation: Invocation, holdfast: Holdfast, plan_id: str, yes: bool) -> Reply:
    from holdfast.cli.records import unfreed

    if not yes and not invocation.ask(f"Records of plan {plan_id} are damaged. Delete the plan for good?"):
        raise declined()
    holdfast.delete_damaged(plan_id)
    text = "Deleted; its records were damaged."
    return Reply({"plan_id": plan_id}, lambda screen: screen.line(text), messages=unfreed(holdfast))


@command(group, "status", short_help="Where a plan stands.")
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
def status(invocation: Invocation, plan: str) -> Reply:
    """Where a plan stands: its steps, its resources, the decisions that can be corrected."""
    from holdfast.cli.records import left_out, status_data, switched_off
    from holdfast.cli.screen.plan_text import show_status

    with invocation.opened() as holdfast:
        found = holdfast.status(plan)
        decisions = holdfast.decisions(found.plan.plan_id)
        last = _display_id(holdfast, found.plan) if not invocation.is_for_programs else None
        messages = (*switched_off(found.plan), *left_out(holdfast))
    data = status_data(found, decisions)
    return Reply(data, lambda screen: show_status(screen, found, decisions, last), messages=messages)


def _display_id(holdfast: Holdfast, plan: Plan) -> str | None:
    from holdfast.checkpoints.references import display_ids

    if plan.last_checkpoint_id is None:
        return None
    listed = [each.checkpoint_id for each in holdfast.store.checkpoints.of(plan.plan_id)]
    return display_ids([*listed, plan.last_checkpoint_id])[plan.last_checkpoint_id]


@command(group, "list", short_help="The plans of this project, newest first.")
@click.option("--all", "everywhere", is_flag=True, help="Of all projects.")
@click.option("--limit", type=click.IntRange(1, _MOST), metavar="N", help="Only the N newest.")
def list_plans(invocation: Invocation, everywhere: bool, limit: int | None) -> Reply:
    """The plans of this project, newest first."""
    from holdfast.cli.records import left_out, plan_data
    from holdfast.cli.screen.plan_text import show_plans
    from holdfast.model import Project

    with invocation.opened() as holdfast:
        plans = holdfast.list_plans(everywhere=everywhere, limit=limit)
        interrupted = {plan.plan_id for plan in plans if holdfast.is_interrupted(plan)}
        projects = {
            each: project.root
            for each in {plan.project_id for plan in plans}
            if (project := holdfast.store.find(Project, each, sound_only=True))
        }
        messages = left_out(holdfast)
    data = [
        {
            **plan_data(plan),
            "interrupted": plan.plan_id in interrupted,
            "steps": len(plan.steps),
            "project": projects.get(plan.project_id),
        }
        for plan in plans
    ]

    def show(screen: Screen) -> None:
        show_plans(screen, plans, projects, None if everywhere else holdfast.project_root, interrupted)

    return Reply({"plans": data}, show, messages=messages)


add_rollback_commands(group)
add_decision_commands(group)
add_log_command(group)


@command(group, "diff", short_help="What a plan changed.")
@click.option("--patch", "-p", "style", flag_value="patch", help="With the changed lines.")
@click.option("--stat", "style", flag_value="stat", default=True, help="Files and counts of lines; the default.")
@click.option("--name-only", "style", flag_value="names", help="Only the names of the files.")
@click.option(
    "--attempt", "attempts", type=int, nargs=2, metavar="A B", help="Compare the results of two attempts instead."
)
@click.argument("plan", metavar="[PLAN_ID]", default="latest", shell_complete=complete_plan)
@click.argument("old", metavar="[FROM]", required=False, shell_complete=complete_checkpoint)
@click.argument("new", metavar="[TO]", required=False, shell_complete=complete_checkpoint)
def diff(
    invocation: Invocation,
    style: str,
    attempts: tuple[int, int] | None,
    plan: str,
    old: str | None,
    new: str | None,
) -> Reply:
    """What a plan changed so far, or since checkpoint FROM, or between the checkpoints FROM and TO.

    Every correction begins a new attempt; `--attempt 1 2` tells what came out differently.
    """
    from holdfast.cli.records import diff_data
    from holdfast.cli.screen.plan_text import show_diff

    if attempts and old is not None:
        raise click.UsageError("--attempt compares attempts, and takes no checkpoints.")
    with invocation.opened() as holdfast:
        found = holdfast.find_plan(plan)
        if attempts:
            ends = [holdfast.result_of_attempt(found.plan_id, each).checkpoint_id for each in attempts]
        else:
            ends = [
                holdfast.checkpoint(each, found.plan_id).checkpoint.checkpoint_id
                for each in (old, new)
                if each is not None
            ]
        files = holdfast.diff(found.plan_id, *ends)
    data = {
        "plan_id": found.plan_id,
        "attempts": attempts,
        "from_checkpoint_id": ends[0] if ends else None,
        "to_checkpoint_id": ends[1] if len(ends) > 1 else None,
        "files": diff_data(found, files, with_patch=style == "patch"),
        "files_changed": len(files),
        "added_lines": sum(each.added_lines for each in files),
        "removed_lines": sum(each.removed_lines for each in files),
    }
    return Reply(data, lambda screen: show_diff(screen, found, files, style), is_long=True)


add_apply_commands(group)


@command(group, "schema", short_help="The JSON Schema of plan files.")
def schema(invocation: Invocation) -> Reply:  # noqa: ARG001 - every command gets it
    """The JSON Schema of plan files, for editors: holdfast plan schema > plan.schema.json."""
    from holdfast.planfile import plan_file_schema

    found: dict[str, Any] = plan_file_schema()
    return Reply({"schema": found}, lambda screen: screen.line(json.dumps(found, indent=2)))
