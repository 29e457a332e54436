"""Checks before a plan runs: finds everything that would stop it from running safely, and reports it at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from holdfast.errors import ConfigError, HoldfastError, SandboxError, StateError, UsageError
from holdfast.model import Plan, Step, all_steps
from holdfast.names import name_text
from holdfast.process.environment import unset_variables
from holdfast.sandbox.making import clear_away
from holdfast.sandbox.protocol import Sandbox, sandbox_for
from holdfast.sandbox.spares import Spares
from holdfast.system.trash import Trash
from holdfast.tools import Toolbox


def check_plan(plan: Plan, tools: Toolbox, home: Path) -> None:
    """Refuse a plan that cannot be run safely, with all reasons. ``home``: where its sandboxes will be created."""
    _refuse([*_tool_problems(plan, tools), *_resource_problems(plan, home)])


def check_space(sandboxes: Collection[Sandbox], home: Path) -> None:
    """Refuse sandboxes that do not fit on the disk; remains of an earlier attempt are removed first.

    One that is made of a spare takes its space already.
    """
    for sandbox in sandboxes:
        clear_away(sandbox.path)
    spares = Spares(home / "sandboxes", 0)
    needed_bytes = sum(sandbox.size_bytes() for sandbox in sandboxes if not spares.of(sandbox.resource))
    if needed_bytes > shutil.disk_usage(home).free:
        spares.give_up_all()
        Trash(home / "sandboxes").empty()
    if needed_bytes > (left_bytes := shutil.disk_usage(home).free):
        raise SandboxError(
            f"The sandboxes need {_megabytes(needed_bytes)}, and {home} has {_megabytes(left_bytes)} left.",
            hint="Free some space, delete plans that are done, or set HOLDFAST_HOME to a folder on a larger disk.",
        )


def check_steps(plan: Plan, tools: Toolbox) -> None:
    """Refuse steps that cannot be run safely; the resources are in sandboxes already."""
    _refuse(list(_tool_problems(plan, tools)))


def programs_to_start(plan: Plan, *, is_skipped: bool) -> tuple[Step, ...]:
    """The programs of ``holdfast run`` among the steps that remain, without the next one if that is skipped."""
    return tuple(step for step in plan.steps[plan.next_step + is_skipped :] if step.is_program)


def refuse_what_is_gone(
    plan: Plan,
    programs: Sequence[Step],
    environment: Mapping[str, str],
    allowed_paths: Callable[[Sequence[str]], Sequence[Path]],
) -> None:
    """Refuse to start programs without a variable, or a place to write to, that they were given when they were made."""
    for step in programs:
        given = step.run_settings
        if given is None:
            continue
        if unset := unset_variables(given.pass_env, environment):
            listed = ", ".join(map(name_text, unset))
            raise StateError(
                f"The variable {listed} is not set now, but this program was given it: {name_text(step.name)}. "
                "Nothing was started.",
                hint=f"Set and export it, then run the command again. {_otherwise(plan)}",
            )
        try:
            allowed_paths(given.allow_write)
        except ConfigError as error:
            raise StateError(
                f"{error.message} This program was allowed to write there: {name_text(step.name)}. "
                "Nothing was started.",
                hint=f"Put it back, then run the command again. {_otherwise(plan)}",
            ) from error


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
        try:
            _refuse_overlap(Path(resource.path), home)
            sandbox_for(plan, resource).check()
        except HoldfastError as error:
            yield error


def _refuse_overlap(folder: Path, home: Path) -> None:
    """Neither may lie in the other; symlinks and bind mounts are seen through."""
    if _is_same_or_inside(folder, home):
        raise SandboxError(
            f"{folder} is, or lies inside of, Holdfast's own home ({home}), which holds only its own files.",
            hint="Work on a folder outside of it, or set HOLDFAST_HOME to a folder elsewhere.",
        )
    if _is_same_or_inside(home, folder):
        raise SandboxError(
            f"{folder} holds Holdfast's own home ({home}), which cannot be copied into itself.",
            hint="Work on a folder inside it, or set HOLDFAST_HOME to a folder elsewhere.",
        )


def _is_same_or_inside(inner: Path, outer: Path) -> bool:
    inner = inner.resolve()
    try:
        return any(place.samefile(outer) for place in (inner, *inner.parents))
    except OSError:
        return inner.is_relative_to(outer.resolve())  # one of them does not exist, or may not be read


def _megabytes(count: int) -> str:
    return f"{max(1, round(count / 1e6)):,} MB"


def _otherwise(plan: Plan) -> str:
    return f"`holdfast run --in {plan.plan_id} --pass-env NAME -- COMMAND` goes on with only what you name."
