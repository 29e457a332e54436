"""ContentViews: differences between moments, and whether all saved content is sound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import NotFoundError
from holdfast.model import Checkpoint, CheckpointGroup, FileChange, Moment, Plan
from holdfast.parts import Parts
from holdfast.plans.finding import Plans
from holdfast.system.place import is_there
from holdfast.system.sqlite import damage_in
from holdfast.views.checkpoints import CheckpointView, CheckpointViews

if TYPE_CHECKING:
    from holdfast.checkpoints.file_diffs import FileDiff
    from holdfast.checkpoints.releasing import HeldBack
    from holdfast.checkpoints.verification import VerifyResult

# What a function imports is not needed by most commands: they start without it.


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
        return [file_change(name, difference) for name, listed in changes.items() for difference in listed]

    def changed_files(self, view: CheckpointView) -> list[FileDiff]:
        """What changed between the group before this one and this one."""
        store = self._parts.store
        plan = store.get(Plan, view.checkpoint.plan_id)
        self._parts.refuse_without_content(plan)
        parent = store.find(CheckpointGroup, view.group.parent_group_id) if view.group.parent_group_id else None
        return [] if parent is None else self._diffs(plan, parent.states, view.group.states)

    def diff(self, reference: str, old: str | None = None, new: str | None = None) -> list[FileDiff]:
        """What differs between two checkpoints; by default between the first one and the present files."""
        plan = self._plans.find_plan(reference)
        if plan.head_group_id is None:
            return []
        self._parts.refuse_without_content(plan)
        before = self._parts.store.groups.first(plan.plan_id).states if old is None else self._states_at(plan, old)
        if new is None and self._parts.is_read_only and _has_all_sandboxes(plan):
            from holdfast.checkpoints.present import diff_to_present

            return diff_to_present(plan, self._parts.service.manager, before)
        after = self._states_now(plan) if new is None else self._states_at(plan, new)
        return self._diffs(plan, before, after)

    def _diffs(self, plan: Plan, old: dict[str, str], new: dict[str, str]) -> list[FileDiff]:
        from holdfast.checkpoints.file_diffs import file_diff

        changes = self._parts.service.changes.between(plan, old, new)
        reader = self._parts.service.manager.reader
        return [file_diff(reader, name, difference) for name, listed in changes.items() for difference in listed]

    def _states_at(self, plan: Plan, reference: str) -> dict[str, str]:
        return self._parts.store.get(
            CheckpointGroup, self._checkpoints.find_checkpoint(plan, reference).group_id
        ).states

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
        return replace(found, structure=tuple(structure))

    def held_back(self) -> list[HeldBack]:
        """The plans for which content is kept although no records that can be read say that they need it."""
        return self._parts.service.release.held_back()

    def content_bytes(self) -> int:
        """How much space all saved content takes."""
        return self._parts.service.manager.objects.content_bytes()


def _has_all_sandboxes(plan: Plan) -> bool:
    return all(is_there(Path(resource.sandbox_path)) for resource in plan.resources)
