"""The entry point: finds the command, runs it, and reports the result in the requested format."""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import click

from holdfast.cli.invocation import PROGRAM, Invocation, LazyGroup, command_name, with_common_options
from holdfast.cli.output import (
    NARROWEST,
    Format,
    PlainScreen,
    Reply,
    Screen,
    Span,
    envelope,
    output_lines,
    screen_for,
    show_messages,
    wrapped,
    write_envelope,
)
from holdfast.cli.streams import standard_streams
from holdfast.errors import (
    EXIT_INTERRUPTED,
    HOW_TO_FREE_SPACE,
    ConflictError,
    HoldfastError,
    PlanFileError,
    SandboxError,
    UsageError,
    described,
)

DEBUG_VARIABLE = "HOLDFAST_DEBUG"
_FIRST_WORD = re.compile(r"\A[a-z]+(?= )")

_COMMANDS = {
    "plan": ("plan:group", "Create, run, roll back, correct and apply plans."),
    "run": ("run:run", "Run any program in a sandbox, with checkpoints while it works."),
    "log": ("log:log", "Show the timeline of a plan as a graph."),
    "undo": ("undo:undo", "Take back in your folder what an agent did there."),
    "redo": ("undo:redo", "Bring back what the last undo took away."),
    "blame": ("blame:blame", "Show who changed a file: which call of which agent, or you."),
    "guard": ("guard:group", "Record what happens in your folder, also without an agent."),
    "checkpoint": ("checkpoint:group", "List, show, take, delete and check checkpoints."),
    "mark": ("mark:mark", "From inside of a sandbox: take a checkpoint with a label."),
    "agents": ("agents:group", "Let coding agents tell Holdfast what they do."),
    "config": ("config:group", "Show and change settings."),
    "doctor": ("doctor:doctor", "Check everything Holdfast stores; change nothing."),
    "mcp": ("mcp:mcp", "Serve this project's checkpoints to a client of the Model Context Protocol."),
    "completion": ("completion:completion", "Print the script that turns on completion in your shell."),
    "demo": ("demo:demo", "See Holdfast at work, in a temporary folder."),
}


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version(PROGRAM)
        except PackageNotFoundError:
            number = "(run from source)"
        click.echo(f"{PROGRAM} {number}")
        context.exit()


_EXAMPLES = (
    ("holdfast run -- my-agent", "Run an agent on a copy of this project."),
    ("holdfast status", "How the newest plan is."),
)


@click.group(
    cls=LazyGroup,
    table=_COMMANDS,
    short="plan",
    examples=_EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Print the version."
)
@with_common_options
def cli() -> None:
    """Run plans in private sandboxes, with checkpoints around every step that writes; roll back to any of them.

    Your own files change only when you run `holdfast plan apply`.

    Every command of `holdfast plan` also works without the word plan, as `holdfast status`, `holdfast diff`,
    `holdfast rollback` and `holdfast apply`.
    """


class _Failure(NamedTuple):
    """What went wrong, for people and for programs."""

    kind: str
    message: str
    hint: str
    exit_code: int
    details: Mapping[str, Any] = {}
    is_help: bool = False
    """The message is the help of a command that was called without arguments, not an error."""


_NEW_BEFORE_COLLECTING = 50_000


def main(arguments: Sequence[str] | None = None) -> None:
    # Most of what a command makes it needs to its end: looking for circles after every 700 new objects, as Python does,
    # finds next to nothing, and is a tenth of a short command.
    gc.set_threshold(_NEW_BEFORE_COLLECTING)
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command, report its result, and return its exit code."""
    with standard_streams() as outputs:
        invocation = Invocation()
        exit_code = _run(arguments, invocation)
        if lost := outputs.lost() or invocation.lost:
            failure = _output_failure(*lost, only_looks=invocation.only_looks)
            _complain(failure, PlainScreen(sys.stderr))
            return exit_code or failure.exit_code
        return exit_code


def _run(arguments: Sequence[str], invocation: Invocation) -> int:
    try:
        reply = cli.main(list(arguments), prog_name=PROGRAM, standalone_mode=False, obj=invocation)
        if not isinstance(reply, Reply):
            return int(reply or 0)
        if not invocation.is_for_programs:
            _show(reply, invocation)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last border: no user should see a traceback
        reply = _refused(error, arguments, invocation)
    finally:
        invocation.close()
    if invocation.format is not None and invocation.format.is_for_programs:
        timing = invocation.started, invocation.seconds
        answer = envelope(invocation.command, reply.exit_code, reply.data, reply.messages, *timing)
        write_envelope(invocation.format, answer)
    return reply.exit_code


def _show(reply: Reply, invocation: Invocation) -> None:
    show_messages(invocation.screen, () if reply.shows_messages else reply.messages)
    with invocation.screen.paged(with_pager=invocation.uses_pager) if reply.is_long else nullcontext():
        reply.show(invocation.screen)


def _refused(error: BaseException, arguments: Sequence[str], invocation: Invocation) -> Reply:
    """The reply of a command that ended with an error; in a format for people it is printed here."""
    if os.environ.get(DEBUG_VARIABLE):
        import traceback

        traceback.print_exception(error)
    # Parsing may have failed before it reached --format.
    invocation.format = invocation.format or _format_among(arguments)
    if isinstance(error, click.UsageError) and not invocation.command:
        invocation.command = command_name(error.ctx)
    failure = _failure(error)
    if not invocation.is_for_programs:
        invocation.close()
        _complain(failure, screen_for(invocation.format, os.environ, is_for_errors=True))
    said = {"type": failure.kind, "message": failure.message, "hint": failure.hint, **failure.details}
    return Reply({"error": said}, lambda _: None, failure.exit_code)


def _failure(error: BaseException) -> _Failure:
    if isinstance(error, HoldfastError):
        details: dict[str, Any] = {}
        if isinstance(error, ConflictError) and error.paths:
            details["paths"] = error.paths
        if isinstance(error, PlanFileError) and error.problems:
            details["problems"] = error.problems
        return _Failure(type(error).__name__, error.message, error.hint, error.exit_code, details)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return _Failure(UsageError.__name__, error.format_message(), "", UsageError.exit_code, is_help=True)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else PROGRAM
        message = " ".join(error.format_message().split())
        return _Failure(UsageError.__name__, message, f"See `{path} --help`.", UsageError.exit_code)
    if isinstance(error, KeyboardInterrupt | click.Abort):
        hint = "Run the command again; it first finishes or undoes what was begun."
        return _Failure("Interrupted", "Interrupted.", hint, EXIT_INTERRUPTED)
    if isinstance(error, OSError):
        return _system_failure(error)
    return _Failure(
        type(error).__name__,
        f"Holdfast has a bug, or met a situation that it does not handle: {type(error).__name__}: {error}",
        f"Set {DEBUG_VARIABLE}=1 and run the command again to see where; nothing that was saved is lost.",
        SandboxError.exit_code,
    )


def _system_failure(error: OSError) -> _Failure:
    message = f"{described(error)}."
    hint = (
        "Check your permissions and the space on the disk, then run the command again; "
        "it first finishes or undoes what was begun."
    )
    if error.errno == errno.ENOSPC:
        hint = HOW_TO_FREE_SPACE
    if isinstance(error, FileNotFoundError) and _is_folder_gone():
        message, hint = "The current folder is gone.", "Change to a folder that exists, with `cd`; then run it again."
    return _Failure(type(error).__name__, message, hint, SandboxError.exit_code)


def _output_failure(stream: str, error: OSError, *, only_looks: bool) -> _Failure:
    hint = "Send the output somewhere else, and run the command again."
    if not only_looks:
        hint = (
            "The command has done its work; do not run it again only for its output. "
            "`holdfast plan status` and `holdfast log` show the present state."
        )
    message = f"{stream} could not be written, so the output is incomplete: {described(error)}."
    return _Failure(type(error).__name__, message, hint, SandboxError.exit_code)


def _is_folder_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _complain(failure: _Failure, screen: Screen) -> None:
    if failure.is_help:
        screen.line(failure.message)
        return
    message = _FIRST_WORD.sub(lambda found: found[0].capitalize(), failure.message)
    for kind, style, text in (("error: ", "bad", message), ("hint: ", "id", failure.hint)):
        if text:
            _say(screen, (kind, style), output_lines(text))


def _say(screen: Screen, heading: tuple[str, str], lines: Sequence[str]) -> None:
    """Print lines, on a terminal indented below the heading; elsewhere unchanged, so that they can be searched."""
    if screen.width is None:
        screen.line(heading, "\n".join(lines))
        return
    before: Span = heading
    hanging = 2 if len(lines) > 1 else 0
    for line in lines:
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        room = screen.width - len(heading[0]) - indent - hanging
        for number, each in enumerate(wrapped(text, max(NARROWEST, room))):
            screen.line(before, " " * (indent + hanging if number else indent), each)
            before = " " * len(heading[0])


def _format_among(arguments: Sequence[str]) -> Format | None:
    """The format that a command line asks for, found without parsing the rest of it."""
    values = [each.removeprefix("--format=") for each in arguments if each.startswith("--format=")]
    values += [after for each, after in pairwise(arguments) if each == "--format"]
    return next((Format(value) for value in values if value in list(Format)), None)
