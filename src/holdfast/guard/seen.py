"""When the hooks of each agent were last heard of in a folder: how ``holdfast agents status`` knows that they run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast.guard.client import name_of
from holdfast.guard.wire import sockets_folder


class Seen(msgspec.Struct, frozen=True):
    at: datetime
    event: str


def last_seen(home: Path, folder: Path) -> Mapping[str, Seen]:
    """The last event of each agent in that folder; nothing if the file is missing or damaged."""
    try:
        return msgspec.json.decode(_file(home, folder).read_bytes(), type=dict[str, Seen])
    except (OSError, msgspec.DecodeError):
        return {}


def note_seen(home: Path, folder: Path, agent: str, event: str, at: datetime | None = None) -> None:
    """Note that this agent was heard of. Only the process of the folder does this, so there is no other writer.

    It is not made durable, because an agent waits for it, and the next event brings it back.
    """
    seen = {**last_seen(home, folder), agent: Seen(at or datetime.now(UTC), event)}
    file = _file(home, folder)
    fresh = file.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(seen) + b"\n")
    fresh.replace(file)


def _file(home: Path, folder: Path) -> Path:
    return sockets_folder(home) / f"{name_of(bytes(folder)).decode()}.seen.json"
