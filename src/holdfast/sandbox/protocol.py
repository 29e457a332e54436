"""What the rest of Holdfast asks of a sandbox, whatever its kind, and which kind a resource gets."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from holdfast.model import Plan, Resource, ResourceType, Strategy
from holdfast.sandbox.bulk import CopySink
from holdfast.sandbox.directory import DirectorySandbox
from holdfast.sandbox.git_worktree import GitWorktreeSandbox
from holdfast.sandbox.in_place import InPlaceSandbox
from holdfast.sandbox.spares import Spares


class Sandbox(Protocol):
    """A private copy of a real resource, in which a plan works; in a session the real resource itself."""

    resource: Resource

    @property
    def strategy(self) -> Strategy: ...

    @property
    def path(self) -> Path: ...

    def check(self) -> None:
        """Refuse, with the reason, a real resource that no sandbox can be made of."""
        ...

    def size_bytes(self) -> int:
        """How much space the sandbox will take: only of what is copied."""
        ...

    def create(self, sink: CopySink | None = None, spares: Spares | None = None) -> Resource:
        """Make the sandbox, whole or not at all; returns the resource with what it started from.

        ``sink`` is shown what is copied. With ``spares`` it may be made of one, and nothing is shown then.
        """
        ...

    def remove(self) -> None: ...

    def hides(self, path: bytes) -> bool:
        """Whether a path belongs to the sandbox itself and is not one of the user's files."""
        ...

    def keeps_index_at(self, path: bytes) -> bool:
        """Whether git keeps its index at this path; it rewrites the index even for commands that only read."""
        ...


def sandbox_for(plan: Plan, resource: Resource) -> Sandbox:
    if resource.is_in_place:
        return InPlaceSandbox(resource)
    if resource.type is ResourceType.GIT:
        return GitWorktreeSandbox(plan.plan_id, resource)
    return DirectorySandbox(resource)
