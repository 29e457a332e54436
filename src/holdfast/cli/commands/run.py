"""``holdfast run``: run any program in a sandbox of the current project, on this terminal, with checkpoints."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast import Outfit, Passthrough
from holdfast.cli.data import changes_with_ignored, plan_data, resources_data
from holdfast.cli.interrupts import interruptible
from holdfast.cli.invocation import Invocation, command, exclude_option, include_option
from holdfast.cli.output import Next, Reply, Screen, counted, show_next, show_sentence
from holdfast.cli.screen.diff import show_diff
from holdfast.cli.screen.grants import refused_data, show_grants, show_refused
from holdfast.cli.screen.listeners import RepairListener, own_path_messages
from holdfast.cli.screen.plans import changes_text
from holdfast.cli.streams import STREAM_NAMES
from holdfast.errors import EXIT_INTERRUPTED, EXIT_STEP_FAILED
from holdfast.model import PlanState, RefusedWrite, RunStatus, StepRun
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import ExecutionResult, Holdfast

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
    default="2s",
    show_default=True,
    metavar="TIME",
    help="Take a checkpoint when the program has written something and then paused for this long.",
)
@click.option("--pass-env", multiple=True, metavar="NAME", help="A variable that the program may see, like an API key.")
@click.option(
    "--allow-write", multiple=True, metavar="PATH", help="Where else the program may write; rollback does not cover it."
)
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
    settle: float,
    pass_env: tuple[str, ...],
    allow_write: tuple[str, ...],
    agent: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    argv: tuple[str, ...],
) -> Reply:
    """Run any program, such as a coding agent or a script, in a sandbox of the current project.

    It works on a private copy; your files stay as they are until you apply. Each time the program has written
    something and then paused, Holdfast takes a checkpoint, so you can roll back its work point by point. Put `--`
    before a command that has options of its own.

    Standard output belongs to the program; Holdfast prints to standard error. With --format json or yaml it is the
    other way round: standard output is the envelope, and everything the program prints goes to standard error.
    """
    invocation.output_is_taken = True
    with invocation.opened() as holdfast:
        plan = holdfast.create_program_plan(
            argv,
            resources=resources,
            folder=invocation.project,
            pass_env=pass_env,
            allow_write=allow_write,
            include=include,
            exclude=exclude,
            agent=agent,
        )
        screen = invocation.screen
        if not invocation.is_for_programs:
            for resource in plan.resources:
                origin = f"{resource.strategy} of {name_text(resource.path)}"
                screen.line(("sandbox  ", "dim"), f"{resource.name}  ", (origin, "dim"))
            show_grants(screen, plan)
        screen.close()
        heard = RepairListener(invocation, waits=True)
        signals: list[int] = []
        with interruptible() as cancelled, _passthrough(invocation, signals.append) as passthrough:
            outfit = Outfit(passthrough, settle, pass_env, allow_write)
            result = holdfast.execute(plan.plan_id, listener=heard, cancelled=cancelled, outfit=outfit)
        heard.say()
        return _reply(holdfast, result, signals, heard.refused)


@contextmanager
def _passthrough(invocation: Invocation, on_signal: Callable[[int], None]) -> Iterator[Passthrough]:
    """The input and output of this process for the program; on a terminal, key by key."""
    # The envelope is alone on standard output.
    output = 2 if invocation.is_for_programs else 1
    is_terminal = not invocation.is_for_programs and os.isatty(0) and os.isatty(1)

    def note(descriptor: int, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            invocation.lost = STREAM_NAMES[descriptor], error

    if not is_terminal:
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


def _reply(
    holdfast: Holdfast, result: ExecutionResult, signals: Sequence[int], refused: Sequence[RefusedWrite]
) -> Reply:
    plan = result.plan
    runs = holdfast.runs(plan.plan_id)
    last = runs[-1] if runs else None  # none if it was stopped while the sandboxes were made
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
    if not result.succeeded:
        commands.insert(0, Next("status", f"holdfast plan status {plan.plan_id}"))
        if was_cut_short:
            commands.insert(0, Next("keep its work", f"holdfast plan resume --skip {plan.plan_id}"))
    elif has_visible:
        commands.insert(0, Next("apply", f"holdfast plan apply {plan.plan_id}"))
    if changes:
        options = "--patch" if has_visible else "--patch --ignored"
        commands.insert(0, Next("see changes", f"holdfast plan diff {options} {plan.plan_id}"))
    data = {
        **plan_data(plan),
        "resources": resources_data(plan),
        "agent": next((each.grant.title for each in plan.steps if each.grant is not None), None),
        "refused_writes": [refused_data(each) for each in refused],
        "program_exit_code": last.exit_code if last is not None else None,
        **changes_with_ignored(plan, changes),
        "checkpoints": [each.checkpoint.checkpoint_id for each in checkpoints],
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
