"""Extras: what a program of ``holdfast run`` gets besides its sandboxes. Other steps get nothing of this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.execution.caches import private_caches
from holdfast.execution.folders import cache_folder, hiding_folder, standing_folder, temporary_folder
from holdfast.execution.stand_in import StandIn, finish, left_beside, prepare, stand_ins
from holdfast.execution.view import StepView, same_path_refusal
from holdfast.model import Grant, Plan, RefusedWrite, Step, View
from holdfast.process.confinement import real_path
from holdfast.process.environment import passed_variables
from holdfast.process.mount import Mount
from holdfast.sandbox.borrowed import ALTERNATES, second_places
from holdfast.system.trees import remove_tree

if TYPE_CHECKING:
    from holdfast.execution.step_runner import StepSettings


def places_of(grant: Grant) -> tuple[Path, ...]:
    """Where the profile of an agent lets it write, as far as it is there: the real paths."""
    return tuple(real_path(place) for place in map(Path, grant.allow_write) if place.exists())


@dataclass(frozen=True)
class Extras:
    environment: Mapping[str, str] = field(default_factory=dict)
    writable: tuple[Path, ...] = ()
    below: tuple[Mount, ...] = ()
    """Mounts that come before those of the view."""
    mounts: tuple[Mount, ...] = ()
    stand_ins: tuple[StandIn, ...] = ()

    def finish(self) -> list[RefusedWrite]:
        """Bring back what the program changed in single files, and say what it wrote that nobody else sees."""
        return [refused for each in self.stand_ins for refused in (*_kept_apart(each), *_left_beside(each))]


def extras_of(plan: Plan, step: Step, view: StepView, settings: StepSettings) -> Extras:
    """Make the folders that the program needs, and say how it finds them."""
    if not step.is_program:
        return Extras()
    grant = step.grant or Grant(title="")
    hiding = (*_hiding(plan, grant), *(_only_second_places(plan, view) if grant.reads_git else ()))
    if not settings.is_confined:
        return Extras(grant.environment, mounts=hiding)
    caches = cache_folder(plan)
    sandboxes = [Path(resource.sandbox_path) for resource in plan.resources]
    passed = passed_variables(settings.environment, settings.passed_variables)
    sandbox = Path(plan.resource(step.resource).sandbox_path)
    variables = private_caches(caches, sandbox, passed, settings.environment, settings.allow_write)
    standing = _standing(plan, grant, settings)
    writable = (*sandboxes, temporary_folder(plan), caches, *settings.allow_write)
    return Extras(
        environment={**variables, **grant.environment},
        writable=(caches, *(each.seen for each in standing)),
        below=tuple(mount for each in standing for mount in prepare(each, writable)),
        mounts=hiding,
        stand_ins=tuple(standing),
    )


def _standing(plan: Plan, grant: Grant, settings: StepSettings) -> list[StandIn]:
    """For each file that the program may write; none if nothing can be mounted, or if a person does not want it."""
    if settings.view is View.OWN_PATH or same_path_refusal() is not None:
        return []
    files = [*(each for each in settings.allow_write if each.is_file()), *map(Path, grant.files)]
    folders = [each for each in settings.allow_write if each.is_dir()]
    return stand_ins(files, standing_folder(plan), [*folders, *(real_path(Path(each.path)) for each in plan.resources)])


def _kept_apart(stand_in: StandIn) -> Iterator[RefusedWrite]:
    for kept in finish(stand_in.place):
        reason = f"another program changed it meanwhile, so what this one wrote is in {kept}"
        yield RefusedWrite(str(kept), None, reason=reason)


def _left_beside(stand_in: StandIn) -> Iterator[RefusedWrite]:
    for path in left_beside(stand_in):
        reason = f"nobody else sees it; it is kept in {stand_in.seen / path.name} until the plan is deleted"
        yield RefusedWrite(str(path), None, reason=reason)


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


def _only_second_places(plan: Plan, view: StepView) -> Iterator[Mount]:
    """For each sandbox that is seen at the real folder's place: git's list of borrowed objects without that place."""
    for resource in plan.resources:
        seen, content = view.paths[resource.name], second_places(resource)
        if content is not None and view.of(resource) is View.SAME_PATH:
            file = hiding_folder(plan) / f"{resource.name}.alternates"
            file.parent.mkdir(mode=0o700, exist_ok=True)
            file.write_bytes(content)
            yield Mount(file, seen / ALTERNATES, read_only=True)
