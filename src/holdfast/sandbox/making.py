"""Making and removing sandboxes so that a crash leaves a whole one or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import HoldfastError, SandboxError

_TEMPORARY = "holdfast-of-"


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
    except HoldfastError:
        remove_tree(unfinished)
        raise
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
    pending = [os.fspath(path)]
    while pending:
        folder = pending.pop()
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            os.chmod(folder, 0o700)
        with os.scandir(folder) as entries:
            pending.extend(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    shutil.rmtree(path)


def sync_directory(path: Path) -> None:
    """Have what came and went in a directory on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_place() -> Path:
    """Where temporary folders are made; Python's own answer writes a file there first, which a kill would leave."""
    return Path(os.environ.get("TMPDIR") or "/tmp")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A private folder for a moment; what a process that was killed left in one is removed with the next."""
    place = temporary_place()
    for leftover in place.glob(f"{_TEMPORARY}*-*"):
        owner = leftover.name.removeprefix(_TEMPORARY).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_TEMPORARY}{os.getpid()}-", dir=place) as folder:
        yield Path(folder)
