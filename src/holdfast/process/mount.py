"""A folder that a command sees at another place: the value that ``supervisor.enter_view`` carries out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mount:
    """The command finds ``source`` at ``target``, in place of what is there for all others."""

    source: Path
    target: Path
    read_only: bool = False


def seen_at(path: Path, mounts: Sequence[Mount]) -> Path:
    """What the command finds at this path, named as all others name it."""
    for mount in reversed(mounts):
        if path.is_relative_to(mount.target):
            return mount.source / path.relative_to(mount.target)
    return path
