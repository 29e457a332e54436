"""Making and removing sandboxes so that a crash leaves a whole one or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import HoldfastError, SandboxError
from holdfast.system.place import refuse_replaced
from holdfast.system.stopping import Stopped
from holdfast.system.trees import remove_tree

_AT_ONCE_SECONDS = 0.5


@contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """A place to build the sandbox in; it gets its name when it is complete."""
    unfinished = _unfinished(path)
    clear_away(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield unfinished
        unfinished.rename(path)
    except HoldfastError:
        remove_tree(unfinished)
        raise
    except Stopped:
        # The person who asked does not want to wait: what is left goes with the next attempt, or with the plan.
        with suppress(OSError):
            remove_tree(unfinished, within_seconds=_AT_ONCE_SECONDS)
        raise
    except OSError as error:
        remove_tree(unfinished)
        raise SandboxError(
            f"The sandbox {path} could not be made: {error.strerror or error}.",
            hint="Check the space on the disk and your permissions, then run the command again.",
        ) from error


def clear_away(path: Path) -> None:
    """Remove a sandbox that is to be made anew, and what was made of it when that was cut short."""
    refuse_replaced(path)
    remove_tree(_unfinished(path))
    remove_tree(path)


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.unfinished")
