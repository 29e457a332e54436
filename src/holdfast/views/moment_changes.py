"""MomentChanges: what changed at each moment, compared with the moment before it in the history of its plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.checkpoints.file_diffs import FileDiff, file_diff, without_lines
from holdfast.checkpoints.ignored import ignored_of
from holdfast.content.difference import Difference, StateReader
from holdfast.errors import ContentError
from holdfast.model import CheckpointGroup, Plan
from holdfast.parts import Parts


class Differing(NamedTuple):
    resource: str
    difference: Difference


class MomentChange:
    """What changed at one moment; the lines of a file are compared when it is asked for."""

    def __init__(
        self,
        before: CheckpointGroup | None,
        reader: StateReader,
        seen: Sequence[Differing] = (),
        ignored: Sequence[Differing] = (),
        problem: str | None = None,
        largest_bytes: int | None = None,
    ) -> None:
        """``largest_bytes``: of larger files the lines are not compared."""
        self.before = before
        """The moment before it; None if it is the first one, or if that is damaged."""
        self.count, self.ignored_count = len(seen), len(ignored)
        """How many files changed, without those that git ignores; and how many of those."""
        self.problem = problem
        """Why nothing can be compared."""
        self._reader, self._seen, self._ignored, self._largest_bytes = reader, seen, ignored, largest_bytes

    def files(self) -> Iterator[FileDiff]:
        """The files that changed, without those that git ignores."""
        for resource, difference in self._seen:
            try:
                yield self._compared(resource, difference)
            except ContentError:
                yield _uncompared(resource, difference, "its content is damaged")

    def _compared(self, resource: str, difference: Difference) -> FileDiff:
        size = max(each.size for each in (difference.old, difference.new) if each is not None)
        if self._largest_bytes is not None and size > self._largest_bytes:
            return _uncompared(resource, difference, "large; its lines are not compared here")
        return file_diff(self._reader, resource, difference)

    def ignored_files(self) -> Iterator[FileDiff]:
        """The files that changed and that git ignores; their lines are not compared."""
        return (without_lines(resource, difference) for resource, difference in self._ignored)


def _uncompared(resource: str, difference: Difference, note: str) -> FileDiff:
    return replace(without_lines(resource, difference), is_ignored=False, note=note)


class MomentChanges:
    """Compares the moments of one plan."""

    def __init__(self, parts: Parts, plan: Plan) -> None:
        parts.refuse_without_content(plan)
        self._plan, self._store = plan, parts.store
        self._changes, self._reader = parts.service.changes, parts.service.manager.reader

    def at(self, group: CheckpointGroup, largest_bytes: int | None = None) -> MomentChange:
        """What changed between the moment before this one and this one; ``largest_bytes`` as in ``MomentChange``."""
        if group.parent_group_id is None:
            return MomentChange(None, self._reader)
        before = self._store.find(CheckpointGroup, group.parent_group_id, sound_only=True)
        if before is None:
            return MomentChange(None, self._reader, problem="The record of the moment before it is damaged.")
        try:
            seen, ignored = self._between(before, group)
        except ContentError as error:
            return MomentChange(before, self._reader, problem=error.message)
        return MomentChange(before, self._reader, seen, ignored, largest_bytes=largest_bytes)

    def _between(self, before: CheckpointGroup, group: CheckpointGroup) -> tuple[list[Differing], list[Differing]]:
        seen: list[Differing] = []
        ignored: list[Differing] = []
        for name, listed in self._changes.between(self._plan, before.states, group.states).items():
            resource, after = self._plan.resource(name), group.states[name]
            hidden = ignored_of(self._reader, resource, listed, after)
            for each in listed:
                (ignored if each.path in hidden else seen).append(Differing(name, each))
        return seen, ignored
