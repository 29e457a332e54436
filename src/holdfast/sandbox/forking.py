"""Forking a sandbox: an exact copy of it for a subplan, which starts from what its parent has at that moment."""

from __future__ import annotations

from pathlib import Path

from holdfast.model import Resource
from holdfast.sandbox.copying import TreeCopy
from holdfast.sandbox.making import made_whole
from holdfast.system.place import refuse_replaced


def fork(parent: Resource, child: Resource) -> Resource:
    """Make the child's sandbox, whole or not at all; the child with what could not be copied."""
    refuse_replaced(Path(parent.sandbox_path))
    with made_whole(Path(child.sandbox_path)) as unfinished:
        copy = TreeCopy(Path(parent.sandbox_path), unfinished, name=child.name, is_ours=True).run()
    return child.model_copy(update={"left_out": (*child.left_out, *copy.left_out)})
