"""History: the records of one plan, each kind read once, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoints.line import Line
from holdfast.db.store import Store
from holdfast.model import (
    CheckpointGroup,
    Decision,
    Phase,
    Plan,
    PlanState,
    Ranges,
    Revision,
    RunStatus,
    Step,
    StepRun,
    Trigger,
    extended,
    is_within,
    less,
    numbers_of,
)
from holdfast.system.machine import boot_id
from holdfast.system.once import once

HALF_DONE = frozenset((RunStatus.INTERRUPTED, RunStatus.CONSTRAINED))
"""The statuses of runs that can be continued or undone: their half-done work may be in the sandboxes."""
_AFTER_STEPS = frozenset((Trigger.ON_TOOL_WRITE_COMPLETE, Trigger.AFTER_SUBPLAN))


class History:
    """Reads records on first use. Each command creates one and asks it everything, so nothing is read twice."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self._store, self.plan = store, plan

    # Records

    @once
    def decisions(self) -> list[Decision]:
        return self._store.decisions.of(self.plan.plan_id)

    @once
    def runs(self) -> list[StepRun]:
        return self._store.runs.of(self.plan.plan_id)

    @once
    def groups(self) -> list[CheckpointGroup]:
        """The groups whose records are sound."""
        return self._store.groups.of(self.plan.plan_id, sound_only=True)

    @once
    def subplans(self) -> list[Plan]:
        return self._store.plans.below(self.plan.plan_id)

    @once
    def last_run(self) -> StepRun | None:
        """The last run in force."""
        return self._store.runs.latest_in_force(self.plan.plan_id)

    @once
    def head(self) -> CheckpointGroup:
        """The plan's last group; there is one as soon as the plan has sandboxes."""
        return self._store.get(CheckpointGroup, self.plan.head_group_id or "")

    def below(self, subplan: Plan) -> History:
        return History(self._store, subplan)

    # The step that has not ended

    def step_of(self, run: StepRun) -> Step | None:
        """The step of this run; None if it is the run of a validation, which comes after all steps."""
        decision = self._store.find(Decision, run.decision_id) if run.decision_id is not None else None
        return None if decision is None or decision.step_index is None else self.plan.steps[decision.step_index]

    @once
    def run_of_next_step(self) -> StepRun | None:
        """The last run of the next step, unless it was rolled back."""
        run = self.last_run
        is_of_it = run is not None and run.step_index == self.plan.next_step and self.step_of(run) is not None
        return run if is_of_it else None

    @once
    def half_done_run(self) -> StepRun | None:
        """The run of the next step, if it did not finish and its half-done work may be in the sandboxes."""
        run = self.run_of_next_step
        if run is not None and run.status is RunStatus.FAILED:
            return self._as_recovered(run) if self.awaits_rollback(run) else None
        return run if run is not None and run.status in HALF_DONE else None

    def _as_recovered(self, failed: StepRun) -> StepRun:
        """The failed run as recovery will mark it: interrupted, if its process died before it rolled the step back."""
        has_died = self.plan.state is PlanState.PROCESSING
        return failed.model_copy(update={"status": RunStatus.INTERRUPTED}) if has_died else failed

    def awaits_rollback(self, failed: StepRun) -> bool:
        """Whether the policy rolls this failed run back, and that has not happened yet: it supersedes the run."""
        # A validation changes nothing, and simply runs again.
        is_of_step = failed.step_index == self.plan.next_step and self.step_of(failed) is not None
        return is_of_step and self.plan.policy.rolls_back_on_failure

    @once
    def unfinished_run(self) -> StepRun | None:
        """The half-done run, also one that is still recorded as running because recovery has not marked it yet."""
        return self.half_done_run or next(iter(self._store.runs.unfinished(self.plan.plan_id)), None)

    @property
    def decisions_without_run(self) -> list[Decision]:
        """Decisions for a step that was interrupted before it started; the step records new ones when it starts."""
        used = {run.decision_id for run in self.runs}
        return [
            decision
            for decision in self.decisions
            if not decision.is_superseded
            and decision.step_index == self.plan.next_step
            and not is_within(decision.sequence, self.plan.active_decisions)
            and not used.intersection((decision.decision_id, decision.parent_decision_id))
        ]

    def decisions_marked_by(self, kept: Ranges) -> list[Decision]:
        """The decisions that are superseded or revived if exactly these are in force."""
        in_force = set(numbers_of(kept))
        marks = self._store.decisions.marks(self.plan.plan_id)
        marked = [number for number, is_superseded in marks if is_superseded == (number in in_force)]
        return self._store.decisions.numbered(self.plan.plan_id, marked)

    def runs_of(self, decisions: Iterable[Decision]) -> list[StepRun]:
        return self._store.runs.of_decisions(self.plan.plan_id, [each.decision_id for each in decisions])

    def spawned_by(self, run: StepRun) -> list[Plan]:
        """The subplans of one run of a step, in the order of the plan file."""
        spawning = {each.decision_id for each in self.decisions if is_of(each, run)}
        return [plan for plan in self.subplans if plan.spawn_decision_id in spawning]

    # Groups

    @once
    def held_decisions(self) -> Ranges:
        """The decisions that a group taken now holds, also those of a half-done run: a rollback can then revive it."""
        run, held = self.run_of_next_step, self.plan.active_decisions
        if run is None or run.status not in HALF_DONE:
            return held
        first = self._store.get(Decision, run.decision_id or "").sequence
        for decision in self._store.decisions.in_force_from(self.plan.plan_id, first):
            if is_of(decision, run):
                held = extended(held, decision.sequence, decision.sequence)
        return held

    def run_held_by(self, group: CheckpointGroup) -> StepRun | None:
        """The run whose half-done work the group holds; None if no step was half done."""
        plan_id = self.plan.plan_id
        possible = self._store.decisions.of_step(plan_id, group.last_completed_step + 1)
        held = [each.decision_id for each in possible if is_half_done(each, group)]
        return next(iter(self._store.runs.of_decisions(plan_id, held)), None)

    @property
    def head_holds_all_work(self) -> bool:
        """Whether the last group holds all that steps did; it may not if the policy takes none at the end of a step."""
        plan, last = self.plan, self.last_run
        if last is not None and last.status is RunStatus.FAILED:
            # No group was taken since that run began, so what it did is only in the sandboxes.
            is_unsaved = last.step_index == plan.next_step and last.group_before_id in (None, plan.head_group_id)
            if is_unsaved and not plan.is_finished:
                return False
        return records_every_step(plan) or self.head.last_completed_step == plan.last_completed_step

    @property
    def superseded_groups(self) -> set[str]:
        """Ids of groups that are not ancestors of the plan's head group."""
        return Line(self._store, self.plan).superseded(reversed(self.groups))

    def position_at(self, target: CheckpointGroup) -> Plan:
        """The plan as it was at that group; a step that was half done there is half done again."""
        run = self.run_held_by(target)
        held = () if run is None else (each for each in self.decisions if is_of(each, run))
        is_constrained = run is not None and run.status is RunStatus.CONSTRAINED
        return self.plan.changed(
            phase=Phase.EXECUTE,
            state=PlanState.CONSTRAINED if is_constrained else PlanState.QUEUED,
            error=run and (run.error if is_constrained else f"step {run.step_index + 1} ({run.step}) was interrupted"),
            attempt=target.attempt,
            revision=target.revision,
            steps=self._store.get(Revision, self.plan.plan_id, target.revision).steps,
            last_completed_step=target.last_completed_step,
            active_decisions=less(target.active_decisions, [each.sequence for each in held]),
            guidance=self._guidance_at(target),
            head_group_id=target.group_id,
            boot_id=boot_id(),  # a rollback checks every file, so nothing that a crash lost is still missing
        )

    def _guidance_at(self, target: CheckpointGroup) -> str:
        """The guidance of the last correction in force there; a subplan is never corrected, and keeps its parent's."""
        corrections = self._store.decisions.corrections(self.plan.plan_id)
        in_force = [each.chosen for each in corrections if is_within(each.sequence, target.active_decisions)]
        return in_force[-1] if in_force else "" if corrections else self.plan.guidance


def records_every_step(plan: Plan) -> bool:
    """Whether the policy takes a group at the end of every step."""
    return _AFTER_STEPS.issubset(plan.policy.auto_create_on)


def is_of(decision: Decision, run: StepRun) -> bool:
    """Whether the decision started the run or was made in it."""
    return run.decision_id in (decision.decision_id, decision.parent_decision_id)


def is_half_done(decision: Decision, group: CheckpointGroup) -> bool:
    """Whether the group holds the decision although its step was not done at that moment."""
    is_of_next_step = decision.step_index == group.last_completed_step + 1
    return is_of_next_step and is_within(decision.sequence, group.active_decisions)


def command_to_recover(plan: Plan) -> str:
    """A command that finishes or undoes what was cut short in that plan."""
    return f"holdfast {'checkpoint create' if plan.is_session else 'plan execute'} {plan.plan_id}"


def goes_on_with_parent(subplan: Plan) -> str:
    """Why a subplan is not rolled back, corrected or resumed by itself."""
    return f"Plan {subplan.plan_id} ({subplan.name}) is a subplan of {subplan.parent_plan_id} and goes on with it."
