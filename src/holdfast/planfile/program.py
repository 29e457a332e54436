"""The draft of a plan without a file: one step that runs a program in sandboxes of the given folders."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from holdfast.errors import UsageError
from holdfast.model import NO_AGENT, PROGRAM_TOOL, OnFailure, Policy, ResourceType, RunSettings, Step
from holdfast.names import name_text
from holdfast.planfile.unstored import (
    LONGEST_DERIVED_NAME,
    LONGEST_RESOURCE_NAME,
    PlanDraft,
    ResourceDraft,
    shortened,
)

_LONGEST_BASE = LONGEST_RESOURCE_NAME - len("-1000")
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def program_draft(
    argv: Sequence[str],
    resources: Sequence[Path],
    folder: Path,
    defaults: Policy,
    settings: RunSettings,
    name: str | None,
    at: datetime,
) -> PlanDraft:
    """The program starts in ``folder`` of a sandbox if a resource contains that folder, else in the first sandbox.

    Without a name the plan is called after the program, or the agent that it is, and the time ``at``.
    """
    drafts = _resources([path.resolve() for path in resources])
    return PlanDraft(
        name=_derived_name(argv[0], settings, at) if name is None else _checked_name(name),
        resources=tuple(drafts),
        # A person wants to see what the program made, however it ended.
        policy=defaults.model_copy(update={"on_failure": OnFailure.KEEP}),
        steps=(program_step(argv, {each.name: each.path for each in drafts}, folder, settings),),
        source_file=None,
    )


def program_step(argv: Sequence[str], folders: Mapping[str, Path], folder: Path, settings: RunSettings) -> Step:
    """The step that runs the program; ``folders``: those of the resources by name. It is called like its command."""
    folder, first = folder.resolve(), next(iter(folders))
    home = next((name for name, path in folders.items() if folder.is_relative_to(path)), first)
    inside = folder.relative_to(folders[home]) if folder.is_relative_to(folders[home]) else Path()
    return Step(
        name=shortened(_NOT_IN_NAMES.sub(" ", shlex.join(argv)), LONGEST_DERIVED_NAME),
        tool=PROGRAM_TOOL,
        args={"argv": list(argv), "folder": str(inside)},
        resource=home,
        settings=settings,
    )


def _derived_name(program: str, settings: RunSettings, at: datetime) -> str:
    name = _NOT_IN_NAMES.sub(" ", _agent_of(settings) or Path(program).name or program)
    return f"{shortened(name)}, {at.astimezone():%-d %b %H:%M}"


def _agent_of(settings: RunSettings) -> str:
    return "" if settings.agent == NO_AGENT else settings.agent


def _checked_name(text: str) -> str:
    name = text.strip()
    if not name or _NOT_IN_NAMES.search(name):
        raise UsageError(
            f'A name is one line of text without control characters, and this is "{name_text(text)}".',
            hint="Choose another one, or leave out `--name`: a plan is called after its program and the time.",
        )
    return name


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
