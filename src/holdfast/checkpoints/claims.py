"""What all records that a content store serves need of it, as a collection asks them (``content.garbage.Claims``)."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress

from holdfast.checkpoints.releasing import Release, Tokens
from holdfast.content.counts import CountsInDoubt
from holdfast.content.keeping import KeptPlan
from holdfast.content.store import ObjectStore
from holdfast.db.collecting import GivenUp
from holdfast.db.store import Store
from holdfast.errors import DatabaseError

_MARK_BYTES = 8
_STATE = re.compile("([0-9a-f]{2})+")
"""A note of a state that was given up; one that looks different is damaged, and names no state."""


class RecordClaims:
    """One collection's questions to the records; the first of them are the present ones."""

    def __init__(
        self, objects: ObjectStore, release: Release, stores: Sequence[Store], spared: Collection[str] = ()
    ) -> None:
        """``spared``: states of spares; they are kept, and stay noted as given up until no spare has them."""
        self._keeping, self._store_id = objects.keeping, objects.store_id
        self._spared = {state for state in spared if _STATE.fullmatch(state) and objects.has(bytes.fromhex(state))}
        self._release, self._stores = release, stores
        self._mark = ""
        self._given_up: dict[Store, list[GivenUp]] = {}
        self._unchecked: set[KeptPlan] = set()
        self._checked: list[KeptPlan] = []

    def refuse_others(self) -> None:
        self._release.take_over()
        if any(store.collections.mark(self._store_id) not in self._marks(store) for store in self._stores):
            raise CountsInDoubt("the records are not those that the last collection asked")
        if self._keeping.keeps_for_others(self._ids):
            raise CountsInDoubt("not all records can be asked")

    def _marks(self, store: Store) -> tuple[str, str]:
        return self._keeping.marks(store.records_id)

    @property
    def _ids(self) -> list[str]:
        return [store.records_id for store in self._stores]

    def begin(self) -> None:
        self._release.take_over()
        # Every copy of the records that has the mark knows these leases; what is noted later stays unchecked.
        self._unchecked = set(self._keeping.unchecked())
        # Noted here first. Dies: the records have the mark of the last collection or of this one, and both count.
        self._mark = os.urandom(_MARK_BYTES).hex()
        self._keeping.begin_collection(self._ids, self._mark)
        present, *others = self._stores
        present.collections.set_mark(self._store_id, self._mark)
        for store in others:
            with suppress(DatabaseError):  # without the mark, the next collection counts everything again
                store.collections.set_mark(self._store_id, self._mark)

    def given_up(self) -> set[bytes]:
        plans = self._keeping.unchecked()
        ids = {plan.plan_id for plan in plans}
        tokens: Tokens = {store.records_id: store.collections.tokens(ids) for store in self._stores}
        self._check(plans, tokens)
        self._given_up = {store: store.collections.given_up(self._store_id) for store in self._stores}
        states = {state for given_up in self._given_up.values() for _, state in given_up}
        return {bytes.fromhex(state) for state in states if _STATE.fullmatch(state)}

    def needed_among(self, states: Collection[bytes]) -> set[bytes]:
        return {state for state in states if self._is_needed(state.hex())}

    def _is_needed(self, state: str) -> bool:
        records = (store.collections for store in self._stores)
        return state in self._spared or any(each.is_needed(state, self._store_id) for each in records)

    def needed(self) -> set[bytes]:
        self._release.take_over()
        tokens: dict[str, Mapping[str, int]] = {}
        states: set[str] = set()
        self._given_up = {}
        for store in self._stores:
            with nullcontext() if store is self._stores[0] else suppress(DatabaseError):  # damaged: not asked
                # Before the states: what is given up after they were read counts as needed now, so its note must stay.
                given_up = store.collections.given_up(self._store_id)
                states |= self._all_states(store)
                tokens[store.records_id] = store.leases.tokens()
                self._given_up[store] = given_up
        self._check(self._keeping.plans(), tokens)
        return set(map(bytes.fromhex, states | self._spared))

    def _check(self, plans: Sequence[KeptPlan], tokens: Tokens) -> None:
        self._checked = [plan for plan in self._release.check(plans, tokens) if plan in self._unchecked]

    def _all_states(self, store: Store) -> set[str]:
        """Every state that these records need; if they have a mark, they are asked about single states from now on."""
        return store.renew_names(self._store_id) if self._mark else store.referenced_states(self._store_id)

    def note_collected(self) -> None:
        self._keeping.end_collection([store.records_id for store in self._stores], self._mark, self._checked)

    def end(self) -> None:
        for store, given_up in self._given_up.items():
            if forgotten := [each for each in given_up if each[1] not in self._spared]:
                store.collections.forget_given_up(forgotten)
