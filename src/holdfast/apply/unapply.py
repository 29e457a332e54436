"""Unapplying a plan: the real files become what they were before it was applied, unless they were changed since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from holdfast.apply.journaled import JournaledFiles, branch_move, files_in
from holdfast.apply.parts import Part, applied_in_part
from holdfast.apply.real_change import Links, RealChange, with_folders
from holdfast.apply.real_databases import refuse_databases_at_risk
from holdfast.apply.real_files import change_real_files
from holdfast.apply.real_folders import reading, refuse_half_changed_below
from holdfast.apply.refusals import (
    conflict,
    labelled,
    refuse_busy_repository,
    refuse_closed_folders,
    refuse_missing_resources,
)
from holdfast.checkpoints.service import CheckpointService
from holdfast.content.batch import Batch
from holdfast.content.difference import Difference
from holdfast.content.format import DIRECTORY, Entry
from holdfast.db.journal import RealFilesEntry, UnapplyEntry
from holdfast.errors import ConflictError, StateError
from holdfast.git.branches import BranchMove, branch_name, refuse_a_branch_used_elsewhere, refuse_a_locked_branch
from holdfast.git.index import changes_between
from holdfast.git.repository import GitRepository
from holdfast.git.work_tree import not_as_committed
from holdfast.model import (
    FileChange,
    Lease,
    Operation,
    OperationState,
    Plan,
    PlanState,
    Resource,
    ResourceType,
)
from holdfast.snapshot.selection import Selection, links_to_make, same, select
from holdfast.system.directories import shown, split

_CLOCK_TICK_SECONDS = 0.01
"""The clock by which files are dated may be behind by so much."""
_AND_AGAIN = "then run the command again."


class UnapplyPreview(msgspec.Struct, frozen=True):
    """What undoing the apply would do; refuses what the real one would refuse."""

    plan: Plan
    operation: Operation
    """The apply that is undone."""
    resources: tuple[RealChange, ...]

    @property
    def changes(self) -> tuple[FileChange, ...]:
        return tuple(
            FileChange(
                resource=each.resource.name,
                file=shown(difference.path),
                action="removed" if difference.new is None else "restored",
            )
            for each in self.resources
            for difference in each.visible_differences
        )

    @property
    def commits(self) -> dict[str, str]:
        """The commits that no branch names afterwards, by resource."""
        moves = {each.resource.name: each.branch for each in self.resources if each.branch is not None}
        return {name: move.old for name, move in moves.items() if move.old is not None}

    @property
    def commit_counts(self) -> dict[str, int]:
        """By resource how many commits the branch loses; of a branch that is deleted, only its last one counts."""
        moves = {each.resource.name: each.branch for each in self.resources if each.branch is not None}
        return {
            name: move.repository.count_of_commits(move.new, move.old) if move.is_checked_out else 1
            for name, move in moves.items()
            if move.old is not None
        }

    @property
    def branch(self) -> str | None:
        """The branch with the result of the apply, which is deleted."""
        moves = [each.branch for each in self.resources if each.branch is not None]
        return next((branch_name(move.ref) for move in moves if move.ref and not move.is_checked_out), None)


def preview_unapply(plan: Plan, service: CheckpointService) -> UnapplyPreview:
    can_be = plan.state in (PlanState.APPLIED, PlanState.COMPLETE)
    operation = service.store.operations.applied(plan.plan_id) if can_be else None
    if operation is None:
        raise StateError(
            f"Plan {plan.plan_id} is {plan.state}, only an applied plan can be unapplied.",
            hint=f"Look at it with `holdfast plan status {plan.plan_id}`.",
        )
    refuse_missing_resources(plan.resources)
    analysis = _Analysis(service, operation)
    with reading(plan.resources, service), service.manager.storing() as batch:
        resources = tuple(analysis.take(resource, batch) for resource in plan.resources)
        batch.commit()
    refuse_databases_at_risk(resources, service.manager.reader)
    analysis.refuse_conflicts()
    moves = [each.branch for each in resources if each.branch is not None]
    for move in moves:
        refuse_a_locked_branch(move)
    refuse_closed_folders(
        [(each.root, _in_folders_that_stay(each.differences)) for each in resources],
        [move.repository for move in moves if move.is_checked_out],
    )
    return UnapplyPreview(plan, operation, tuple(each for each in resources if each.differences or each.branch))


def unapply_plan(
    plan: Plan, lease: Lease, service: CheckpointService, confirm: Callable[[UnapplyPreview], bool] | None
) -> UnapplyPreview | None:
    """Unapply it, unless ``confirm`` says no; returns what was done, and the plan after it."""
    preview = preview_unapply(plan, service)
    if confirm is not None and not confirm(preview):
        return None
    undone = preview.operation.model_copy(update={"state": OperationState.UNDONE})
    part = Part({}) if applied_in_part(preview.operation) else None
    plan = change_real_files(plan, lease, service, UnapplyEntry, preview.resources, part=part, records=[undone])
    return UnapplyPreview(plan, undone, preview.resources)


class _Analysis:
    """What unapplying would do to each resource, and the paths in conflict with it."""

    def __init__(self, service: CheckpointService, operation: Operation) -> None:
        self._reader, self._operation = service.manager.reader, operation
        self._conflicts: list[str] = []

    def take(self, resource: Resource, batch: Batch) -> RealChange:
        """How one resource is restored; what prevents that is noted."""
        move = self._move_back(resource)
        files = files_in(RealFilesEntry.of(self._operation), resource, self._reader)
        return RealChange(resource, branch=move) if files is None else self._files_back(resource, files, move, batch)

    def _files_back(
        self, resource: Resource, files: JournaledFiles, move: BranchMove | None, batch: Batch
    ) -> RealChange:
        old, new, links = files
        if resource.type is ResourceType.GIT and move is None:
            refuse_busy_repository(GitRepository.at(Path(resource.path)))
        root = Path(resource.path).resolve()
        paths = [path for path in sorted(old.keys() | new.keys()) if not same(old.get(path), new.get(path))]
        partners = {path for group in links for path in group}
        refuse_half_changed_below(root, paths)
        real = select(root, {*paths, *partners}, batch)
        conflicts = {path for path in paths if not _is_as_left(real.get(path), old.get(path), new.get(path))}
        todo = [Difference(path, real.get(path), old.get(path)) for path in paths]
        todo = [each for each in todo if not same(each.old, each.new)]
        todo, in_the_way = with_folders(root, todo, real, old.__getitem__)
        self._conflicts += labelled(resource, conflicts | in_the_way)
        todo += self._times_back(todo, old, real)
        groups = links_to_make(links, [each.path for each in todo], _changed_names(links, old, real))
        return RealChange(resource, tuple(todo), groups, branch=move)

    def _times_back(self, todo: Sequence[Difference], old: Selection, real: Selection) -> list[Difference]:
        """The folders in which something is restored, with the times that they would have without the apply."""
        back = {difference.path for difference in todo}
        folders = {split(path)[0] for path in back} - back
        return [
            Difference(path, real[path], self._with_time_of(old[path], real[path]))
            for path in sorted(folders & old.keys() & real.keys())
            if old[path].kind == real[path].kind == DIRECTORY
        ]

    def _with_time_of(self, old: Entry, present: Entry) -> Entry:
        """Only if the apply was the last to change the folder: what was made or removed in it since shows."""
        begun, ended = self._operation.created_at, self._operation.finished_at
        was_last = (
            ended is not None and begun.timestamp() - _CLOCK_TICK_SECONDS <= present.mtime_ns / 1e9 <= ended.timestamp()
        )
        return msgspec.structs.replace(present, mtime_ns=old.mtime_ns) if was_last else present

    def refuse_conflicts(self) -> None:
        if self._conflicts:
            raise conflict(
                "These files were changed after the plan was applied; nothing was undone:",
                self._conflicts,
                hint="Undo those changes first; then run the command again.",
            )

    # Git

    def _move_back(self, resource: Resource) -> BranchMove | None:
        made = branch_move(RealFilesEntry.of(self._operation), resource)
        if made is None:
            return None
        if not made.is_checked_out:
            return _branch_going(made)
        refuse_busy_repository(made.repository)
        _refuse_if_elsewhere(made)
        refuse_a_branch_used_elsewhere(made.repository, made.ref, way_out=_AND_AGAIN)
        paths = changes_between(made.repository, made.old, made.new)
        self._conflicts += labelled(resource, not_as_committed(made.repository, paths))
        return made.reversed


def _is_as_left(present: Entry | None, old: Entry | None, new: Entry | None) -> bool:
    """Whether it is what the apply made; a folder that it could not remove still exists."""
    if new is None and present is not None and old is not None and present.kind == old.kind == DIRECTORY:
        return True
    return same(present, new)


def _in_folders_that_stay(differences: Sequence[Difference]) -> list[Difference]:
    """Without what lies in folders that the apply made: the plan decided their modes."""
    going = {difference.path for difference in differences if difference.new is None}
    return [difference for difference in differences if split(difference.path)[0] not in going]


def _changed_names(links: Links, old: Selection, real: Selection) -> set[bytes]:
    """Names that once shared a file with others and hold something else now: they are not linked again."""
    changed = set()
    for group in links:
        content = next((old[path] for path in group if path in old), None)
        changed |= {path for path in group if not same(real.get(path), content)}
    return changed


def _branch_going(made: BranchMove) -> BranchMove | None:
    """The branch that the apply made; None if it is deleted already."""
    repository, name = made.repository, branch_name(made.ref or "")
    present = repository.commit_of(made.ref or "")
    if present not in (made.new, None):
        raise ConflictError(
            f"The branch {name} in {repository.root} has moved on since; nothing was undone.",
            hint=f"If it is not needed, delete it with `git branch -D {name}`, and run the command again.",
        )
    if repository.branch() == made.ref:
        raise ConflictError(
            f"The branch {name} is checked out in {repository.root}; nothing was undone.",
            hint="Check out another branch, then run the command again.",
        )
    if made.new is not None and repository.has_ancestor(made.new):
        raise ConflictError(
            f"The commit {made.new[:12]} of the branch {name} is part of what is checked out in {repository.root}; "
            "nothing was undone.",
            hint=f"Undo it with a commit of its own: `git revert {made.new}`.",
        )
    if present is None:
        return None
    refuse_a_branch_used_elsewhere(repository, made.ref, way_out=_AND_AGAIN)
    return made.reversed


def _refuse_if_elsewhere(made: BranchMove) -> None:
    """HEAD must be at the commit of the apply, on the same branch: later commits would be lost otherwise."""
    repository, commit = made.repository, made.new or ""
    if made.is_at(commit):
        return
    where = f"on {branch_name(made.ref)}" if made.ref else "detached"
    if repository.head() == commit or not repository.has_ancestor(commit):
        raise ConflictError(
            f"HEAD of {repository.root} is not where the apply left it: {where}, at {commit[:12]}. Nothing was undone.",
            hint=f"Check that out again, or undo the change with `git revert {commit}`.",
        )
    raise ConflictError(
        f"Commits came on top of {commit[:12]}, which the apply made in {repository.root}; nothing was undone.",
        hint=f"Undo it with a commit of its own: `git revert {commit}`.",
    )
