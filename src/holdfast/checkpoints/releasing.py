"""Release: finds which content a collection must keep, from all records that the content store serves.

In doubt, nothing is released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from enum import StrEnum
from functools import partial

import msgspec

from holdfast.content.keeping import UNKNOWN, KeptPlan, Mark, RecordStore
from holdfast.content.store import ObjectStore
from holdfast.db.store import FILE, Store
from holdfast.errors import DatabaseError, HoldfastError

_MOST_NAMED = 5

Others = Callable[[], AbstractContextManager[Sequence[Store]]]
"""Opens the other records that can be read from here."""


class Reason(StrEnum):
    """Why content is held back."""

    NOT_ASKED = "its records cannot be asked from here"
    NOT_KNOWN = "no records know it"
    OLDER = "its records are older than what was saved"


class HeldBack(msgspec.Struct, frozen=True):
    """A plan whose content is kept although no records at hand say that they need it."""

    plan: KeptPlan
    place: str
    """Where its records are, or were; empty if unknown."""
    reason: Reason
    token: int = 0
    """The token of its lease in the records at hand."""

    @property
    def plan_id(self) -> str:
        return self.plan.plan_id


class NotReleased(HoldfastError):
    """Nothing may be collected; raised only to collections."""


Tokens = Mapping[str, Mapping[str, int]]
"""By the id of records, the lease tokens of plans that they know."""


class Sorted(msgspec.Struct, frozen=True):
    """What the records say about plans that content is kept for."""

    released: list[KeptPlan]
    held_back: list[HeldBack]
    checked: list[KeptPlan]
    """Plans that their records know, and not with an earlier lease."""


class Release:
    """Keeps track of the records that one content store serves, and asks them what they need."""

    def __init__(self, objects: ObjectStore, present: Store, others: Others) -> None:
        self._objects, self._keeping = objects, objects.keeping
        self._present, self._others = present, others
        self._noted: set[tuple[str, str]] = set()

    def keep_for(self, plan_id: str, token: int, owner: str) -> None:
        """Note, before it happens, that content is stored for that plan under that lease."""
        if (plan_id, owner) in self._noted:
            return
        self.take_over()
        store = self._present
        # With shared records, a home that has not noted the last lease counts as a copy of the home that took it.
        is_durable = store.place != FILE
        self._keeping.keep_for(KeptPlan(plan_id, store.records_id, token, owner), store.place, is_durable=is_durable)
        self._noted.add((plan_id, owner))

    def has_noted(self, plan_id: str, token: int) -> bool:
        """Whether that lease of the plan, or a later one, was noted in this content store."""
        noted = self._keeping.find(plan_id, self._present.records_id)
        return noted is not None and noted.token >= token

    def let_go(self, plan_id: str) -> None:
        self._keeping.let_go(plan_id, self._present.records_id)

    @contextmanager
    def records(self) -> Iterator[Sequence[Store]]:
        """All records that can be asked from here, the present ones first."""
        with self._others() as others:
            yield (self._present, *others)

    def check(self, plans: Sequence[KeptPlan], tokens: Tokens) -> list[KeptPlan]:
        """Forget those of these plans that are released, refuse if one is in doubt, and return the others.

        Call this only while nothing can be added to the content.
        """
        found = self._sorted(plans, tokens)
        self._keeping.forget(found.released)
        if found.held_back:
            raise not_released(found.held_back)
        return found.checked

    def held_back(self) -> list[HeldBack]:
        """The plans in doubt; changes nothing."""
        with self.records() as stores:
            return self._sorted(self._keeping.plans(), tokens_of_all(stores)).held_back

    def give_up(self, given_up: Iterable[HeldBack]) -> None:
        """Release these plans, because a person has said that their records are gone for ever.

        Nothing tells which states they gave up, so the next collection counts everything.
        """
        with self._objects.database.writing():
            self._objects.counts.give_up()
        for each in given_up:
            if each.reason is Reason.OLDER:
                self._keeping.put(msgspec.structs.replace(each.plan, token=each.token, mark=Mark.KEPT))
            else:
                self._keeping.forget([each.plan])

    def take_over(self) -> None:
        """Note for which plans content is kept, in a new store or in one of an earlier version."""
        if self._keeping.stores():
            return
        store_id = self._objects.store_id
        with self._others() as others:
            asked = (self._present, *others)
            # With its owner, because the present owner of the lease is going to note the same.
            plans = [
                KeptPlan(plan_id, store.records_id, token, owner)
                for store in asked
                for plan_id, token, owner in store.leases.plans_with_content(store_id)
            ]
            self._keeping.take_over(
                [RecordStore(store.records_id, store.place) for store in asked],
                plans,
                {plan_id for store in asked for plan_id in store.plans.ids()},
            )

    def _sorted(self, plans: Sequence[KeptPlan], tokens: Tokens) -> Sorted:
        places = {store.records_id: store.place for store in self._keeping.stores()}
        known = {plan_id for answer in tokens.values() for plan_id in answer}
        found = Sorted([], [], [])
        for plan in plans:
            answer = tokens.get(plan.records_id)
            doubt = partial(HeldBack, plan, places.get(plan.records_id, ""))
            if plan.records_id == UNKNOWN and plan.plan_id in known:
                found.released.append(plan)  # the records that know it note it when it is next used
            elif answer is not None and plan.plan_id in answer:
                token = answer[plan.plan_id]
                if plan.mark is Mark.BEHIND or token < plan.token:
                    found.held_back.append(doubt(Reason.OLDER, token))
                else:
                    found.checked.append(plan)
            elif not self._keeping.is_catalogued(plan.plan_id):
                continue  # nothing was saved for it yet
            elif answer is None and plan.records_id != UNKNOWN:
                found.held_back.append(doubt(Reason.NOT_ASKED))
            elif answer is not None and plan.mark is Mark.GOING:
                found.released.append(plan)
            else:
                found.held_back.append(doubt(Reason.NOT_KNOWN))
        return found


def tokens_of_all(stores: Iterable[Store]) -> Tokens:
    """The tokens of all plans; damaged records, unless they are the present ones, count as not asked."""
    present, *others = stores
    found: dict[str, Mapping[str, int]] = {present.records_id: present.leases.tokens()}
    for store in others:
        with suppress(DatabaseError):
            found[store.records_id] = store.leases.tokens()
    return found


def not_released(held_back: Sequence[HeldBack], *, is_tried: bool = True) -> NotReleased:
    """The error for held-back content, with what to do about it; it names the first reason only."""
    reason = next(each for each in Reason if any(held.reason is each for held in held_back))
    concerned = [held for held in held_back if held.reason is reason]
    names = ", ".join(held.plan_id for held in concerned[:_MOST_NAMED])
    more = f" and {len(concerned) - _MOST_NAMED} more" if len(concerned) > _MOST_NAMED else ""
    places = ", ".join(sorted({held.place for held in concerned if held.place}))
    what, hint = {
        Reason.NOT_ASKED: (
            f"some of it is kept for records that cannot be asked from here ({places}; plans {names}{more})",
            "Prune or delete with these records (`database.url`, or none for those in the home)",
        ),
        Reason.NOT_KNOWN: (
            f"some of it is kept for plans that no records know ({names}{more})",
            "Restore the newest backup of the records",
        ),
        Reason.OLDER: (
            f"the records of {names}{more} are older than what was saved for them, as if a backup had been restored",
            "Restore the newest backup of the records",
        ),
    }[reason]
    return NotReleased(
        f"No saved content {'was' if is_tried else 'can be'} freed: {what}.",
        hint=f"{hint}; if they no longer exist, `holdfast checkpoint release` gives up what is kept for them.",
    )
