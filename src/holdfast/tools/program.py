"""The tool that runs any program, for example a coding agent, in the terminal of the person who started it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from pydantic import Field, field_validator

from holdfast.model import PROGRAM_TOOL
from holdfast.process.command import ProcessResult
from holdfast.tools.declaration import ToolArgs, ToolContext, ToolDeclaration, ToolResult
from holdfast.tools.shell import result_of, run_in

_SIGNALLED = 128


class ProgramArgs(ToolArgs):
    argv: tuple[str, ...] = Field(min_length=1, description="The program and its arguments, without a shell.")
    folder: str = Field(default=".", description="The folder of the sandbox it starts in.")

    @field_validator("folder")
    @classmethod
    def _is_inside(cls, folder: str) -> str:
        path = PurePosixPath(folder)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError("must lie in the sandbox")
        return folder


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
