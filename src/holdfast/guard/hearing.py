"""What the guard hears, and whether whoever said it still listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast.agents.hooks.event import HookEvent

if TYPE_CHECKING:
    from holdfast import SavedFirst


class Heard(msgspec.Struct, frozen=True):
    event: HookEvent
    pid: int | None
    """The process of the hook."""
    saved: SavedFirst | None = None
    """What the call is about to touch, if it did not wait."""


class Listening(msgspec.Struct, frozen=True):
    """Asked when the event is recorded: an agent does not wait for ever."""

    can_be_told: Callable[[], bool]
    """Whether the model gets what it is told in the answer."""
    is_stopped: Callable[[], bool]
    """Whether the call was stopped meanwhile, so that it never begins."""
