"""Confinement: what a step may write, as rules for Landlock, and how much of that this kernel can enforce.

The rules are made here; ``supervisor.py`` activates them between fork and exec. From then on the kernel enforces them
for the command and everything it starts. Reading and executing are not restricted.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from enum import IntFlag, StrEnum
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import ConfigError
from holdfast.process.supervisor import SYS_LANDLOCK_CREATE_RULESET

_CREATE_RULESET_VERSION = 1
# The system calls have the same numbers on these machines; on another the number could mean another call.
_KNOWN_MACHINES = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x", "loongarch64")

# Devices that programs expect to write to and that belong to no user: sinks, sources of randomness, terminals (a new
# one is made through ptmx and appears in pts under a number that is not known before), and shared memory (POSIX
# semaphores and shared memory have no other place).
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm"))


class Confinement(StrEnum):
    """Whether the steps of a plan are confined."""

    ON = "on"
    OFF = "off"
    NOT_AVAILABLE = "not available"


class Right(IntFlag):
    """Landlock's rights of access, with the numbers of the kernel."""

    WRITE_FILE = 1 << 1
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


class Scope(IntFlag):
    """What Landlock can limit to the step's own processes: connections to abstract sockets, and signals."""

    ABSTRACT_UNIX_SOCKET = 1 << 0
    SIGNAL = 1 << 1


_LATER_RIGHTS = {Right.REFER: 2, Right.TRUNCATE: 3, Right.IOCTL_DEV: 5}
_OF_FILES = Right.WRITE_FILE | Right.TRUNCATE | Right.IOCTL_DEV
# A process that may make a device in a sandbox (root) could write to any disk through it.
_NEVER_GRANTED = Right.MAKE_CHAR | Right.MAKE_BLOCK
FIRST_ABI_WITH_SCOPES = 6
_GAPS = {
    2: "renaming or linking a file from one folder into another fails, even inside a sandbox",
    3: "an existing file outside can be emptied, though not written",
    FIRST_ABI_WITH_SCOPES: "a step can send signals to your other processes",
}


class Writable(tuple[Path, ...]):
    """The paths beneath which a step may write: the plan's sandboxes, then others.

    A file of a sandbox cannot get a second name in one of the others, through which it could be changed unnoticed:
    Landlock refuses to link or move a file to a folder where it would gain a right. So the others have one right more:
    to use devices, which changes nothing, because a step cannot make one. To programs it looks as if the
    folder were on another file system.
    """

    sandboxes: frozenset[Path]

    def __new__(cls, sandboxes: Sequence[Path], others: Sequence[Path] = ()) -> Writable:
        paths = super().__new__(cls, (*sandboxes, *others))
        paths.sandboxes = frozenset(sandboxes)
        return paths


class Rules(NamedTuple):
    """The rules that the supervisor hands to the kernel."""

    attributes: bytes
    """A ``struct landlock_ruleset_attr``: what is refused unless a rule allows it."""
    beneath: tuple[tuple[bytes, int], ...]
    """Paths, and the rights granted on each and on all that lies beneath it."""


@cache
def landlock_abi() -> int:
    """The version of Landlock in this kernel; 0 if it has none, or if it is switched off."""
    if sys.platform != "linux" or os.uname().machine not in _KNOWN_MACHINES:
        return 0
    number, version = ctypes.c_long(SYS_LANDLOCK_CREATE_RULESET), ctypes.c_long(_CREATE_RULESET_VERSION)
    return max(0, int(ctypes.CDLL(None).syscall(number, None, ctypes.c_long(0), version)))


def confinement_of(wanted: bool) -> Confinement:
    """What the setting ``sandbox.confine`` means on this kernel."""
    if not wanted:
        return Confinement.OFF
    return Confinement.ON if landlock_abi() else Confinement.NOT_AVAILABLE


def gaps(abi: int) -> tuple[str, ...]:
    """What this version of Landlock leaves open or breaks, unlike a later one."""
    return tuple(gap for first, gap in _GAPS.items() if abi < first)


def rules_for(writable: Sequence[Path], abi: int) -> Rules:
    """Refuse every change of the file system except beneath the writable paths and the usual devices."""
    handled = _rights_known_to(abi)
    scoped = Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL if abi >= FIRST_ABI_WITH_SCOPES else Scope(0)
    granted, granted_on_file = int(handled & ~_NEVER_GRANTED), int(handled & _OF_FILES)
    sealed = writable.sandboxes if isinstance(writable, Writable) else frozenset()
    beneath = {
        path: int(granted & ~Right.IOCTL_DEV) if path in sealed else granted if path.is_dir() else granted_on_file
        for path in (*writable, *(device for device in map(Path, _DEVICES) if device.exists()))
    }
    return Rules(
        # Access to the network, the second number, is not restricted.
        attributes=struct.pack("=QQQ", handled, 0, scoped),
        beneath=tuple((os.fsencode(path), rights) for path, rights in beneath.items()),
    )


@cache
def _rights_known_to(abi: int) -> Right:
    known = (right for right in Right if abi >= _LATER_RIGHTS.get(right, 1))
    return reduce(or_, known)


def allowed_paths(
    texts: Sequence[str], *, user_home: Path, holdfast_home: Path, origin: str = "sandbox.allow-write"
) -> tuple[Path, ...]:
    """The real paths that steps may write to; one that cannot be allowed is a ConfigError."""
    if "" in texts:
        # An empty path would mean the current folder.
        raise ConfigError(f"{origin}: an empty path names no place.", hint="Name the folder that steps may write to.")
    found = {path: real_path(path) for path in expanded(texts, user_home)}
    for path, real in found.items():
        _check_allowed(path, real, holdfast_home, origin)
    return tuple(dict.fromkeys(real for path, real in found.items() if not _is_inside_another(path, found)))


def expanded(texts: Sequence[str], user_home: Path) -> tuple[Path, ...]:
    return tuple(user_home / text[2:] if text.startswith("~/") else Path(text) for text in texts)


def would_expose(real: Path, holdfast_home: Path) -> bool:
    """Whether a step that may write there could change checkpoints, or sandboxes of other plans."""
    home = real_path(holdfast_home)
    return home.is_relative_to(real) or real.is_relative_to(home)


def real_path(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _check_allowed(path: Path, real: Path, holdfast_home: Path, origin: str) -> None:
    if not os.path.exists(real):
        raise ConfigError(f"{origin}: {path} does not exist.", hint="Make it, or do not name it there.")
    if would_expose(real, holdfast_home):
        raise ConfigError(
            f"{origin}: {path} would let a step change what Holdfast keeps in {holdfast_home}.",
            hint="Name only the folders that steps need, not one that contains Holdfast's home.",
        )


def _is_inside_another(path: Path, found: Mapping[Path, Path]) -> bool:
    """Whether another path contains it: it adds nothing, and a step could replace it by a link to anywhere."""
    others = [real for other, real in found.items() if other != path and real != found[path]]
    return any(real_path(parent).is_relative_to(other) for parent in path.parents for other in others)
