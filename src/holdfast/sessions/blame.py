"""Who changed a path of a folder, told from the moments before and after the calls of all its sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from holdfast.checkpoints.service import CheckpointService
from holdfast.content.format import DIRECTORY, Entry
from holdfast.model import CheckpointGroup, Moment, Plan
from holdfast.sessions.calls import Call, calls_of
from holdfast.sessions.undoing import folder_of
from holdfast.snapshot.selection import same
from holdfast.system.paths import readings

Did = Literal["made", "changed", "removed"]


class Blamed(msgspec.Struct, frozen=True):
    """One change of a path."""

    at: datetime
    did: Did
    plan: Plan
    group: CheckpointGroup
    """The first moment with the change."""
    calls: tuple[Call, ...]
    """The calls that may have made it: more than one if they ran at the same time; none if a person did."""
    is_undo: bool = False
    """It was undone or brought back."""


class _Seen(NamedTuple):
    plan: Plan
    group: CheckpointGroup
    entry: Entry | None


def blame(path: str, sessions: Sequence[Plan], service: CheckpointService) -> list[Blamed]:
    """The changes of that path, newest first."""
    ordered = sorted(
        (seen for plan in sessions for seen in _moments(path, plan, service)),
        key=lambda seen: (seen.group.created_at, seen.group.sequence),
    )
    calls = [call for plan in sessions for call in calls_of(service.store, plan)]
    found = []
    for before, seen in pairwise(ordered):
        if not same(before.entry, seen.entry):
            found.append(_blamed(before, seen, calls))
    return found[::-1]


def _moments(path: str, plan: Plan, service: CheckpointService) -> list[_Seen]:
    resource, reader = folder_of(plan), service.manager.reader
    ((_, inside),) = list(readings([resource.name], path))[:1]
    seen = []
    for group in service.store.groups.of(plan.plan_id, sound_only=True):
        entry = reader.find(reader.state(group.states[resource.name]), inside)
        seen.append(_Seen(plan, group, _with_listing(entry)))
    return seen


def _with_listing(entry: Entry | None) -> Entry | None:
    """Of a folder what is in it counts as well."""
    if entry is not None and entry.kind == DIRECTORY:
        return msgspec.structs.replace(entry, xattrs=(*entry.xattrs, (b"listing", entry.content)))
    return entry


def _blamed(before: _Seen, seen: _Seen, calls: Sequence[Call]) -> Blamed:
    did: Did = "made" if before.entry is None else "removed" if seen.entry is None else "changed"
    at, group = seen.group.created_at, seen.group
    is_undo = not {Moment.UNDO.value, Moment.REDO.value}.isdisjoint(group.triggers)
    # What was seen before a call began was there already; what was seen at its end may be its work.
    if is_undo:
        return Blamed(at, did, seen.plan, group, (), is_undo=True)
    ran = [call for call in calls if call.started_at < at and (call.finished_at is None or call.finished_at > at)]
    own = [call for call in calls if call.after_id == group.group_id]
    return Blamed(at, did, seen.plan, group, tuple(own + [call for call in ran if call not in own]))
