"""A plan that has not been stored yet, wherever it comes from."""

from __future__ import annotations

from pathlib import Path

from holdfast.model import Policy, Record, ResourceType, Step


class ResourceDraft(Record, frozen=True, kw_only=True):
    name: str
    type: ResourceType
    path: Path
    """Absolute, symbolic links resolved."""


class PlanDraft(Record, frozen=True, kw_only=True):
    name: str
    resources: tuple[ResourceDraft, ...]
    policy: Policy
    validation: tuple[str, ...] = ()
    steps: tuple[Step, ...]
    source_file: Path | None
    """None if the plan does not come from a file."""
