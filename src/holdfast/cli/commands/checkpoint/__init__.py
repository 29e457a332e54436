"""``holdfast checkpoint``: list, show, take, delete and check checkpoints."""

from __future__ import annotations

import click

from holdfast.cli.invocation import LazyGroup, with_common_options

_COMMANDS = {
    "list": ("checkpoint.list:list_checkpoints", "List the checkpoints of a plan, oldest first."),
    "show": ("checkpoint.show:show_checkpoint", "Show one checkpoint in full."),
    "create": ("checkpoint.create:create_checkpoint", "Take a checkpoint now."),
    "delete": ("checkpoint.delete:delete_checkpoint", "Delete a checkpoint for good."),
    "prune": ("checkpoint.prune:prune", "Delete the oldest checkpoints now."),
    "release": ("checkpoint.release:release", "Give up saved content whose records are lost."),
    "verify": ("checkpoint.verify:verify", "Read all saved content and check it."),
}


_EXAMPLES = (
    ("holdfast checkpoint list", "The checkpoints of the newest plan."),
    ("holdfast checkpoint create --label good latest", "Take one now, and give it a name."),
)


@click.group("checkpoint", cls=LazyGroup, table=_COMMANDS, examples=_EXAMPLES)
@with_common_options
def group() -> None:
    """List, show, take, delete and check checkpoints. To roll back to one, use `holdfast plan rollback`."""
