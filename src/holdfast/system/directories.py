"""Opens directories below a root, one component at a time, so that a symlink is never followed.

If a name is replaced by a symlink while we work, opening it fails and does not lead outside.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from holdfast.system.calls import open_beneath
from holdfast.system.place import open_in_place

_REAL = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DIRECTORY = _REAL | os.O_NOFOLLOW
IS_ROOT = os.geteuid() == 0


def _own_groups() -> frozenset[int]:
    """The groups that this user may give files to; without groups that have no number in this container."""
    groups = frozenset((*os.getgroups(), os.getegid()))
    try:
        with open("/proc/self/gid_map") as ranges:
            known = [(int(first), int(count)) for first, _, count in map(str.split, ranges)]
    except OSError:
        return groups
    return frozenset(group for group in groups if any(0 <= group - first < count for first, count in known))


OWN_GROUPS = _own_groups()
USER = (os.geteuid(), *(() if IS_ROOT else sorted(OWN_GROUPS)))
"""What decides which owners a copy gets and a snapshot holds."""
_ENCODING, _UNENCODED = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_MOST_OPEN = 64
"""A process may have only so many files open, and a tree may be deeper than that."""
_FEWEST_OPEN = 4
_FEW_USERS = 2
"""So many trees are walked by one verb alone."""


_walking: set[int] = set()
"""Every ``Descent`` of this process that is in use."""


def _share() -> int:
    """How many directories each ``Descent`` may keep open.

    Many at once, of parallel subplans, share an eighth of what the process may have: each also needs other files.
    """
    users = len(_walking)
    return _MOST_OPEN if users <= _FEW_USERS else max(_FEWEST_OPEN, min(_MOST_OPEN, _most_files() // 8 // users))


@cache
def _most_files() -> int:
    import resource  # only where many trees are walked at once

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if most == resource.RLIM_INFINITY else most


class Descent(dict[bytes, int]):
    """Descriptors of directories by their paths, ``b""`` is the root; a missing one is opened when it is asked for.

    The directories opened last stay open, because the next ones are usually near.

    ``opens_up``: directories of ours that we may not enter are made accessible while we are in them. Without it nothing
    in the tree is changed, and they cannot be opened.

    ``is_sandbox``: the root is a sandbox, so a symlink in its place is refused. The real files of a user may be reached
    through a symlink.
    """

    def __init__(self, root: Path, *, opens_up: bool = True, is_sandbox: bool = False) -> None:
        self._opens_up = opens_up
        self._root = _opened_sandbox(root) if is_sandbox else _opened_real(root, opens_up=opens_up)
        self._owns_root = opens_up and not IS_ROOT and os.fstat(self._root).st_uid == os.geteuid()
        super().__init__()
        self.closed_modes: dict[bytes, int] = {}
        """The modes that directories had before they were made accessible, and get back."""
        self._enter_root()

    def __enter__(self) -> Descent:
        _walking.add(id(self))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.forget()
        finally:
            _walking.discard(id(self))
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
        # Otherwise step by step: the directories on the way stay open, because going up needs them next.
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
        while len(self) > _FEWEST_OPEN and len(self) > _share():
            other = next(other for other in self if other and other != path)
            self._close(other, self.pop(other))
        return descriptor

    def mode_of(self, path: bytes, found: os.stat_result) -> int:
        """The mode of an open directory before it was made accessible."""
        return self.closed_modes.get(path, stat.S_IMODE(found.st_mode))

    def leave_open(self, path: bytes) -> None:
        """Do not restore the mode of this directory; the caller sets it."""
        self.closed_modes.pop(path, None)

    def _open_directory(self, path: bytes, parent: int) -> int:
        name = split(path)[1]
        return open_directory(name, parent) if self._opens_up else os.open(name, _DIRECTORY, dir_fd=parent)

    def _open_up(self, path: bytes, descriptor: int) -> None:
        """Make a directory of ours accessible while we are in it."""
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o500 != 0o500:
            os.fchmod(descriptor, mode | 0o500)
            self.closed_modes[path] = mode

    def forget(self) -> None:
        """Close all directories but the root; to be called after directories were moved or removed."""
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
    """A descriptor of a sandbox, even of one that we may not enter."""
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
    """The same for the folder of a user, which may be a symlink; an apply may have made it inaccessible."""
    try:
        return os.open(root, _REAL)
    except PermissionError:
        if not opens_up:
            raise
    with folder_made_accessible(root, 0o500) as passing:
        return os.open(f"/proc/self/fd/{passing}", _REAL)


@contextmanager
def folder_made_accessible(folder: Path, bits: int) -> Iterator[int]:
    """Give the owner of a real folder these permissions for a moment; yields a descriptor of it."""
    passing = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _Accessible(passing, bits):
            yield passing
    except PermissionError as error:
        error.filename = folder  # another user's folder; the name of the descriptor would say nothing
        raise
    finally:
        os.close(passing)


def open_directory(name: bytes, parent: int) -> int:
    """A descriptor of a directory, even of one of ours that we may not enter."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        with made_accessible(name, parent, 0o500):
            return os.open(name, _DIRECTORY, dir_fd=parent)


class _Accessible:
    """Gives the owner the permissions ``bits`` on an open file or directory for a moment."""

    def __init__(self, descriptor: int, bits: int) -> None:
        # The only way to chmod an ``O_PATH`` descriptor; a path could lead through a symlink by now.
        self._link = f"/proc/self/fd/{descriptor}"
        self._mode, self._bits = os.fstat(descriptor).st_mode & 0o7777, bits

    def __enter__(self) -> None:
        os.chmod(self._link, self._mode | self._bits)

    def __exit__(self, *_: object) -> None:
        os.chmod(self._link, self._mode)


class made_accessible:  # noqa: N801 - reads as what it does in a with statement
    """Gives the owner the permissions ``bits`` on an entry for a moment: we may lack them on our own files."""

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

    def __exit__(self, *error: object) -> None:
        try:
            self._accessible.__exit__(*error)
        finally:
            os.close(self._descriptor)


def names_in(directory: int) -> set[bytes]:
    return {encoded(name) for name in os.listdir(directory)}


def encoded(name: str) -> bytes:
    """As ``os.fsencode``, which takes three times as long because it also takes paths; trees have many names."""
    return name.encode(_ENCODING, _UNENCODED)


def split(path: bytes) -> tuple[bytes, bytes]:
    """A path as its directory and its last name."""
    directory, _, name = path.rpartition(b"/")
    return directory, name


def join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def ancestors(path: bytes) -> Iterator[bytes]:
    """The directories above a path, the nearest first and the root last."""
    while path:
        path = split(path)[0]
        yield path


def with_ancestors(paths: Iterable[bytes]) -> set[bytes]:
    """These paths, and every directory that one of them lies in, up to the root ``b""``."""
    wanted = {b""}
    for path in paths:
        while path not in wanted:
            wanted.add(path)
            path = split(path)[0]
    return wanted


def shown(path: bytes) -> str:
    """A path as a person reads it; the root is ``.``."""
    return os.fsdecode(path) or "."


def depth(path: bytes) -> int:
    return path.count(b"/") + 1 if path else 0
