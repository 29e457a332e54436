"""The objects that a git sandbox borrows from the user's repository, and how steps find them.

A step may see the sandbox at the place of the real folder. The user's objects then lie behind it, where no path leads.
So the sandbox also names them at a second place, in the folder of its plan. For all others a symlink to the user's git
directory is there; a step finds that directory itself, mounted read-only.

    .borrowed/<resource>    the symlink
    .view/<resource>        an empty folder; in a step, .view is mounted at .borrowed, and the git directory in it
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.git.repository import GitRepository
from holdfast.model import Resource, ResourceType
from holdfast.process.mount import Mount
from holdfast.system.paths import read_file, write_file
from holdfast.system.trees import sync_directory

ALTERNATES = ".git/objects/info/alternates"
_OBJECTS = "objects"
_LINKS, _MOUNTS = ".borrowed", ".view"


@dataclass(frozen=True)
class Lender:
    """The git directory that lends its objects, and the second place of it."""

    git_dir: Path
    place: Path

    @classmethod
    def of(cls, resource: Resource, git_dir: Path) -> Lender:
        sandbox = Path(resource.sandbox_path)
        return cls(git_dir, sandbox.parent / _LINKS / sandbox.name)

    def make_places(self) -> None:
        links, mounts = self.place.parent, self.place.parent.parent / _MOUNTS
        (mounts / self.place.name).mkdir(parents=True, exist_ok=True)
        links.mkdir(exist_ok=True)
        if not self.place.is_symlink() or os.readlink(self.place) != str(self.git_dir):
            self.place.unlink(missing_ok=True)
            self.place.symlink_to(self.git_dir)
            # No snapshot holds these, so nothing restores them after a power cut.
            for folder in (links, mounts, links.parent):
                sync_directory(folder)

    def alternates(self, objects: Path) -> bytes:
        """The content of git's file for a repository that borrows these objects: the lender's, or a submodule's of it.

        Git complains about a folder that does not exist. A sandbox has no folder at the real place of the objects of a
        submodule, so those are named only at their second place.
        """
        places = []
        if objects.parent == self.git_dir or not objects.is_relative_to(self.git_dir):
            places.append(objects)
        if objects.is_relative_to(self.git_dir):
            places.append(self.place / objects.relative_to(self.git_dir))
        return b"".join(_quoted(each) + b"\n" for each in places)


def remove_places(resource: Resource) -> None:
    sandbox = Path(resource.sandbox_path)
    (sandbox.parent / _LINKS / sandbox.name).unlink(missing_ok=True)
    for folder in (f"{_MOUNTS}/{sandbox.name}", _MOUNTS, _LINKS):
        # Those of other resources may be in it.
        with suppress(OSError):
            (sandbox.parent / folder).rmdir()


def mounts_of(resource: Resource) -> list[Mount]:
    """What lets steps find the lender; nothing if the sandbox borrows nothing."""
    places = _read(resource)
    # A fork names the place of the plan it was forked from.
    links = [each.parents[1] for each in places if each.name == _OBJECTS and each.parents[1].name == _LINKS]
    if not links or not links[0].is_dir():
        return []
    place = links[0] / resource.name
    mounting = Mount(links[0].parent / _MOUNTS, links[0], read_only=True)
    return [mounting, Mount(place.resolve(), place, read_only=True)] if place.is_dir() else []


def second_places(resource: Resource) -> bytes | None:
    """Git's file without the real place of the objects; None if the sandbox borrows nothing in this way.

    Where the sandbox itself is seen at the real place, that place names its own objects. Git notices that.
    """
    places = [each for each in _read(resource) if _LINKS in each.parts]
    return b"".join(_quoted(each) + b"\n" for each in places) or None


def renew(resource: Resource) -> None:
    """Name the second place, if the sandbox was made by an earlier version, by another plan, or in a moved home."""
    places = _read(resource)
    if not places or places[0].name != _OBJECTS:
        return
    lender = Lender.of(resource, places[0].parent)
    lender.make_places()
    if lender.place / _OBJECTS not in places:
        _rewrite(Path(resource.sandbox_path), lender)


def _rewrite(work_tree: Path, lender: Lender) -> None:
    """Write the file again, for the repository and for those inside of it that borrow from the same lender."""
    for objects in _objects_in(work_tree, lender):
        write_file(work_tree, ALTERNATES, lender.alternates(objects))
    repository = GitRepository.at(work_tree)
    for path in [*repository.submodules(), *repository.work_trees_inside()]:
        _rewrite(work_tree / os.fsdecode(path), lender)


def _objects_in(work_tree: Path, lender: Lender) -> Iterator[Path]:
    """The objects that the repository borrows, at their real place."""
    for place in _places(work_tree)[:1]:
        *_, second = place.as_posix().rpartition(f"/{_LINKS}/{lender.place.name}/")
        yield lender.git_dir / second if second != place.as_posix() else place


def _read(resource: Resource) -> list[Path]:
    return _places(Path(resource.sandbox_path)) if resource.type is ResourceType.GIT else []


def _places(work_tree: Path) -> list[Path]:
    """The places that a repository borrows from; nothing if it borrows nothing, or if a step broke the file."""
    try:
        content = read_file(work_tree, ALTERNATES)
    except HoldfastError:
        return []
    lines = (line for line in content.split(b"\n") if line and not line.startswith(b"#"))
    return [Path(os.fsdecode(_unquoted(line))) for line in lines]


def _quoted(path: Path) -> bytes:
    """A path in the form of git's alternates file: quoted if git would misread it otherwise."""
    text = os.fsencode(path)
    if not text.startswith((b'"', b"#")) and b"\n" not in text:
        return text
    return b'"' + text.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


def _unquoted(line: bytes) -> bytes:
    if not line.startswith(b'"'):
        return line
    text = line[1:-1].replace(b"\\\\", b"\0").replace(b'\\"', b'"').replace(b"\\n", b"\n")
    return text.replace(b"\0", b"\\")
