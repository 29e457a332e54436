"""Reads a file, directory, symlink or fifo from the disk as an entry, and passes its content to a sink."""

from __future__ import annotations

import errno
import os
import stat
from typing import Protocol

from holdfast.content.format import (
    DIRECTORY,
    FIFO,
    FILE,
    PIECE_BYTES,
    PIECES,
    PIECES_FROM_BYTES,
    SYMLINK,
    UNKNOWN_OWNER,
    Entry,
    digest_of,
    encode_pieces,
)
from holdfast.system import folder_mark
from holdfast.system.directories import IS_ROOT, OWN_GROUPS, made_accessible

_READ_TRIES = 3
_MARK = folder_mark.ATTRIBUTE.encode()
_NOT_HELD = (b"security.selinux", b"security.ima", b"security.evm", _MARK)
"""Extended attributes that belong to the kernel, or to Holdfast."""


class Moved(Exception):
    """Something was renamed or replaced while it was being read."""


class Sink(Protocol):
    """Takes content with its digest."""

    def add_named(self, digest: bytes, content: bytes) -> None: ...


class Hasher:
    """A sink for content of which only the digests are needed."""

    def add_named(self, digest: bytes, content: bytes) -> None:
        pass


def directory_entry(
    name: bytes,
    descriptor: int,
    *,
    found: os.stat_result | None = None,
    mode: int | None = None,
    content: bytes = b"",
) -> Entry:
    """A directory as an entry; ``content`` is the digest of its listing, ``found`` and ``mode`` are given if known."""
    found = found or os.fstat(descriptor)
    mode = stat.S_IMODE(found.st_mode) if mode is None else mode
    return Entry(name, DIRECTORY, mode, found.st_mtime_ns, *owner_of(found), 0, content, _xattrs(descriptor))


def read_entry(directory: int, name: bytes, sink: Sink, *, is_file: bool = False) -> tuple[Entry, os.stat_result]:
    """Read a file, symlink or fifo as an entry and pass its content to the sink; returns its status too.

    ``is_file``: it was a regular file a moment ago; ``Moved`` is raised if it no longer is.
    """
    if is_file:
        return _read_file(directory, name, sink)
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFREG:
        return _read_file(directory, name, sink)
    through = f"/proc/self/fd/{directory}/".encode() + name
    content = _link_target(directory, name) if kind == stat.S_IFLNK else b""
    mode, shape = stat.S_IMODE(found.st_mode), SYMLINK if kind == stat.S_IFLNK else FIFO
    xattrs = _xattrs(through, follow_symlinks=False)
    return Entry(name, shape, mode, found.st_mtime_ns, *owner_of(found), 0, content, xattrs), found


def _link_target(directory: int, name: bytes) -> bytes:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.EINVAL:  # it was replaced by something else
            raise Moved from error
        raise


def _read_file(directory: int, name: bytes, sink: Sink) -> tuple[Entry, os.stat_result]:
    descriptor = _open_for_reading(name, directory)
    try:
        tries = 0
        while True:
            tries += 1
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise Moved
            kind, size, content = _stored_content(descriptor, before.st_size, sink)
            after = os.fstat(descriptor)
            if (before.st_mtime_ns, before.st_ctime_ns, before.st_size) == (
                after.st_mtime_ns, after.st_ctime_ns, size,
            ) or tries == _READ_TRIES:  # fmt: skip
                break
            os.lseek(descriptor, 0, os.SEEK_SET)
        mode = stat.S_IMODE(after.st_mode)
        xattrs = _xattrs_of_file(descriptor, name, directory)
        return Entry(name, kind, mode, after.st_mtime_ns, *owner_of(after), size, content, xattrs), after
    finally:
        os.close(descriptor)


def _open_for_reading(name: bytes, directory: int) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=directory)
    except PermissionError:
        with made_accessible(name, directory, 0o400):
            return os.open(name, flags, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # it was replaced by a symlink or a socket
            raise Moved from error
        raise


def _stored_content(descriptor: int, size: int, sink: Sink) -> tuple[int, int, bytes]:
    """Kind, size and digest of the present content of an open file."""
    if size < PIECES_FROM_BYTES:
        # Asking for much more than the file holds would make Python allocate all of that first.
        content = os.read(descriptor, size + 1)
        if len(content) < size:
            content += _read_fully(descriptor, size + 1 - len(content))
        if len(content) > size:
            content += _read_fully(descriptor, PIECES_FROM_BYTES - len(content))
        if len(content) < PIECES_FROM_BYTES:
            return FILE, len(content), _stored(content, sink) if content else b""
        os.lseek(descriptor, 0, os.SEEK_SET)
    digests, total = [], 0
    while piece := _read_fully(descriptor, PIECE_BYTES):
        digests.append(_stored(piece, sink))
        total += len(piece)
        if len(piece) < PIECE_BYTES:
            break  # only the last piece may be shorter, even if the file grows meanwhile
    if total < PIECES_FROM_BYTES:
        raise Moved  # it was truncated meanwhile, and a file that small is never stored in pieces
    return PIECES, total, _stored(encode_pieces(digests), sink)


def stored_content(content: bytes, sink: Sink) -> tuple[int, int, bytes]:
    """Store content that is in no file yet; returns its kind, size and digest."""
    if len(content) < PIECES_FROM_BYTES:
        return FILE, len(content), _stored(content, sink) if content else b""
    pieces = (content[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES))
    digests = [_stored(piece, sink) for piece in pieces]
    return PIECES, len(content), _stored(encode_pieces(digests), sink)


def _stored(content: bytes, sink: Sink) -> bytes:
    digest = digest_of(content)
    sink.add_named(digest, content)
    return digest


def _read_fully(descriptor: int, limit: int) -> bytes:
    content = os.read(descriptor, limit)
    if not content or len(content) == limit:
        return content
    parts, total = [content], len(content)
    while total < limit and (part := os.read(descriptor, limit - total)):
        parts.append(part)
        total += len(part)
    return b"".join(parts) if len(parts) > 1 else content


_OTHER_GROUPS = OWN_GROUPS - {os.getegid()}


def owner_of(found: os.stat_result) -> tuple[int, int]:
    """The owner, if this user could set it again."""
    return (found.st_uid, found.st_gid) if IS_ROOT else user_owner(found.st_gid)


def user_owner(gid: int) -> tuple[int, int]:
    """The same for a user other than root."""
    return UNKNOWN_OWNER, gid if gid in _OTHER_GROUPS else UNKNOWN_OWNER


def owner_to_set(entry: Entry, found: os.stat_result) -> tuple[int, int]:
    """The user and group to set on a file so that it gets the owner of the entry; -1 means unchanged."""
    if entry.gid == UNKNOWN_OWNER and found.st_gid in _OTHER_GROUPS:
        return entry.uid, os.getegid()
    return entry.uid, entry.gid


Xattrs = tuple[tuple[bytes, bytes], ...]


def _xattrs_of_file(descriptor: int, name: bytes, directory: int) -> Xattrs:
    try:
        return _all_xattrs(descriptor)
    except PermissionError:
        # The kernel checks the mode here, although the file is open already.
        with made_accessible(name, directory, 0o400):
            return _xattrs(descriptor)
    except OSError:
        return ()


def _xattrs(target: int | bytes, *, follow_symlinks: bool = True) -> Xattrs:
    try:
        return _all_xattrs(target, follow_symlinks=follow_symlinks)
    except OSError:
        return ()  # the file system does not support them


def _all_xattrs(target: int | bytes, *, follow_symlinks: bool = True) -> Xattrs:
    names = os.listxattr(target, follow_symlinks=follow_symlinks)
    if not names:
        return ()
    wanted = sorted(name for name in map(os.fsencode, names) if is_held_xattr(name))
    return tuple((name, os.getxattr(target, name, follow_symlinks=follow_symlinks)) for name in wanted)


def is_directory_as_wanted(entry: Entry, descriptor: int, found: os.stat_result, mode: int) -> bool:
    """Whether the attributes of a directory are those of the entry; ``mode`` may differ from what the kernel says."""
    return (
        mode == entry.mode
        and found.st_mtime_ns == entry.mtime_ns
        and owner_of(found) == (entry.uid, entry.gid)
        and _xattrs(descriptor) == entry.xattrs
    )


def is_held_xattr(xattr: bytes) -> bool:
    if IS_ROOT:
        return xattr not in _NOT_HELD
    return xattr.startswith((b"user.", b"system.posix_acl_")) and xattr != _MARK
