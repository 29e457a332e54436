"""Opening directories below a root, one component at a time, so that a symlink is never followed.

A name that is swapped for a symlink while we work makes the opening fail instead of leading us outside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from holdfast.system.calls import open_beneath
from holdfast.system.place import open_in_place

_REAL = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DIRECTORY = _REAL | os.O_NOFOLLOW
IS_ROOT = os.geteuid() == 0


def _own_groups() -> frozenset[int]:
    """The groups that this user may give their files to; a group that a container has no number for is none of them."""
    groups = frozenset((*os.getgroups(), os.getegid()))
    try:
        with open("/proc/self/gid_map") as ranges:
            known = [(int(first), int(count)) for first, _, count in map(str.split, ranges)]
    except OSError:
        return groups
    return frozenset(group for group in groups if any(0 <= group - first < count for first, count in known))


OWN_GROUPS = _own_groups()
_MOST_OPEN = 64
"""A process may open only so many files, and a tree may be deeper than that."""


class Descent(dict[bytes, int]):
    """Descriptors of directories by their paths, ``b""`` is the root; one that is not there yet is opened.

    Those opened last stay open, because the next ones are usually near.

    ``opens_up``: our own directories that are closed to ourselves are opened while we are in them. Without it nothing
    in the tree is touched, and they cannot be opened.

    ``is_sandbox``: the root is one, and what is a symlink in its place is none. Real files of a user may be reached
    through one.
    """

    def __init__(self, root: Path, *, opens_up: bool = True, is_sandbox: bool = False) -> None:
        self._opens_up = opens_up
        self._root = _opened_sandbox(root) if is_sandbox else _opened_real(root, opens_up=opens_up)
        self._owns_root = opens_up and not IS_ROOT and os.fstat(self._root).st_uid == os.geteuid()
        super().__init__()
        self.closed_modes: dict[bytes, int] = {}
        """Of directories that were opened up: the modes they get back."""
        self._enter_root()

    def __enter__(self) -> Descent:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        try:
            self.forget()
        finally:
            os.close(self._root)

    open = dict.__getitem__
    """A descriptor of the directory at that path, valid until the next call."""

    def _enter_root(self) -> None:
        if self._owns_root:
            self._open_up(b"", self._root)
        self[b""] = self._root

    def __missing__(self, path: bytes) -> int:
        if b"" not in self:
            self._enter_root()
            return self[path]
        # From farther away step by step: the directories on the way stay open, and who goes up needs them next.
        if path.rpartition(b"/")[0] not in self and path.count(b"/") < _MOST_OPEN:
            direct = open_beneath(self._root, path)
            if direct >= 0:
                return self._keep(path, direct)
        missing = []
        above = path
        while above not in self:
            missing.append(above)
            above = split(above)[0]
        descriptor = self[above]
        for below in reversed(missing):
            descriptor = self._keep(below, self._open_directory(below, descriptor))
        return descriptor

    def _keep(self, path: bytes, descriptor: int) -> int:
        if self._opens_up and not IS_ROOT:
            self._open_up(path, descriptor)
        self[path] = descriptor
        if len(self) > _MOST_OPEN:
            other = next(other for other in self if other and other != path)
            self._close(other, self.pop(other))
        return descriptor

    def mode_of(self, path: bytes, found: os.stat_result) -> int:
        """The mode of an open directory as it was before we came."""
        return self.closed_modes.get(path, stat.S_IMODE(found.st_mode))

    def leave_open(self, path: bytes) -> None:
        """Do not close this directory to ourselves again; somebody else sets its mode."""
        self.closed_modes.pop(path, None)

    def _open_directory(self, path: bytes, parent: int) -> int:
        name = split(path)[1]
        return open_directory(name, parent) if self._opens_up else os.open(name, _DIRECTORY, dir_fd=parent)

    def _open_up(self, path: bytes, descriptor: int) -> None:
        """Our own directory, closed to ourselves, is opened while we are in it."""
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o500 != 0o500:
            os.fchmod(descriptor, mode | 0o500)
            self.closed_modes[path] = mode

    def forget(self) -> None:
        """Let go of what is kept open; to be called after directories were moved or removed."""
        while len(self) > 1:  # the root came first, and stays
            self._close(*self.popitem())
        if b"" in self.closed_modes:
            os.fchmod(self.pop(b""), self.closed_modes.pop(b""))  # opened up again when it is needed

    def _close(self, path: bytes, descriptor: int) -> None:
        try:
            if path in self.closed_modes:
                os.fchmod(descriptor, self.closed_modes.pop(path))
        finally:
            os.close(descriptor)


def _opened_sandbox(root: Path) -> int:
    """A descriptor of a sandbox, also of one that is closed to ourselves."""
    try:
        return open_in_place(root)
    except PermissionError:
        passing = open_in_place(root, to_pass=True)
    try:
        with _Accessible(passing, 0o500):
            return open_in_place(root)
    finally:
        os.close(passing)


def _opened_real(root: Path, *, opens_up: bool) -> int:
    """The same for the folder of a user, which a symlink may lead to; an apply may have closed it."""
    try:
        return os.open(root, _REAL)
    except PermissionError:
        if not opens_up:
            raise
    with folder_made_accessible(root, 0o500) as passing:
        return os.open(f"/proc/self/fd/{passing}", _REAL)


@contextmanager
def folder_made_accessible(folder: Path, bits: int) -> Iterator[int]:
    """Gives the owner of a real folder these permissions on it for a moment; a descriptor to reach it by."""
    passing = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _Accessible(passing, bits):
            yield passing
    except PermissionError as error:
        error.filename = folder  # it is somebody else's; not the name of the descriptor
        raise
    finally:
        os.close(passing)


def open_directory(name: bytes, parent: int) -> int:
    """A descriptor of a directory, also of one of our own that is closed to ourselves."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        with made_accessible(name, parent, 0o500):
            return os.open(name, _DIRECTORY, dir_fd=parent)


class _Accessible:
    """Gives the owner the permissions ``bits`` on what a descriptor stands for, for a moment."""

    def __init__(self, descriptor: int, bits: int) -> None:
        # The one way to chmod what a descriptor names without following a symlink that took its place.
        self._link = f"/proc/self/fd/{descriptor}"
        self._mode, self._bits = os.fstat(descriptor).st_mode & 0o7777, bits

    def __enter__(self) -> None:
        os.chmod(self._link, self._mode | self._bits)

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.chmod(self._link, self._mode)


class made_accessible:  # noqa: N801 - reads as what it does in a with statement
    """Gives the owner the permissions ``bits`` on an entry for a moment: our own files may be closed to ourselves."""

    def __init__(self, name: bytes, parent: int, bits: int) -> None:
        self._name, self._parent, self._bits = name, parent, bits

    def __enter__(self) -> None:
        self._descriptor = os.open(self._name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._parent)
        try:
            self._accessible = _Accessible(self._descriptor, self._bits)
            self._accessible.__enter__()
        except BaseException:
            os.close(self._descriptor)
            raise

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        try:
            self._accessible.__exit__(*error)
        finally:
            os.close(self._descriptor)


def split(path: bytes) -> tuple[bytes, bytes]:
    """A path as its directory and its last name."""
    directory, _, name = path.rpartition(b"/")
    return directory, name


def join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def with_ancestors(paths: Iterable[bytes]) -> set[bytes]:
    """These, and every directory that one of them lies in, up to the tree itself."""
    wanted = {b""}
    for path in paths:
        while path not in wanted:
            wanted.add(path)
            path = split(path)[0]
    return wanted


def shown(path: bytes) -> str:
    """A path as a person reads it; the tree itself is ``.``."""
    return os.fsdecode(path) or "."


def depth(path: bytes) -> int:
    return path.count(b"/") + 1 if path else 0
