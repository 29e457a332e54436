"""What would stop a plan from running safely, all of it at once, found before anything runs."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.errors import HoldfastError, SandboxError, StateError, UsageError
from holdfast.model import Plan, Resource, ResourceType, all_steps
from holdfast.sandbox import sandbox_for
from holdfast.tools import Toolbox


def check_plan(plan: Plan, tools: Toolbox, home: Path, *, with_space: bool = False) -> None:
    """Refuse a plan that cannot be run safely; with every reason.

    ``home`` is where the sandboxes will be made; ``with_space``: look whether they fit there, too.
    """
    problems = [*_tool_problems(plan, tools), *_resource_problems(plan, home)]
    if with_space and not problems:
        problems += _space_problems(plan, home)
    _refuse(problems)


def check_steps(plan: Plan, tools: Toolbox) -> None:
    """Only its steps: its resources are in sandboxes already."""
    _refuse(list(_tool_problems(plan, tools)))


def _refuse(problems: Sequence[HoldfastError]) -> None:
    if len(problems) == 1:
        raise problems[0]
    if problems:
        listed = "\n".join(f"  {each.message}" for each in problems)
        hints = " ".join(dict.fromkeys(each.hint for each in problems if each.hint))
        raise type(problems[0])(f"This plan cannot be run, for {len(problems)} reasons:\n{listed}", hint=hints)


def _tool_problems(plan: Plan, tools: Toolbox) -> Iterator[HoldfastError]:
    unsafe = []
    for step in all_steps(plan.steps):
        if step.subplans:
            continue
        problems = tools.problems(step.tool, step.args)
        if problems:
            yield UsageError(f"step {step.name!r}: {problems[0][1]}", hint="Correct the step in the plan file.")
        elif (declared := tools.declaration_for(step)).writes and not declared.checkpointable:
            unsafe.append(step.name)
    if unsafe and plan.policy.require_checkpoints:
        yield StateError(
            f"These steps write what no checkpoint can hold: {', '.join(unsafe)}.",
            hint="Set `require_checkpoints: false` in the plan's policy to run them all the same.",
        )


def _resource_problems(plan: Plan, home: Path) -> Iterator[HoldfastError]:
    for resource in plan.resources:
        if home.resolve().is_relative_to(Path(resource.path).resolve()):
            yield SandboxError(
                f"{resource.path} holds Holdfast's own home ({home}), which cannot be copied into itself.",
                hint="Work on a folder inside it, or set HOLDFAST_HOME to a folder elsewhere.",
            )
            continue
        try:
            sandbox_for(plan, resource).check()
        except HoldfastError as error:
            yield error


def _space_problems(plan: Plan, home: Path) -> Iterator[HoldfastError]:
    needed_bytes = sum(_size_bytes(resource) for resource in plan.resources)
    free_bytes = shutil.disk_usage(home).free
    if needed_bytes > free_bytes:
        yield SandboxError(
            f"The sandboxes need {_megabytes(needed_bytes)}, and {home} has {_megabytes(free_bytes)} left.",
            hint="Free some space, delete plans that are done, or set HOLDFAST_HOME to a folder on a larger disk.",
        )


def _size_bytes(resource: Resource) -> int:
    """What a copy of it takes on the disk; the objects of a repository are borrowed and not copied."""
    total, pending = 0, [os.fspath(resource.path)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if resource.type is ResourceType.GIT and entry.name == ".git":
                        continue
                    found = entry.stat(follow_symlinks=False)
                    total += found.st_blocks * 512
                    if stat.S_ISDIR(found.st_mode):
                        pending.append(entry.path)
        except OSError:
            continue  # it vanished, or it is closed to us: then it will not be copied
    return total


def _megabytes(count: int) -> str:
    return f"{max(1, round(count / 1e6)):,} MB"
