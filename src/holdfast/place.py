"""The place of a sandbox: a directory of its own, in the folder of its plan.

Something may put another thing there. A symlink would lead to files that no checkpoint was taken of, and a file is not
ours: so neither is taken for a sandbox, followed or removed. Above the plan's folder symlinks are the user's choice.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.errors import SandboxError
from holdfast.names import name_text

_OPEN = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH, where there is one: walking through a directory needs no permission to list it.
_PASS = getattr(os, "O_PATH", os.O_RDONLY)


def is_there(path: Path) -> bool:
    """Whether a sandbox is in its place."""
    return _kind(path.parent) == _kind(path) == stat.S_IFDIR


def is_missing(path: Path) -> bool:
    """Whether nothing is in its place; refuses if something else than a sandbox is."""
    refuse_replaced(path)
    return not is_there(path)


def refuse_replaced(path: Path) -> None:
    """Refuse if something is in the place of the sandbox, or of the folder it lies in, that is no directory."""
    for place, was in ((path.parent, "folder of a plan"), (path, "sandbox")):
        kind = _kind(place)
        if kind not in (None, stat.S_IFDIR):
            what = "symlink" if kind == stat.S_IFLNK else "file"
            raise SandboxError(
                f"{name_text(str(place))} is a {what} now, and no {was} any more.",
                hint=f"The {what} is neither followed nor removed. Move it away: then the sandbox counts as missing, "
                "and `holdfast plan execute` makes it anew from its checkpoints.",
            )


def open_in_place(path: Path, *, to_pass: bool = False) -> int:
    """A descriptor of the sandbox; a symlink that is put in its place at this moment makes it fail.

    ``to_pass``: it is not to be listed.
    """
    place, name = os.path.split(path)
    folder = os.open(place or os.curdir, _PASS | _OPEN)
    try:
        return os.open(name, (_PASS if to_pass else os.O_RDONLY) | _OPEN, dir_fd=folder)
    finally:
        os.close(folder)


def _kind(path: Path) -> int | None:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
