"""``holdfast plan execute``: run a plan, or continue it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.app import LATEST
from holdfast.cli.completion import complete_plan_or_file
from holdfast.cli.interrupts import interruptible
from holdfast.cli.invocation import FileOrInput, Invocation, command, exclude_option, include_option, yes_option
from holdfast.cli.output import Reply, can_ask, first_line, shortened, show_plan
from holdfast.cli.screen.outcome import outcome_reply
from holdfast.cli.screen.progress import Progress
from holdfast.errors import AmbiguousError, NotFoundError, StateError
from holdfast.model import Plan, Step

if TYPE_CHECKING:
    from holdfast import Choices, Holdfast

_LONGEST_COMMAND = 60
_PLAN_FILE_ENDINGS = (".yaml", ".yml")


@command(
    "execute",
    examples=(
        ("holdfast plan execute plan.yaml", "Make a plan of a file and run it."),
        ("holdfast plan execute latest", "Run or continue the newest plan."),
    ),
)
@yes_option
@include_option
@exclude_option
@click.argument("plan", metavar="PLAN_ID|FILE", shell_complete=complete_plan_or_file)
def execute(invocation: Invocation, yes: bool, include: tuple[str, ...], exclude: tuple[str, ...], plan: str) -> Reply:
    """Run a plan, or continue it where it stopped; with a plan file (- is standard input), create the plan first.

    All work is done in private sandboxes. Ctrl-C stops the current step; run execute again to continue. A program that
    `holdfast run` started on a terminal starts from its beginning: you are asked before, unless you say --yes.
    """
    with invocation.opened() as holdfast:
        return run_plan(invocation, holdfast, _plan_or_new(holdfast, plan, include, exclude), yes=yes)


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


def run_plan(
    invocation: Invocation, holdfast: Holdfast, plan: Plan, choices: Choices | None = None, *, yes: bool
) -> Reply:
    """Execute or continue the plan, and reply with the result; ``yes``: interactive programs start without a question.

    They get the terminal, if there is one.
    """
    before, is_done = partial(_before_programs, invocation, yes), holdfast.is_done(plan)
    if not is_done and any(step.is_interactive for step in plan.steps):
        from holdfast.cli.commands.run import is_on_terminal, run_program

        if is_on_terminal(invocation):
            return run_program(invocation, holdfast, plan, choices, before)
    screen = invocation.screen
    progress = None
    if not invocation.is_for_programs and not is_done:
        show_plan(screen, plan.plan_id, plan.name)
        progress = Progress(screen, holdfast, plan)
    with interruptible() as cancelled:
        result = holdfast.execute(
            plan.plan_id, listener=progress, cancelled=cancelled, choices=choices, before_programs=before
        )
    return outcome_reply(holdfast, result, is_for_programs=invocation.is_for_programs)


def _before_programs(invocation: Invocation, yes: bool, plan: Plan, programs: Sequence[Step]) -> None:
    """Say which interactive programs start from their beginning, and ask unless ``yes``."""
    named = ", ".join(shortened(first_line(step.name), _LONGEST_COMMAND) for step in programs if step.is_interactive)
    if not named:
        return
    if not yes and not can_ask():
        raise StateError(
            f"This starts an interactive program from its beginning: {named}. Nothing was started.",
            hint=f"`holdfast plan execute --yes {plan.plan_id}` starts it. {_instead(plan)}",
        )
    if not yes and not invocation.ask(f"This starts from its beginning: {named}. Start it?"):
        raise StateError("You said no; nothing was started.", hint=_instead(plan))
    if yes and not invocation.is_for_programs:
        invocation.screen.line(("starts from its beginning  ", "dim"), named)
        invocation.screen.close()


def _instead(plan: Plan) -> str:
    going_on = f"`holdfast run --in {plan.plan_id} -- COMMAND` goes on with another command"
    return f"{going_on}; `holdfast plan keep {plan.plan_id} CHECKPOINT` makes a moment the result."
