"""Extras: what a program of ``holdfast run`` gets besides its sandboxes. Other steps get nothing of this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.execution.caches import private_caches
from holdfast.execution.folders import cache_folder, hiding_folder
from holdfast.execution.view import same_path_refusal
from holdfast.model import Grant, Plan, Step
from holdfast.process.environment import passed_variables
from holdfast.process.mount import Mount
from holdfast.system.trees import remove_tree

if TYPE_CHECKING:
    from holdfast.execution.step_runner import StepSettings


@dataclass(frozen=True)
class Extras:
    environment: Mapping[str, str] = field(default_factory=dict)
    writable: tuple[Path, ...] = ()
    mounts: tuple[Mount, ...] = ()


def extras_of(plan: Plan, step: Step, settings: StepSettings) -> Extras:
    """Make the folders that the program needs, and say how it finds them."""
    if not step.is_program:
        return Extras()
    grant = step.grant or Grant(title="")
    if not settings.is_confined:
        return Extras(grant.environment, mounts=_hiding(plan, grant))
    caches = cache_folder(plan)
    sandbox = Path(plan.resource(step.resource).sandbox_path)
    passed = passed_variables(settings.environment, settings.passed_variables)
    variables = private_caches(caches, sandbox, passed, settings.environment, settings.allow_write)
    return Extras({**variables, **grant.environment}, (caches,), _hiding(plan, grant))


def _hiding(plan: Plan, grant: Grant) -> tuple[Mount, ...]:
    """Mounts of empty folders over those with the sockets of processes outside."""
    place, mounts = hiding_folder(plan), []
    remove_tree(place)
    for number, hidden in enumerate(map(Path, grant.hidden)):
        if hidden.is_dir() and same_path_refusal() is None:
            empty = place / str(number)
            empty.mkdir(mode=0o700, parents=True)
            mounts.append(Mount(empty, hidden))
    return tuple(mounts)
