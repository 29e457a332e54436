"""What differs between two moments of a plan, as a person would call it changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from holdfast.content.difference import Difference, StateReader, visible
from holdfast.model import FileChange, Plan, Resource, ResourceType
from holdfast.sandbox import sandbox_for
from holdfast.system.directories import shown

States = Mapping[str, str]
"""By resource: which state its sandbox is in."""
_HEADS = (b".git/HEAD", b".git/packed-refs")


class Reverted(NamedTuple):
    """What a rollback changes."""

    files: tuple[FileChange, ...]
    repositories: tuple[str, ...]
    """Resources with another HEAD, other branches or tags, which are no files of the user."""


class Changes:
    def __init__(self, reader: StateReader) -> None:
        self._reader = reader

    def between(self, plan: Plan, old: States, new: States) -> dict[str, list[Difference]]:
        """What a person would call changed, by resource."""
        return {name: visible(found) for name, found in self.differences(plan, old, new).items()}

    def differences(self, plan: Plan, old: States, new: States) -> dict[str, list[Difference]]:
        """Every path of the user's files that differs, by resource; the sandboxes' own affairs are left out."""
        return {name: _of_user(plan, plan.resource(name), found) for name, found in self._all(plan, old, new).items()}

    def reverted(self, plan: Plan, old: States, new: States) -> Reverted:
        """What going from one state to the other does, as a rollback tells it."""
        return reverted(plan, self._all(plan, old, new))

    def _all(self, plan: Plan, old: States, new: States) -> dict[str, list[Difference]]:
        reader, names = self._reader, [resource.name for resource in plan.resources]
        return {
            name: list(reader.differences(reader.state(old[name]), reader.state(new[name])))
            for name in names
            if old[name] != new[name]
        }


def reverted(plan: Plan, differing: Mapping[str, Iterable[Difference]]) -> Reverted:
    by_resource = visible_of_user(plan, differing).items()
    files = tuple(_file_change(name, difference) for name, listed in by_resource for difference in listed)
    return Reverted(files, with_other_commits(plan, differing))


def with_other_commits(plan: Plan, differing: Mapping[str, Iterable[Difference]]) -> tuple[str, ...]:
    return tuple(
        name
        for name, differences in differing.items()
        if plan.resource(name).type is ResourceType.GIT and any(map(_names_a_commit, differences))
    )


def _names_a_commit(difference: Difference) -> bool:
    if not (difference.path in _HEADS or difference.path.startswith(b".git/refs/")):
        return False
    old, new = difference.old, difference.new
    return any(entry is not None and entry.is_file for entry in (old, new)) and (
        old is None or new is None or old.content != new.content
    )


def _of_user(plan: Plan, resource: Resource, differences: Iterable[Difference]) -> list[Difference]:
    """Without the sandbox's own affairs."""
    hides = sandbox_for(plan, resource).hides
    # The folder of a work tree itself is no part of a repository.
    has_root = resource.type is ResourceType.DIRECTORY
    return [each for each in differences if (each.path or has_root) and not hides(each.path)]


def visible_of_user(plan: Plan, found: Mapping[str, Iterable[Difference]]) -> dict[str, tuple[Difference, ...]]:
    return {name: tuple(visible(_of_user(plan, plan.resource(name), listed))) for name, listed in found.items()}


def _file_change(resource: str, difference: Difference) -> FileChange:
    action: Literal["removed", "restored"] = "removed" if difference.new is None else "restored"
    return FileChange(resource=resource, file=shown(difference.path), action=action)
