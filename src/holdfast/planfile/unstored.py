"""A plan that has not been stored yet, whether it comes from a file or is for one program."""

from __future__ import annotations

from pathlib import Path

from holdfast.model import Policy, Record, ResourceType, Step

LONGEST_DERIVED_NAME = 80
LONGEST_RESOURCE_NAME = 80


class ResourceDraft(Record, frozen=True, kw_only=True):
    name: str
    type: ResourceType
    path: Path
    """Absolute, symbolic links resolved."""


class PlanDraft(Record, frozen=True, kw_only=True):
    """A plan that has not been stored yet."""

    name: str
    resources: tuple[ResourceDraft, ...]
    policy: Policy
    validation: tuple[str, ...] = ()
    steps: tuple[Step, ...]
    source_file: Path | None
    """None if the plan does not come from a file."""


def shortened(text: str, length: int = 40) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"
