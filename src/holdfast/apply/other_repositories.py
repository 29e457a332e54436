"""Repositories inside a resource, submodules among them: their files are not the resource's, so apply refuses them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.content.difference import Difference, visible
from holdfast.errors import SandboxError
from holdfast.git.repository import GitRepository
from holdfast.git.work_tree import inside_submodules, repositories_around
from holdfast.model import Resource, ResourceType
from holdfast.names import name_text
from holdfast.system.directories import shown, with_ancestors


def outside_of_submodules(resource: Resource, differences: Sequence[Difference]) -> list[Difference]:
    """What the plan changed in the repository itself; files of a submodule are refused, its `.git` is left alone."""
    if resource.type is not ResourceType.GIT:
        return list(differences)
    inside = inside_submodules(GitRepository.at(Path(resource.path)), [difference.path for difference in differences])
    _refuse_foreign_files(difference for difference in differences if difference.path in inside)
    return [difference for difference in differences if difference.path not in inside]


def _refuse_foreign_files(differences: Iterable[Difference]) -> None:
    foreign = [name_text(os.fsdecode(difference.path)) for difference in visible(differences)]
    if foreign:
        listed = "\n  ".join(foreign)
        raise SandboxError(
            "The plan changed files of a submodule, or of another repository inside this one, which apply cannot do; "
            f"nothing was applied:\n  {listed}",
            hint="Make a plan that has the folder of that inner repository as its resource.",
        )


def refuse_other_repositories(repository: GitRepository, wanted: Sequence[Difference]) -> None:
    """Work in a repository inside the user's is not ours to change, and would become plain files of the outer one."""
    roots = repositories_around(repository.root, [difference.path for difference in wanted])
    _refuse_foreign_files(each for each in wanted if roots & with_ancestors([each.path]))


def refuse_repositories_made(resource: Resource, paths: Sequence[bytes]) -> None:
    """What a step cloned: a commit could hold its files only as if they were this repository's."""
    made = sorted(repositories_around(Path(resource.sandbox_path), paths))
    if made:
        listed = "\n  ".join(name_text(shown(path)) for path in made)
        raise SandboxError(
            f"The plan made repositories inside {resource.name}, which apply cannot commit; nothing was applied:\n"
            f"  {listed}",
            hint="Bring their files in without a commit, and without their history: `--no-commit`.",
        )
