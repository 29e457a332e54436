"""Reads everything that checkpoints need, and names the checkpoints whose content is damaged or missing."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.content.store import ObjectStore
from holdfast.content.verify import Verifier
from holdfast.db.store import Store
from holdfast.model import Checkpoint, Plan


class DamagedObject(msgspec.Struct, frozen=True):
    """An object that checkpoints need and that is damaged or missing."""

    digest: str
    is_there: bool
    """The object is in the store, but its content does not match its digest; otherwise it is missing."""
    checkpoints: tuple[Checkpoint, ...]


class VerifyResult(msgspec.Struct, frozen=True):
    checkpoints: int
    objects: int
    damaged: tuple[DamagedObject, ...]
    structure: tuple[str, ...] = ()
    """What is wrong with the database file of the content store, as SQLite reports it."""

    @property
    def is_sound(self) -> bool:
        return not self.damaged and not self.structure


def verify_plans(store: Store, objects: ObjectStore, plans: Iterable[Plan]) -> VerifyResult:
    """Read everything that the checkpoints of these plans need, and check every digest."""
    verifier = Verifier(objects)
    damaged: dict[bytes, list[Checkpoint]] = {}
    checked = 0
    for plan in plans:
        checkpoints = store.checkpoints.of(plan.plan_id)
        states = {group.group_id: group.states for group in store.groups.of(plan.plan_id, sound_only=True)}
        # A checkpoint that was pruned meanwhile no longer has a group, and perhaps no content.
        for checkpoint in [each for each in checkpoints if each.group_id in states]:
            bad = [verifier.bad_objects_of(state) for state in states[checkpoint.group_id].values()]
            if any(bad) and not store.has(Checkpoint, checkpoint.checkpoint_id):
                continue
            checked += 1
            for digest in frozenset[bytes]().union(*bad):
                damaged.setdefault(digest, []).append(checkpoint)
    found = [
        DamagedObject(digest.hex(), digest not in verifier.missing, tuple(affected))
        for digest, affected in damaged.items()
    ]
    return VerifyResult(checked, verifier.objects_read, tuple(found))
