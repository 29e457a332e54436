"""StepExecutor runs a step with its retries; StepRecords records the start and the end of a step, with checkpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.checkpoints.history import records_every_step
from holdfast.events import StepFinished
from holdfast.execution.failure import FailureHandling
from holdfast.execution.recorder import ExecutionRecorder, occasion_of, refuse_replaced_sandboxes
from holdfast.execution.tool_calls import ToolCalls
from holdfast.model import (
    SHELL_TOOL,
    CheckpointGroup,
    Decision,
    DecisionSpec,
    DecisionType,
    Plan,
    PlanState,
    Record,
    RunStatus,
    Step,
    StepRun,
    Trigger,
    is_within,
)
from holdfast.tools import Toolbox, ToolDeclaration


class StepRecords:
    """Records the start and the end of steps."""

    def __init__(self, recorder: ExecutionRecorder) -> None:
        self._recorder, self._store = recorder, recorder.store

    def start(
        self, plan: Plan, index: int, spec: DecisionSpec, triggers: list[Trigger], *, try_number: int = 1
    ) -> tuple[Plan, StepRun, Decision]:
        """Record that the step starts, with its decision, and take a checkpoint of what it may change."""
        refuse_replaced_sandboxes(plan)
        step, service = plan.steps[index], self._recorder.service
        decision = self._recorder.new_decision(plan, spec, index, parent=None)
        run = self._recorder.new_run(plan, index, step.name, try_number=try_number, decision_id=decision.decision_id)
        before = plan.head_group_id
        plan = self._recorder.trigger(plan, triggers, occasion_of(step, run, f"before {step.name}"), [decision])
        # If no trigger took a group, the last one serves if nothing has changed since.
        if plan.head_group_id != before or service.is_as_at(plan, self._store.get(CheckpointGroup, before or "")):
            run = run.model_copy(update={"group_before_id": plan.head_group_id})
        with self._store.transaction(self._recorder.lease):
            for record in self._superseded_by(plan, run):
                self._store.save(record)
            self._store.insert(run)
        return plan, run, decision

    def _superseded_by(self, plan: Plan, run: StepRun) -> Sequence[Record]:
        """The records of an earlier try of the same step that was not rolled back, marked as superseded."""
        last = self._store.runs.latest(plan.plan_id)
        if last is None or last.is_superseded or last.step_index != run.step_index:
            return []
        decisions = [
            each
            for each in self._store.decisions.of_step(plan.plan_id, run.step_index)
            if each.decision_id != run.decision_id
            and not each.is_superseded
            and not is_within(each.sequence, plan.active_decisions)
        ]
        made = [each.decision_id for each in decisions]
        runs = self._store.runs.of_decisions(plan.plan_id, made)
        subplans = [each for each in self._store.plans.below(plan.plan_id) if each.spawn_decision_id in made]
        return [
            *(each.model_copy(update={"is_superseded": True}) for each in (*decisions, *runs)),
            *(each.changed(is_superseded=True) for each in subplans if each.state is not PlanState.APPLIED),
        ]

    def end(self, plan: Plan, run: StepRun, first: Decision, triggers: list[Trigger]) -> Plan:
        """Record how the step ended; if it succeeded, the plan adopts all decisions in force since ``first``."""
        if run.status is RunStatus.SUCCEEDED:
            step = plan.steps[run.step_index]
            made = self._store.decisions.in_force_from(run.plan_id, first.sequence)
            plan = plan.advanced_past(run.step_index, [each.sequence for each in made])
            if not records_every_step(plan):
                # Only the files will show what the step did, so they must be on the disk before it counts as done.
                os.sync()
            plan = self._recorder.trigger(plan, triggers, occasion_of(step, run, f"after {step.name}"), [run])
        else:
            self._recorder.save(run)
        self._recorder.tell(StepFinished(run.step_index, len(plan.steps), run))
        return plan


class StepExecutor:
    """Runs steps that call a tool."""

    def __init__(self, tools: Toolbox, records: StepRecords, calls: ToolCalls, failures: FailureHandling) -> None:
        self._tools, self._records, self._calls, self._failures = tools, records, calls, failures

    def run(self, plan: Plan, index: int) -> tuple[Plan, StepRun]:
        """Run the step, with its retries if it fails; the plan after it, and its last run."""
        try_number = 1
        while True:
            plan, run = self._run_once(plan, index, try_number)
            if run.status is not RunStatus.FAILED or try_number > plan.steps[index].retries:
                return plan, run
            try_number += 1
            plan = self._failures.before_retry(plan, run, try_number)

    def _run_once(self, plan: Plan, index: int, try_number: int) -> tuple[Plan, StepRun]:
        step = plan.steps[index]
        declaration = self._tools.declaration_for(step)
        triggers = [Trigger.BEFORE_STEP, Trigger.ON_DECISION]
        if declaration.writes:
            triggers.insert(1, Trigger.ON_TOOL_WRITE)
        spec = step.decision or _invocation(step, declaration)
        plan, run, decision = self._records.start(plan, index, spec, triggers, try_number=try_number)
        plan, run = self._calls.make(plan, step, run)
        after = [Trigger.ON_TOOL_WRITE_COMPLETE] if declaration.writes else []
        return self._records.end(plan, run, decision, after), run


def _invocation(step: Step, declaration: ToolDeclaration) -> DecisionSpec:
    return DecisionSpec(
        type=DecisionType.TOOL_INVOCATION,
        question=f"How is this done: {step.name}?",
        chosen=_call_text(step),
        rationale="" if declaration.writes else "It only looks.",
    )


def _call_text(step: Step) -> str:
    if step.tool == SHELL_TOOL:
        return str(step.args.get("command", ""))
    target = step.args.get("path") or step.args.get("callable") or ""
    return f"{step.tool} {target}".strip()
