"""Creates the records of decisions: of any next decision, and of a correction by a person."""

from __future__ import annotations

from holdfast.db.store import Store
from holdfast.model import (
    CheckpointGroup,
    Correction,
    Decision,
    DecisionSpec,
    DecisionType,
    Phase,
    Plan,
    PlanState,
    Revision,
    now,
)
from holdfast.system.ids import new_id


def next_decision(
    store: Store, plan: Plan, spec: DecisionSpec, step_index: int | None, parent: str | None = None
) -> Decision:
    """The plan's next decision, not saved yet; its parent is the plan's root decision if none is given."""
    root = store.decisions.root(plan.plan_id) if parent is None else None
    return Decision(
        decision_id=new_id(),
        plan_id=plan.plan_id,
        parent_decision_id=root.decision_id if root else parent,
        sequence=store.next_sequence(Decision, plan.plan_id),
        step_index=step_index,
        attempt=plan.attempt,
        created_at=now(),
        **spec.model_dump(),
    )


def record_correction(store: Store, plan: Plan, correction: Correction) -> Plan:
    """Record the correction, and put its steps in force from the plan's head group on, which must be a new group.

    Call this in the transaction of the rollback, if there is one.
    """
    plan = plan.changed(attempt=store.decisions.latest_attempt(plan.plan_id) + 1, guidance=correction.guidance)
    spec = DecisionSpec(
        type=DecisionType.USER_INTERVENTION,
        question=correction.question,
        chosen=correction.guidance,
        alternatives=correction.alternatives,
    )
    step_index = None if plan.is_finished else plan.next_step
    decision = next_decision(store, plan, spec, step_index, correction.parent_decision_id)
    store.insert(decision.model_copy(update={"is_correction": True}))
    if correction.steps is not None:
        revision = store.plans.latest_revision(plan.plan_id) + 1
        store.insert(Revision(plan_id=plan.plan_id, revision=revision, steps=correction.steps))
        plan = plan.changed(revision=revision, steps=correction.steps)
    plan = plan.decided(decision.sequence, decision.sequence).changed(
        phase=Phase.EXECUTE,
        state=PlanState.COMPLETE if correction.is_result else PlanState.QUEUED,
        error=None,
    )
    store.save(plan)
    if plan.head_group_id is not None:
        # The group gets the corrected position, so a later rollback to it keeps the correction.
        head = store.get(CheckpointGroup, plan.head_group_id)
        position = {name: getattr(plan, name) for name in ("attempt", "revision", "active_decisions")}
        store.save(head.model_copy(update=position))
    return plan
