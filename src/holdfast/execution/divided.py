"""DividedStep: runs a step that has subplans, from spawning them to their merged result."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from holdfast.events import StepStarted
from holdfast.execution.folders import plan_folder
from holdfast.execution.recorder import ExecutionRecorder, occasion_of
from holdfast.execution.standing import Standing
from holdfast.execution.steps import StepRecords
from holdfast.execution.subplans import ExecuteSubplan, SubplanRunner
from holdfast.model import (
    Decision,
    DecisionSpec,
    DecisionType,
    Plan,
    Record,
    Revision,
    RunStatus,
    Step,
    StepRun,
    Subplan,
    Trigger,
    now,
)
from holdfast.system.ids import new_id
from holdfast.system.trash import Trash


class DividedStep:
    """Runs the steps of one execution that have subplans."""

    def __init__(
        self,
        recorder: ExecutionRecorder,
        records: StepRecords,
        execute_subplan: ExecuteSubplan,
        cancelled: threading.Event,
        begun: Standing | None,
    ) -> None:
        """``begun``: given if the next step continues the subplans of an interrupted run."""
        self._recorder, self._store, self._records = recorder, recorder.store, records
        self._execute_subplan, self._cancelled, self._begun = execute_subplan, cancelled, begun

    def run(self, plan: Plan, index: int) -> tuple[Plan, StepRun]:
        step, begun = plan.steps[index], self._begun
        is_begun, self._begun = begun is not None, None
        if begun is None or begun.run is None:
            plan, run, decision = self._start(plan, index)
            subplans: list[Plan] = []
        else:
            run, subplans = self._continued(begun.run), list(begun.subplans)
            decision = self._store.get(Decision, run.decision_id or "")
        if not subplans:
            plan, subplans = self._spawn(plan, run, decision)
        self._recorder.tell(StepStarted(index, len(plan.steps), run))
        runner = SubplanRunner(
            self._recorder, self._execute_subplan, self._cancelled, step, run, subplans, is_begun=is_begun
        )
        plan, run = runner.run(plan)
        return self._records.end(plan, run, decision, []), run

    def _continued(self, run: StepRun) -> StepRun:
        """Save an interrupted run as running again; one that waited for a person is saved with the resolution."""
        if run.status is not RunStatus.CONSTRAINED:
            run = run.model_copy(update={"status": RunStatus.RUNNING, "error": None, "finished_at": None})
            self._recorder.save(run)
        return run

    def _start(self, plan: Plan, index: int) -> tuple[Plan, StepRun, Decision]:
        """Record that the step starts; if the step states a decision, that comes before the one to divide it."""
        step, triggers = plan.steps[index], [Trigger.BEFORE_STEP, Trigger.ON_DECISION]
        trash = Trash(plan_folder(plan).parent)
        for subplan in self._store.plans.below(plan.plan_id):
            trash.put(plan_folder(subplan))  # the sandbox of an earlier try; its checkpoints stay
        trash.tidy()
        if step.decision is None:
            return self._records.start(plan, index, _spawn_spec(step), [*triggers, Trigger.ON_SUBPLAN_SPAWN])
        return self._records.start(plan, index, step.decision, triggers)

    def _spawn(self, plan: Plan, run: StepRun, decision: Decision) -> tuple[Plan, list[Plan]]:
        """Create the step's subplans; if the step states a decision, also record the decision to divide it."""
        step = plan.steps[run.step_index]
        if step.decision is not None:
            decision = self._recorder.new_decision(plan, _spawn_spec(step), run.step_index, run.decision_id)
        subplans = [_spawned(plan, subplan, decision) for subplan in step.subplans]
        records = list(_records_of(subplans))
        if step.decision is None:
            self._recorder.save(*records)
            return plan, subplans
        occasion = occasion_of(step, run, f"before {step.name}", decision_id=decision.decision_id)
        triggers = [Trigger.ON_DECISION, Trigger.ON_SUBPLAN_SPAWN]
        return self._recorder.trigger(plan, triggers, occasion, [decision, *records]), subplans


def _spawn_spec(step: Step) -> DecisionSpec:
    names = ", ".join(subplan.name for subplan in step.subplans)
    if step.parallel > 1:
        return DecisionSpec(
            type=DecisionType.SUBPLAN_PARALLEL_SPAWN,
            question=f"How is this divided: {step.name}?",
            chosen=f"{names}; up to {step.parallel} at the same time, merged by {step.merge}",
        )
    return DecisionSpec(
        type=DecisionType.SUBPLAN_SPAWN,
        question=f"How is this divided: {step.name}?",
        chosen=f"{names}; one after another",
    )


def _spawned(plan: Plan, subplan: Subplan, decision: Decision) -> Plan:
    """The plan of a subplan that has not started."""
    folder, plan_id, at = plan_folder(plan).parent, new_id(), now()
    resources = tuple(
        resource.model_copy(update={"sandbox_path": str(folder / plan_id / resource.name)})
        for resource in plan.resources
    )
    return Plan(
        plan_id=plan_id,
        project_id=plan.project_id,
        name=subplan.name,
        resources=resources,
        policy=plan.policy,
        steps=subplan.steps,
        active_decisions=((1, 1),),
        parent_plan_id=plan.plan_id,
        spawn_decision_id=decision.decision_id,
        guidance=plan.guidance,
        source_file=plan.source_file,
        store_id=plan.store_id,
        created_at=at,
        updated_at=at,
    )


def _records_of(subplans: Sequence[Plan]) -> Iterator[Record]:
    for subplan in subplans:
        yield from (
            subplan,
            Revision(plan_id=subplan.plan_id, revision=1, steps=subplan.steps),
            Decision.root_of(subplan),
        )
