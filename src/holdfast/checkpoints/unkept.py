"""The sandboxes of a plan as they are now, compared and restored without being kept: for a disk without room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.content.difference import Difference
from holdfast.content.format import State
from holdfast.model import CheckpointGroup, Plan, Resource
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.restore.write import Restored


@dataclass(frozen=True)
class UnkeptPresent:
    """What is in the sandboxes; its states are values, because the store does not have them."""

    differences_to_target: Mapping[str, tuple[Difference, ...]]
    """By resource: what going back changes."""
    unrecorded: Mapping[str, tuple[Difference, ...]]
    """By resource: what the last group does not hold, from that to now; it is lost with going back."""
    in_the_way: tuple[str, ...]
    """What no snapshot holds and will be set aside."""


def look_at_unkept(
    plan: Plan, manager: CheckpointManager, head: CheckpointGroup, target: CheckpointGroup
) -> UnkeptPresent:
    """Also finds out whether all content that going back needs is there, and sound; stores and changes nothing."""
    back: dict[str, tuple[Difference, ...]] = {}
    unrecorded: dict[str, tuple[Difference, ...]] = {}
    in_the_way: list[str] = []
    with manager.storing():
        for resource in plan.resources:
            name, path = resource.name, Path(resource.sandbox_path)
            tree = manager.unstored(path)
            present, reader = tree.state(), tree.reader
            tree.check(target.states[name])
            back[name] = _differing(tuple(reader.differences(present, reader.state(target.states[name]))))
            recorded: State = reader.state(head.states[name])
            unrecorded[name] = _differing(tuple(reader.differences(recorded, present)))
            found = tree.in_the_way(target.states[name], _unheld(target, resource))
            in_the_way += [str(path / each.decode(errors="surrogateescape")) for each in found]
    return UnkeptPresent(back, unrecorded, tuple(in_the_way))


def restore_unkept(manager: CheckpointManager, resource: Resource, target: CheckpointGroup, aside: Path) -> Restored:
    """Turn one sandbox into what the group holds; what is in it now is kept nowhere."""
    path = Path(resource.sandbox_path)
    return manager.restore_unstored(path, target.states[resource.name], aside=aside, unheld=_unheld(target, resource))


def _unheld(group: CheckpointGroup, resource: Resource) -> set[str]:
    return {each.path for each in group.unheld.get(resource.name, ())}


def _differing(differences: tuple[Difference, ...]) -> tuple[Difference, ...]:
    """The root is always listed."""
    return tuple(each for each in differences if each.old != each.new)
