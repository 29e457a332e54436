"""What happens while a plan runs, told to whoever listens: a person's screen, a log, a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.model import CheckpointGroup, Resource, StepRun


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
class WentBack:
    """The sandboxes were taken back to before a step."""

    index: int
    step: str
    checkpoint_id: str


Event = SandboxMade | CheckpointTaken | StepStarted | StepPrinted | StepFinished | Validating | WentBack
Listener = Callable[[Event], None]
