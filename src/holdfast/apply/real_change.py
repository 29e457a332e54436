"""A change of the real files of one resource, as a value: decided before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.content.difference import Difference, visible
from holdfast.content.format import DIRECTORY, Entry
from holdfast.git.branches import BranchMove
from holdfast.model import Resource
from holdfast.snapshot.selection import Selection, directories_in_use
from holdfast.system.directories import split, with_ancestors

Links = tuple[tuple[bytes, ...], ...]


class RealChange(msgspec.Struct, frozen=True):
    resource: Resource
    differences: tuple[Difference, ...] = ()
    """From the real files as they are now to what they will be."""
    links: Links = ()
    merged: Mapping[bytes, bytes] = msgspec.field(default_factory=dict)
    """Text in which both the plan and the user changed different lines, put together; not in the store yet."""
    branch: BranchMove | None = None

    @property
    def root(self) -> Path:
        return Path(self.resource.path).resolve()

    @property
    def paths(self) -> list[bytes]:
        return [difference.path for difference in self.differences]

    @property
    def visible_differences(self) -> list[Difference]:
        """Those that a person is shown: of folders that are made or removed, only the empty ones.

        The entry of a folder of a user stands for itself only, so what is in it is known from the other differences.
        """
        holders = with_ancestors(split(path)[0] for path in self.paths)
        return [each for each in self.differences if _is_visible(each, holders)]


def _is_visible(difference: Difference, holders: Collection[bytes]) -> bool:
    if difference.old is None or difference.new is None:
        return difference.is_of_file or difference.path not in holders
    return bool(visible([difference]))


def with_folders(
    root: Path, todo: Sequence[Difference], real: Selection, folder: Callable[[bytes], Entry | None]
) -> tuple[list[Difference], set[bytes]]:
    """The change with the folders that it needs and without those that must stay; and the paths in conflict.

    ``folder`` says what a folder is to be that the change needs and that is not there. In conflict is what the user
    has in the place of such a folder, and a folder to be replaced in which the user has something of their own.
    """
    missing = _missing_folders(todo, real)
    todo = [*todo, *(Difference(path, real.get(path), folder(path)) for path in missing)]
    conflicts = {path for path in missing if path in real} | _folders_in_use(root, todo)
    # A folder that is to be removed stays if something of the user's in it stays.
    staying = directories_in_use(root, {difference.path for difference in todo if difference.new is None})
    return [difference for difference in todo if difference.path not in staying], conflicts


def _missing_folders(todo: Sequence[Difference], real: Selection) -> list[bytes]:
    """Folders that the change needs, and that the user removed or replaced; the outer ones first."""
    made = {difference.path for difference in todo}
    needed = with_ancestors(difference.path for difference in todo if difference.new is not None) - made
    return sorted(path for path in needed if path not in real or real[path].kind != DIRECTORY)


def _folders_in_use(root: Path, todo: Sequence[Difference]) -> set[bytes]:
    """Folders that are to be replaced, and in which the user has something that is not in the change."""
    replaced = {
        path for path, old, new in todo if old is not None and new is not None and old.kind == DIRECTORY != new.kind
    }
    going = {difference.path for difference in todo if difference.new is None}
    return directories_in_use(root, going | replaced) & replaced if replaced else set()
