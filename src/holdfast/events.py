"""Events: what an execution tells its listener, for example a screen, a log or a test."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.model import CheckpointGroup, Conflict, OperationKind, Plan, RefusedWrite, Resource, SideEffect, StepRun
from holdfast.system.progress import Working as Working


class SandboxMade(msgspec.Struct, frozen=True):
    resource: Resource


class CheckpointTaken(msgspec.Struct, frozen=True):
    group: CheckpointGroup
    checkpoint_id: str


class StepStarted(msgspec.Struct, frozen=True):
    index: int
    count: int
    run: StepRun


class StepPrinted(msgspec.Struct, frozen=True):
    index: int
    text: bytes


class WritesRefused(msgspec.Struct, frozen=True):
    """What a program tried to write outside of its sandboxes, as far as it said so."""

    index: int
    refused: tuple[RefusedWrite, ...]


class StepFinished(msgspec.Struct, frozen=True):
    index: int
    count: int
    run: StepRun


class Validating(msgspec.Struct, frozen=True):
    command: str


class RolledBack(msgspec.Struct, frozen=True):
    """The sandboxes were rolled back to before a step."""

    index: int
    step: str
    checkpoint_id: str


class SetAside(msgspec.Struct, frozen=True):
    """A rollback moved files that no checkpoint holds, and that were in the way, to these places."""

    places: tuple[str, ...]


class Compensating(msgspec.Struct, frozen=True):
    """What a step did outside of the sandboxes is being undone."""

    index: int
    name: str


class EffectsOutside(msgspec.Struct, frozen=True):
    """Steps were undone, and they had done something outside of the sandboxes."""

    side_effects_not_undone: tuple[SideEffect, ...] = ()
    compensated: tuple[SideEffect, ...] = ()
    effects_gone: tuple[SideEffect, ...] = ()
    """Of steps that count as done again, because a rollback is undone: what that rollback had undone outside."""


class SandboxesRestored(msgspec.Struct, frozen=True):
    """After a crash the sandboxes were restored to what is recorded; what was found in them is kept."""

    resources: tuple[str, ...]
    checkpoint_id: str
    """The checkpoint that keeps what was found."""


class RealFilesRestored(msgspec.Struct, frozen=True):
    """A change of real files that another plan began, and that was cut short, was undone first."""

    plan: Plan
    kind: OperationKind


class SandboxesMadeAnew(msgspec.Struct, frozen=True):
    """The sandboxes of these resources had been removed; they were made again as recorded."""

    resources: tuple[str, ...]


class SeenAtOwnPath(msgspec.Struct, frozen=True):
    """Steps find these sandboxes at another path than the real folder's."""

    resources: tuple[Resource, ...]
    reason: str | None
    """Why the system does not allow it; None if it was asked for, or if no real folder is there."""
    leading_out: tuple[str, ...]
    """What in the sandboxes leads to the real folders."""


class SubplanStarted(msgspec.Struct, frozen=True):
    subplan: Plan


class SubplanEnded(msgspec.Struct, frozen=True):
    subplan: Plan


class SubplanMerged(msgspec.Struct, frozen=True):
    """The result of a subplan was merged into its parent's sandboxes, except for these conflicts."""

    subplan: Plan
    conflicts: tuple[Conflict, ...]


class InSubplan(msgspec.Struct, frozen=True):
    """Something that happened while a subplan ran."""

    subplan: Plan
    event: Event


Event = (
    SandboxMade
    | CheckpointTaken
    | StepStarted
    | StepPrinted
    | WritesRefused
    | StepFinished
    | Validating
    | RolledBack
    | SetAside
    | Compensating
    | EffectsOutside
    | SandboxesRestored
    | RealFilesRestored
    | SandboxesMadeAnew
    | SeenAtOwnPath
    | Working
    | SubplanStarted
    | SubplanEnded
    | SubplanMerged
    | InSubplan
)
Listener = Callable[[Event], None]
