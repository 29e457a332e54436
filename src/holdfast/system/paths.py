"""Reads, writes and deletes files inside a root directory; no path can lead outside of it.

A path is walked component by component from the root's descriptor, and no symlink is followed. So neither ``..``, nor
an absolute path, nor a symlink, even one created meanwhile, reaches anything else.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from holdfast.errors import NotFoundError, SandboxError, UsageError
from holdfast.names import name_text
from holdfast.system.place import open_in_place

# O_PATH: walking through a directory needs no permission to list it.
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OUTSIDE_HINT = "A path is relative to the resource's root, stays inside it and crosses no symlink."


def components_of(relative: str) -> tuple[str, ...]:
    """The names to walk; refuses a path that is absolute, climbs, or names nothing."""
    if relative.startswith("/"):
        raise UsageError(f"{relative!r} is an absolute path", hint=_OUTSIDE_HINT)
    names = tuple(name for name in relative.split("/") if name not in ("", "."))
    if ".." in names:
        raise UsageError(f"{relative!r} climbs with '..'", hint=_OUTSIDE_HINT)
    if not names or "\0" in relative:
        raise UsageError(f"{relative!r} names no file", hint=_OUTSIDE_HINT)
    return names


def check_path(root: Path, relative: str) -> None:
    """Refuse a path that leaves the root or crosses a symlink; it need not exist."""
    with suppress(NotFoundError), _open_parent(root, relative):
        pass


def find_status(root: Path, relative: str) -> os.stat_result | None:
    """The status of an entry, without following a symlink; None if there is none."""
    with suppress(NotFoundError), _open_parent(root, relative) as place:
        return place.status()
    return None


def set_permissions(root: Path, relative: str, mode: int, owner: os.stat_result) -> None:
    with _open_parent(root, relative) as place, place.open_existing() as file:
        _own_like(owner, file.fileno())
        os.fchmod(file.fileno(), mode)


def read_file(root: Path, relative: str) -> bytes:
    with _open_parent(root, relative) as place, place.open_existing() as file:
        return file.read()


def write_file(
    root: Path,
    relative: str,
    content: bytes,
    *,
    mode: int | None = None,
    on_directory: Callable[[str], None] | None = None,
) -> None:
    """Create or replace a file, whole or not at all; an existing file keeps its mode unless ``mode`` is given.

    ``on_directory`` is called with the path of each directory above it that is made, the moment it is made.
    """
    with _open_parent(root, relative, make=partial(_make_directory, on_directory=on_directory)) as place:
        existing = place.status()
        if existing is not None:
            place.refuse_unless_regular(existing)
        place.replace(content, existing, mode)


def delete_path(root: Path, relative: str, *, recursive: bool = False) -> None:
    """Remove a file, a symlink (never what it points to) or, if ``recursive``, a directory with all it holds."""
    with _open_parent(root, relative) as place:
        status = place.status()
        if status is None:
            raise NotFoundError(f"{relative} does not exist")
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(place.name, dir_fd=place.parent)
        elif recursive:
            shutil.rmtree(place.name, dir_fd=place.parent)
        else:
            raise UsageError(f"{relative} is a directory", hint="Set recursive: true to delete it with all it holds.")


@dataclass(frozen=True)
class _Place:
    """A name in an open directory."""

    relative: str
    parent: int
    name: str

    def status(self) -> os.stat_result | None:
        try:
            return os.stat(self.name, dir_fd=self.parent, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def refuse_unless_regular(self, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode):
            raise UsageError(f"{self.relative} is a symlink", hint=_OUTSIDE_HINT)
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{self.relative} is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{self.relative} is not a regular file")

    @contextmanager
    def open_existing(self) -> Iterator[BinaryIO]:
        status = self.status()
        if status is None:
            raise NotFoundError(f"{self.relative} does not exist")
        self.refuse_unless_regular(status)
        # O_NONBLOCK: if it has become a fifo since, opening it must not wait for a writer.
        descriptor = os.open(self.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.parent)
        with open(descriptor, "rb") as file:
            self.refuse_unless_regular(os.fstat(descriptor))
            yield file

    def replace(self, content: bytes, existing: os.stat_result | None, mode: int | None) -> None:
        temporary = f".holdfast-{os.urandom(8).hex()}.tmp"
        if mode is None and existing is not None:
            mode = stat.S_IMODE(existing.st_mode)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600, dir_fd=self.parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                if existing is not None:
                    _own_like(existing, descriptor)
                    self._copy_attributes(descriptor)
                if mode is not None:
                    os.fchmod(descriptor, mode)
            os.rename(temporary, self.name, src_dir_fd=self.parent, dst_dir_fd=self.parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self.parent)
            raise

    def _copy_attributes(self, target: int) -> None:
        """Copy the user's extended attributes, if the file system has them and we may read them."""
        with suppress(OSError), self.open_existing() as source:
            for attribute in os.listxattr(source.fileno()):
                if attribute.startswith("user."):
                    os.setxattr(target, attribute, os.getxattr(source.fileno(), attribute))


def _own_like(existing: os.stat_result, target: int) -> None:
    with suppress(PermissionError):
        os.fchown(target, existing.st_uid, existing.st_gid)


@contextmanager
def _open_parent(root: Path, relative: str, *, make: Callable[[int, str, str], None] | None = None) -> Iterator[_Place]:
    """Open the directory of the last component; an OSError becomes an error of ours."""
    *parents, name = components_of(relative)
    try:
        current = open_in_place(root, to_pass=True)
        try:
            for index, parent in enumerate(parents):
                following = _open_directory(current, parent, "/".join(parents[: index + 1]), make)
                os.close(current)
                current = following
            yield _Place(relative, current, name)
        finally:
            os.close(current)
    except OSError as error:
        raise SandboxError(f"{relative}: {error.strerror or error}") from error


def _make_directory(parent: int, name: str, path: str, *, on_directory: Callable[[str], None] | None) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
        if on_directory is not None:
            on_directory(path)


def _open_directory(parent: int, name: str, shown: str, make: Callable[[int, str, str], None] | None) -> int:
    if make is not None:
        make(parent, name, shown)
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError as error:
        raise NotFoundError(f"{shown} does not exist") from error
    except NotADirectoryError as error:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise UsageError(f"{shown} is a symlink", hint=_OUTSIDE_HINT) from error
        raise UsageError(f"{shown} is not a directory") from error


# Paths that a person names


def readings(resources: Collection[str], text: str) -> Iterator[tuple[str, bytes]]:
    """What ``PATH`` or ``RESOURCE:PATH`` can stand for: names of resources with a path in each.

    With several resources a file is shown as ``RESOURCE/PATH``, so that is taken, too.
    """
    name, separator, rest = text.partition(":")
    if separator and name in resources:
        yield name, _normal(rest)
        return
    path = _normal(text)
    for resource in resources:
        yield resource, path
    name, separator, rest = text.partition("/")
    if separator and rest and name in resources and len(resources) > 1:
        yield name, _normal(rest)


def _normal(text: str) -> bytes:
    if not text:
        # A variable of a shell that is not set must not mean everything.
        raise UsageError("An empty path names nothing.", hint="A whole resource is `.` or `RESOURCE:.`.")
    path = posixpath.normpath(text)
    if path.startswith("/") or path.split("/")[0] == "..":
        raise UsageError(
            f"'{name_text(text)}' is not a path inside of a resource.", hint="Give it relative to the resource's root."
        )
    return b"" if path == "." else os.fsencode(path)
