"""What an operation writes down before its first change: one typed entry for each kind, stored as JSON.

``Entry.of(operation)`` reads the entry of an operation, ``entry.begun(plan_id)`` makes an operation of an entry. The
keys and their order are part of the stored format; a field with a default was not written by the first versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec

from holdfast.errors import DamagedRecordError
from holdfast.model import Correction, DecisionSpec, Operation, OperationKind, OperationState, Record, now
from holdfast.system.ids import new_id


class Entry(Record, frozen=True, kw_only=True):
    """What every entry has: its kind, and the groups that must stay until the operation has ended.

    The states that it needs are in the field ``states``, which every kind has (``states_needed_by``).
    """

    kind: ClassVar[OperationKind]

    @classmethod
    def of(cls, operation: Operation) -> Self:
        """The entry of an operation, which is one of this class: of a kind, or of one of several kinds."""
        try:
            entry = _ENTRY_OF[operation.kind].model_validate(operation.data)
        except msgspec.ValidationError as error:
            raise DamagedRecordError(
                f"The journal entry of operation {operation.operation_id} is not one this version understands: {error}",
                hint="It was written by another version of Holdfast; use that one, or a newer one.",
            ) from error
        if not isinstance(entry, cls):
            raise TypeError(f"a {operation.kind} has no {cls.__name__}")
        return entry

    def begun(self, plan_id: str) -> Operation:
        """The operation that this entry describes, begun now."""
        return Operation(
            operation_id=new_id(),
            plan_id=plan_id,
            kind=self.kind,
            data=self.model_dump(mode="json"),
            created_at=now(),
        )

    def put_into(self, operation: Operation) -> Operation:
        """The operation with this entry instead of the one it had."""
        return operation.model_copy(update={"data": self.model_dump(mode="json")})

    @property
    def groups(self) -> frozenset[str]:
        return frozenset()


class SandboxEntry(Entry, frozen=True, kw_only=True):
    """The files of sandboxes are turned into these states, which were taken from the target group."""

    target_group_id: str
    left_group_id: str | None
    """The group that holds what was there before: the files are put back to it if the operation fails."""
    reason: str
    states: dict[str, str]

    @property
    def groups(self) -> frozenset[str]:
        return frozenset((self.target_group_id, self.left_group_id or ""))


class RollbackEntry(SandboxEntry, frozen=True, kw_only=True):
    kind = OperationKind.ROLLBACK

    correction: Correction | None
    """The correction that is made in the same transaction."""
    recovery: DecisionSpec | None = None
    """The decision to roll back, if a failure and not a person made it."""
    is_unkept: bool = False
    """The left group does not hold all of what was there before, because a person asked not to keep it."""


class RestorePathsEntry(SandboxEntry, frozen=True, kw_only=True):
    kind = OperationKind.RESTORE_PATHS


class BranchEntry(Record, frozen=True, kw_only=True):
    """The move of a branch of the user; what the fields mean is said at ``git.branches.BranchMove``."""

    ref: str | None
    old: str | None
    new: str | None
    is_checked_out: bool


class RealFilesEntry(Entry, frozen=True, kw_only=True):
    """The real files are changed, and for git index and branch, by resource."""

    token: str = ""
    """What the names of temporary files of this operation contain; nothing in the first versions."""
    states: dict[str, str]
    """``RESOURCE/old`` and ``RESOURCE/new``: what is replaced, and by what; ``RESOURCE/index``: the index before."""
    branches: dict[str, BranchEntry]
    indexes: dict[str, str]
    """Digests of the indexes that this operation writes, so that they can be told from what another program wrote."""


class ApplyEntry(RealFilesEntry, frozen=True, kw_only=True):
    kind = OperationKind.APPLY


class UnapplyEntry(RealFilesEntry, frozen=True, kw_only=True):
    kind = OperationKind.UNAPPLY


_ENTRY_OF: dict[OperationKind, type[Entry]] = {
    each.kind: each for each in (RollbackEntry, RestorePathsEntry, ApplyEntry, UnapplyEntry)
}


def states_needed_by(fields: Mapping[str, Any]) -> dict[str, str]:
    """The states that an operation still needs, from the fields of its row.

    The row need not be understood for that: whatever a later version has begun, its states are kept.
    """
    is_applied = (fields["state"], fields["kind"]) == (OperationState.DONE, OperationKind.APPLY)
    is_needed = is_applied or fields["state"] == OperationState.BEGUN
    states: dict[str, str] = fields["data"].get("states", {}) if is_needed else {}
    return states
