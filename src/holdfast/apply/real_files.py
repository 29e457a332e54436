"""The user's files, index and branches changed as one: journaled, verified, and undone if that does not end well.

Both ways go through here: a plan's result into the real files, and the real files back to what they were.
"""

from __future__ import annotations

import secrets
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

from holdfast.apply.journaled import branch_entry, store_replaced
from holdfast.apply.parts import Part, name_in_record, store_rest
from holdfast.apply.real_change import RealChange
from holdfast.apply.real_databases import database_in_use, refuse_databases_at_risk
from holdfast.apply.real_folders import changing, forget_indexes, index_before, mark, unmark
from holdfast.apply.refusals import changed_meanwhile
from holdfast.apply.undo import changed_plan, give_way, undo_unless_done, when_done, when_undone
from holdfast.checkpoints.service import CheckpointService
from holdfast.content.format import DIRECTORY, Entry, digest_of
from holdfast.db.journal import ApplyEntry, RealFilesEntry
from holdfast.errors import LeaseLostError, SandboxError, described
from holdfast.git.branches import check_unmoved, move_branch
from holdfast.git.index import keep_index, lock_index, new_index, release_index, replace_index
from holdfast.model import Lease, Operation, OperationKind, OperationState, Phase, Plan, PlanState, Record
from holdfast.names import name_text
from holdfast.snapshot.restore.guarded import ChangedMeanwhile, InUse
from holdfast.snapshot.selection import change, same, select
from holdfast.system.directories import shown

_TOKEN_BYTES = 6


def change_real_files(
    plan: Plan,
    lease: Lease,
    service: CheckpointService,
    entry_type: type[RealFilesEntry],
    changes: Sequence[RealChange],
    *,
    part: Part | None = None,
    records: Sequence[Record] = (),
    more: Mapping[str, Any] = MappingProxyType({}),
    refuse: Callable[[], None] = lambda: None,
) -> Plan:
    """Change the files, index and branch of all resources, or of none; the records are saved with the end of it.

    ``part``: not all of the plan's result is applied, or the apply of such a part is undone. ``more``: fields of the
    journal entry that only its kind has. ``refuse``: raises if the folders must not be changed; called when they are
    locked.
    """
    resources = [each.resource for each in changes]
    with ExitStack() as ownership:
        try:
            ownership.enter_context(changing(resources, service))
            refuse()
            plan, operation = _journal(plan, lease, service, entry_type, changes, part, more)
        except BaseException:  # nothing is changed yet
            with service.store.transaction(lease):
                service.store.save(changed_plan(plan, when_undone(entry_type.kind, is_partial=part is not None)))
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
        is_partial = RealFilesEntry.of(operation).is_partial
        plan = changed_plan(plan, when_done(operation.kind, is_partial=is_partial))
        with service.store.transaction(lease):
            service.store.save(plan)
            service.store.save(operation.ended(OperationState.DONE))
            for record in records:
                service.store.save(record)
    except LeaseLostError:
        give_way(plan, service, service.store.get(Operation, operation.operation_id))
        raise
    except OSError as error:
        undo_unless_done(plan, lease, service, operation)
        raise SandboxError(
            f"The real files could not be changed: {described(error)}. They are as they were before.",
            hint="Check your permissions and the space on the disk; then run the command again.",
        ) from error
    except BaseException:  # an interruption from the keyboard too
        undo_unless_done(plan, lease, service, operation)
        raise
    forget_indexes(resources)
    unmark(operation, resources)  # last: what a kill leaves before this, the next command on the folder removes
    return plan


def _journal(
    plan: Plan,
    lease: Lease,
    service: CheckpointService,
    entry_type: type[RealFilesEntry],
    changes: Sequence[RealChange],
    part: Part | None,
    more: Mapping[str, Any],
) -> tuple[Plan, Operation]:
    """Store what is about to be replaced, then say what is about to be done."""
    with service.manager.storing() as batch:
        states = store_replaced(service, changes)
        if part is not None:
            states |= store_rest(part, service.manager.reader, batch)
            batch.commit()
        entry = entry_type(
            token=secrets.token_hex(_TOKEN_BYTES),
            states=states,
            branches={each.resource.name: branch_entry(each.branch) for each in changes if each.branch},
            indexes={},
            is_partial=part is not None,
            **more,
        )
        if isinstance(entry, ApplyEntry) and part is not None:
            entry = entry.model_copy(update={"only": tuple(map(name_in_record, part.only))})
        operation = entry.begun(plan.plan_id)
        plan = changed_plan(plan, (Phase.APPLY, PlanState.PROCESSING), plan.error)
        with service.store.transaction(lease):
            service.store.save(plan)
            service.store.insert(operation)
    return plan, operation


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
    is_apply = operation.kind is OperationKind.APPLY
    indexes = {
        name: new_index(move.repository, move.old, move.new, is_from_files=is_apply)
        for name, move in with_index.items()
    }
    for name, move in with_index.items():
        keep_index(move.repository, index_before(plan.resource(name), operation.operation_id))
    if indexes:
        # An index that is ours can then be told from one that another program wrote.
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
    reader, owner = service.manager.reader, RealFilesEntry.of(operation).token
    refuse_databases_at_risk(changes, reader)
    for each in changes:
        if not each.differences:
            continue
        try:
            change(each.root, reader, each.differences, each.links, owner=owner)
        except InUse as error:
            raise database_in_use(each.root, error) from error
        except ChangedMeanwhile as error:
            raise changed_meanwhile(each.root, error.path) from error
        _verify(service, each)


def _verify(service: CheckpointService, each: RealChange) -> None:
    with service.manager.storing() as batch:
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
        raise changed_meanwhile(each.root, path)


def _has_lost_its_group_bit(present: Entry | None, new: Entry | None) -> bool:
    """Whether the kernel has taken the set-group-id bit away, as it does if the user is not in the folder's group."""
    if present is None or new is None or not present.kind == new.kind == DIRECTORY:
        return False
    return present.mode | stat.S_ISGID == new.mode and present.mode != new.mode
