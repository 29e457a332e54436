"""Where agents keep their configuration."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec


class Scope(StrEnum):
    USER = "user"
    """In every folder of this user."""
    PROJECT = "project"
    """In one folder."""


class Place(msgspec.Struct, frozen=True):
    """Where to look: the user's home and variables, the project's folder, and Holdfast's home."""

    user_home: Path
    environment: Mapping[str, str]
    project: Path
    home: Path

    def folder(self, variable: str, otherwise: str) -> Path:
        """The folder that the variable names, or else this one in the user's home."""
        named = self.environment.get(variable)
        return Path(named) if named else self.user_home / otherwise
