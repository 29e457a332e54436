"""The tool that runs a command line."""

from __future__ import annotations

from pydantic import Field

from holdfast.process.command import ProcessResult, run_supervised
from holdfast.tools.declaration import ToolArgs, ToolContext, ToolDeclaration, ToolResult


class ShellArgs(ToolArgs):
    command: str = Field(min_length=1, description="A command line for /bin/sh, run in the resource's sandbox.")


class Shell:
    """Runs a command line in the sandbox; nothing it starts outlives it."""

    declaration = ToolDeclaration(name="shell", args=ShellArgs)

    def run(self, args: ShellArgs, context: ToolContext) -> ToolResult:
        result = run_supervised(
            args.command,
            cwd=context.root,
            environment=context.environment,
            timeout_seconds=context.timeout_seconds,
            output_limit_bytes=context.output_limit_bytes,
            on_output=context.on_output,
            cancelled=context.cancelled,
            mark=context.mark,
            writable=context.writable,
        )
        return result_of(result, "the command", context)


def result_of(process: ProcessResult, what: str, context: ToolContext, failure: str | None = None) -> ToolResult:
    """A process as a tool's result; ``failure`` says better than the exit code why it failed."""
    error = _error_of(process, what, context)
    return ToolResult(
        succeeded=error is None,
        exit_code=process.exit_code,
        output=process.output,
        output_bytes=process.output_bytes,
        error=error if error is None or process.timed_out or process.cancelled else failure or error,
        cancelled=process.cancelled,
    )


def _error_of(process: ProcessResult, what: str, context: ToolContext) -> str | None:
    if process.timed_out:
        return f"{what} ran longer than {context.timeout_seconds:g} s and was stopped"
    if process.cancelled:
        return f"{what} was cancelled"
    if process.signal is not None:
        return f"{what} was ended by {process.signal}"
    if process.exit_code != 0:
        return f"{what} ended with exit code {process.exit_code}"
    return None
