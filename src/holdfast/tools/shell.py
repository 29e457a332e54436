"""The tool that runs a command line."""

from __future__ import annotations

from pydantic import Field

from holdfast.model import SHELL_TOOL
from holdfast.tools.arguments import ToolArgs
from holdfast.tools.declaration import ToolContext, ToolDeclaration, ToolResult
from holdfast.tools.running import result_of, run_in


class ShellArgs(ToolArgs):
    command: str = Field(min_length=1, description="A command line for /bin/sh, run in the resource's sandbox.")


class Shell:
    """Runs a command line in the sandbox; nothing it starts outlives it."""

    declaration = ToolDeclaration(name=SHELL_TOOL, args=ShellArgs)

    def run(self, args: ShellArgs, context: ToolContext) -> ToolResult:
        return result_of(run_in(context, args.command), "the command", context)
