"""What a sandbox was copied from: the stamps of every entry of the real folder and of its copy, at that time.

If both stamps of an entry are still the same, the copy is still what a new copy would be: a change of content, mode,
owner, attributes or names gives an entry another ctime.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.sandbox.listing import Listed, ListedTree
from holdfast.system.comparing import numbers_of_changed, portions
from holdfast.system.directories import USER, Descent, split
from holdfast.system.machine import boot_id
from holdfast.system.stamps import UNTRUSTED, is_settled, own_stamp, pack_stamps, path_in, unpack_stamps

_VERSION = 4
_UNTRUSTED_STAMP = (0, UNTRUSTED, 0, 0)
"""No file has it."""
_REMOTE = ("9p", "afs", "ceph", "cifs", "fuse", "lustre", "nfs", "smb", "virtiofs")
"""On these file systems another machine may change a file, and its times show it only later."""

_OCTAL = re.compile(rb"\\([0-7]{3})")
"""How the kernel writes a space in the path of a mount."""

Directories = dict[bytes, bytes]
"""The packed stamps of every directory of a tree, by its path; ``b""`` is the root."""


class Doubtful(Exception):
    """A tree in which something cannot be told by stamps."""


class Walked(NamedTuple):
    """All directories of a tree."""

    directories: dict[bytes, Listed]
    read_from_ns: int

    def entries(self) -> int:
        return sum(each.files + 1 for each in self.directories.values())

    def trusted(self) -> Directories:
        """Their stamps without the ctimes that are so recent that a later change may not show."""
        began_ns = self.read_from_ns
        return {
            path: listed.stamps if is_settled(listed.newest_ns, began_ns) else _distrusted(listed.stamps, began_ns)
            for path, listed in self.directories.items()
        }


def _distrusted(packed: bytes, read_from_ns: int) -> bytes:
    inode, ctime = own_stamp(packed)
    stamps = {
        name: stamp if is_settled(stamp[1], read_from_ns) else _UNTRUSTED_STAMP
        for name, stamp in unpack_stamps(packed).items()
    }
    return pack_stamps(path_in(packed), (inode, ctime if is_settled(ctime, read_from_ns) else UNTRUSTED), stamps)


class LookedAgain(NamedTuple):
    """All directories of a tree of which an earlier look is known: only what differs from that was listed."""

    same: Directories
    differing: Walked

    def stamps(self) -> Directories:
        return {**self.same, **{path: listed.stamps for path, listed in self.differing.directories.items()}}

    def trusted(self) -> Directories:
        return {**self.same, **self.differing.trusted()}


class Origin(msgspec.Struct, array_like=True):
    version: int
    boot_id: str
    user: tuple[int, ...]
    real: Directories
    copy: Directories
    skip: frozenset[bytes]
    """What of the real folder was not copied."""

    @property
    def is_of_now(self) -> bool:
        """Whether it was noted by this user and in this boot: after a power cut, files may have lost content."""
        return (self.version, self.boot_id, self.user) == (_VERSION, boot_id(), USER)


def origin_of(real: Directories, copy: Directories, skip: Collection[bytes]) -> Origin:
    """Both with stamps that can be trusted."""
    return Origin(_VERSION, boot_id(), USER, real, copy, frozenset(skip))


_decoder = msgspec.msgpack.Decoder(Origin)
"""Made once: msgspec must not find out a type in two threads at the same time."""


def save_origin(origin: Origin, file: Path) -> None:
    """Without it the sandbox only takes longer to replace, so that it may fail, and is not synced."""
    with suppress(OSError):
        file.write_bytes(msgspec.msgpack.encode(origin))


def load_origin(file: Path) -> Origin | None:
    try:
        found = _decoder.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.is_of_now else None


def walked(tree: ListedTree, skip: Collection[bytes] = ()) -> Walked:
    """Everything in a tree but the paths ``skip``; refuses a tree in which not all can be seen or told."""
    found = Walked({}, time.time_ns())
    _refuse_remote(tree.root)
    for path, listed in tree.directories(skip=skip):
        found.directories[path] = _sound(listed, path, skip)
    return found


class Differing(NamedTuple):
    """The directories of a tree in which a stamp is not the one of an earlier look."""

    paths: set[bytes]
    read_from_ns: int


def differing_in(root: Path, were: Directories) -> Differing:
    """Compared with these trusted stamps."""
    _refuse_remote(root)
    began_ns, paths = time.time_ns(), list(were)
    with Descent(root, opens_up=False) as opened:
        shares = [b"".join(map(were.__getitem__, paths[slice(*portion)])) for portion in portions(len(paths))]
        numbers = numbers_of_changed(opened.open(b""), shares)
        return Differing({paths[number] for number in numbers}, began_ns)


def looked_again(
    tree: ListedTree, were: Directories, differing: Differing, skip: Collection[bytes] = ()
) -> LookedAgain:
    """The same for a tree of which it is known where it differs from an earlier look; only that is listed."""
    changed = differing.paths
    found = LookedAgain({}, Walked({}, differing.read_from_ns))
    below: dict[bytes, list[bytes]] = {path: [] for path in were if path not in changed}
    for path in filter(None, were):
        directory, name = split(path)
        if directory in below:
            below[directory].append(name)
    for path, listed in tree.directories(skip=skip, known=below):
        if path in below:
            found.same[path] = were[path]
        else:
            found.differing.directories[path] = _sound(listed, path, skip)
    return found


def listed_again(tree: ListedTree, directories: Collection[bytes]) -> Walked:
    """Only these directories of a tree that was walked before."""
    found = Walked({}, time.time_ns())
    found.directories.update((path, _sound(listed, path, ())) for path, listed in tree.only(directories))
    return found


def _sound(listed: Listed | None, path: bytes, skip: Collection[bytes]) -> Listed:
    if listed is None:
        raise Doubtful("it cannot be listed")
    if not listed.is_plain:
        raise Doubtful("another file system, a socket or a device")
    if path and b".git" in skip and listed.has(b".git"):
        raise Doubtful("a repository in a repository, which gets a new .git")
    return listed


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
