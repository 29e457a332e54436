"""The journal entry that an operation writes before its first change: one type for each kind, stored as JSON.

``Entry.of(operation)`` reads the entry of an operation, ``entry.begun(plan_id)`` makes an operation of an entry. The
keys and their order are part of the stored format; a field with a default was not written by the first versions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal, Self

import msgspec

from holdfast.errors import DamagedRecordError
from holdfast.model import Correction, DecisionSpec, Moment, Operation, OperationKind, OperationState, Record, now
from holdfast.system.ids import new_id


class Entry(Record, frozen=True, kw_only=True):
    """What every entry has: its kind, and the groups that must stay until the operation has ended.

    Every kind also has a field ``states`` with the states that it needs (``states_needed_by``).
    """

    kind: ClassVar[OperationKind]

    @classmethod
    def of(cls, operation: Operation) -> Self:
        """The entry of an operation, which must be an instance of this class."""
        try:
            entry = _ENTRY_OF[operation.kind].model_validate(operation.data)
        except msgspec.ValidationError as error:
            raise DamagedRecordError(
                f"This version cannot read the journal entry of operation {operation.operation_id}: {error}",
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
    """The files of sandboxes are restored to these states, which were taken from the target group."""

    target_group_id: str
    left_group_id: str | None
    """The group with the files as they were before; they are restored to it if the operation fails."""
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
    """The left group does not hold all earlier content, because a person asked not to keep it."""
    title: str | msgspec.UnsetType = msgspec.UNSET
    """Of the group that it ends with, if that is not described by the group to which it goes back."""


class RestorePathsEntry(SandboxEntry, frozen=True, kw_only=True):
    kind = OperationKind.RESTORE_PATHS


class BranchEntry(Record, frozen=True, kw_only=True):
    """The move of a branch of the user; ``git.branches.BranchMove`` explains the fields."""

    ref: str | None
    old: str | None
    new: str | None
    is_checked_out: bool


class RealFilesEntry(Entry, frozen=True, kw_only=True):
    """The real files of each resource are changed; in a git repository also the index and a branch."""

    token: str = ""
    """A part of the names of this operation's temporary files; empty in the first versions."""
    states: dict[str, str]
    """``RESOURCE/old`` and ``RESOURCE/new``: what is replaced, and by what; ``RESOURCE/index``: the index before;
    ``RESOURCE/rest``, if a part was applied: the state from which the difference to the plan's result is left."""
    branches: dict[str, BranchEntry]
    indexes: dict[str, str]
    """Digests of the indexes that this operation writes, to tell them from those that another program wrote."""
    is_partial: bool = False
    """Something of the plan's result stays for a later apply; of an unapply: it undoes such an apply."""

    def model_dump(
        self, *, mode: Literal["python", "json"] = "python", exclude: Collection[str] = ()
    ) -> dict[str, Any]:
        """What is about parts is stored of parts only; all other entries are what they were before there were any."""
        of_parts = () if self.is_partial else ("is_partial", "only")
        return super().model_dump(mode=mode, exclude=(*exclude, *of_parts))


class ApplyEntry(RealFilesEntry, frozen=True, kw_only=True):
    kind = OperationKind.APPLY

    only: tuple[str, ...] = ()
    """The paths that a person chose, to be shown."""


class UnapplyEntry(RealFilesEntry, frozen=True, kw_only=True):
    kind = OperationKind.UNAPPLY


class UndoEntry(RealFilesEntry, frozen=True, kw_only=True):
    """The files of a session's folder; git's own files in it are changed like all others."""

    kind = OperationKind.UNDO

    moment: Moment
    """Whether it was an undo or a redo."""
    title: str
    target_group_id: str
    left_group_id: str
    """The group with the files as they were before; if it is the last one, the outcome is not recorded yet."""
    run_ids: tuple[str, ...]
    """The calls that are undone, or in force again."""


_ENTRY_OF: dict[OperationKind, type[Entry]] = {
    each.kind: each for each in (RollbackEntry, RestorePathsEntry, ApplyEntry, UnapplyEntry, UndoEntry)
}


def states_needed_by(fields: Mapping[str, Any]) -> dict[str, str]:
    """The states that an operation still needs, from the fields of its row.

    The entry itself is not read, so that states are kept for operations of later versions too.
    """
    # What an undo made is needed until its outcome is recorded, which takes the states out of its entry.
    is_done = fields["state"] == OperationState.DONE and fields["kind"] in (OperationKind.APPLY, OperationKind.UNDO)
    is_needed = is_done or fields["state"] == OperationState.BEGUN
    states: dict[str, str] = fields["data"].get("states", {}) if is_needed else {}
    return states
