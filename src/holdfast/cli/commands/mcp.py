"""``holdfast mcp``: serve the tools of this project to a client of the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

from holdfast.cli.invocation import Invocation, command
from holdfast.cli.output import Reply
from holdfast.errors import UsageError


@command(
    "mcp",
    examples=(
        ("holdfast mcp", "What you tell a client to start, in the folder of the project."),
        ("holdfast mcp --project .", "Serve this folder, wherever the client works."),
    ),
)
def mcp(invocation: Invocation) -> Reply:
    """Serve this project's checkpoints to an MCP client, on standard input and output.

    The client starts it and ends it; it is not for a terminal. A model can take checkpoints of the project's folder,
    look at them, and go back. Before a rewind the person is asked if the client can ask; otherwise the model must have
    seen exactly what would change. It cannot apply, delete or force anything.
    """
    from holdfast.mcp.serving import serve

    if invocation.is_for_programs:
        raise UsageError("`holdfast mcp` speaks its own protocol.", hint="Leave out --format.")
    invocation.output_is_taken = True
    # As it is now: the folder may be moved while the server lives, and with it the current folder of this process.
    invocation.project = (invocation.project or Path.cwd()).resolve()
    serve(invocation.opened)
    return Reply({}, lambda _: None)
