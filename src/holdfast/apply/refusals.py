"""Why the real files of a plan are not changed: what apply and unapply refuse alike, before anything is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from holdfast.content.difference import Difference
from holdfast.errors import ConflictError, SandboxError
from holdfast.git.repository import GitRepository
from holdfast.model import Resource
from holdfast.names import name_text
from holdfast.snapshot.selection import closed_directories, read_only_directories
from holdfast.system.directories import shown


def is_there(resource: Resource) -> bool:
    return Path(resource.path).is_dir()


def listed(resources: Iterable[Resource]) -> str:
    return "\n  ".join(name_text(resource.path) for resource in resources)


def refuse_missing_resources(resources: Iterable[Resource]) -> None:
    missing = [resource for resource in resources if not is_there(resource)]
    if missing:
        raise SandboxError(
            f"These no longer exist; nothing was changed:\n  {listed(missing)}",
            hint="Bring them back to that place, then run the command again.",
        )


def refuse_busy_repository(repository: GitRepository) -> None:
    busy = repository.operation_in_progress()
    if busy:
        raise SandboxError(
            f"A {busy} is in progress in {repository.root}; nothing was changed.",
            hint=f"Finish or abort the {busy}, then run the command again.",
        )


def refuse_closed_folders(
    changes: Iterable[tuple[Path, Sequence[Difference]]], repositories: Iterable[GitRepository]
) -> None:
    """Refuse if we may not write: to the files' folders, and for a commit to git's own."""
    changes = list(changes)

    def found_by(find: Callable[[Path, Sequence[Difference]], set[bytes]]) -> list[Path]:
        return [root / os.fsdecode(path) for root, each in changes for path in sorted(find(root, each))]

    read_only = found_by(read_only_directories)
    if read_only:
        folders = "\n  ".join(name_text(str(folder)) for folder in read_only)
        raise SandboxError(
            f"The change is in these folders, which were made read-only; nothing was changed:\n  {folders}",
            hint="If they may be changed, make them writable with `chmod u+w`, then run the command again.",
        )
    closed = found_by(closed_directories)
    for repository in repositories:
        places = (repository.git_dir, repository.common_dir / "objects")
        closed += [place for place in places if not os.access(place, os.W_OK | os.X_OK, effective_ids=True)]
    if closed:
        folders = "\n  ".join(map(str, closed))
        raise SandboxError(
            f"These folders cannot be written to; nothing was changed:\n  {folders}",
            hint="See with `ls -ld` whose they are, and whether their disk may be written to; then try again.",
        )


def labelled(resource: Resource, paths: Iterable[bytes]) -> list[str]:
    """Paths in conflict, as a person reads them."""
    return [f"{resource.name}: {shown(path)}" for path in sorted(paths)]


def conflict(message: str, paths: Iterable[str], hint: str) -> ConflictError:
    """The refusal of a change because of these paths, each named once."""
    paths = tuple(dict.fromkeys(paths))
    return ConflictError("\n  ".join([message, *map(name_text, paths)]), hint=hint, paths=paths)


def changed_meanwhile(root: Path, path: bytes) -> ConflictError:
    return ConflictError(
        f"Something else changed {name_text(shown(path))} in {name_text(str(root))} meanwhile; nothing was changed.",
        hint="Run the command again.",
        paths=(shown(path),),
    )
