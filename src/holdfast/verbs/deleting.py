"""Deleting plans, one or several, and freeing the space of all of them at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.db.lease import refuse_if_held
from holdfast.errors import HoldfastError
from holdfast.locking import Locking
from holdfast.model import Plan
from holdfast.parts import Parts
from holdfast.plans.deleting import delete_damaged_plan, delete_plan
from holdfast.plans.finding import Plans
from holdfast.system.reserve import is_short_of_space


class DeletionPreview(msgspec.Struct, frozen=True):
    plans: tuple[Plan, ...]
    damaged: tuple[str, ...]
    """The ids of plans whose records are damaged, which can be deleted all the same."""
    checkpoints: Mapping[str, int]
    """How many checkpoints each plan has, by its id; those of its subplans too."""

    @property
    def ids(self) -> tuple[str, ...]:
        return (*(plan.plan_id for plan in self.plans), *self.damaged)


class DeletedPlans(msgspec.Struct, frozen=True):
    preview: DeletionPreview
    failed: Mapping[str, HoldfastError]
    """Why these plans are still there, by id."""
    freed_bytes: int | None
    """How much saved content was freed; None if a process of its own still frees it."""

    @property
    def deleted(self) -> tuple[str, ...]:
        return tuple(each for each in self.preview.ids if each not in self.failed)


class Deletion:
    """Deletes the plans of one home."""

    def __init__(self, parts: Parts, plans: Plans, locking: Locking) -> None:
        self._parts, self._plans, self._locking = parts, plans, locking

    def delete(self, reference: str) -> Plan:
        with self._parts.reserve.given_up():
            plan, given_up_bytes = self._delete(reference)
            self._free(given_up_bytes)
        return plan

    def delete_all(
        self, references: Sequence[str], confirm: Callable[[DeletionPreview], bool] | None
    ) -> DeletedPlans | None:
        """None if the answer was no. Killed in between: each plan is either there or gone, and the space follows."""
        self._parts.refuse_read_only()
        preview = self._previewed(references)
        if confirm is not None and not confirm(preview):
            return None
        failed: dict[str, HoldfastError] = {}
        given_up_bytes = 0
        with self._parts.reserve.given_up():
            for plan_id in preview.ids:
                try:
                    given_up_bytes += self._delete_any(plan_id, is_damaged=plan_id in preview.damaged)
                except HoldfastError as error:
                    failed[plan_id] = error
            freed_bytes = self._free(given_up_bytes)
        return DeletedPlans(preview, failed, freed_bytes)

    def _previewed(self, references: Sequence[str]) -> DeletionPreview:
        """Refused if one of them cannot be found, is a subplan or is in use; none is deleted then."""
        found: dict[str, Plan] = {}
        damaged: dict[str, None] = {}
        for each in references:
            damaged_id = self._plans.find_damaged_plan(each)
            if damaged_id is not None:
                damaged[damaged_id] = None
                continue
            plan = self._plans.find_plan(each)
            root = self._locking.root_for(self._locking.DELETE, plan)
            refuse_if_held(self._parts.store, root.plan_id)
            found[plan.plan_id] = plan
        return DeletionPreview(tuple(found.values()), tuple(damaged), {each: self._count(each) for each in found})

    def _count(self, plan_id: str) -> int:
        store = self._parts.store
        return store.checkpoints.count(plan_id) + sum(map(self._count, store.plans.ids_below(plan_id)))

    def _delete_any(self, plan_id: str, *, is_damaged: bool) -> int:
        if is_damaged:
            delete_damaged_plan(plan_id, self._parts)
            return 0
        return self._delete(plan_id)[1]

    def _delete(self, reference: str) -> tuple[Plan, int]:
        """The plan, and how much content its checkpoints had added."""
        with self._locking.locked(self._locking.DELETE, reference) as (plan, _, lease):
            return plan, delete_plan(plan, list(self._plans.below(plan)), lease, self._parts)

    def _free(self, given_up_bytes: int) -> int | None:
        garbage = self._parts.service.garbage
        if is_short_of_space(self._parts.home) or not garbage.takes_long(given_up_bytes):
            return garbage.collect()
        if not garbage.frees_much():
            return 0
        self._parts.start_collecting()
        return None
