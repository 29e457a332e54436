"""Applying a plan: its result comes into the real files of all its resources, or of none.

Everything that could refuse is found first. Then the real content about to be replaced is stored, the operation is
journaled, the files are changed, and last, for git, index and branch. A failure or a crash puts everything back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.checkpoints import CheckpointService, Occasion
from holdfast.errors import ConflictError, SandboxError, StateError
from holdfast.model import (
    CheckpointGroup,
    FileChange,
    Lease,
    Moment,
    Operation,
    OperationKind,
    OperationState,
    Phase,
    Plan,
    PlanState,
    Resource,
    ResourceType,
    new_id,
    now,
)
from holdfast.operations import make_missing_sandboxes
from holdfast.sandbox.git_apply import (
    ignored_among,
    index_locked,
    inside_submodules,
    make_commit,
    move_head,
    move_head_back,
    release_index,
    update_index,
)
from holdfast.sandbox.git_worktree import matches
from holdfast.sandbox.repository import GitRepository
from holdfast.snapshot.descent import split
from holdfast.snapshot.difference import Difference, visible
from holdfast.snapshot.format import DIRECTORY, Entry
from holdfast.snapshot.objects import Batch
from holdfast.snapshot.selection import (
    Selection,
    change,
    directories_in_use,
    links_among,
    links_to_make,
    load_selection,
    remove_temporaries,
    same,
    select,
    store_selection,
    with_ancestors,
)


@dataclass(frozen=True)
class ApplyOptions:
    commit: bool = True
    """For git: make a commit of the change; otherwise only the files are changed."""
    include_ignored: Collection[str] = ()


@dataclass(frozen=True)
class ResourceChange:
    """What applying will do to one real resource."""

    resource: Resource
    differences: tuple[Difference, ...]
    """From the real files as they are now to what the plan made of them."""
    links: tuple[tuple[bytes, ...], ...]
    left_out: tuple[str, ...]
    """Ignored files the plan made, which stay in the sandbox."""
    uncommitted: frozenset[bytes] = frozenset()
    """Ignored files that the settings include: they are changed, but are no part of a commit."""
    repository: GitRepository | None = None

    @property
    def root(self) -> Path:
        return Path(self.resource.path).resolve()

    @property
    def paths(self) -> list[bytes]:
        return [difference.path for difference in self.differences]

    @property
    def file_paths(self) -> list[bytes]:
        """The paths git has an opinion on: not directories, nor what it ignores."""
        return [
            difference.path
            for difference in self.differences
            if not all(entry is None or entry.kind == DIRECTORY for entry in (difference.old, difference.new))
            and difference.path not in self.uncommitted
        ]


@dataclass(frozen=True)
class ApplyResult:
    plan: Plan
    changes: tuple[FileChange, ...]
    commits: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def apply_plan(
    plan: Plan, lease: Lease, service: CheckpointService, options: ApplyOptions, confirm: Callable[[Plan], bool]
) -> ApplyResult | None:
    """Apply it, if whoever is asked says yes; asked only after everything that could refuse has been found."""
    if plan.state is PlanState.COMPLETE:
        make_missing_sandboxes(plan, service)
    result = _result_group(plan, service)
    planned = plan_apply(plan, service, result, options)
    if not confirm(plan):
        return None
    commits = _make_commits(plan, planned, options)
    plan, operation = _journal(plan, lease, service, planned, commits)
    try:
        _change_all(service, planned, commits, operation, plan)
        with service.store.transaction(lease):
            plan = plan.changed(phase=Phase.APPLY, state=PlanState.APPLIED, error=None)
            service.store.save(plan)
            service.store.save(operation.model_copy(update={"state": OperationState.DONE, "finished_at": now()}))
    except OSError as error:
        undo_apply(plan, lease, service, operation)
        raise SandboxError(
            f"The real files could not be changed: {error.strerror or error}. They are as they were before.",
            hint="Free the cause and apply again.",
        ) from error
    except BaseException:  # an interruption from the keyboard too
        undo_apply(plan, lease, service, operation)
        raise
    return ApplyResult(
        plan,
        tuple(_file_change(each.resource.name, found) for each in planned for found in visible(each.differences)),
        commits,
        tuple(path for each in planned for path in each.left_out),
    )


def _result_group(plan: Plan, service: CheckpointService) -> CheckpointGroup:
    """The group that recorded the result, if the sandboxes still are exactly that."""
    if plan.state is PlanState.APPLIED:
        raise StateError(f"Plan {plan.plan_id} is applied already.", hint="There is nothing left to do.")
    if plan.state is not PlanState.COMPLETE:
        raise StateError(
            f"Plan {plan.plan_id} is {plan.state}, only a complete plan can be applied.",
            hint=f"Run `holdfast plan execute {plan.plan_id}` first.",
        )
    groups = service.store.groups_of(plan.plan_id)
    group = next(group for group in reversed(groups) if Moment.POST_EXECUTE in group.triggers)
    if service.states_now(plan) != group.states:
        raise StateError(
            "The sandboxes are not what the plan left: something changed them after it was complete.",
            hint=f"Go back to the result with `holdfast plan rollback {plan.plan_id} {group.group_id}` "
            f"and `holdfast plan execute {plan.plan_id}`.",
        )
    return group


# What will be done


def plan_apply(
    plan: Plan, service: CheckpointService, result: CheckpointGroup, options: ApplyOptions
) -> tuple[ResourceChange, ...]:
    """What applying would do, or a refusal that names every path in conflict; changes nothing."""
    base = service.store.groups_of(plan.plan_id)[0]
    changes = service.differences_between(plan, base.states, result.states)
    planned, conflicts, hint = [], [], "Resolve it by hand, or make a new plan from the files as they are."
    with service.manager.taking() as batch:
        for name, differences in changes.items():
            change, clashing = _against_real(service, plan.resource(name), result, differences, batch, options)
            if change.repository is not None and options.commit and not clashing:
                clashing = sorted(change.repository.uncommitted().intersection(change.file_paths))
                if clashing:
                    hint = "Commit or stash your work first, or change the files without a commit: `--no-commit`."
            planned.append(change)
            conflicts += [f"{name}: {os.fsdecode(path)}" for path in clashing]
        batch.commit()
    if conflicts:
        listed = "\n  ".join(conflicts)
        raise ConflictError(
            f"The plan and somebody else changed the same files; nothing was applied:\n  {listed}",
            hint=hint,
            paths=tuple(conflicts),
        )
    return tuple(planned)


def _against_real(
    service: CheckpointService,
    resource: Resource,
    result: CheckpointGroup,
    differences: Sequence[Difference],
    batch: Batch,
    options: ApplyOptions,
) -> tuple[ResourceChange, list[bytes]]:
    """The plan's change as a change of the real files, and the paths where these are not what it started from."""
    repository, ignored, left_out = None, set(), set()
    if resource.type is ResourceType.GIT:
        repository = _ready_repository(resource, [difference.path for difference in differences])
        ignored = ignored_among(
            repository, Path(resource.sandbox_path), [difference.path for difference in differences]
        )
        left_out = {path for path in ignored if not matches(path, options.include_ignored)}
    wanted = [found for found in differences if found.path not in left_out and not same(found.old, found.new)]
    root, state = Path(resource.path).resolve(), service.manager.state(result.states[resource.name])
    real = select(root, [difference.path for difference in wanted], batch)
    todo, conflicts = [], []
    for path, old, new in wanted:
        present = real.get(path)
        if same(present, new):
            continue
        if not same(present, old):
            conflicts.append(path)
        todo.append(Difference(path, present, _with_owner_of(present, new)))
    for path in _missing_folders(todo, real):
        todo.append(Difference(path, real.get(path), service.manager.reader.find(state, path)))
        if path in real:
            conflicts.append(path)  # something else is in its place
    conflicts += _folders_in_use(root, todo)
    links = links_to_make(state.links, [difference.path for difference in todo], left_out)
    shown = tuple(sorted(os.fsdecode(path) for path in left_out))
    uncommitted = frozenset(ignored - left_out)
    return ResourceChange(resource, tuple(todo), links, shown, uncommitted, repository), sorted(set(conflicts))


def _with_owner_of(present: Entry | None, new: Entry | None) -> Entry | None:
    """A file that is changed stays whose it is."""
    if present is None or new is None:
        return new
    return msgspec.structs.replace(new, uid=present.uid, gid=present.gid)


def _missing_folders(todo: Sequence[Difference], real: Selection) -> list[bytes]:
    """Folders that what the plan makes lies in, and that the user removed or replaced; those above first."""
    made = {difference.path for difference in todo}
    needed = with_ancestors(difference.path for difference in todo if difference.new is not None) - made
    return sorted(path for path in needed if path not in real or real[path].kind != DIRECTORY)


def _folders_in_use(root: Path, todo: Sequence[Difference]) -> list[bytes]:
    """Folders that the plan made something else, and in which the user has something the plan does not know."""
    replaced = {
        path for path, old, new in todo if old is not None and new is not None and old.kind == DIRECTORY != new.kind
    }
    going = {difference.path for difference in todo if difference.new is None}
    return sorted(directories_in_use(root, going | replaced) & replaced) if replaced else []


def _ready_repository(resource: Resource, paths: list[bytes]) -> GitRepository:
    repository = GitRepository.at(Path(resource.path))
    busy = repository.operation_in_progress()
    if busy:
        raise SandboxError(
            f"A {busy} is in progress in {repository.root}; nothing was applied.",
            hint=f"Finish or abort the {busy}, then apply again.",
        )
    foreign = inside_submodules(repository, paths)
    if foreign:
        listed = "\n  ".join(os.fsdecode(path) for path in foreign)
        raise SandboxError(
            f"The plan changed files of a submodule, which apply cannot do; nothing was applied:\n  {listed}",
            hint="Make the submodule a resource of its own.",
        )
    return repository


def _make_commits(plan: Plan, planned: Sequence[ResourceChange], options: ApplyOptions) -> dict[str, str]:
    if not options.commit:
        return {}
    commits = {}
    for each in planned:
        if each.repository is not None and each.file_paths:
            work_tree = Path(each.resource.sandbox_path)
            commit = make_commit(each.repository, work_tree, each.file_paths, commit_message(plan))
            if commit is not None:
                commits[each.resource.name] = commit
    return commits


def commit_message(plan: Plan) -> str:
    steps = "\n".join(f"- {step.name}" for step in plan.steps)
    return f"{plan.name}\n\n{steps}\n\nHoldfast-Plan: {plan.plan_id}\n"


# Doing it


def _journal(
    plan: Plan, lease: Lease, service: CheckpointService, planned: Sequence[ResourceChange], commits: dict[str, str]
) -> tuple[Plan, Operation]:
    """Store what is about to be replaced, then say what is about to be done."""
    occasion = Occasion((Moment.PRE_APPLY,), reason="before the result goes into the real files")
    plan = service.create_checkpoint(plan.changed(phase=Phase.APPLY), lease, occasion)
    states: dict[str, str] = {}
    repositories = {}
    with service.manager.taking() as batch:
        for each in planned:
            name = each.resource.name
            links = links_among(each.root, each.paths)
            states[f"{name}/old"] = store_selection(select(each.root, each.paths, batch), batch, links)
            made = [difference.path for difference in each.differences if difference.new is not None]
            states[f"{name}/new"] = store_selection(select(Path(each.resource.sandbox_path), made, batch), batch)
            if each.repository is not None:
                index = select(each.repository.git_dir, [b"index"], batch)
                states[f"{name}/index"] = store_selection(index, batch)
                repositories[name] = {"head": each.repository.head(), "commit": commits.get(name)}
        batch.commit()
        operation = Operation(
            operation_id=new_id(),
            plan_id=plan.plan_id,
            kind=OperationKind.APPLY,
            data={"states": states, "repositories": repositories},
            created_at=now(),
        )
        with service.store.transaction(lease):
            plan = plan.changed(state=PlanState.PROCESSING)
            service.store.save(plan)
            service.store.insert(operation)
    return plan, operation


def _change_all(
    service: CheckpointService,
    planned: Sequence[ResourceChange],
    commits: dict[str, str],
    operation: Operation,
    plan: Plan,
) -> None:
    with ExitStack() as locks:
        for each in planned:
            if each.repository is not None and each.resource.name in commits:
                locks.enter_context(index_locked(each.repository, operation.operation_id))
        for each in planned:
            change(each.root, service.manager.reader, each.differences, each.links)
            _verify(service, each)
        for each in planned:
            commit = commits.get(each.resource.name)
            if each.repository is not None and commit is not None:
                old = operation.data["repositories"][each.resource.name]["head"]
                update_index(each.repository, commit, each.file_paths)
                move_head(each.repository, commit, old, f"holdfast: apply {plan.name}")


def _verify(service: CheckpointService, each: ResourceChange) -> None:
    with service.manager.taking() as batch:
        real = select(each.root, each.paths, batch)
    for path, _, new in each.differences:
        if new is not None and not same(real.get(path), new):
            raise ConflictError(
                f"{os.fsdecode(path)} in {each.root} was changed by somebody else while the plan was being applied.",
                hint="Apply again.",
                paths=(os.fsdecode(path),),
            )


# Putting it back


def undo_apply(plan: Plan, lease: Lease, service: CheckpointService, operation: Operation) -> Plan:
    """Put the real files, index and branch back as they were before an apply that did not come to its end.

    A file that somebody has changed since then stays as they made it.
    """
    try:
        edited = [path for resource in plan.resources for path in _undo(service, resource, operation)]
    except OSError as failure:
        raise SandboxError(
            f"The real files could not be put back yet: {failure.strerror or failure}.",
            hint="Free the cause; the next command on this plan puts them back.",
        ) from failure
    error = f"an apply was undone; changed by somebody since, and left so: {', '.join(edited)}" if edited else None
    plan = plan.changed(phase=Phase.EXECUTE, state=PlanState.COMPLETE, error=error)
    with service.store.transaction(lease):
        service.store.save(plan)
        service.store.save(operation.model_copy(update={"state": OperationState.UNDONE, "finished_at": now()}))
    return plan


def _undo(service: CheckpointService, resource: Resource, operation: Operation) -> list[str]:
    """Put one resource back; the paths that are neither as they were nor as the apply made them, and so were left."""
    states, reader = operation.data["states"], service.manager.reader
    if f"{resource.name}/old" not in states:
        return []
    git = operation.data["repositories"].get(resource.name)
    repository = GitRepository.at(Path(resource.path)) if git else None
    if repository is not None and git["commit"]:
        move_head_back(repository, git["commit"], git["head"], "holdfast: the apply was undone")
        index = load_selection(reader, states[f"{resource.name}/index"])
        _put_back(service, repository.git_dir, index, {}, always={b"index"})
        (repository.git_dir / "index.holdfast").unlink(missing_ok=True)
        release_index(repository, operation.operation_id)
    old = load_selection(reader, states[f"{resource.name}/old"])
    new = load_selection(reader, states[f"{resource.name}/new"])
    links = reader.state(states[f"{resource.name}/old"]).links
    return _put_back(service, Path(resource.path).resolve(), old, new, links=links)


def _put_back(
    service: CheckpointService,
    root: Path,
    old: Selection,
    new: Selection,
    *,
    links: tuple[tuple[bytes, ...], ...] = (),
    always: Collection[bytes] = (),
) -> list[str]:
    """The paths left as somebody else made them; those in ``always`` are put back, whatever they are now."""
    paths = old.keys() | new.keys() | set(always)
    remove_temporaries(root, {split(path)[0] for path in paths if path})
    with service.manager.taking() as batch:
        present = select(root, paths, batch)
        batch.commit()
        edited = [path for path in paths if path not in always and _is_edited(present.get(path), old, new, path)]
        differences = [each for each in _differing(present, old, paths) if each.path not in edited]
        groups = links_to_make(links, [difference.path for difference in differences], edited)
        change(root, service.manager.reader, differences, groups)
    return sorted(os.fsdecode(path) for path in edited)


def _is_edited(present: Entry | None, old: Selection, new: Selection, path: bytes) -> bool:
    """Whether it holds something that is neither what was there nor what the apply made; its mode may be half done."""
    known = [entry for entry in (old.get(path), new.get(path)) if entry is not None]
    return present is not None and not any(same(present, entry, but_for_mode=True) for entry in known)


def _differing(present: Selection, old: Selection, paths: Collection[bytes]) -> Iterator[Difference]:
    for path in sorted(paths):
        is_there, was_there = present.get(path), old.get(path)
        if not _identical(is_there, was_there):
            yield Difference(path, is_there, was_there)


def _identical(one: Entry | None, other: Entry | None) -> bool:
    if one is not None and other is not None and one.kind == other.kind == DIRECTORY:
        return (one.mode, one.mtime_ns, one.uid, one.gid, one.xattrs) == (
            other.mode, other.mtime_ns, other.uid, other.gid, other.xattrs,
        )  # fmt: skip
    return one == other


def _file_change(resource: str, difference: Difference) -> FileChange:
    if difference.new is None:
        return FileChange(resource=resource, file=os.fsdecode(difference.path), action="removed")
    action: Literal["added", "changed"] = "added" if difference.old is None else "changed"
    return FileChange(resource=resource, file=os.fsdecode(difference.path), action=action)
