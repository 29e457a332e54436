"""What the rest of Holdfast asks of a sandbox, whatever it stands in for."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from holdfast.model import Resource, Strategy


class Sandbox(Protocol):
    """A private copy of a real resource, in which a plan works."""

    resource: Resource

    @property
    def strategy(self) -> Strategy: ...

    @property
    def path(self) -> Path: ...

    def check(self) -> None:
        """Refuse, with the reason, a real resource that no sandbox can be made of."""
        ...

    def size_bytes(self) -> int:
        """How much space the sandbox will take: of what is copied, and nothing else."""
        ...

    def create(self) -> Resource:
        """Make the sandbox, whole or not at all; the resource with what it started from."""
        ...

    def remove(self) -> None: ...

    def hides(self, path: bytes) -> bool:
        """Whether a path is the sandbox's own affair and not part of the user's files."""
        ...

    def keeps_index_at(self, path: bytes) -> bool:
        """Whether git would keep its index there, which it writes anew also for somebody who only looks."""
        ...
