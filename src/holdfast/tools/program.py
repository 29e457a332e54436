"""The tool that runs any program, for example a coding agent, in the terminal of the person who started it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated

from msgspec import Meta

from holdfast.model import PROGRAM_TOOL, Record
from holdfast.names import name_text
from holdfast.process.command import ProcessResult
from holdfast.tools.declaration import ToolContext, ToolDeclaration, ToolResult
from holdfast.tools.running import result_of, run_in

_SIGNALLED = 128


class ProgramArgs(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No pydantic, whose import would take longer than all else that `holdfast run` imports."""

    argv: Annotated[tuple[str, ...], Meta(min_length=1)]
    """The program and its arguments, without a shell."""
    folder: str = "."
    """The folder of the sandbox it starts in."""

    def __post_init__(self) -> None:
        path = PurePosixPath(self.folder)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError("the folder must lie in the sandbox")
        try:
            self.folder.encode()  # the words of a program may be names of files, and hold any bytes
        except UnicodeEncodeError as error:
            raise ValueError(f"{name_text(self.folder)} contains a lone surrogate, which is not a character") from error


class Program:
    """Runs a program in the sandbox. The step succeeds with any exit code, because what the program made is kept."""

    declaration = ToolDeclaration(name=PROGRAM_TOOL, args=ProgramArgs)

    def run(self, args: ProgramArgs, context: ToolContext) -> ToolResult:
        process = run_in(context, args.argv, folder=args.folder, passthrough=context.passthrough)
        result = result_of(process, args.argv[0], context)
        if process.timed_out or process.cancelled:
            return result
        return replace(result, succeeded=True, exit_code=_code_of(process))


def _code_of(process: ProcessResult) -> int | None:
    """The exit code as shells say it, also if a signal ended the program."""
    return process.exit_code if process.signal_number is None else _SIGNALLED + process.signal_number
