"""The tools: checkpoints of the project's folder, and ways back to them. None applies, deletes or forces anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.errors import StateError, UsageError
from holdfast.mcp.confirmation import Confirmations
from holdfast.mcp.progress import watcher_for
from holdfast.mcp.results import (
    Change,
    Changed,
    Conflict,
    Difference,
    File,
    Moment,
    Shown,
    Taken,
    Timeline,
    without_long_patches,
)
from holdfast.mcp.tools import Call, InputRequired, Tool, Toolset

if TYPE_CHECKING:
    from holdfast import Holdfast

INSTRUCTIONS = (
    "Holdfast keeps checkpoints of this project's folder: every file, also those that git ignores, with modes, times, "
    "links, and git's own state. Call checkpoint before a risky step, such as a bulk edit, a migration, or a command "
    "that deletes. If something went wrong, call timeline to find the moment before it, show or diff to see what "
    "changed, and then the smallest way back: restore for single files, rewind for the whole folder. Call rewind with "
    "dry_run=true first and tell the person what it would change. Nothing is lost by going back: the files as they were "
    "before are kept in a checkpoint, and undo_rewind brings them back. What somebody else changed since is merged, "
    "never overwritten. These tools do not touch anything outside of the folder, and do not undo effects on databases, "
    "services or networks."
)

_ID = "An id from timeline, or a label."
_CONFIRM = "confirm"


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    label: Annotated[
        str, Meta(max_length=100, description="A short name to find it by; a checkpoint with one is never pruned.")
    ] = ""


class List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=500, description="How many of the newest moments.")] = 20


class Show(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(min_length=1, description=_ID)]


class Diff(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    from_id: Annotated[str, Meta(min_length=1, description=_ID)] = msgspec.field(name="from")
    to: Annotated[str, Meta(description=f"{_ID} Empty: the files as they are now.")] = ""
    path: Annotated[str, Meta(description="Only this file or folder, relative to the project.")] = ""


class Restore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    paths: Annotated[
        list[Annotated[str, Meta(min_length=1)]],
        Meta(min_length=1, max_length=1000, description="Files or folders, relative to the project."),
    ]
    from_id: Annotated[str, Meta(min_length=1, description=_ID)] = msgspec.field(name="from")


class Rewind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    to: Annotated[str, Meta(min_length=1, description=_ID)]
    dry_run: Annotated[bool, Meta(description="true: only show what would change.")] = True
    confirmation_token: Annotated[
        str, Meta(description="What the dry run returned. Not needed if the person is asked.")
    ] = ""


class UndoRewind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class FolderTools:
    """Holdfast is opened for each call, so no lock or connection is held while the model thinks."""

    def __init__(self, opening: Callable[[], AbstractContextManager[Holdfast]]) -> None:
        self._opening = opening
        self._confirmations = Confirmations()
