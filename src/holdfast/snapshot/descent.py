"""Opening directories below a root, one component at a time, so that a symlink is never followed.

A name that is swapped for a symlink while we work makes the opening fail instead of leading us outside.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import TracebackType

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
IS_ROOT = os.geteuid() == 0


class Descent:
    """Keeps the way to the last opened directory open, because the next one is usually near."""

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._names: list[bytes] = []
        self._descriptors: list[int] = []
        self._opened_up: dict[int, int] = {}

    def __enter__(self) -> Descent:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._cut(0)
        os.close(self._root)

    def open(self, path: bytes) -> int:
        """A descriptor of the directory at ``path`` (``b""`` is the root), valid until the next call."""
        names = path.split(b"/") if path else []
        shared = 0
        for ours, wanted in zip(self._names, names, strict=False):
            if ours != wanted:
                break
            shared += 1
        self._cut(shared)
        for name in names[shared:]:
            self._descriptors.append(self._open_directory(name))
            self._names.append(name)
        return self._top

    def mode_of(self, found: os.stat_result) -> int:
        """The mode of the directory opened last, as it was before we came."""
        return self._opened_up.get(self._top, stat.S_IMODE(found.st_mode))

    def _open_directory(self, name: bytes) -> int:
        try:
            descriptor = os.open(name, _DIRECTORY, dir_fd=self._top)
        except PermissionError:
            with made_accessible(name, self._top, 0o500):
                descriptor = os.open(name, _DIRECTORY, dir_fd=self._top)
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if not IS_ROOT and mode & 0o500 != 0o500:
            # Our own directory, closed to ourselves: open while we are in it.
            os.fchmod(descriptor, mode | 0o500)
            self._opened_up[descriptor] = mode
        return descriptor

    @property
    def _top(self) -> int:
        return self._descriptors[-1] if self._descriptors else self._root

    def forget(self) -> None:
        """Let go of the way kept open; to be called after directories were moved or removed."""
        self._cut(0)

    def _cut(self, length: int) -> None:
        while len(self._descriptors) > length:
            descriptor = self._descriptors.pop()
            self._names.pop()
            mode = self._opened_up.pop(descriptor, None)
            if mode is not None:
                os.fchmod(descriptor, mode)
            os.close(descriptor)


class made_accessible:  # noqa: N801 - reads as what it does in a with statement
    """Gives the owner the permissions ``bits`` on an entry for a moment: our own files may be closed to ourselves."""

    def __init__(self, name: bytes, parent: int, bits: int) -> None:
        self._name, self._parent, self._bits = name, parent, bits

    def __enter__(self) -> None:
        self._descriptor = os.open(self._name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._parent)
        try:
            self._mode = os.fstat(self._descriptor).st_mode & 0o7777
            os.chmod(self._link, self._mode | self._bits)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        try:
            os.chmod(self._link, self._mode)
        finally:
            os.close(self._descriptor)

    @property
    def _link(self) -> str:
        # The one way to chmod what a descriptor names without following a symlink that took its place.
        return f"/proc/self/fd/{self._descriptor}"


def split(path: bytes) -> tuple[bytes, bytes]:
    """A path as its directory and its last name."""
    directory, _, name = path.rpartition(b"/")
    return directory, name


def join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def depth(path: bytes) -> int:
    return path.count(b"/") + 1 if path else 0
