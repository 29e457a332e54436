"""The place of a sandbox: a directory of its own, in the folder of its plan.

Another program may replace it. A symlink would lead to files without checkpoints, and a file is not ours: so neither is
used as a sandbox, followed or removed. Above the plan's folder the user may have symlinks.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.errors import SandboxError
from holdfast.names import name_text

_SANDBOXES = "sandboxes"
_OPEN = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH: walking through a directory needs no permission to list it.
_PASS = os.O_PATH


def is_there(path: Path) -> bool:
    """Whether the sandbox is in its place."""
    return _kind(path.parent) == _kind(path) == stat.S_IFDIR


def is_missing(path: Path) -> bool:
    """Whether its place is empty; refuses if a symlink or a file is there."""
    refuse_replaced(path)
    return not is_there(path)


def refuse_replaced(path: Path) -> None:
    """Refuse if the sandbox, or the folder it lies in, was replaced by something that is not a directory."""
    for place, was in ((path.parent, "folder of a plan"), (path, "sandbox")):
        kind = _kind(place)
        if kind not in (None, stat.S_IFDIR):
            what = "symlink" if kind == stat.S_IFLNK else "file"
            raise SandboxError(
                f"{name_text(str(place))} is a {what} now, and no longer a {was}.",
                hint=f"The {what} is neither followed nor removed. Move it away: then the sandbox counts as missing, "
                "and `holdfast plan resume` makes it again from its checkpoints.",
            )


def open_in_place(path: Path, *, to_pass: bool = False) -> int:
    """A descriptor of the sandbox; fails if a symlink is in its place.

    ``to_pass``: the descriptor is only used to reach entries, not to list them.
    """
    try:
        return _opened(path, to_pass)
    except PermissionError:
        if not _folders_were_closed(path):
            raise
        return _opened(path, to_pass)


def _opened(path: Path, to_pass: bool) -> int:
    place, name = os.path.split(path)
    folder = os.open(place or os.curdir, _PASS | _OPEN)
    try:
        return os.open(name, (_PASS if to_pass else os.O_RDONLY) | _OPEN, dir_fd=folder)
    finally:
        os.close(folder)


def is_ours(path: Path) -> bool:
    """Whether that is the place of a sandbox; any other tree is a real folder of the user."""
    return path.parent.parent.name == _SANDBOXES


def relative_to_home(path: str, home: Path) -> str:
    """A path as it is stored: a sandbox's without the home, which may be moved or copied."""
    return path.removeprefix(f"{home}/") if path.startswith(f"{home}/{_SANDBOXES}/") else path


def in_home(stored: str, home: Path, plan_id: str) -> str:
    """The path in this home for a stored one; earlier versions stored the path with the home of that time."""
    if stored.startswith(f"{_SANDBOXES}/"):
        return f"{home}/{stored}"
    _, marker, rest = stored.partition(f"/{_SANDBOXES}/{plan_id}/")
    return f"{home}{marker}{rest}" if marker and stored.startswith("/") else stored


def _kind(path: Path) -> int | None:
    try:
        return stat.S_IFMT(_status(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _status(path: Path) -> os.stat_result:
    try:
        return os.lstat(path)
    except PermissionError:
        if not _folders_were_closed(path):
            raise
        return os.lstat(path)


def _folders_were_closed(path: Path) -> bool:
    """Make the folders around a sandbox accessible: a step may have removed our permissions. Whether it had."""
    if not is_ours(path):
        return False
    were_closed = False
    for folder in (path.parent.parent, path.parent):
        descriptor = os.open(folder, _PASS | _OPEN)
        try:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode & 0o700 != 0o700:
                os.chmod(f"/proc/self/fd/{descriptor}", mode | 0o700)
                were_closed = True
        finally:
            os.close(descriptor)
    return were_closed
