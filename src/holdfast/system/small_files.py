"""Small files that are written whole: one writer at a time, and at every moment the old text or the new one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.system.trees import sync_directory


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Two writers at once would lose the change of one; a lock on the folder leaves no file behind."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_text(path: Path, text: str, *, new_file_mode: int = 0o666, mode: int | None = None) -> None:
    """Replace the content of a file durably; a failure before it is in place leaves the old file as it was.

    ``mode`` is what the file gets in any case, ``new_file_mode`` what the umask is applied to.
    """
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)  # a killed process left it; a link of that name must not be followed
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, new_file_mode)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as stream:
            if mode is not None:
                os.fchmod(descriptor, mode)
            stream.write(text)
            stream.flush()
            os.fsync(descriptor)
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):  # the first error is the one that matters
            fresh.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
