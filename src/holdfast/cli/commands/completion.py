"""``holdfast completion``: print the script that turns on completion in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from holdfast.cli.invocation import PROGRAM, Invocation, command
from holdfast.cli.main import cli
from holdfast.cli.output import Reply


@command(
    "completion",
    only_looks=True,
    examples=(
        ('eval "$(holdfast completion bash)"', "Turn it on in this shell."),
        ("holdfast completion zsh", "Print the script for zsh."),
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(invocation: Invocation, shell: str) -> Reply:  # noqa: ARG001 - every command gets it
    """Print a script that completes commands, plans, checkpoints, decisions and settings.

    For bash, put `eval "$(holdfast completion bash)"` into ~/.bashrc; for zsh, the same with zsh into ~/.zshrc; for
    fish, run `holdfast completion fish > ~/.config/fish/completions/holdfast.fish`.
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()
    return Reply({"shell": shell, "script": script}, lambda screen: screen.line(script.rstrip()))
