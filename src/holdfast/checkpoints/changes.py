"""Changes: what differs between two moments of a plan, and which of that concerns the user."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from holdfast.content.difference import Difference, StateReader, visible
from holdfast.model import FileChange, Plan, Resource, ResourceType
from holdfast.sandbox.protocol import sandbox_for
from holdfast.system.directories import shown

States = Mapping[str, str]
"""By resource: the hash of the state of its sandbox."""
Status = Literal["added", "removed", "changed"]
_HEADS = (b".git/HEAD", b".git/packed-refs")


class Reverted(NamedTuple):
    """What a rollback changes in the sandboxes."""

    files: tuple[FileChange, ...]
    repositories: tuple[str, ...]
    """Resources whose HEAD, branches or tags change; these are not files of the user."""


class Changes:
    """Compares stored states."""

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader

    def between(self, plan: Plan, old: States, new: States) -> dict[str, list[Difference]]:
        """By resource: the differences worth showing to a person."""
        return visible_of_user(plan, self.everything(plan, old, new))

    def differences(self, plan: Plan, old: States, new: States) -> dict[str, list[Difference]]:
        """By resource: every path of the user that differs; the internal files of sandboxes are left out."""
        return {
            name: of_user(plan, plan.resource(name), found) for name, found in self.everything(plan, old, new).items()
        }

    def reverted(self, plan: Plan, old: States, new: States) -> Reverted:
        """What a rollback from the old states to the new ones changes."""
        return reverted(plan, self.everything(plan, old, new))

    def everything(self, plan: Plan, old: States, new: States) -> dict[str, list[Difference]]:
        """By resource: all that differs, the internal files of sandboxes too."""
        reader, names = self._reader, [resource.name for resource in plan.resources]
        return {
            name: reader.differences_at_once(reader.state(old[name]), reader.state(new[name]))
            for name in names
            if old[name] != new[name]
        }


def reverted(plan: Plan, differing: Mapping[str, Iterable[Difference]]) -> Reverted:
    by_resource = visible_of_user(plan, differing).items()
    files = tuple(_reverted_file(name, difference) for name, listed in by_resource for difference in listed)
    return Reverted(files, with_other_commits(plan, differing))


def with_other_commits(plan: Plan, differing: Mapping[str, Iterable[Difference]]) -> tuple[str, ...]:
    """Resources whose HEAD, branches or tags differ."""
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


def of_user(plan: Plan, resource: Resource, differences: Iterable[Difference]) -> list[Difference]:
    """The differences without the internal files of the sandbox."""
    hides = sandbox_for(plan, resource).hides
    # The root folder of a work tree is not part of a repository.
    has_root = resource.type is ResourceType.DIRECTORY
    return [each for each in differences if (each.path or has_root) and not hides(each.path)]


def visible_of_user(plan: Plan, found: Mapping[str, Iterable[Difference]]) -> dict[str, list[Difference]]:
    return {name: visible(of_user(plan, plan.resource(name), listed)) for name, listed in found.items()}


def file_change(resource: str, difference: Difference, ignored: Collection[bytes] = ()) -> FileChange:
    path = difference.path
    return FileChange(resource=resource, file=shown(path), action=status_of(difference), is_ignored=path in ignored)


def status_of(difference: Difference) -> Status:
    return "added" if difference.old is None else "removed" if difference.new is None else "changed"


def _reverted_file(resource: str, difference: Difference) -> FileChange:
    action: Literal["removed", "restored"] = "removed" if difference.new is None else "restored"
    return FileChange(resource=resource, file=shown(difference.path), action=action)
