"""DecisionViews: the decisions of plans, found, drawn as a tree and explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import AmbiguousError, NotFoundError
from holdfast.model import Decision, Plan
from holdfast.parts import Parts
from holdfast.plans.finding import Plans

if TYPE_CHECKING:
    from holdfast.decisions.explain import Explanation
    from holdfast.decisions.tree import DecisionTree

# What a function imports is not needed by most commands: they start without it.


class DecisionViews:
    def __init__(self, parts: Parts, plans: Plans) -> None:
        self._parts, self._plans = parts, plans

    def decisions(self, reference: str) -> list[Decision]:
        """The decisions of the plan whose records are sound."""
        return self._parts.store.decisions.of(self._plans.find_plan(reference).plan_id, sound_only=True)

    def decision_tree(self, reference: str, *, with_superseded: bool = False) -> DecisionTree:
        """The decisions of a plan and of its subplans, each below the one it came from."""
        from holdfast.decisions.tree import decision_tree

        return decision_tree(self._plans.find_plan(reference), self._parts.store, with_superseded=with_superseded)

    def find_decision(self, reference: str) -> Decision:
        found = self._parts.store.decisions.by_prefix(reference) if reference else []
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(decision.decision_id for decision in found[:10])
            raise AmbiguousError(f"{len(found)} decisions begin with {reference!r}.", hint=f"Say which one: {listed}.")
        raise NotFoundError(f"There is no decision {reference!r}.", hint="See them with `holdfast plan tree`.")

    def explain(self, decision_reference: str) -> Explanation:
        """One decision: why, what it changed, and what depends on it."""
        from holdfast.decisions.explain import explain_decision

        decision = self.find_decision(decision_reference)
        plan = self._parts.store.get(Plan, decision.plan_id)
        self._parts.refuse_without_content(plan)
        return explain_decision(plan, self._parts.service, self._parts.tools, decision)

    def can_be_reverted(self, plan: Plan, decision_id: str) -> bool:
        """Whether the present state of the plan allows `plan correct --mode revert` of the decision."""
        return self._parts.corrections.find_refusal(plan, self._parts.store.get(Decision, decision_id)) is None
