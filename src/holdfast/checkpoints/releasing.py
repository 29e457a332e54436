"""What a collection must keep: what any records that the content store serves still need, and all of it in doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from holdfast.content.keeping import UNKNOWN, KeptPlan, Mark, RecordStore
from holdfast.content.store import ObjectStore
from holdfast.db.store import FILE, Store
from holdfast.errors import DatabaseError, HoldfastError

_MOST_NAMED = 5

Others = Callable[[], AbstractContextManager[Sequence[Store]]]
"""Opens the other records that can be asked from here."""


class Reason(StrEnum):
    NOT_ASKED = "its records cannot be asked from here"
    NOT_KNOWN = "no records know it"
    OLDER = "its records are older than what was saved"


@dataclass(frozen=True)
class HeldBack:
    """A plan whose content is kept although the records at hand do not say that they need it."""

    plan: KeptPlan
    place: str
    """Where its records are, or were; empty if that is not known."""
    reason: Reason
    token: int = 0
    """Of its lease in the records that are at hand."""

    @property
    def plan_id(self) -> str:
        return self.plan.plan_id


class NotReleased(HoldfastError):
    """Nothing may be collected; raised only to those that collect."""


@dataclass(frozen=True)
class _Answer:
    """What records say when they are asked."""

    tokens: Mapping[str, int]
    states: frozenset[str]


class Release:
    """Knows which records one content store serves, and asks them."""

    def __init__(self, objects: ObjectStore, present: Store, others: Others) -> None:
        self._objects, self._keeping = objects, objects.keeping
        self._present, self._others = present, others
        self._noted: set[tuple[str, str]] = set()

    def keep_for(self, plan_id: str, token: int, owner: str) -> None:
        """Note that content is going to be stored for that plan, under that lease."""
        if (plan_id, owner) in self._noted:
            return
        self._take_over()
        store = self._present
        # A home that has not noted the last lease counts as a copy of the one that took it, if records are shared.
        is_durable = store.place != FILE
        self._keeping.keep_for(KeptPlan(plan_id, store.records_id, token, owner), store.place, is_durable=is_durable)
        self._noted.add((plan_id, owner))

    def has_noted(self, plan_id: str, token: int) -> bool:
        """Whether that lease of the plan, or a later one, was taken with this content store at hand."""
        noted = (each for each in self._keeping.plans() if each.records_id == self._present.records_id)
        return any(each.plan_id == plan_id and each.token >= token for each in noted)

    def let_go(self, plan_id: str) -> None:
        self._keeping.let_go(plan_id, self._present.records_id)

    def needed_states(self) -> set[str]:
        """Every state that some records need; refuses if not all that content is kept for can be asked.

        To be asked while nothing can be added to the content.
        """
        self._take_over()
        answers = self._answers()
        released, held_back = self._sorted(answers)
        self._keeping.forget(released)
        if held_back:
            raise not_released(held_back)
        return {state for answer in answers.values() for state in answer.states}

    def held_back(self) -> list[HeldBack]:
        """All that is in doubt; changes nothing."""
        return self._sorted(self._answers())[1]

    def give_up(self, given_up: Iterable[HeldBack]) -> None:
        """A person has said that what these plans are kept for is gone for ever."""
        for each in given_up:
            if each.reason is Reason.OLDER:
                self._keeping.put(replace(each.plan, token=each.token, mark=Mark.KEPT))
            else:
                self._keeping.forget([each.plan])

    def _take_over(self) -> None:
        if self._keeping.stores():
            return
        store_id = self._objects.store_id
        with self._others() as others:
            asked = (self._present, *others)
            # With its owner: one that has the lease now is going to note the same.
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

    def _answers(self) -> dict[str, _Answer]:
        answers = {self._present.records_id: self._answer(self._present)}
        with self._others() as others:
            for store in others:
                with suppress(DatabaseError):  # damaged ones count as not asked
                    answers[store.records_id] = self._answer(store)
        return answers

    def _answer(self, store: Store) -> _Answer:
        return _Answer(store.leases.tokens(), frozenset(store.referenced_states(self._objects.store_id)))

    def _sorted(self, answers: Mapping[str, _Answer]) -> tuple[list[KeptPlan], list[HeldBack]]:
        """The plans that are released, and those in doubt."""
        places = {store.records_id: store.place for store in self._keeping.stores()}
        catalogued = self._keeping.catalogued()
        known = {plan_id for answer in answers.values() for plan_id in answer.tokens}
        released: list[KeptPlan] = []
        held_back: list[HeldBack] = []
        for plan in self._keeping.plans():
            answer = answers.get(plan.records_id)
            doubt = partial(HeldBack, plan, places.get(plan.records_id, ""))
            if plan.records_id == UNKNOWN and plan.plan_id in known:
                released.append(plan)  # it is noted for those that know it when it is next used
            elif answer is not None and plan.plan_id in answer.tokens:
                token = answer.tokens[plan.plan_id]
                if plan.mark is Mark.BEHIND or token < plan.token:
                    held_back.append(doubt(Reason.OLDER, token))
            elif plan.plan_id not in catalogued:
                continue  # nothing was saved for it yet
            elif answer is None and plan.records_id != UNKNOWN:
                held_back.append(doubt(Reason.NOT_ASKED))
            elif answer is not None and plan.mark is Mark.GOING:
                released.append(plan)
            else:
                held_back.append(doubt(Reason.NOT_KNOWN))
        return released, held_back


def not_released(held_back: Sequence[HeldBack], *, is_tried: bool = True) -> NotReleased:
    """Why nothing is collected, or would be, and what to do about it, of the first reason there is."""
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
            "Put the newest backup of the records back",
        ),
        Reason.OLDER: (
            f"the records of {names}{more} are older than what was saved for them, as if a backup had been put back",
            "Put the newest backup of the records back",
        ),
    }[reason]
    return NotReleased(
        f"No saved content {'was' if is_tried else 'can be'} freed: {what}.",
        hint=f"{hint}; if there is none any more, `holdfast checkpoint release` gives up what is kept for them.",
    )
