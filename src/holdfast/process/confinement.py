"""Confinement: what a step may write, as rules for Landlock, and how much of that this kernel can enforce.

The rules are made here, and put into force in ``supervisor.py`` between fork and exec: from then on the kernel holds
the command and everything it starts to them. Reading and executing are not restricted.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag, StrEnum
from functools import cache, reduce
from operator import or_
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.process.supervisor import SYS_LANDLOCK_CREATE_RULESET

_CREATE_RULESET_VERSION = 1
# The system calls have the same numbers on these; elsewhere another call could be meant.
_KNOWN_MACHINES = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x", "loongarch64")

# What programs expect to write to and what belongs to no user: sinks, sources of randomness, terminals (a new one is
# made through ptmx and appears in pts under a number that is not known before), and memory that processes share
# (semaphores and shared memory of POSIX have no other place).
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm"))


class Confinement(StrEnum):
    """Whether the steps of a plan are confined."""

    ON = "on"
    OFF = "off"
    NOT_AVAILABLE = "not available"


class Right(IntFlag):
    """What Landlock calls these accesses; the numbers are the kernel's."""

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
    """What Landlock can keep inside of the step: whom it connects to by an abstract name, and whom it signals."""

    ABSTRACT_UNIX_SOCKET = 1 << 0
    SIGNAL = 1 << 1


_LATER_RIGHTS = {Right.REFER: 2, Right.TRUNCATE: 3, Right.IOCTL_DEV: 5}
_OF_FILES = Right.WRITE_FILE | Right.TRUNCATE | Right.IOCTL_DEV
# A process that may make a device in a sandbox (root) could write to any disk through it.
_NEVER_GRANTED = Right.MAKE_CHAR | Right.MAKE_BLOCK
FIRST_ABI_WITH_SCOPES = 6
_GAPS = {
    2: "renaming or linking a file from one folder into another fails, also inside a sandbox",
    3: "an existing file outside can be emptied, though not written",
    FIRST_ABI_WITH_SCOPES: "a step can send signals to your other processes",
}


class Writable(tuple[Path, ...]):
    """The paths beneath which a step may write: the plan's sandboxes, then others.

    No file of a sandbox can get a second name in one of the others, where what is written through it is not seen.
    Landlock refuses to link or move a file to where it would get a right that it has not: that of using it as a
    device, which no file that a step can make is. To programs it looks like another file system.
    """

    sandboxes: frozenset[Path]

    def __new__(cls, sandboxes: Sequence[Path], others: Sequence[Path] = ()) -> Writable:
        paths = super().__new__(cls, (*sandboxes, *others))
        paths.sandboxes = frozenset(sandboxes)
        return paths


@dataclass(frozen=True)
class Rules:
    """What the supervisor hands to the kernel."""

    attributes: bytes
    """A ``struct landlock_ruleset_attr``: what is refused unless a rule allows it."""
    beneath: tuple[tuple[bytes, int], ...]
    """Paths, and the rights granted on each and on all that lies beneath it."""


@cache
def landlock_abi() -> int:
    """Which version of Landlock this kernel has; 0 if it has none, or none that is switched on."""
    if sys.platform != "linux" or os.uname().machine not in _KNOWN_MACHINES:
        return 0
    number, version = ctypes.c_long(SYS_LANDLOCK_CREATE_RULESET), ctypes.c_long(_CREATE_RULESET_VERSION)
    return max(0, int(ctypes.CDLL(None).syscall(number, None, ctypes.c_long(0), version)))


def confinement_of(wanted: bool) -> Confinement:
    """What comes of the setting ``sandbox.confine`` here."""
    if not wanted:
        return Confinement.OFF
    return Confinement.ON if landlock_abi() else Confinement.NOT_AVAILABLE


def gaps(abi: int) -> tuple[str, ...]:
    """What this version of Landlock leaves open or breaks, and a later one does not."""
    return tuple(gap for first, gap in _GAPS.items() if abi < first)


def rules_for(writable: Sequence[Path], abi: int) -> Rules:
    """Refuse every change of the file system but beneath the writable paths and the usual devices."""
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
    """Paths that steps may write to, as the kernel knows them; one that cannot be allowed is a ConfigError."""
    if "" in texts:
        # It would be the current folder.
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
            hint="Name the folders that steps need, and none that has Holdfast's home in it.",
        )


def _is_inside_another(path: Path, found: Mapping[Path, Path]) -> bool:
    """Such a path adds nothing, and a step could put a link in its place that leads anywhere."""
    others = [real for other, real in found.items() if other != path and real != found[path]]
    return any(real_path(parent).is_relative_to(other) for parent in path.parents for other in others)
