"""Making and removing sandboxes so that a crash leaves a whole one or none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.errors import SandboxError


@contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """A place to build the sandbox in; it gets its name when it is complete."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    remove_tree(unfinished)
    remove_tree(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield unfinished
        unfinished.rename(path)
    except OSError as error:
        remove_tree(unfinished)
        raise SandboxError(
            f"The sandbox {path} could not be made: {error.strerror or error}.",
            hint="Check the space on the disk and your permissions, then run the command again.",
        ) from error


def remove_tree(path: Path) -> None:
    """Remove a tree of ours, also where directories in it are closed to us."""
    if not os.path.lexists(path):
        return

    def open_up_and_retry(function: Callable[[str], Any], name: str, _: BaseException) -> None:
        parent = os.path.dirname(name)
        for directory in (parent, name):
            if os.path.isdir(directory) and not os.path.islink(directory):
                os.chmod(directory, 0o700)
        if function in (os.open, os.scandir, os.lstat):
            shutil.rmtree(name)
        else:
            function(name)

    shutil.rmtree(path, onexc=open_up_and_retry) if _HAS_ONEXC else shutil.rmtree(
        path, onerror=lambda function, name, error: open_up_and_retry(function, name, error[1])
    )


_HAS_ONEXC = "onexc" in (shutil.rmtree.__kwdefaults__ or {})
