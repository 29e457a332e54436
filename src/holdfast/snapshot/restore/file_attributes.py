"""Sets the attributes of a file, a directory, a symlink or a fifo: owner, extended attributes, mode, time."""

from __future__ import annotations

import os
import stat

from holdfast.content.format import SYMLINK, Entry
from holdfast.snapshot.scan.entries import is_held_xattr, owner_to_set
from holdfast.system.calls import set_mtime
from holdfast.system.directories import IS_ROOT

_UNCHANGED = (-1, -1)


def set_attributes(name: bytes, parent: int, entry: Entry) -> None:
    """Set all attributes, by name."""
    owner = (entry.uid, entry.gid) if IS_ROOT else owner_to_set(entry, status(name, parent))
    if owner != _UNCHANGED:
        os.chown(name, *owner, dir_fd=parent, follow_symlinks=False)
    _set_xattrs(f"/proc/self/fd/{parent}/".encode() + name, entry)
    if entry.kind != SYMLINK:
        chmod(name, parent, entry.mode)
    os.utime(name, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=parent, follow_symlinks=False)


def set_attributes_through(descriptor: int, entry: Entry, found: os.stat_result | None = None) -> None:
    """Set only the attributes that differ, of an open file or directory; ``found``: its status, if known."""
    found = found or os.fstat(descriptor)
    owner = owner_to_set(entry, found)
    if owner == (found.st_uid, found.st_gid):
        owner = _UNCHANGED
    if owner != _UNCHANGED:
        os.fchown(descriptor, *owner)
    # Setting the owner or extended attributes can change the mode.
    is_changed = _set_xattrs(descriptor, entry) or owner != _UNCHANGED
    if is_changed or stat.S_IMODE(found.st_mode) != entry.mode:
        os.fchmod(descriptor, entry.mode)
    set_mtime(descriptor, entry.mtime_ns)


def flush(name: bytes, parent: int) -> None:
    """Write a file's attributes to the disk."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except PermissionError:
        os.sync()  # a file that we may not open cannot be flushed alone
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def status(name: bytes, parent: int) -> os.stat_result:
    return os.stat(name, dir_fd=parent, follow_symlinks=False)


def chmod(name: bytes, parent: int, mode: int) -> None:
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)


def _set_xattrs(target: int | bytes, entry: Entry) -> bool:
    """Set the extended attributes; returns whether the file has or had any."""
    follow = isinstance(target, int)
    try:
        present = os.listxattr(target, follow_symlinks=follow)
    except OSError:
        present = []  # the file system does not support them
    if not present and not entry.xattrs:
        return False
    wanted = dict(entry.xattrs)
    for name in set(map(os.fsencode, present)) - wanted.keys():
        if is_held_xattr(name):
            os.removexattr(target, name, follow_symlinks=follow)
    # Access lists last: one may take away the right to set the others.
    for name, value in sorted(wanted.items(), key=lambda each: each[0].startswith(b"system.")):
        os.setxattr(target, name, value, follow_symlinks=follow)
    return True
