"""What the tools take. The schemas that clients see are made of these."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

_ID = "An id from timeline, or a label."
_LONGEST_ID = 200
_LONGEST_PATH = 4096


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    label: Annotated[
        str, Meta(max_length=100, description="A short name to find it by; a checkpoint with one is never pruned.")
    ] = ""


class ListMoments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=500, description="How many of the newest moments.")] = 20


class Show(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(min_length=1, max_length=_LONGEST_ID, description=_ID)]


class Diff(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    from_id: Annotated[str, Meta(min_length=1, max_length=_LONGEST_ID, description=_ID)] = msgspec.field(name="from")
    to: Annotated[str, Meta(max_length=_LONGEST_ID, description=f"{_ID} Empty: the files as they are now.")] = ""
    path: Annotated[
        str, Meta(max_length=_LONGEST_PATH, description="Only this file or folder, relative to the project.")
    ] = ""


class Restore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    paths: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=_LONGEST_PATH)]],
        Meta(min_length=1, max_length=1000, description="Files or folders, relative to the project."),
    ]
    from_id: Annotated[str, Meta(min_length=1, max_length=_LONGEST_ID, description=_ID)] = msgspec.field(name="from")


class Rewind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    to: Annotated[str, Meta(min_length=1, max_length=_LONGEST_ID, description=_ID)]
    dry_run: Annotated[bool, Meta(description="true: only show what would change.")] = True
    confirmation_token: Annotated[
        str, Meta(max_length=100, description="What the dry run returned; not needed if the person is asked.")
    ] = ""


class UndoRewind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass
