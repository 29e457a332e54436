"""ExecutionRecorder: saves what happens while a plan runs, under its lease, and tells the listener."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

from holdfast.checkpoints.correction import next_decision
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.events import CheckpointTaken, Event, Listener
from holdfast.model import (
    CheckpointGroup,
    Decision,
    DecisionSpec,
    Lease,
    Plan,
    PlanState,
    Record,
    Step,
    StepRun,
    Trigger,
    now,
)
from holdfast.system.ids import new_id
from holdfast.system.place import refuse_replaced


class ExecutionRecorder:
    """The only way in which an execution writes records and sends events."""

    def __init__(self, service: CheckpointService, lease: Lease, listener: Listener | None) -> None:
        self.service, self.store, self.lease = service, service.store, lease
        self._listener = listener
        self._telling = threading.RLock()  # subplans run in threads of their own

    def tell(self, event: Event) -> None:
        if self._listener is not None:
            with self._telling:
                self._listener(event)

    def save(self, *records: Record) -> None:
        with self.store.transaction(self.lease):
            for record in records:
                self.store.save(record)

    def save_stopped(self, plan: Plan, state: PlanState, error: str) -> Plan:
        """Save that the plan does not go on for now, and why."""
        plan = plan.changed(state=state, error=error)
        self.save(plan)
        return plan

    def trigger(
        self, plan: Plan, triggers: list[Trigger], occasion: Occasion, records: Collection[Record] = ()
    ) -> Plan:
        """Save plan and records, with a checkpoint if the plan's policy asks for one of these triggers."""
        before = plan.head_group_id
        plan = self.service.auto_create_if_configured(plan, self.lease, triggers, occasion, records=list(records))
        return self._told(plan, before)

    def checkpoint(self, plan: Plan, occasion: Occasion, *, only_if_changed: bool = False) -> Plan:
        before = plan.head_group_id
        plan = self.service.create_checkpoint(plan, self.lease, occasion, only_if_changed=only_if_changed)
        return self._told(plan, before)

    def _told(self, plan: Plan, before: str | None) -> Plan:
        if self._listener is not None and plan.head_group_id != before:
            self.tell(CheckpointTaken(self.group_just_taken(plan), plan.last_checkpoint_id or ""))
        return plan

    def group_just_taken(self, plan: Plan) -> CheckpointGroup:
        """The plan's head group; it is read from the records only if this process did not write it last."""
        taken = self.service.last_group
        if taken is not None and taken.group_id == plan.head_group_id:
            return taken
        return self.store.get(CheckpointGroup, plan.head_group_id or "")

    def new_run(
        self, plan: Plan, index: int, name: str, *, try_number: int = 1, decision_id: str | None = None
    ) -> StepRun:
        """A run that starts now; it is not saved yet."""
        return StepRun(
            run_id=new_id(),
            plan_id=plan.plan_id,
            sequence=self.store.next_sequence(StepRun, plan.plan_id),
            step_index=index,
            step=name,
            attempt=plan.attempt,
            try_number=try_number,
            decision_id=decision_id,
            started_at=now(),
        )

    def new_decision(self, plan: Plan, spec: DecisionSpec, step_index: int | None, parent: str | None) -> Decision:
        """The plan's next decision, not saved yet; its parent is the plan's root decision if none is given."""
        return next_decision(self.store, plan, spec, step_index, parent)


def refuse_replaced_sandboxes(plan: Plan) -> None:
    """Refuse to start a step if a symlink stands in the place of a sandbox."""
    for resource in plan.resources:
        refuse_replaced(Path(resource.sandbox_path))


def occasion_of(step: Step, run: StepRun, reason: str, *, decision_id: str | None = None) -> Occasion:
    """The occasion for a checkpoint around a step; its decision is the one that started the run, or the given one."""
    return Occasion(
        triggers=(),
        reason=reason,
        source=step.tool,
        try_number=run.try_number,
        step_index=run.step_index,
        decision_id=decision_id or run.decision_id,
        resource=step.resource,
    )
