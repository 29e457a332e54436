"""The view of a step: at which places its processes find the sandboxes of the plan.

If the kernel allows it, each sandbox is mounted at the place of its real folder, for the processes of the step only. So
virtual environments, build folders and every other absolute path that names the real folder lead into the sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holdfast.errors import SandboxError, ViewError
from holdfast.events import SeenAtOwnPath
from holdfast.model import Plan, Resource, View
from holdfast.process.command import run_supervised
from holdfast.process.confinement import real_path
from holdfast.process.mount import Mount, seen_at
from holdfast.sandbox import borrowed
from holdfast.sandbox.leading_out import leading_out
from holdfast.system.calls import can_mount

_HOW_TO_ALLOW = (
    "`holdfast doctor` says what this system lacks. `holdfast config set sandbox.view own-path` lets steps work at "
    "another path than the real folder's."
)


@dataclass(frozen=True)
class StepView:
    """Where the steps of a plan find its sandboxes, by resource, and the mounts that make it so."""

    paths: Mapping[str, Path]
    mounts: tuple[Mount, ...] = ()

    def of(self, resource: Resource) -> View:
        is_own = self.paths[resource.name] == Path(resource.sandbox_path)
        return View.OWN_PATH if is_own else View.SAME_PATH


def view_of(plan: Plan, wanted: View | None, allowed: Sequence[Path] = ()) -> StepView:
    """The view for the next step; without a wish it is the same path if possible.

    ``allowed``: other paths that steps may write to; the view keeps them as they are.
    """
    refuse_without_same_path(wanted)
    is_own = wanted is View.OWN_PATH or same_path_refusal() is not None
    covering = {} if is_own else _covering(plan.resources)
    if wanted is View.SAME_PATH:
        _refuse_uncovered(plan, covering)
    mounts = [Mount(Path(resource.sandbox_path), real) for real, resource in covering.items()]
    at_real_path = {resource.name: Path(resource.path) for resource in covering.values()}
    own = {resource.name: Path(resource.sandbox_path) for resource in plan.resources}
    return StepView({**own, **at_real_path}, (*mounts, *_kept_behind(mounts, plan, allowed)))


def _covering(resources: Sequence[Resource]) -> dict[Path, Resource]:
    """The real folders that can be covered, the outermost first, each with the resource whose sandbox covers it."""
    covering: dict[Path, Resource] = {}
    for resource in sorted(resources, key=lambda each: len(real_path(Path(each.path)).parts)):
        real = real_path(Path(resource.path))
        mounts = [Mount(Path(outer.sandbox_path), place) for place, outer in covering.items()]
        if real not in covering and _is_plain_folder(seen_at(real, mounts)):
            covering[real] = resource
    return covering


def _is_plain_folder(path: Path) -> bool:
    """Whether it is a folder that is reached without a symlink from the sandbox it lies in."""
    return path.is_dir() and real_path(path) == real_path(path.parent) / path.name


def _kept_behind(covers: Sequence[Mount], plan: Plan, allowed: Sequence[Path]) -> list[Mount]:
    """What a step needs of the real folders that the view covers: git's objects, and what it may write to there."""
    borrowing = [mount for each in plan.resources for mount in borrowed.mounts_of(each)] if covers else []
    # The folder that all places lie in is mounted once: another one on top would hide the places that are there.
    borrowing = list(dict.fromkeys(borrowing))
    kept = [Mount(each, each) for each in allowed if _is_covered(each, covers) and seen_at(each, covers).exists()]
    return [*borrowing, *kept]


def _is_covered(path: Path, covers: Sequence[Mount]) -> bool:
    return any(path.is_relative_to(mount.target) for mount in covers)


def refuse_without_same_path(wanted: View | None) -> None:
    """Refuse, before anything is made, a view that is asked for and that this system does not allow."""
    refusal = same_path_refusal() if wanted is View.SAME_PATH else None
    if refusal is not None:
        raise ViewError(
            f"Steps cannot see the sandboxes at the places of the real folders: {refusal}.", hint=_HOW_TO_ALLOW
        )


def _refuse_uncovered(plan: Plan, covering: Mapping[Path, Resource]) -> None:
    for resource in plan.resources:
        if resource not in covering.values():
            raise ViewError(
                f"Steps cannot see the sandbox of {resource.name} at {resource.path}: no folder is there.",
                hint=_HOW_TO_ALLOW,
            )


def prepare(plan: Plan, view: StepView) -> tuple[Resource, ...]:
    """Make the sandboxes fit for the view; the resources of the plan, with the view of each.

    A subplan has forks of sandboxes that are fit for it, and what it changes there would count as its work.
    """
    for resource in plan.resources if view.mounts and plan.parent_plan_id is None else ():
        borrowed.renew(resource)
    return tuple(each.model_copy(update={"view": view.of(each)}) for each in plan.resources)


def own_path_notice(plan: Plan) -> SeenAtOwnPath | None:
    """What a person should know if steps do not find every sandbox at the place of its real folder."""
    own = tuple(each for each in plan.resources if each.view is View.OWN_PATH)
    if not own:
        return None
    leading = tuple(path for resource in own for path in leading_out(resource))
    return SeenAtOwnPath(own, same_path_refusal(), leading)


@cache
def same_path_refusal() -> str | None:
    """Why the processes of this user cannot be shown a folder at another place; None if they can. It is tried once."""
    here = Path(__file__).parent
    if can_mount(os.fsencode(here)):
        return None
    # The supervisor, which takes much longer to start, knows the reason.
    try:
        run_supervised(["/bin/sh", "-c", ":"], cwd=Path("/"), environment={}, mounts=(Mount(here, here),))
    except ViewError as error:
        return f"the system does not let this user mount folders ({error.reason})"
    except SandboxError as error:
        return error.message
    return None
