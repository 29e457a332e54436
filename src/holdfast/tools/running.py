"""How every tool runs a command."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.process.command import ProcessResult, run_supervised
from holdfast.process.passthrough import Passthrough
from holdfast.process.watch import Answer
from holdfast.tools.declaration import ToolContext, ToolResult


def run_in(
    context: ToolContext,
    command: str | Sequence[str],
    *,
    folder: str = ".",
    requests: Answer | None = None,
    passthrough: Passthrough | None = None,
) -> ProcessResult:
    """Run a command of a step in its sandbox, as its context says."""
    return run_supervised(
        command,
        cwd=context.folder / folder,
        environment=context.environment,
        timeout_seconds=context.timeout_seconds,
        output_limit_bytes=context.output_limit_bytes,
        on_output=context.on_output,
        cancelled=context.cancelled,
        requests=requests,
        mark=context.mark,
        writable=context.writable,
        mounts=context.mounts,
        passthrough=passthrough,
    )


def result_of(process: ProcessResult, what: str, context: ToolContext, failure: str | None = None) -> ToolResult:
    """The tool's result for a process; ``failure`` tells more than the exit code why it failed."""
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
