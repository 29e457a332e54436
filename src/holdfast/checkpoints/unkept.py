"""Compares and restores sandboxes without keeping their present state: for a full disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from holdfast.content.difference import Difference
from holdfast.model import CheckpointGroup, Plan, Resource
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.restore.write import Restored


class UnkeptPresent(msgspec.Struct, frozen=True):
    """How the present sandboxes differ from stored states; they themselves are not stored."""

    differences_to_target: Mapping[str, tuple[Difference, ...]]
    """By resource: what the rollback changes."""
    unrecorded: Mapping[str, tuple[Difference, ...]]
    """By resource: what changed since the last group; the rollback loses it."""
    in_the_way: tuple[str, ...]
    """Files that no snapshot can hold and that will be set aside."""


def look_at_unkept(
    plan: Plan, manager: CheckpointManager, head: CheckpointGroup, target: CheckpointGroup
) -> UnkeptPresent:
    """Compare the sandboxes, and check that all content the rollback needs is sound; stores and changes nothing."""
    back: dict[str, tuple[Difference, ...]] = {}
    unrecorded: dict[str, tuple[Difference, ...]] = {}
    in_the_way: list[str] = []
    with manager.storing():
        for resource in plan.resources:
            name, path = resource.name, Path(resource.sandbox_path)
            tree = manager.unstored(path)
            present, reader = tree.state(), tree.reader
            tree.check(target.states[name])
            back[name] = _differing(reader.differences(present, reader.state(target.states[name])))
            unrecorded[name] = _differing(reader.differences(reader.state(head.states[name]), present))
            found = tree.in_the_way(target.states[name], unheld_paths(target, resource))
            in_the_way += [str(path / each.decode(errors="surrogateescape")) for each in found]
    return UnkeptPresent(back, unrecorded, tuple(in_the_way))


def restore_unkept(manager: CheckpointManager, resource: Resource, target: CheckpointGroup, aside: Path) -> Restored:
    """Restore one sandbox to a group; its present files are not kept."""
    path, unheld = Path(resource.sandbox_path), unheld_paths(target, resource)
    return manager.restore_unstored(path, target.states[resource.name], aside=aside, unheld=unheld)


def unheld_paths(group: CheckpointGroup, resource: Resource) -> set[str]:
    """Paths that the sandbox had at that group and that no snapshot can hold."""
    return {each.path for each in group.unheld.get(resource.name, ())}


def _differing(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Without the root if it does not differ: it is always listed."""
    return tuple(each for each in differences if each.old != each.new)
