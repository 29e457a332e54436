"""``holdfast checkpoint``: look at the checkpoints of a plan, take, delete and verify them."""

from __future__ import annotations

import click

from holdfast.cli.invocation import LazyGroup, with_common_options

_COMMANDS = {
    "list": ("checkpoint.list:list_checkpoints", "The checkpoints of a plan, oldest first."),
    "show": ("checkpoint.show:show_checkpoint", "All about one checkpoint."),
    "create": ("checkpoint.create:create_checkpoint", "Take a checkpoint now."),
    "delete": ("checkpoint.delete:delete_checkpoint", "Delete a checkpoint for good."),
    "prune": ("checkpoint.prune:prune", "Delete the oldest checkpoints now."),
    "release": ("checkpoint.release:release", "Give up content of records that are gone for ever."),
    "verify": ("checkpoint.verify:verify", "Read everything saved back and check it."),
}


@click.group("checkpoint", cls=LazyGroup, table=_COMMANDS)
@with_common_options
def group() -> None:
    """Look at the checkpoints of a plan, take and delete them; go back to one with `holdfast plan rollback`."""
