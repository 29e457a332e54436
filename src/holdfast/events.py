"""Events: what an execution tells its listener, for example a screen, a log or a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.model import CheckpointGroup, Conflict, OperationKind, Plan, Resource, SideEffect, StepRun
from holdfast.system.progress import Working as Working


@dataclass(frozen=True)
class SandboxMade:
    resource: Resource


@dataclass(frozen=True)
class CheckpointTaken:
    group: CheckpointGroup
    checkpoint_id: str


@dataclass(frozen=True)
class StepStarted:
    index: int
    count: int
    run: StepRun


@dataclass(frozen=True)
class StepPrinted:
    index: int
    text: bytes


@dataclass(frozen=True)
class StepFinished:
    index: int
    count: int
    run: StepRun


@dataclass(frozen=True)
class Validating:
    command: str


@dataclass(frozen=True)
class RolledBack:
    """The sandboxes were rolled back to before a step."""

    index: int
    step: str
    checkpoint_id: str


@dataclass(frozen=True)
class SetAside:
    """A rollback moved files that no checkpoint holds, and that were in the way, to these places."""

    places: tuple[str, ...]


@dataclass(frozen=True)
class Compensating:
    """What a step did outside of the sandboxes is being undone."""

    index: int
    name: str


@dataclass(frozen=True)
class EffectsOutside:
    """Steps were undone, and they had done something outside of the sandboxes."""

    side_effects_not_undone: tuple[SideEffect, ...] = ()
    compensated: tuple[SideEffect, ...] = ()
    effects_gone: tuple[SideEffect, ...] = ()
    """Of steps that count as done again, because a rollback is undone: what that rollback had undone outside."""


@dataclass(frozen=True)
class SandboxesRestored:
    """After a crash the sandboxes were restored to what is recorded; what was found in them is kept."""

    resources: tuple[str, ...]
    checkpoint_id: str
    """The checkpoint that keeps what was found."""


@dataclass(frozen=True)
class RealFilesRestored:
    """A change of real files that another plan began, and that was cut short, was undone first."""

    plan: Plan
    kind: OperationKind


@dataclass(frozen=True)
class SandboxesMadeAnew:
    """The sandboxes of these resources had been removed; they were made again as recorded."""

    resources: tuple[str, ...]


@dataclass(frozen=True)
class SeenAtOwnPath:
    """Steps find these sandboxes at another path than the real folder's."""

    resources: tuple[Resource, ...]
    reason: str | None
    """Why the system does not allow it; None if it was asked for, or if no real folder is there."""
    leading_out: tuple[str, ...]
    """What in the sandboxes leads to the real folders."""


@dataclass(frozen=True)
class SubplanStarted:
    subplan: Plan


@dataclass(frozen=True)
class SubplanEnded:
    subplan: Plan


@dataclass(frozen=True)
class SubplanMerged:
    """The result of a subplan was merged into its parent's sandboxes, except for these conflicts."""

    subplan: Plan
    conflicts: tuple[Conflict, ...]


@dataclass(frozen=True)
class InSubplan:
    """Something that happened while a subplan ran."""

    subplan: Plan
    event: Event


Event = (
    SandboxMade
    | CheckpointTaken
    | StepStarted
    | StepPrinted
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
