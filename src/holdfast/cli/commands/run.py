"""``holdfast run``: run any program in a sandbox of the current project, on this terminal, with checkpoints."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast import Outfit, Passthrough
from holdfast.cli.commands.plan.rollback import rollback_sentence
from holdfast.cli.completion import complete_checkpoint, complete_plan
from holdfast.cli.data import changes_with_ignored, plan_data, program_data, resources_data
from holdfast.cli.interrupts import interruptible, one_press_too_many
from holdfast.cli.invocation import (
    Invocation,
    command,
    exclude_option,
    include_option,
    unless_declined,
    yes_option,
)
from holdfast.cli.output import Next, Reply, Screen, counted, shortened, show_next, show_sentence
from holdfast.cli.screen.diff import show_diff
from holdfast.cli.screen.grants import refused_data, show_grants, show_refused
from holdfast.cli.screen.listeners import RepairListener, effect_lines, own_path_messages
from holdfast.cli.screen.outcome import outcome_reply
from holdfast.cli.screen.plans import after_interrupted_program, changes_text, going_on_with, show_pruned
from holdfast.cli.streams import STREAM_NAMES
from holdfast.errors import EXIT_INTERRUPTED, EXIT_STEP_FAILED
from holdfast.model import (
    DEFAULT_SETTLE_SECONDS,
    Plan,
    PlanState,
    RefusedWrite,
    RollbackResult,
    RunSettings,
    RunStatus,
    Step,
    StepRun,
)
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import Choices, ExecutionResult, Holdfast, RollbackPreview

Before = Callable[[Plan, Sequence[Step]], None]
_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>ms|s|m|)\Z")
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0}
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.05, 3600.0
_SIGNALLED = 128
_NOT_STARTED = 127
"""The exit codes that shells use."""


class Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = _DURATION.match(value)
        seconds = float(found["number"]) * _UNITS[found["unit"]] if found else 0.0
        if not _SHORTEST_SECONDS <= seconds <= _LONGEST_SECONDS:
            self.fail(f"{value!r} is not a duration like 2s, 500ms or 1m.", param, ctx)
        return seconds


@command(
    "run",
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
    examples=(
        ("holdfast run -- make", "Run make on a copy of this project."),
        ('holdfast run --pass-env API_KEY -- my-agent "fix it"', "Run an agent that needs a variable."),
    ),
)
@click.option(
    "--resource",
    "resources",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="PATH",
    help="A folder or repository that the program works on; by default the project around the current folder.",
)
@click.option(
    "--settle",
    type=Duration(),
    metavar="TIME",
    help="Take a checkpoint when the program has written something and then paused for this long; by default 2s.",
)
@click.option("--pass-env", multiple=True, metavar="NAME", help="A variable that the program may see, like an API key.")
@click.option(
    "--allow-write", multiple=True, metavar="PATH", help="Where else the program may write; rollback does not cover it."
)
@click.option(
    "--in",
    "in_plan",
    metavar="PLAN_ID",
    shell_complete=complete_plan,
    help="Go on in the sandboxes of this plan, instead of making new ones.",
)
@click.option(
    "--at",
    metavar="CHECKPOINT_ID",
    shell_complete=complete_checkpoint,
    help="With --in: roll the plan back to this checkpoint first.",
)
@yes_option
@click.option("--name", metavar="TEXT", help="What to call the plan; by default the program's name and the time.")
@click.option(
    "--agent",
    metavar="NAME",
    help="The profile that says what the program needs: aider, claude, codex, gemini, mini, opencode or one of your "
    "own; by default the one for the name of the program. `none` uses none.",
)
@include_option
@exclude_option
@click.argument("argv", nargs=-1, required=True, metavar="COMMAND...")
def run(
    invocation: Invocation,
    resources: tuple[Path, ...],
    settle: float | None,
    pass_env: tuple[str, ...],
    allow_write: tuple[str, ...],
    in_plan: str | None,
    at: str | None,
    yes: bool,
    name: str | None,
    agent: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    argv: tuple[str, ...],
) -> Reply:
    """Run any program, such as a coding agent or a script, in a sandbox of the current project.

    It works on a private copy; your files stay as they are until you apply. Each time the program has written
    something and then paused, Holdfast takes a checkpoint, so you can roll back its work point by point. Put `--`
    before a command that has options of its own.

    With --in, the program goes on with what another one has made: as it is now, or from any checkpoint (--at). What
    was made after that checkpoint stays in its checkpoints.

    Standard output belongs to the program; Holdfast prints to standard error. With --format json or yaml it is the
    other way round: standard output is the envelope, and everything the program prints goes to standard error.
    """
    invocation.output_is_taken = True
    settings = RunSettings(
        pass_env=pass_env,
        allow_write=allow_write,
        settle_seconds=DEFAULT_SETTLE_SECONDS if settle is None and in_plan is None else settle,
        has_terminal=is_on_terminal(invocation),
        agent=agent or "",
    )
    if in_plan is not None:
        _refuse_for_new_plans({"--resource": resources, "--include": include, "--exclude": exclude, "--name": name})
        with invocation.opened() as holdfast:
            plan = _gone_on(invocation, holdfast, in_plan, at, argv, settings, yes=yes)
            return _run(invocation, holdfast, plan)
    if at is not None:
        raise click.UsageError("--at is a moment of the plan that --in names, so it needs --in.")
    with invocation.opened() as holdfast:
        plan = holdfast.create_program_plan(
            argv,
            resources=resources,
            folder=invocation.project,
            settings=settings,
            name=name,
            include=include,
            exclude=exclude,
        )
        if not invocation.is_for_programs:
            for resource in plan.resources:
                origin = f"{resource.strategy} of {name_text(resource.path)}"
                invocation.screen.line(("sandbox  ", "dim"), f"{resource.name}  ", (origin, "dim"))
        return _run(invocation, holdfast, plan)


def _refuse_for_new_plans(given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value:
            raise click.UsageError(f"{option} is for a new plan, and --in goes on in one that has its sandboxes.")


def _gone_on(
    invocation: Invocation,
    holdfast: Holdfast,
    reference: str,
    at: str | None,
    argv: Sequence[str],
    settings: RunSettings,
    *,
    yes: bool,
) -> Plan:
    """The plan with the program as its next step, after a rollback if a moment is named."""
    if at is not None:
        invocation.refuse_to_guess(yes)

    def question(preview: RollbackPreview) -> str:
        command = shortened(preview.expected.plan.steps[-1].name, 60)
        return f"{rollback_sentence(preview, at or '')}Roll back, and start {command}?"

    result = unless_declined(
        holdfast.going_on.with_program(
            reference,
            argv,
            at=at,
            folder=invocation.project,
            settings=settings,
            confirm=invocation.asking(question, yes),
            listener=RepairListener(invocation),
        )
    )
    if not invocation.is_for_programs:
        _show_start(invocation.screen, holdfast, result, is_rolled_back=at is not None)
    return result.plan


def _show_start(screen: Screen, holdfast: Holdfast, result: RollbackResult, *, is_rolled_back: bool) -> None:
    """Where the program goes on, and what that changed outside of the sandboxes."""
    plan = result.plan
    screen.line(("goes on  ", "dim"), (plan.plan_id, "id"), f"  {plan.name}")
    if is_rolled_back:
        shown = holdfast.lasting_id(plan.plan_id, result.checkpoint.checkpoint_id)
        files = f"{counted(result.files_reverted, 'file')} restored or removed"
        screen.line(("rolled back  ", "dim"), f"to {shown}; {files}")
    for line in effect_lines(result.impact):
        screen.line((line, "warn"))
    for place in result.set_aside:
        screen.line(("set aside  ", "warn"), name_text(place))


def _run(invocation: Invocation, holdfast: Holdfast, plan: Plan) -> Reply:
    if not invocation.is_for_programs:
        show_grants(invocation.screen, plan.steps[-1])
    invocation.screen.close()
    return run_program(invocation, holdfast, plan)


def run_program(
    invocation: Invocation, holdfast: Holdfast, plan: Plan, choices: Choices | None = None, before: Before | None = None
) -> Reply:
    """Execute a plan whose program has this terminal; ``before`` is told which programs are about to start."""
    heard = RepairListener(invocation, waits=True)
    signals: list[int] = []
    known = {each.run_id for each in holdfast.runs(plan.plan_id)} if plan.head_group_id is not None else ()
    invocation.until_the_end(one_press_too_many())
    with interruptible() as cancelled, passthrough(invocation, signals.append) as handed:
        result = holdfast.execute(
            plan.plan_id,
            listener=heard,
            cancelled=cancelled,
            choices=choices,
            outfit=Outfit(handed),
            before_programs=before,
        )
    heard.say()
    ran = [each for each in holdfast.runs(plan.plan_id) if each.run_id not in known]
    last = ran[-1] if ran else None  # none if it was stopped while the sandboxes were made
    if result.was_done or (last is not None and not _is_of_program(last, result.plan)):
        return outcome_reply(holdfast, result, is_for_programs=invocation.is_for_programs)
    return program_reply(holdfast, result, last, signals, heard.refused)


def _is_of_program(run: StepRun, plan: Plan) -> bool:
    return run.step_index < len(plan.steps) and plan.steps[run.step_index].is_program


def is_on_terminal(invocation: Invocation) -> bool:
    return not invocation.is_for_programs and os.isatty(0) and os.isatty(1)


@contextmanager
def passthrough(invocation: Invocation, on_signal: Callable[[int], None]) -> Iterator[Passthrough]:
    """The input and output of this process for the program; on a terminal, key by key."""
    # The envelope is alone on standard output.
    output = 2 if invocation.is_for_programs else 1

    def note(descriptor: int, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            invocation.lost = STREAM_NAMES[descriptor], error

    if not is_on_terminal(invocation):
        yield Passthrough(stdin=0, output=output, errors=2, on_failed_write=note, on_signal=on_signal)
        return
    ours: list[int] = []

    def resize(*_: object) -> None:
        # The terminal may be gone; an error here would be raised in the interrupted code.
        with suppress(OSError):
            for descriptor in ours:
                fcntl.ioctl(descriptor, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))

    def on_terminal(descriptor: int) -> None:
        tty.setraw(0)
        ours.append(descriptor)
        resize()

    settings = termios.tcgetattr(0)
    previous = signal.signal(signal.SIGWINCH, resize)
    try:
        yield Passthrough(
            stdin=0,
            output=1,
            errors=2,
            on_failed_write=note,
            is_terminal=True,
            on_terminal=on_terminal,
            on_signal=on_signal,
        )
    finally:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(0, termios.TCSADRAIN, settings)
        signal.signal(signal.SIGWINCH, previous)


def program_reply(
    holdfast: Holdfast,
    result: ExecutionResult,
    last: StepRun | None,
    signals: Sequence[int],
    refused: Sequence[RefusedWrite],
) -> Reply:
    """``last``: the last run of this execution."""
    plan = result.plan
    changes = holdfast.changes(plan)
    has_visible = any(not each.is_ignored for each in changes)
    was_cut_short = last is not None and last.status is RunStatus.INTERRUPTED
    checkpoints = holdfast.checkpoints(plan.plan_id)
    # The last checkpoint of a plan that is complete holds all; otherwise the sandbox is looked at.
    end = checkpoints[-1].checkpoint.checkpoint_id if result.succeeded else None
    files = [each for each in holdfast.diff(plan.plan_id, new=end, with_ignored=False) if not each.is_ignored]
    commands = [
        Next("roll back", f"holdfast checkpoint list {plan.plan_id}"),
        Next("delete", f"holdfast plan delete {plan.plan_id}"),
    ]
    if not was_cut_short and last is not None:
        commands.insert(0, going_on_with(plan))
    if not result.succeeded:
        commands.insert(0, Next("status", f"holdfast plan status {plan.plan_id}"))
        if was_cut_short:
            commands[:0] = after_interrupted_program(plan)
    elif has_visible:
        commands.insert(0, Next("apply", f"holdfast plan apply {plan.plan_id}"))
    if changes:
        options = "--patch" if has_visible else "--patch --ignored"
        commands.insert(0, Next("see changes", f"holdfast plan diff {options} {plan.plan_id}"))
    data = {
        **plan_data(plan),
        "resources": resources_data(plan),
        "agent": next((each.grant.title for each in reversed(plan.steps) if each.grant is not None), None),
        "refused_writes": [refused_data(each) for each in refused],
        **program_data(last),
        **changes_with_ignored(plan, changes),
        "checkpoints": [each.checkpoint.checkpoint_id for each in checkpoints],
        "pruned_checkpoints": result.pruned,
        "next_commands": [each.command for each in commands],
    }

    def show(screen: Screen) -> None:
        screen.line()
        ended = "Stopped before it began" if last is None else (last.error or "It ended").rstrip(".")
        # Its writes since the last checkpoint are not compared yet.
        left = "No checkpoint contains a change yet; what it wrote is in its sandbox."
        show_sentence(
            screen, (f"{ended}. ", "strong"), left if was_cut_short and not changes else changes_text(changes)
        )
        if files:
            show_diff(screen, plan, files, "stat")
        show_refused(screen, refused)
        screen.line((counted(len(checkpoints), "checkpoint"), "dim"), (" to roll back to", "dim"))
        show_pruned(screen, result)
        screen.line()
        show_next(screen, commands)

    return Reply(data, show, _exit_code(last, result, signals), messages=own_path_messages(result))


def _exit_code(last: StepRun | None, result: ExecutionResult, signals: Sequence[int]) -> int:
    """``signals``: the signal that ended the program, if one did."""
    if last is not None and last.exit_code is not None:
        return last.exit_code
    if not result.succeeded:
        return EXIT_INTERRUPTED if result.plan.state is PlanState.CANCELLED else _NOT_STARTED
    return _SIGNALLED + signals[-1] if signals else EXIT_STEP_FAILED
