"""What a sandbox was copied from: the stamps of every entry of the real folder and of its copy, at that time.

If both stamps of an entry are still the same, the copy is still what a new copy would be: a change of content, mode,
owner, attributes or names gives an entry another ctime.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.sandbox.databases import SETTLED_NS
from holdfast.sandbox.entries import can_be_copied
from holdfast.system import folder_mark
from holdfast.system.directories import Descent, join
from holdfast.system.machine import boot_id
from holdfast.system.stopping import stop_if_asked

_VERSION = 1
_UNTRUSTED = -1
"""Stands for a ctime so recent that the entry may have changed again without a new one."""
_REMOTE = ("9p", "afs", "ceph", "cifs", "fuse", "lustre", "nfs", "smb", "virtiofs")
"""On these file systems another machine may change a file, and its times show it only later."""

_OCTAL = re.compile(rb"\\([0-7]{3})")
"""How the kernel writes a space in the path of a mount."""

Stamp = tuple[int, int, int, int, int]
"""Kind, inode, ctime, mtime and size."""
Stamps = Mapping[bytes, Stamp]


class Doubtful(Exception):
    """A tree in which something cannot be told by stamps."""


class Walked(NamedTuple):
    """All entries of a tree; ``b""`` is the root."""

    stamps: dict[bytes, Stamp]
    linked: set[bytes]
    """Files with several names."""
    read_from_ns: int

    def trusted(self) -> dict[bytes, Stamp]:
        return trusted(self.stamps, self.read_from_ns)


class Origin(msgspec.Struct, array_like=True):
    version: int
    boot_id: str
    user: int
    real: dict[bytes, Stamp]
    copy: dict[bytes, Stamp]

    @property
    def is_of_now(self) -> bool:
        """Whether it was noted by this user and in this boot: after a power cut, files may have lost content."""
        return (self.version, self.boot_id, self.user) == (_VERSION, boot_id(), os.geteuid())

    def is_kept(self, path: bytes, real: Stamps, copy: Stamps) -> bool:
        """Whether an entry of the copy is still what a new copy would be."""
        was = self.real.get(path), self.copy.get(path)
        return was == (real.get(path), copy.get(path)) and None not in was


def origin_of(real: dict[bytes, Stamp], copy: dict[bytes, Stamp]) -> Origin:
    """Both with stamps that can be trusted."""
    return Origin(_VERSION, boot_id(), os.geteuid(), real, copy)


def trusted(stamps: Stamps, read_from_ns: int) -> dict[bytes, Stamp]:
    """The same without the ctimes that are too recent; ``read_from_ns``: when the first stamp was read."""
    racy_ns = read_from_ns - SETTLED_NS
    return {path: stamp if stamp[2] < racy_ns else (*stamp[:2], _UNTRUSTED, 0, 0) for path, stamp in stamps.items()}


def save_origin(origin: Origin, file: Path) -> None:
    """Without it the sandbox only takes longer to replace, so that it may fail, and is not synced."""
    with suppress(OSError):
        file.write_bytes(msgspec.msgpack.encode(origin))


def load_origin(file: Path) -> Origin | None:
    try:
        found = msgspec.msgpack.decode(file.read_bytes(), type=Origin)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.is_of_now else None


def walked(root: Path, *, skip: Collection[bytes] = (), is_ours: bool) -> Walked:
    """Everything in a tree but the paths ``skip``; refuses a tree in which not all can be seen or told."""
    found = Walked({}, set(), time.time_ns())
    try:
        with Descent(root, opens_up=is_ours) as tree:
            top = os.fstat(tree.open(b""))
            _refuse_remote(root)
            found.stamps[b""] = stamp_of(top)
            directories = [b""]
            while directories:
                stop_if_asked()
                directories += _listed(tree, directories.pop(), skip, top.st_dev, found)
    except OSError as error:
        raise Doubtful(error.strerror) from error
    return found


def _listed(tree: Descent, directory: bytes, skip: Collection[bytes], device: int, found: Walked) -> list[bytes]:
    """Note what is in a directory; returns the directories in it."""
    below = []
    here = tree.open(directory)
    if folder_mark.find_on(here) is not None:
        raise Doubtful("a change of the folder was cut short")
    with os.scandir(here) as listing:
        for entry in listing:
            path = join(directory, os.fsencode(entry.name))
            if path in skip:
                continue
            if entry.name == ".git" and b".git" in skip:
                raise Doubtful("a repository in a repository, which gets a new .git")
            status = entry.stat(follow_symlinks=False)
            if status.st_dev != device:
                raise Doubtful("another file system is mounted in it")
            found.stamps[path] = stamp_of(status)
            if stat.S_ISDIR(status.st_mode):
                below.append(path)
            elif not can_be_copied(status):
                raise Doubtful("a socket or a device")
            elif status.st_nlink > 1:
                found.linked.add(path)
    return below


def stamp_of(status: os.stat_result) -> Stamp:
    kind = stat.S_IFMT(status.st_mode)
    return kind, status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size


def is_directory(stamp: Stamp) -> bool:
    return stamp[0] == stat.S_IFDIR


def _refuse_remote(folder: Path) -> None:
    place, kind = b"", ""
    real = os.fsencode(os.path.realpath(folder)) + b"/"
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        before, _, after = line.partition(b" - ")
        mounted = _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), before.split()[4]).rstrip(b"/") + b"/"
        if real.startswith(mounted) and len(mounted) >= len(place):
            place, kind = mounted, after.split()[0].decode()
    if kind.startswith(_REMOTE):
        raise Doubtful("another machine may change it")
