"""SubplanRunner: runs the subplans of a step in sandboxes forked from its plan's, and merges their results.

They run under the lease of the root plan. Results are merged into the parent's sandboxes one at a time, in the order in
which the subplans are listed. Each merge is stored as a state before files are written, so an interrupted merge is
simply repeated.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.errors import HoldfastError
from holdfast.events import SubplanEnded, SubplanMerged, SubplanStarted
from holdfast.execution.merging import base_of, clear_away, conflict_text, merge
from holdfast.execution.recorder import ExecutionRecorder
from holdfast.model import (
    CheckpointGroup,
    Conflict,
    DecisionSpec,
    DecisionType,
    MergeStrategy,
    Plan,
    PlanState,
    RunStatus,
    Step,
    StepRun,
    Trigger,
    now,
)
from holdfast.system.stopping import Stopped, stoppable

ExecuteSubplan = Callable[[Plan, CheckpointService], Plan]
"""Executes a subplan with a service of its own; returns the subplan afterwards."""


class SubplanRunner:
    """Runs the subplans of one run of a step until all are merged, or one fails, waits or is stopped."""

    def __init__(
        self,
        recorder: ExecutionRecorder,
        execute: ExecuteSubplan,
        cancelled: threading.Event,
        step: Step,
        run: StepRun,
        subplans: Sequence[Plan],
        *,
        is_begun: bool,
    ) -> None:
        """``is_begun``: the run was interrupted, or waited for a person, and continues now."""
        self._recorder, self._execute_subplan, self._cancelled = recorder, execute, cancelled
        self._service, self._store = recorder.service, recorder.store
        self._step, self._run, self._is_begun = step, run, is_begun
        self._subplans = list(subplans)
        self._stop_starting = threading.Event()

    def run(self, plan: Plan) -> tuple[Plan, StepRun]:
        plan = self._prepare(plan)
        numbers = range(len(self._subplans))
        together = [numbers] if self._step.parallel > 1 else [[number] for number in numbers]
        for batch in together:
            first = self._subplans[batch[0]]
            if batch[0] and first.head_group_id is None and not self._cancelled.is_set():
                occasion = self._occasion(f"before {first.name}")
                plan = self._recorder.trigger(plan, [Trigger.ON_SUBPLAN_SPAWN], occasion)
            self._execute(plan, batch)
            if any(self._subplans[number].state is not PlanState.COMPLETE for number in batch):
                return self._end_early(plan)
            for number in batch:
                if self._subplans[number].merged_states is None:
                    plan, conflicts = self._merge(plan, number)
                    if conflicts:
                        return plan, self._run
        clear_away(plan, self._subplans)
        return plan, self._ended(RunStatus.SUCCEEDED, None)

    def _prepare(self, plan: Plan) -> Plan:
        """Restore the sandboxes to the last merge, whatever an interrupted merge has changed since."""
        if self._run.status is RunStatus.CONSTRAINED:
            return self._resolved(plan)
        merged = [(subplan, subplan.merged_states) for subplan in self._subplans if subplan.merged_states is not None]
        if merged:
            last, states = merged[-1]
            self._service.sandboxes.restore_states(plan, states)
            if self._store.get(CheckpointGroup, plan.head_group_id or "").states != states:
                # The process died between the merge and the checkpoint after it.
                occasion = self._occasion(f"after {last.name}")
                return self._recorder.trigger(plan, [Trigger.AFTER_SUBPLAN], occasion)
        elif begun := [subplan for subplan in self._subplans if subplan.head_group_id is not None]:
            self._service.sandboxes.restore_states(plan, base_of(begun[0], self._service))
        elif self._is_begun and self._run.group_before_id is not None:
            self._service.sandboxes.restore_states(
                plan, self._store.get(CheckpointGroup, self._run.group_before_id).states
            )
        return plan

    def _resolved(self, plan: Plan) -> Plan:
        """Record that a person has resolved the conflicts; the other subplans are merged with the present files."""
        conflicts = self._run.conflicts or ()
        self._run = self._run.model_copy(update={"status": RunStatus.RUNNING, "conflicts": None, "error": None})
        if not conflicts:
            return plan  # the conflicts are in a subplan, which records their resolution itself
        last = [subplan for subplan in self._subplans if subplan.merged_states is not None][-1]
        spec = DecisionSpec(
            type=DecisionType.USER_INTERVENTION,
            question=f"How does {last.name} go together with the rest?",
            chosen="as resolved in the sandbox: " + ", ".join(conflict.path for conflict in conflicts),
        )
        decision = self._recorder.new_decision(plan, spec, self._run.step_index, self._run.decision_id)
        with self._service.manager.storing():
            last = last.changed(merged_states=self._service.sandboxes.states_now(plan))
            self._recorder.save(last, self._run, decision)
        occasion = self._occasion(f"conflicts of {last.name} are resolved", decision.decision_id)
        return self._recorder.trigger(plan, [Trigger.AFTER_SUBPLAN, Trigger.ON_DECISION], occasion)

    # Running

    def _execute(self, plan: Plan, batch: Sequence[int]) -> None:
        forks = any(self._subplans[number].head_group_id is None for number in batch)
        new_service = self._forking(plan) if forks else self._service.sibling
        with ThreadPoolExecutor(max_workers=self._step.parallel, thread_name_prefix="holdfast-subplan") as pool:
            running = {number: pool.submit(self._execute_one, self._subplans[number], new_service) for number in batch}
            for number, ended in running.items():
                self._subplans[number] = ended.result()

    def _forking(self, plan: Plan) -> Callable[[], CheckpointService]:
        """Makes services for forks of the plan's sandboxes, which are looked at first."""
        try:
            with stoppable(self._cancelled):
                return self._service.forking(plan)
        except Stopped:
            return self._service.sibling  # no subplan is started any more

    def _execute_one(self, subplan: Plan, new_service: Callable[[], CheckpointService]) -> Plan:
        if subplan.state is PlanState.COMPLETE or self._stop_starting.is_set() or self._cancelled.is_set():
            return subplan
        self._recorder.tell(SubplanStarted(subplan))
        service = new_service()
        try:
            subplan = self._execute_subplan(subplan, service)
        except HoldfastError:
            self._stop_starting.set()
            raise
        finally:
            service.close()
        if subplan.state is not PlanState.COMPLETE:
            self._stop_starting.set()
        self._recorder.tell(SubplanEnded(subplan))
        return subplan

    def _end_early(self, plan: Plan) -> tuple[Plan, StepRun]:
        """End the run because not all subplans completed; after a failure, cancel those that have not started."""
        if self._cancelled.is_set():
            return plan, self._ended(RunStatus.INTERRUPTED, "stopped")
        constrained = [each for each in self._subplans if each.state is PlanState.CONSTRAINED]
        failed = [each for each in self._subplans if each.state is PlanState.ERRORED]
        if constrained and not failed:
            error = f"subplan {constrained[0].name} is constrained: {constrained[0].error}"
            self._run = self._run.model_copy(update={"status": RunStatus.CONSTRAINED, "conflicts": (), "error": error})
            plan = plan.changed(state=PlanState.CONSTRAINED, error=error)
            self._recorder.save(self._run, plan)
            return plan, self._run
        waiting = [number for number, each in enumerate(self._subplans) if each.state is PlanState.QUEUED]
        for number in waiting:
            error = f"not started, because {failed[0].name} failed"
            self._subplans[number] = self._subplans[number].changed(state=PlanState.CANCELLED, error=error)
        self._recorder.save(*(self._subplans[number] for number in waiting))
        named = "; ".join(f"subplan {each.name} failed: {each.error}" for each in failed)
        return plan, self._ended(RunStatus.FAILED, named)

    def _ended(self, status: RunStatus, error: str | None) -> StepRun:
        output = "".join(f"{each.name}: {each.state}{_because(each)}\n" for each in self._subplans)
        return self._run.model_copy(
            update={
                "status": status,
                "error": error,
                "output": output,
                "output_bytes": len(output.encode(errors="surrogatepass")),
                "finished_at": now(),
            }
        )

    def _occasion(self, reason: str, decision_id: str | None = None) -> Occasion:
        return Occasion(
            triggers=(),
            reason=reason,
            title=f"step {self._run.step_index + 1}, subplans: {reason}",
            source=self._step.tool,
            step_index=self._run.step_index,
            decision_id=decision_id or self._run.decision_id,
            resource=self._step.resource,
        )

    # Merging

    def _merge(self, plan: Plan, number: int) -> tuple[Plan, tuple[Conflict, ...]]:
        """Merge the subplan's result into its parent's sandboxes; its content is kept until records name it."""
        subplan = self._subplans[number]
        with self._service.manager.storing() as batch:
            states, conflicts = merge(plan, subplan, self._step.merge, self._service, batch)
            if conflicts and self._step.merge is MergeStrategy.FAIL_ON_CONFLICT:
                self._run = self._ended(RunStatus.FAILED, conflict_text(subplan, conflicts))
                return plan, conflicts
            batch.commit()
            self._service.sandboxes.restore_states(plan, states)
            self._subplans[number] = subplan = subplan.changed(merged_states=states)
            if conflicts:
                # While the plan waits, only these files show what is unresolved: they must survive a power cut.
                os.sync()
                error = conflict_text(subplan, conflicts)
                changed = {"status": RunStatus.CONSTRAINED, "conflicts": conflicts, "error": error}
                self._run = self._run.model_copy(update=changed)
                plan = plan.changed(state=PlanState.CONSTRAINED, error=error)
            self._recorder.save(plan, subplan, self._run)
        self._recorder.tell(SubplanMerged(subplan, conflicts))
        occasion = self._occasion(f"after {subplan.name}")
        return self._recorder.trigger(plan, [Trigger.AFTER_SUBPLAN], occasion), conflicts


def _because(subplan: Plan) -> str:
    return f" ({subplan.error})" if subplan.error else ""
