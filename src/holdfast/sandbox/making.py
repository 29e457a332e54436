"""Making, forking and removing sandboxes so that a crash leaves a whole sandbox or none."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import HoldfastError, SandboxError
from holdfast.model import Resource, Unheld
from holdfast.sandbox.bulk import CopySink
from holdfast.sandbox.copying import TreeCopy
from holdfast.sandbox.listing import ListedTree
from holdfast.sandbox.refill import Skip
from holdfast.sandbox.spares import Spares, forget_spare, git_index_beside, origin_beside
from holdfast.system.directories import IS_ROOT
from holdfast.system.place import refuse_replaced
from holdfast.system.stopping import Stopped
from holdfast.system.trash import trash_for


@contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """A place to build the sandbox in; it is renamed to ``path`` when it is complete."""
    unfinished, trash = _unfinished(path), trash_for(path)
    clear_away(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield unfinished
        unfinished.rename(path)
    except HoldfastError:
        trash.put(unfinished)
        raise
    except Stopped:
        # The user does not want to wait. What cannot be taken away is removed by the next attempt.
        trash.take(unfinished)
        raise
    except OSError as error:
        trash.put(unfinished)
        raise SandboxError(
            f"The sandbox {path} could not be made: {error.strerror or error}.",
            hint="Check the space on the disk and your permissions, then run the command again.",
        ) from error


def clear_away(path: Path) -> None:
    """Remove a sandbox that is to be made again, and an unfinished one."""
    refuse_replaced(path)
    for each in (_unfinished(path), origin_beside(path), git_index_beside(path), path):
        trash_for(path).put(each)
    forget_spare(path)


class Filled(NamedTuple):
    left_out: Collection[Unheld]
    """What could not be copied."""
    not_byte_for_byte: Collection[bytes]
    differing: Collection[bytes] | None = None
    """The paths that were not the same in the spare that it was made of; None if it was not made of one."""


def filled(
    resource: Resource,
    tree: ListedTree,
    unfinished: Path,
    skip: Skip,
    sink: CopySink | None,
    spares: Spares | None,
) -> Filled:
    """Fill a new sandbox with what the folder has, but for the paths ``skip``."""
    if spares is not None and (differing := spares.made(resource, tree.root, unfinished, skip)) is not None:
        return Filled((), (), differing)
    skipped = skip()
    real = spares.walked(tree, skipped) if spares is not None else None
    copy = TreeCopy(tree.root, unfinished, name=resource.name, skip=skipped, sink=sink, tree=tree).run()
    if spares is not None and real is not None and not copy.left_out and not copy.has_databases:
        spares.note_origin(Path(resource.sandbox_path), unfinished, real, skipped)
    return Filled(copy.left_out, copy.not_byte_for_byte)


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.unfinished")


_FORKING = threading.Lock()
"""A user other than root makes a closed file or folder accessible while copying it. Another thread that copies the same
sandbox would take that for its mode, and find it closed again in the middle."""


def fork(parent: Resource, child: Resource, sink: CopySink | None = None) -> Resource:
    """Make a subplan's sandbox: an exact copy of what its parent has at this moment.

    Returns the child with what could not be copied.
    """
    refuse_replaced(Path(parent.sandbox_path))
    with _FORKING if not IS_ROOT else nullcontext(), made_whole(Path(child.sandbox_path)) as unfinished:
        copy = TreeCopy(Path(parent.sandbox_path), unfinished, name=child.name, is_ours=True, sink=sink).run()
    return child.model_copy(update={"left_out": (*child.left_out, *copy.left_out)})
