"""Which of the files that a plan changed git ignores, by the rules of one of the plan's states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.content.difference import Difference, StateReader
from holdfast.content.format import State
from holdfast.errors import SandboxError
from holdfast.git.repository import GitRepository
from holdfast.git.work_tree import ignored_among, rules_for, texts_in
from holdfast.model import Resource, ResourceType


def ignored_of(
    reader: StateReader, resource: Resource, differences: Sequence[Difference], state: str | None
) -> set[bytes]:
    """What git ignores of a change, by the rules of the state after it; without a state, of the sandbox as it is.

    Without the real repository nothing is known to be ignored.
    """
    if resource.type is not ResourceType.GIT or not differences:
        return set()
    names = rules_for(each.path for each in differences)
    present = Path(resource.sandbox_path)
    rules = texts_in(present, names) if state is None else texts_of(reader, reader.state(state), names)
    with suppress(SandboxError):
        return ignored_by([rules], GitRepository.at(Path(resource.path)), differences)
    return set()


def ignored_by(
    rules: Iterable[Mapping[bytes, bytes]], repository: GitRepository, differences: Sequence[Difference]
) -> set[bytes]:
    """What git ignores of a change, by one of these sets of rules or another."""
    paths = [difference.path for difference in differences]
    found = (ignored_among(repository, each, folders_in(differences), paths) for each in rules)
    return {path for paths in found for path in paths}


def folders_in(differences: Iterable[Difference]) -> set[bytes]:
    return {difference.path for difference in differences if not difference.is_of_file}


def texts_of(reader: StateReader, state: State, names: Iterable[bytes]) -> dict[bytes, bytes]:
    """Those of the files that are in a state, with what they say."""
    found = ((name, reader.find(state, name)) for name in names)
    return {name: b"".join(reader.content(entry)) for name, entry in found if entry is not None and entry.is_file}
