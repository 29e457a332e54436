"""ContentViews: differences between moments, and whether all saved content is sound."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.errors import NotFoundError, StateError
from holdfast.model import Checkpoint, CheckpointGroup, FileChange, Moment, Plan, Resource
from holdfast.parts import Parts
from holdfast.plans.finding import Plans
from holdfast.system.place import is_there
from holdfast.system.sqlite import damage_in
from holdfast.views.checkpoints import CheckpointViews
from holdfast.views.timeline import CheckpointView

if TYPE_CHECKING:
    from holdfast.checkpoints.file_diffs import Contents, FileDiff
    from holdfast.checkpoints.releasing import HeldBack
    from holdfast.checkpoints.verification import VerifyResult
    from holdfast.content.difference import Difference, StateReader
    from holdfast.views.moment_changes import MomentChanges

# What a function imports is not needed by most commands: they start without it.


class _Found(NamedTuple):
    """What differs in one resource."""

    resource: Resource
    differences: Sequence[Difference]
    contents: Contents
    state: str | None
    """The state after it; None if it is that of the sandbox now, and not stored."""


class ContentViews:
    def __init__(self, parts: Parts, plans: Plans, checkpoints: CheckpointViews) -> None:
        self._parts, self._plans, self._checkpoints = parts, plans, checkpoints

    def changes(self, plan: Plan) -> list[FileChange]:
        """What the plan changed in its sandboxes, from its first checkpoint to its last."""
        from holdfast.checkpoints.changes import file_change

        if plan.head_group_id is None:
            return []
        store = self._parts.store
        first, head = store.groups.first(plan.plan_id), store.get(CheckpointGroup, plan.head_group_id)
        changes = self._parts.service.changes.between(plan, first.states, head.states)
        found = []
        for name, listed in changes.items():
            ignored = self._ignored(plan.resource(name), listed, head.states[name])
            found += [file_change(name, each, ignored) for each in listed]
        return found

    def changed_files(self, view: CheckpointView) -> list[FileDiff]:
        """What changed between the group before this one and this one."""
        store = self._parts.store
        plan = store.get(Plan, view.checkpoint.plan_id)
        self._parts.refuse_without_content(plan)
        parent = store.find(CheckpointGroup, view.group.parent_group_id) if view.group.parent_group_id else None
        if parent is None:
            return []
        changes, reader = self._parts.service.changes, self._parts.service.manager.reader
        found = changes.between(plan, parent.states, view.group.states)
        return [each for name, listed in found.items() for each in _file_diffs(reader, name, listed)]

    def moment_changes(self, plan: Plan) -> MomentChanges:
        """Compares the moments of the plan, each with the one before it."""
        from holdfast.views.moment_changes import MomentChanges

        return MomentChanges(self._parts, plan)

    def diff(
        self,
        reference: str,
        old: str | None = None,
        new: str | None = None,
        *,
        with_ignored: bool = True,
        paths: Sequence[str] = (),
    ) -> list[FileDiff]:
        """What differs between two checkpoints; by default between the first one and the present files.

        ``with_ignored``: compare the lines of files that git ignores, too; otherwise they are only named.
        ``paths``: only these files and what is in these folders (``PATH`` or ``RESOURCE:PATH``); by default all.
        """
        plan = self._plans.find_plan(reference)
        if plan.head_group_id is None:
            return []
        self._parts.refuse_without_content(plan)
        before = self._parts.store.groups.first(plan.plan_id).states if old is None else self._states_at(plan, old)
        if new is None and self._parts.is_read_only and _has_all_sandboxes(plan):
            found = self._to_present(plan, before)
        else:
            found = self._between(plan, before, self._states_now(plan) if new is None else self._states_at(plan, new))
        wanted = _chosen(self._parts.service.manager.reader, plan, before, found, paths) if paths else found
        return [each for found in wanted for each in self._file_diffs(found, with_ignored)]

    def _to_present(self, plan: Plan, old: dict[str, str]) -> list[_Found]:
        from holdfast.checkpoints.present import differences_to_present

        compared = differences_to_present(plan, self._parts.service.manager, old)
        return [_Found(resource, listed, contents, None) for resource, listed, contents in compared]

    def _between(self, plan: Plan, old: dict[str, str], new: dict[str, str]) -> list[_Found]:
        reader, compared = self._parts.service.manager.reader, self._parts.service.changes.between(plan, old, new)
        return [_Found(plan.resource(name), listed, reader, new[name]) for name, listed in compared.items()]

    def _file_diffs(self, found: _Found, with_ignored: bool) -> Iterator[FileDiff]:
        ignored = self._ignored(found.resource, found.differences, found.state)
        return _file_diffs(found.contents, found.resource.name, found.differences, ignored, with_ignored=with_ignored)

    def _ignored(self, resource: Resource, differences: Sequence[Difference], state: str | None) -> set[bytes]:
        from holdfast.checkpoints.ignored import ignored_of

        return ignored_of(self._parts.service.manager.reader, resource, differences, state)

    def _states_at(self, plan: Plan, reference: str) -> dict[str, str]:
        return self._parts.store.get(CheckpointGroup, self._checkpoint_at(plan, reference).group_id).states

    def _checkpoint_at(self, plan: Plan, reference: str) -> Checkpoint:
        try:
            return self._checkpoints.find_checkpoint(plan, reference)
        except StateError:  # of another plan; what two sessions recorded of one folder can be compared
            found = self._checkpoints.checkpoint(reference).checkpoint
            if not (plan.is_session and _is_of_same_folder(plan, self._parts.store.get(Plan, found.plan_id))):
                raise
            return found

    def _states_now(self, plan: Plan) -> dict[str, str]:
        """What the sandboxes hold now; if they are gone, as after an apply, the last states recorded."""
        if _has_all_sandboxes(plan):
            return self._parts.service.sandboxes.states_now(plan)
        return self._parts.store.get(CheckpointGroup, plan.head_group_id or "").states

    def result_of_attempt(self, reference: str, attempt: int) -> Checkpoint:
        """The first checkpoint of the last group of an attempt, also of one that a correction ended."""
        plan = self._plans.find_plan(reference)
        groups = sorted(self._parts.store.groups.of(plan.plan_id), key=lambda group: group.sequence)
        # A group that a rollback made holds the result of an earlier attempt.
        results = {group.attempt: group for group in groups if Moment.ROLLBACK not in group.triggers}
        if attempt not in results:
            known = ", ".join(map(str, sorted(results)))
            raise NotFoundError(
                f"Plan {plan.plan_id} has no result of an attempt {attempt}.",
                hint=f"There are results of these attempts: {known}." if known else "It has not run yet.",
            )
        return self._parts.service.checkpoints_at(results[attempt])[0]

    def verify(self, reference: str | None = None) -> VerifyResult:
        """Read back everything the checkpoints need, of one plan or of all that are kept in this home.

        If the structure of the store is damaged, the result still says which objects can be read.
        """
        parts = self._parts
        if reference is not None:
            plans = [self._plans.find_plan(reference)]
        else:
            plans = [plan for plan in parts.store.plans.of_project(None) if parts.is_kept_here(plan)]
        for plan in plans:
            parts.refuse_without_content(plan)
        objects = parts.service.manager.objects
        structure = damage_in(objects.path)
        if structure:
            objects.leave_as_it_is()
        found = parts.service.verify(each for plan in plans for each in (plan, *self._plans.below(plan)))
        return msgspec.structs.replace(found, structure=tuple(structure))

    def held_back(self) -> list[HeldBack]:
        """The plans for which content is kept although no records that can be read say that they need it."""
        return self._parts.service.release.held_back()

    def unfreed(self) -> str | None:
        """Why content that the last ``prune``, ``delete`` or ``delete_checkpoint`` released could not be freed."""
        return self._parts.service.garbage.unfreed

    def content_bytes(self) -> int:
        """How much space all saved content takes."""
        return self._parts.service.manager.objects.content_bytes()


def _file_diffs(
    contents: Contents,
    resource: str,
    differences: Sequence[Difference],
    ignored: Collection[bytes] = (),
    *,
    with_ignored: bool = True,
) -> Iterator[FileDiff]:
    from holdfast.checkpoints.file_diffs import file_diff, without_lines

    for each in differences:
        if each.path not in ignored:
            yield file_diff(contents, resource, each)
        elif with_ignored:
            yield replace(file_diff(contents, resource, each), is_ignored=True)
        else:
            yield without_lines(resource, each)


def _chosen(
    reader: StateReader, plan: Plan, before: Mapping[str, str], found: Sequence[_Found], paths: Sequence[str]
) -> list[_Found]:
    """What of it a person asked for."""
    from holdfast.checkpoints.chosen_paths import chosen_among

    chosen = chosen_among(
        plan,
        paths,
        {each.resource.name: each.differences for each in found},
        lambda resource, path: reader.find(reader.state(before[resource.name]), path) is not None,
    )
    return [each._replace(differences=chosen.of(each.resource.name, each.differences)) for each in found]


def _is_of_same_folder(session: Plan, other: Plan) -> bool:
    places = [(other.store_id, each.path) for each in other.resources]
    return other.is_session and places == [(session.store_id, each.path) for each in session.resources]


def _has_all_sandboxes(plan: Plan) -> bool:
    return all(is_there(Path(resource.sandbox_path)) for resource in plan.resources)
