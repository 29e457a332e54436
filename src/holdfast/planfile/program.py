"""The draft of a plan without a file: one step that runs a program in sandboxes of the given folders."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from holdfast.model import PROGRAM_TOOL, OnFailure, Policy, ResourceType, Step
from holdfast.planfile.document import shortened
from holdfast.planfile.draft import LONGEST_DERIVED_NAME, PlanDraft, ResourceDraft
from holdfast.planfile.format import LONGEST_RESOURCE_NAME

_LONGEST_BASE = LONGEST_RESOURCE_NAME - len("-1000")


def program_draft(argv: Sequence[str], resources: Sequence[Path], folder: Path, defaults: Policy) -> PlanDraft:
    """The program starts in ``folder`` of a sandbox if a resource contains that folder, else in the first sandbox."""
    drafts = _resources([path.resolve() for path in resources])
    home = next((each for each in drafts if folder.resolve().is_relative_to(each.path)), drafts[0])
    inside = folder.resolve().relative_to(home.path) if folder.resolve().is_relative_to(home.path) else Path()
    command = shortened(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", shlex.join(argv)), LONGEST_DERIVED_NAME)
    step = Step(name=command, tool=PROGRAM_TOOL, args={"argv": list(argv), "folder": str(inside)}, resource=home.name)
    return PlanDraft(
        name=command,
        resources=tuple(drafts),
        # A person wants to see what the program made, however it ended.
        policy=defaults.model_copy(update={"on_failure": OnFailure.KEEP}),
        steps=(step,),
        source_file=None,
    )


def _resources(paths: Sequence[Path]) -> list[ResourceDraft]:
    drafts: list[ResourceDraft] = []
    for path in dict.fromkeys(paths):
        base = re.sub(r"[^a-z0-9]+", "-", path.name.lower()).strip("-") or "work"
        base = base if base[0].isalpha() else f"work-{base}"
        base = base[:_LONGEST_BASE].rstrip("-")
        taken = {each.name for each in drafts}
        name = next(each for each in (base, *(f"{base}-{number}" for number in range(2, 1000))) if each not in taken)
        kind = ResourceType.GIT if (path / ".git").exists() else ResourceType.DIRECTORY
        drafts.append(ResourceDraft(name=name, type=kind, path=path))
    return drafts
