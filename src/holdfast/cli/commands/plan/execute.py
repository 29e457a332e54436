"""``holdfast plan execute``: run a plan, or continue it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.app import LATEST
from holdfast.cli.completion import complete_plan_or_file
from holdfast.cli.interrupts import interruptible
from holdfast.cli.invocation import FileOrInput, Invocation, command, exclude_option, include_option
from holdfast.cli.output import Reply, show_plan
from holdfast.cli.screen.outcome import outcome_reply
from holdfast.cli.screen.progress import Progress
from holdfast.errors import AmbiguousError, NotFoundError
from holdfast.model import Plan

if TYPE_CHECKING:
    from holdfast import Choices, Holdfast

_PLAN_FILE_ENDINGS = (".yaml", ".yml")


@command(
    "execute",
    examples=(
        ("holdfast plan execute plan.yaml", "Make a plan of a file and run it."),
        ("holdfast plan execute latest", "Run or continue the newest plan."),
    ),
)
@include_option
@exclude_option
@click.argument("plan", metavar="PLAN_ID|FILE", shell_complete=complete_plan_or_file)
def execute(invocation: Invocation, include: tuple[str, ...], exclude: tuple[str, ...], plan: str) -> Reply:
    """Run a plan, or continue it where it stopped; with a plan file (- is standard input), create the plan first.

    All work is done in private sandboxes. Ctrl-C stops the current step; run execute again to continue.
    """
    with invocation.opened() as holdfast:
        return run_plan(invocation, holdfast, _plan_or_new(holdfast, plan, include, exclude))


def _plan_or_new(holdfast: Holdfast, named: str, include: Sequence[str], exclude: Sequence[str]) -> Plan:
    # Anything but a folder is a file, for example a pipe.
    if named == "-" or named.endswith(_PLAN_FILE_ENDINGS) or (os.path.exists(named) and not os.path.isdir(named)):
        return holdfast.create_plan(Path(os.fsdecode(FileOrInput()(named))), include=include, exclude=exclude)
    if include or exclude:
        raise click.UsageError("--include and --exclude are for a new plan, so name a plan file.")
    try:
        return holdfast.find_plan(named)
    except NotFoundError as error:
        if named == LATEST or isinstance(error, AmbiguousError):
            raise
        raise NotFoundError(error.message, hint=f"{error.hint} There is no file of that name either.") from error


def run_plan(invocation: Invocation, holdfast: Holdfast, plan: Plan, choices: Choices | None = None) -> Reply:
    """Execute or continue the plan, and reply with the result."""
    screen = invocation.screen
    progress = None
    if not invocation.is_for_programs and not holdfast.is_done(plan):
        show_plan(screen, plan.plan_id, plan.name)
        progress = Progress(screen, holdfast, plan)
    with interruptible() as cancelled:
        result = holdfast.execute(plan.plan_id, listener=progress, cancelled=cancelled, choices=choices)
    return outcome_reply(holdfast, result, is_for_programs=invocation.is_for_programs)
