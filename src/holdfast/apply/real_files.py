"""The user's files, index and branches changed as one: journaled, verified, and put back if that does not end well.

Both ways go through here: a plan's result into the real files, and the real files back to what they were.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.apply.real_databases import (
    database_in_use,
    databases_with_work_in_logs,
    refuse_databases_at_risk,
    refuse_to_put_back,
)
from holdfast.apply.real_folders import changing, mark, putting_back, refuse_half_changed_below, unmark
from holdfast.checkpoints.service import CheckpointService
from holdfast.content.batch import Batch
from holdfast.content.difference import Difference, visible
from holdfast.content.format import DIRECTORY, Entry, digest_of
from holdfast.errors import ConflictError, LeaseLostError, SandboxError, described
from holdfast.git.branches import BranchMove, check_unmoved, move_branch, move_branch_back, remove_stale_locks
from holdfast.git.index import holds_index, lock_index, new_index, release_index, replace_index, take_out_of_index
from holdfast.git.repository import GitRepository
from holdfast.journal import BranchEntry, RealFilesEntry
from holdfast.model import (
    Lease,
    Operation,
    OperationKind,
    OperationState,
    Phase,
    Plan,
    PlanState,
    Record,
    Resource,
    now,
)
from holdfast.names import name_text
from holdfast.snapshot.database_changes import databases_in_use
from holdfast.snapshot.restore.leftovers import remove_leftovers
from holdfast.snapshot.restore.restore import InUse, Meddled
from holdfast.snapshot.selection import (
    Selection,
    change,
    closed_directories,
    directories_in_use,
    links_among,
    links_to_make,
    load_selection,
    read_only_directories,
    same,
    same_content,
    select,
    store_selection,
)
from holdfast.system.directories import shown, split, with_ancestors

Links = tuple[tuple[bytes, ...], ...]

_DONE = {
    OperationKind.APPLY: (Phase.APPLY, PlanState.APPLIED),
    OperationKind.UNAPPLY: (Phase.EXECUTE, PlanState.COMPLETE),
}
"""What a plan is when the operation is done; when it is undone, it is what the other one leads to."""
_TOKEN_BYTES = 6
_INDEX_BEFORE_TOKENS = "index.holdfast"
_UNDONE = {OperationKind.APPLY: _DONE[OperationKind.UNAPPLY], OperationKind.UNAPPLY: _DONE[OperationKind.APPLY]}


@dataclass(frozen=True)
class RealChange:
    """What is to be done to one real resource."""

    resource: Resource
    differences: tuple[Difference, ...] = ()
    """From the real files as they are now to what they shall be."""
    links: Links = ()
    merged: Mapping[bytes, bytes] = field(default_factory=dict)
    """Content that was made only for this, and that nothing keeps in the store yet."""
    branch: BranchMove | None = None

    @property
    def root(self) -> Path:
        return Path(self.resource.path).resolve()

    @property
    def paths(self) -> list[bytes]:
        return [difference.path for difference in self.differences]


def missing_folders(todo: Sequence[Difference], real: Selection) -> list[bytes]:
    """Folders that what is to be made lies in, and that the user removed or replaced; those above first."""
    made = {difference.path for difference in todo}
    needed = with_ancestors(difference.path for difference in todo if difference.new is not None) - made
    return sorted(path for path in needed if path not in real or real[path].kind != DIRECTORY)


def folders_in_use(root: Path, todo: Sequence[Difference]) -> list[bytes]:
    """Folders that are to be something else, and in which the user has something nobody else knows of."""
    replaced = {
        path for path, old, new in todo if old is not None and new is not None and old.kind == DIRECTORY != new.kind
    }
    going = {difference.path for difference in todo if difference.new is None}
    return sorted(directories_in_use(root, going | replaced) & replaced) if replaced else []


def without_folders_that_stay(root: Path, todo: Sequence[Difference]) -> list[Difference]:
    """Folders that are to go, and hold something of the user's that is not, are no part of the change."""
    staying = directories_in_use(root, {difference.path for difference in todo if difference.new is None})
    return [difference for difference in todo if difference.path not in staying]


def told(differences: Sequence[Difference]) -> list[Difference]:
    """What a person hears of a change of real files: of folders that come or go only those without anything in them.

    The entry of a folder of a user stands for itself only, so what is in it is known from the other differences.
    """
    holders = with_ancestors(split(difference.path)[0] for difference in differences)
    return [each for each in differences if _is_told(each, holders)]


def _is_told(difference: Difference, holders: Collection[bytes]) -> bool:
    if difference.old is None or difference.new is None:
        return difference.is_of_file or difference.path not in holders
    return bool(visible([difference]))


def refuse_missing_resources(resources: Iterable[Resource]) -> None:
    missing = [resource for resource in resources if not _is_there(resource)]
    if missing:
        raise SandboxError(
            f"These are not there any more; nothing was changed:\n  {_listed(missing)}",
            hint="Bring them back to that place, then run the command again.",
        )


def _is_there(resource: Resource) -> bool:
    return Path(resource.path).is_dir()


def _listed(resources: Iterable[Resource]) -> str:
    return "\n  ".join(name_text(resource.path) for resource in resources)


def refuse_busy_repository(repository: GitRepository) -> None:
    busy = repository.operation_in_progress()
    if busy:
        raise SandboxError(
            f"A {busy} is in progress in {repository.root}; nothing was changed.",
            hint=f"Finish or abort the {busy}, then run the command again.",
        )


def refuse_closed_folders(
    changes: Iterable[tuple[Path, Sequence[Difference]]], repositories: Iterable[GitRepository]
) -> None:
    """Refuse where somebody has to let us write first: to the files' folders, and for a commit to git's own."""
    changes = list(changes)
    read_only = [
        root / os.fsdecode(path)
        for root, differences in changes
        for path in sorted(read_only_directories(root, differences))
    ]
    if read_only:
        listed = "\n  ".join(name_text(str(folder)) for folder in read_only)
        raise SandboxError(
            f"Somebody made these folders read-only, and the change is in them; nothing was changed:\n  {listed}",
            hint="If they may be changed, make them writable with `chmod u+w`, then run the command again.",
        )
    closed = [
        root / os.fsdecode(path)
        for root, differences in changes
        for path in sorted(closed_directories(root, differences))
    ]
    for repository in repositories:
        places = (repository.git_dir, repository.common_dir / "objects")
        closed += [place for place in places if not os.access(place, os.W_OK | os.X_OK, effective_ids=True)]
    if closed:
        listed = "\n  ".join(map(str, closed))
        raise SandboxError(
            f"These folders cannot be written to; nothing was changed:\n  {listed}",
            hint="See with `ls -ld` whose they are, and whether their disk may be written to; then try again.",
        )


# Doing it


def change_real_files(
    plan: Plan,
    lease: Lease,
    service: CheckpointService,
    entry_type: type[RealFilesEntry],
    changes: Sequence[RealChange],
    *,
    records: Sequence[Record] = (),
) -> Plan:
    """Change the files, index and branch of all resources, or of none; the records are saved with the end of it."""
    resources = [each.resource for each in changes]
    with ExitStack() as ownership:
        try:
            ownership.enter_context(changing(resources, service))
            plan, operation = _journal(plan, lease, service, entry_type, changes)
        except BaseException:  # nothing is changed yet
            with service.store.transaction(lease):
                service.store.save(_changed_plan(plan, _UNDONE[entry_type.kind]))
            raise
        return _carry_out(plan, lease, service, operation, changes, records)


def _carry_out(
    plan: Plan,
    lease: Lease,
    service: CheckpointService,
    operation: Operation,
    changes: Sequence[RealChange],
    records: Sequence[Record],
) -> Plan:
    resources = [each.resource for each in changes]
    try:
        mark(plan, operation, resources, service)
        operation = _change_all(plan, lease, service, operation, changes)
        plan = _changed_plan(plan, _DONE[operation.kind])
        with service.store.transaction(lease):
            service.store.save(plan)
            service.store.save(operation.model_copy(update={"state": OperationState.DONE, "finished_at": now()}))
            for record in records:
                service.store.save(record)
    except LeaseLostError:
        _give_way(plan, service, service.store.get(Operation, operation.operation_id))
        raise
    except OSError as error:
        _undo_unless_done(plan, lease, service, operation)
        raise SandboxError(
            f"The real files could not be changed: {described(error)}. They are as they were before.",
            hint="Check your permissions and the space on the disk; then run the command again.",
        ) from error
    except BaseException:  # an interruption from the keyboard too
        _undo_unless_done(plan, lease, service, operation)
        raise
    unmark(operation, resources)
    return plan


def _changed_plan(plan: Plan, to: tuple[Phase, PlanState], error: str | None = None) -> Plan:
    return plan.changed(phase=to[0], state=to[1], error=error)


def _undo_unless_done(plan: Plan, lease: Lease, service: CheckpointService, operation: Operation) -> None:
    found = service.store.get(Operation, operation.operation_id)
    if found.state is OperationState.BEGUN:
        _put_all_back(plan, lease, service, found)
    _give_way(plan, service, found)


def _give_way(plan: Plan, service: CheckpointService, operation: Operation) -> None:
    """If somebody took this process for dead and undid what it had done, what it did afterwards must go too."""
    store = service.store
    is_undone = operation.state is OperationState.UNDONE
    if is_undone and not store.operations.unfinished(plan.plan_id) and not store.operations.applied(plan.plan_id):
        for resource in plan.resources:
            _undo(service, resource, operation)
        unmark(operation, plan.resources)


def _journal(
    plan: Plan,
    lease: Lease,
    service: CheckpointService,
    entry_type: type[RealFilesEntry],
    changes: Sequence[RealChange],
) -> tuple[Plan, Operation]:
    """Store what is about to be replaced, then say what is about to be done."""
    with service.manager.taking():
        states = _store(service, changes)
        for each in changes:
            _keep_sound(service, each, states, changes)
        operation = entry_type(
            token=secrets.token_hex(_TOKEN_BYTES),
            states=states,
            branches={each.resource.name: _branch_entry(each.branch) for each in changes if each.branch},
            indexes={},
        ).begun(plan.plan_id)
        plan = plan.changed(phase=Phase.APPLY, state=PlanState.PROCESSING)
        with service.store.transaction(lease):
            service.store.save(plan)
            service.store.insert(operation)
    return plan, operation


def _store(service: CheckpointService, changes: Sequence[RealChange]) -> dict[str, str]:
    states: dict[str, str] = {}
    with service.manager.taking() as batch:
        for each in changes:
            states |= _stored(each, batch)
        batch.commit()
    return states


def _keep_sound(
    service: CheckpointService, each: RealChange, states: Mapping[str, str], changes: Sequence[RealChange]
) -> None:
    """Refuse if what is about to be replaced could not come back; what is damaged of it is stored anew."""
    name = each.resource.name
    for left, target in ((f"{name}/old", states.get(f"{name}/new")), (f"{name}/index", None)):
        if left in states:
            service.manager.keep_sound(each.root, states[left], target, lambda: _store(service, changes))


def _stored(each: RealChange, batch: Batch) -> dict[str, str]:
    name, states = each.resource.name, {}
    if each.differences:
        refuse_half_changed_below(each.root, each.paths)
        old = select(each.root, each.paths, batch)
        for path, expected, _ in each.differences:
            if not same(old.get(path), expected):
                raise _meddled(each.root, path)
        for content in each.merged.values():
            batch.add(content)
        replaced = set(each.paths)
        new = {path: entry for path, entry in old.items() if path not in replaced}
        new |= {path: entry for path, _, entry in each.differences if entry is not None}
        states[f"{name}/old"] = store_selection(old, batch, links_among(each.root, each.paths))
        states[f"{name}/new"] = store_selection(new, batch)
    if each.branch is not None and each.branch.is_checked_out:
        states[f"{name}/index"] = store_selection(select(each.branch.repository.git_dir, [b"index"], batch), batch)
    return states


def _branch_entry(move: BranchMove) -> BranchEntry:
    return BranchEntry(ref=move.ref, old=move.old, new=move.new, is_checked_out=move.is_checked_out)


def branch_move(resource: Resource, operation: Operation) -> BranchMove | None:
    """The move of a branch that an operation made, or was about to make, in that resource."""
    found = RealFilesEntry.of(operation).branches.get(resource.name)
    if found is None:
        return None
    return BranchMove(GitRepository.at(Path(resource.path)), found.ref, found.old, found.new, found.is_checked_out)


def _meddled(root: Path, path: bytes) -> ConflictError:
    return ConflictError(
        f"Somebody else changed {name_text(shown(path))} in {name_text(str(root))} meanwhile; nothing was changed.",
        hint="Run the command again.",
        paths=(shown(path),),
    )


def _change_all(
    plan: Plan, lease: Lease, service: CheckpointService, operation: Operation, changes: Sequence[RealChange]
) -> Operation:
    moves = {each.resource.name: each.branch for each in changes if each.branch is not None}
    with_index = {name: move for name, move in moves.items() if move.is_checked_out}
    for move in with_index.values():
        lock_index(move.repository, operation.operation_id)
    for move in moves.values():
        check_unmoved(move)
    _change_files(service, operation, changes)
    indexes = {name: new_index(move.repository, move.old, move.new) for name, move in with_index.items()}
    if indexes:
        # An index that is ours can then be told from one that somebody else wrote.
        digests = {name: digest_of(content).hex() for name, content in indexes.items()}
        operation = RealFilesEntry.of(operation).model_copy(update={"indexes": digests}).put_into(operation)
        with service.store.transaction(lease):
            service.store.save(operation)
    for name, move in moves.items():
        if name in indexes:
            replace_index(move.repository, indexes[name], operation.operation_id)
        move_branch(move, f"holdfast: {operation.kind} {plan.name}")
    for move in with_index.values():
        release_index(move.repository, operation.operation_id)
    return operation


def _change_files(service: CheckpointService, operation: Operation, changes: Sequence[RealChange]) -> None:
    reader = service.manager.reader
    refuse_databases_at_risk([(each.root, each.differences) for each in changes], reader)
    for each in changes:
        if not each.differences:
            continue
        try:
            change(each.root, reader, each.differences, each.links, owner=RealFilesEntry.of(operation).token)
        except InUse as error:
            raise database_in_use(each.root, error) from error
        except Meddled as error:
            raise _meddled(each.root, error.path) from error
        _verify(service, each)


def _verify(service: CheckpointService, each: RealChange) -> None:
    with service.manager.taking() as batch:
        real = select(each.root, each.paths, batch)
    for path, _, new in each.differences:
        present = real.get(path)
        is_kept_folder = new is None and present is not None and present.kind == DIRECTORY
        if is_kept_folder or same(present, new):
            continue
        if _has_lost_its_group_bit(present, new):
            raise SandboxError(
                f"The folder {name_text(shown(path))} in {name_text(str(each.root))} cannot pass its group on, because "
                "you are not in that group; nothing was changed.",
                hint="Make it without the set-group-id bit (`chmod g-s`), or have yourself added to the group.",
            )
        raise _meddled(each.root, path)


def _has_lost_its_group_bit(present: Entry | None, new: Entry | None) -> bool:
    """Whether the kernel has taken the set-group-id bit away, as it does for who is not in the group of a folder."""
    if present is None or new is None or not present.kind == new.kind == DIRECTORY:
        return False
    return present.mode | stat.S_ISGID == new.mode and present.mode != new.mode


# Putting it back


def undo_change(
    plan: Plan, lease: Lease, service: CheckpointService, operation: Operation, *, even_if_gone: bool = False
) -> Plan:
    """Put the real files, index and branch back as they were before an operation that did not come to its end.

    A file that somebody has changed since then stays as they made it. A resource that is not where it was cannot be
    put back, and is waited for, unless nobody will ask for it again.
    """
    with putting_back(plan.resources):
        return _put_all_back(plan, lease, service, operation, even_if_gone=even_if_gone)


def _put_all_back(
    plan: Plan, lease: Lease, service: CheckpointService, operation: Operation, *, even_if_gone: bool = False
) -> Plan:
    present = [resource for resource in plan.resources if _is_there(resource)]
    try:
        edited = [path for resource in present for path in _undo(service, resource, operation)]
    except OSError as failure:
        raise SandboxError(
            f"The real files could not be put back yet: {described(failure)}.",
            hint="Check your permissions and the space on the disk; the next command on this plan puts them back.",
        ) from failure
    gone = [resource for resource in plan.resources if resource not in present]
    if gone and not even_if_gone:
        raise SandboxError(
            f"The {operation.kind} of plan {plan.plan_id} was cut short, and these are not there to be put back:\n"
            f"  {_listed(gone)}",
            hint="Bring them back to that place, and the next command on this plan puts them right. If they are gone "
            f"for good, `holdfast plan delete {plan.plan_id}` forgets the plan.",
        )
    error = None
    if edited:
        error = f"an {operation.kind} was undone; changed by somebody since, and left so: {', '.join(edited)}"
    plan = _changed_plan(plan, _UNDONE[operation.kind], error)
    with service.store.transaction(lease):
        service.store.save(plan)
        service.store.save(operation.model_copy(update={"state": OperationState.UNDONE, "finished_at": now()}))
    unmark(operation, present)
    return plan


def _undo(service: CheckpointService, resource: Resource, operation: Operation) -> list[str]:
    """Put one resource back; the paths that are neither as they were nor as the operation made them, and so stay."""
    states, reader = RealFilesEntry.of(operation).states, service.manager.reader
    move = branch_move(resource, operation)
    if move is not None:
        remove_stale_locks(move, operation.created_at.timestamp())
        move_branch_back(move, f"holdfast: the {operation.kind} was undone")
        if move.is_checked_out:
            _undo_index(service, resource, operation, move)
    if f"{resource.name}/old" not in states:
        return []
    old = load_selection(reader, states[f"{resource.name}/old"])
    new = load_selection(reader, states[f"{resource.name}/new"])
    links = reader.state(states[f"{resource.name}/old"]).links
    return _put_back(service, Path(resource.path).resolve(), old, new, operation, links=links)


def _undo_index(service: CheckpointService, resource: Resource, operation: Operation, move: BranchMove) -> None:
    """Put the index back whole while nobody else can have changed it, otherwise only what is ours in it."""
    repository, token = move.repository, operation.operation_id
    entry = RealFilesEntry.of(operation)
    ours = entry.indexes.get(resource.name)
    if ours is not None and (holds_index(repository, token) or _digest_of_index(repository) == ours):
        index = load_selection(service.manager.reader, entry.states[f"{resource.name}/index"])
        _put_back(service, repository.git_dir, index, {}, operation, always={b"index"})
    elif ours is not None:
        take_out_of_index(repository, move.old, move.new, token)
    if not entry.token:
        (repository.git_dir / _INDEX_BEFORE_TOKENS).unlink(missing_ok=True)
    release_index(repository, token)


def _digest_of_index(repository: GitRepository) -> str | None:
    try:
        return digest_of(repository.index_path.read_bytes()).hex()
    except FileNotFoundError:
        return None


def _put_back(
    service: CheckpointService,
    root: Path,
    old: Selection,
    new: Selection,
    operation: Operation,
    *,
    links: Links = (),
    always: Collection[bytes] = (),
) -> list[str]:
    """The paths left as somebody else made them; those in ``always`` are put back, whatever they are now."""
    paths = old.keys() | new.keys() | set(always)
    left: set[bytes] = set()
    kept: list[bytes] = []
    while True:
        kept += remove_leftovers(root, old, new, always, owner=RealFilesEntry.of(operation).token)
        with service.manager.taking() as batch:
            present = select(root, paths, batch)
            batch.commit()
            left |= {path for path in paths if path not in always and _is_edited(present, old, new, path, operation)}
            differences = [each for each in _differing(present, old, paths) if each.path not in left]
            left |= databases_with_work_in_logs(root, service.manager.reader, differences, paths)
            differences = [each for each in differences if each.path not in left]
            refuse_to_put_back(root, databases_in_use(root, service.manager.reader, differences))
            groups = links_to_make(links, [difference.path for difference in differences], left)
            try:
                change(root, service.manager.reader, differences, groups, owner=RealFilesEntry.of(operation).token)
            except InUse as error:
                refuse_to_put_back(root, [(error.path, error.programs)])
            except Meddled as error:
                left.add(error.path)  # also while it is being put back
            else:
                return sorted(shown(path) for path in (*left, *kept))


def _is_edited(present: Selection, old: Selection, new: Selection, path: bytes, operation: Operation) -> bool:
    """Whether it holds something that is neither what was there nor what was made; its attributes may be half done."""
    found, before, made = present.get(path), old.get(path), new.get(path)
    if found is None:
        return False
    if before is None and made is not None and found.kind != DIRECTORY and found.mtime_ns != made.mtime_ns:
        # What was made has its time from the start; somebody wrote the same into a new file of theirs.
        began_ns = int(operation.created_at.timestamp() * 1e9)
        return found.mtime_ns > began_ns or not same_content(found, made)
    return not any(entry is not None and same_content(found, entry) for entry in (before, made))


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
