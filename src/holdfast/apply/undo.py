"""An apply or unapply undone: files, index and branch as they were, except for what was changed since."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from holdfast.apply.journaled import JournaledFiles, branch_move, files_in, index_in
from holdfast.apply.real_databases import databases_with_work_in_logs, refuse_to_restore
from holdfast.apply.real_folders import forget_index, index_before, undoing, unmark
from holdfast.apply.refusals import is_there, listed
from holdfast.checkpoints.service import CheckpointService
from holdfast.content.difference import Difference
from holdfast.content.format import DIRECTORY, Entry, digest_of
from holdfast.db.journal import RealFilesEntry
from holdfast.errors import SandboxError, described
from holdfast.git.branches import BranchMove, move_branch_back, remove_stale_locks
from holdfast.git.index import holds_index, put_index_back, release_index, take_out_of_index
from holdfast.git.repository import GitRepository
from holdfast.model import Lease, Operation, OperationKind, OperationState, Phase, Plan, PlanState, Resource
from holdfast.snapshot.database_changes import databases_in_use
from holdfast.snapshot.restore.guarded import ChangedMeanwhile, InUse
from holdfast.snapshot.restore.leftovers import remove_leftovers
from holdfast.snapshot.selection import Selection, change, links_to_make, same_content, select
from holdfast.system.directories import shown

_COMPLETE, _APPLIED = (Phase.EXECUTE, PlanState.COMPLETE), (Phase.APPLY, PlanState.APPLIED)
_INDEX_BEFORE_TOKENS = "index.holdfast"


def when_done(kind: OperationKind, *, is_partial: bool) -> tuple[Phase, PlanState]:
    """The state of the plan after such an operation; a session goes on with the next call of its agent."""
    return _APPLIED if kind is OperationKind.APPLY and not is_partial else _COMPLETE


def when_undone(kind: OperationKind, *, is_partial: bool) -> tuple[Phase, PlanState]:
    """The state of the plan before it."""
    return _APPLIED if kind is OperationKind.UNAPPLY and not is_partial else _COMPLETE


def changed_plan(plan: Plan, to: tuple[Phase, PlanState], error: str | None = None) -> Plan:
    if plan.is_session:
        return plan.changed(error=error)  # it goes on, or has ended, whatever is undone in it
    return plan.changed(phase=to[0], state=to[1], error=error)


def undo_unless_done(plan: Plan, lease: Lease, service: CheckpointService, operation: Operation) -> None:
    """Call this after a failure, which may have come after the end of the operation was recorded."""
    found = service.store.get(Operation, operation.operation_id)
    if found.state is OperationState.BEGUN:
        _undo_all(plan, lease, service, found)
    give_way(plan, service, found)


def give_way(plan: Plan, service: CheckpointService, operation: Operation) -> None:
    """If another process took this one for dead and undid its work, what it did afterwards must go too."""
    store = service.store
    is_undone = operation.state is OperationState.UNDONE
    applied = store.operations.applied(plan.plan_id)
    is_of_other_part = operation.kind is OperationKind.APPLY and (
        applied is not None and applied.created_at < operation.created_at
    )
    is_applied = applied is not None and not is_of_other_part
    if is_undone and not store.operations.unfinished(plan.plan_id) and not is_applied:
        for resource in plan.resources:
            _undo(service, resource, operation)
        unmark(operation, plan.resources)


def undo_change(
    plan: Plan, lease: Lease, service: CheckpointService, operation: Operation, *, even_if_gone: bool = False
) -> Plan:
    """Restore real files, index and branch as they were before an operation that did not end.

    A file that was changed since then stays as it is now. A resource that is not where it was cannot be
    restored: it is waited for, unless it may be gone for good (``even_if_gone``).
    """
    with undoing(plan.resources):
        return _undo_all(plan, lease, service, operation, even_if_gone=even_if_gone)


def _undo_all(
    plan: Plan, lease: Lease, service: CheckpointService, operation: Operation, *, even_if_gone: bool = False
) -> Plan:
    present = [resource for resource in plan.resources if is_there(resource)]
    try:
        edited = [path for resource in present for path in _undo(service, resource, operation)]
    except OSError as failure:
        raise SandboxError(
            f"The real files could not be restored yet: {described(failure)}.",
            hint="Check your permissions and the space on the disk; the next command on this plan restores them.",
        ) from failure
    gone = [resource for resource in plan.resources if resource not in present]
    if gone and not even_if_gone:
        raise SandboxError(
            f"The {operation.kind} of plan {plan.plan_id} was cut short, and these are missing and "
            f"cannot be restored:\n  {listed(gone)}",
            hint="Bring them back to that place, and the next command on this plan puts them right. If they are gone "
            f"for good, `holdfast plan delete {plan.plan_id}` forgets the plan.",
        )
    error = None
    if edited:
        error = f"an {operation.kind} was undone; changed since, and left as they are: {', '.join(edited)}"
    plan = changed_plan(plan, when_undone(operation.kind, is_partial=RealFilesEntry.of(operation).is_partial), error)
    with service.store.transaction(lease):
        service.store.save(plan)
        service.store.save(operation.ended(OperationState.UNDONE))
    unmark(operation, present)
    return plan


def _undo(service: CheckpointService, resource: Resource, operation: Operation) -> list[str]:
    """Restore one resource; returns the paths that stay, because they are neither old nor what the operation made."""
    entry = RealFilesEntry.of(operation)
    move = branch_move(entry, resource)
    if move is not None:
        remove_stale_locks(move, operation.created_at.timestamp())
        move_branch_back(move, f"holdfast: the {operation.kind} was undone")
        if move.is_checked_out:
            _undo_index(service, resource, operation, move)
    files = files_in(entry, resource, service.manager.reader)
    return [] if files is None else _restore(service, Path(resource.path).resolve(), files, operation)


def _undo_index(service: CheckpointService, resource: Resource, operation: Operation, move: BranchMove) -> None:
    """Restore the whole index if no other program can have changed it, otherwise only our own changes in it."""
    repository, token = move.repository, operation.operation_id
    entry = RealFilesEntry.of(operation)
    ours = entry.indexes.get(resource.name)
    if ours is not None:
        is_untouched = holds_index(repository, token) or _digest_of_index(repository) == ours
        if not (is_untouched and _restore_index(service, resource, operation, repository)):
            release_index(repository, token)
            take_out_of_index(repository, move.old, move.new, token)
    if not entry.token:
        (repository.git_dir / _INDEX_BEFORE_TOKENS).unlink(missing_ok=True)
    release_index(repository, token)
    forget_index(resource, token)


def _restore_index(
    service: CheckpointService, resource: Resource, operation: Operation, repository: GitRepository
) -> bool:
    """Bring the index back as it was; False if it is not kept any more, because that was done already or undone."""
    token = operation.operation_id
    if put_index_back(repository, index_before(resource, token), token):
        return True  # also one that another program made after the journal was written, and before it was locked
    known = index_in(RealFilesEntry.of(operation), resource, service.manager.reader)
    if known is None:
        return False
    _restore(service, repository.git_dir, JournaledFiles(known, {}, ()), operation, always={b"index"})
    return True


def _digest_of_index(repository: GitRepository) -> str | None:
    try:
        return digest_of(repository.index_path.read_bytes()).hex()
    except FileNotFoundError:
        return None


def _restore(
    service: CheckpointService,
    root: Path,
    files: JournaledFiles,
    operation: Operation,
    *,
    always: Collection[bytes] = (),
) -> list[str]:
    """The paths left as something else made them; those in ``always`` are restored, whatever they are now."""
    old, new, links = files
    owner, reader = RealFilesEntry.of(operation).token, service.manager.reader
    paths = old.keys() | new.keys() | set(always)
    left: set[bytes] = set()
    kept: list[bytes] = []
    while True:
        kept += remove_leftovers(root, old, new, always, owner=owner)
        with service.manager.storing() as batch:
            present = select(root, paths, batch)
            batch.commit()
            left |= {path for path in paths if path not in always and _is_edited(present, old, new, path, operation)}
            differences = [each for each in _differing(present, old, paths) if each.path not in left]
            left |= databases_with_work_in_logs(root, reader, differences, paths)
            differences = [each for each in differences if each.path not in left]
            refuse_to_restore(root, databases_in_use(root, reader, differences))
            groups = links_to_make(links, [difference.path for difference in differences], left)
            try:
                change(root, reader, differences, groups, owner=owner)
            except InUse as error:
                refuse_to_restore(root, [(error.path, error.programs)])
            except ChangedMeanwhile as error:
                left.add(error.path)  # also while it is being restored
            else:
                return sorted(shown(path) for path in (*left, *kept))


def _is_edited(present: Selection, old: Selection, new: Selection, path: bytes, operation: Operation) -> bool:
    """Whether it holds something that is neither what was there nor what was made; its attributes may be half done."""
    found, before, made = present.get(path), old.get(path), new.get(path)
    if found is None:
        return False
    if before is None and made is not None and found.kind != DIRECTORY and found.mtime_ns != made.mtime_ns:
        # What was made has its time from the start; another program wrote the same into a new file.
        began_ns = int(operation.created_at.timestamp() * 1e9)
        return found.mtime_ns > began_ns or not same_content(found, made)
    return not any(entry is not None and same_content(found, entry) for entry in (before, made))


def _differing(present: Selection, old: Selection, paths: Collection[bytes]) -> Iterator[Difference]:
    for path in sorted(paths):
        found, before = present.get(path), old.get(path)
        if not _identical(found, before):
            yield Difference(path, found, before)


def _identical(one: Entry | None, other: Entry | None) -> bool:
    if one is not None and other is not None and one.kind == other.kind == DIRECTORY:
        return (one.mode, one.mtime_ns, one.uid, one.gid, one.xattrs) == (
            other.mode, other.mtime_ns, other.uid, other.gid, other.xattrs,
        )  # fmt: skip
    return one == other
