"""The real folder of a session: which ones are refused, and how it becomes the resource of a plan."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import SandboxError
from holdfast.model import Resource, ResourceType
from holdfast.names import name_text

_NAME = "folder"
"""The name of the one resource of a session."""


def resource_of(folder: Path, *, user_home: Path, holdfast_home: Path) -> Resource:
    """The folder as a resource in place; refused if it is none that can be recorded as a whole."""
    place = folder.resolve()
    if not place.is_dir():
        raise SandboxError(f"{name_text(str(folder))} is no folder.", hint="Name the folder of a project.")
    _refuse_too_much(place, user_home.resolve(), holdfast_home.resolve())
    kind = ResourceType.GIT if (place / ".git").exists() else ResourceType.DIRECTORY
    return Resource(name=_NAME, type=kind, path=str(place), sandbox_path=str(place), in_place=True)


def _refuse_too_much(place: Path, user_home: Path, holdfast_home: Path) -> None:
    if user_home.is_relative_to(place):
        whose = "your home folder" if place == user_home else "a folder around your home folder"
        raise SandboxError(
            f"{name_text(str(place))} is {whose}: everything in it would be recorded and could be undone.",
            hint="Work in the folder of a project.",
        )
    if holdfast_home.is_relative_to(place) or place.is_relative_to(holdfast_home):
        raise SandboxError(
            f"{name_text(str(place))} holds Holdfast's own home {name_text(str(holdfast_home))}, or lies in it.",
            hint="Work in another folder, or set HOLDFAST_HOME to one that is not inside of it.",
        )
    if place.parent == place or place in _SYSTEM:
        raise SandboxError(
            f"{name_text(str(place))} belongs to the system, and is not recorded.",
            hint="Work in the folder of a project.",
        )


_SYSTEM = frozenset(
    Path("/", name) for name in ("bin", "boot", "dev", "etc", "lib", "proc", "sbin", "sys", "tmp", "usr", "var")
)
