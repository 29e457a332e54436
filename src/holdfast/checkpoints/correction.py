"""The records of decisions: one that was made, and one by which a person puts others and their steps out of force."""

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
    """What was decided, as the plan's next decision; below the plan's root if no parent is named."""
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
    """Record the intervention and put its steps in force, from the plan's head on, which is to be new.

    To be called in the transaction of the rollback, if there is one.
    """
    sequence = store.next_sequence(Decision, plan.plan_id)
    attempt = store.decisions.latest_attempt(plan.plan_id) + 1
    store.insert(
        Decision(
            decision_id=new_id(),
            plan_id=plan.plan_id,
            parent_decision_id=correction.parent_decision_id,
            sequence=sequence,
            type=DecisionType.USER_INTERVENTION,
            question=correction.question,
            chosen=correction.guidance,
            alternatives=correction.alternatives,
            is_correction=True,
            step_index=None if plan.is_finished else plan.next_step,
            attempt=attempt,
            created_at=now(),
        )
    )
    revision = store.plans.latest_revision(plan.plan_id) + 1 if correction.steps is not None else plan.revision
    if correction.steps is not None:
        store.insert(Revision(plan_id=plan.plan_id, revision=revision, steps=correction.steps))
    plan = plan.decided(sequence, sequence).changed(
        attempt=attempt,
        revision=revision,
        steps=plan.steps if correction.steps is None else correction.steps,
        guidance=correction.guidance,
        phase=Phase.EXECUTE,
        state=PlanState.QUEUED,
        error=None,
    )
    store.save(plan)
    if plan.head_group_id is not None:
        # A rollback to where the correction begins does not give it up.
        head = store.get(CheckpointGroup, plan.head_group_id)
        position = {name: getattr(plan, name) for name in ("attempt", "revision", "active_decisions")}
        store.save(head.model_copy(update=position))
    return plan
