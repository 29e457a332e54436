"""A mark on a real folder that says which operation changes it, set before the first file and removed after the last.

A mark on a folder that no process changes means that a change was cut short there, even one that another home began.
It is an extended attribute: it has no name in the folder, changes no time, and is part of no copy, snapshot or commit.
There is no mark if the file system has no extended attributes, or if we may not write to the folder.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.errors import StateError
from holdfast.names import name_text
from holdfast.system.directories import folder_made_accessible

ATTRIBUTE = "user.holdfast.changing"
_CANNOT = (
    errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES, errno.EPERM, errno.EROFS, errno.E2BIG, errno.ERANGE, errno.ENOSPC,
)  # fmt: skip
"""A folder that cannot be marked can still be changed; if the disk is full, changing it will fail with that error."""


class Mark(msgspec.Struct, frozen=True):
    """Which operation changes the folder."""

    home: str = ""
    plan_id: str = ""
    """The plan whose lease is needed; for a subplan the root plan."""
    operation_id: str = ""
    kind: str = "change"


_decoder = msgspec.json.Decoder(Mark)
"""Made once: msgspec must not find out a type in two threads at the same time."""


def put_on(folder: Path, mark: Mark) -> None:
    """Mark the folder durably."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.setxattr(descriptor, ATTRIBUTE, msgspec.json.encode(mark))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise


def find_on(folder: Path | int) -> Mark | None:
    try:
        return _read(folder)
    except OSError:
        return None


def _read(folder: Path | int) -> Mark:
    try:
        return _decoder.decode(os.getxattr(folder, ATTRIBUTE))
    except msgspec.MsgspecError:
        return Mark()  # a later version of Holdfast wrote it, or another program


def take_off(folder: Path, operation_id: str) -> None:
    """Remove the mark, if it is that operation's."""
    with suppress(OSError):  # the records say that no operation is under way there
        try:
            _remove(folder, operation_id)
        except PermissionError:  # the apply may have made the folder read-only
            with folder_made_accessible(folder, 0o700):
                _remove(folder, operation_id)


def _remove(folder: Path, operation_id: str) -> None:
    if _read(folder).operation_id == operation_id:
        os.removexattr(folder, ATTRIBUTE)


def found_around(folder: Path) -> Iterator[tuple[Path, Mark]]:
    """The marks on a folder and on the folders it lies in."""
    folder = folder.resolve()
    for place in (folder, *folder.parents):
        mark = find_on(place)
        if mark is not None:
            yield place, mark


def half_changed(folder: Path, mark: Mark) -> StateError:
    """The error that refuses a folder with that mark."""
    shown = name_text(str(folder))
    by_hand = (
        "bring its files in order yourself, and remove the mark with a program of the package `attr`: "
        f"`setfattr -x {ATTRIBUTE} {shlex.quote(shown)}`."
    )
    if not mark.plan_id:
        return StateError(f"A change of {shown} was cut short: its files are a mixture.", hint=f"Please {by_hand}")
    home = shlex.quote(name_text(mark.home))
    return StateError(
        f"The {mark.kind} of plan {mark.plan_id} to {shown} was cut short, from the home {name_text(mark.home)}: "
        "the files there are a mixture.",
        hint=f"Run `HOLDFAST_HOME={home} holdfast plan execute {mark.plan_id}`: it puts that right first. "
        f"If that home is gone, or this is a copy of the folder, {by_hand}",
    )
