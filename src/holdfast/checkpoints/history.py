"""History: what is recorded of one plan, each kind of record read once, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
)
from holdfast.system.machine import boot_id
from holdfast.system.once import once

CUT_SHORT = frozenset((RunStatus.INTERRUPTED, RunStatus.CONSTRAINED))
"""How a run is that can go on, or be undone: its half-done work may be in the sandboxes."""
_AFTER_STEPS = frozenset((Trigger.ON_TOOL_WRITE_COMPLETE, Trigger.AFTER_SUBPLAN))


class History:
    """Read as it is asked for. A verb makes one and asks it everything, so that nothing is read twice."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self._store, self.plan = store, plan

    # What is recorded

    @once
    def decisions(self) -> list[Decision]:
        return self._store.decisions.of(self.plan.plan_id)

    @once
    def runs(self) -> list[StepRun]:
        return self._store.runs.of(self.plan.plan_id)

    @once
    def groups(self) -> list[CheckpointGroup]:
        """Those whose records are sound."""
        return self._store.groups.of(self.plan.plan_id, sound_only=True)

    @once
    def subplans(self) -> list[Plan]:
        return self._store.plans.below(self.plan.plan_id)

    @once
    def last_run(self) -> StepRun | None:
        """The last one in force."""
        return self._store.runs.latest_in_force(self.plan.plan_id)

    @once
    def head(self) -> CheckpointGroup:
        """The last group; there is one as soon as the plan has sandboxes."""
        return self._store.get(CheckpointGroup, self.plan.head_group_id or "")

    def below(self, subplan: Plan) -> History:
        return History(self._store, subplan)

    # The step under way

    def step_of(self, run: StepRun) -> Step | None:
        """The step that this is a run of; None for a run of a validation, which comes after all steps."""
        decision = self._store.find(Decision, run.decision_id) if run.decision_id is not None else None
        return None if decision is None or decision.step_index is None else self.plan.steps[decision.step_index]

    @once
    def run_of_next_step(self) -> StepRun | None:
        """The last try at it that was not undone."""
        run = self.last_run
        is_of_it = run is not None and run.step_index == self.plan.next_step and self.step_of(run) is not None
        return run if is_of_it else None

    @once
    def cut_short(self) -> StepRun | None:
        """The run of the next step, if it did not come to its end and its half-done work may be in the sandboxes."""
        run = self.run_of_next_step
        if run is not None and run.status is RunStatus.FAILED:
            return self._failed_as_it_counts(run) if self.is_to_be_undone(run) else None
        return run if run is not None and run.status in CUT_SHORT else None

    def _failed_as_it_counts(self, run: StepRun) -> StepRun:
        """If its process died before it could undo the step, recovery is going to mark the run as interrupted."""
        is_left = self.plan.state is PlanState.PROCESSING
        return run.model_copy(update={"status": RunStatus.INTERRUPTED}) if is_left else run

    def is_to_be_undone(self, failed: StepRun) -> bool:
        """Whether the rollback after this failure, which supersedes the run, is still to be done."""
        # A validation changes nothing, and is simply made again.
        is_of_step = failed.step_index == self.plan.next_step and self.step_of(failed) is not None
        return is_of_step and self.plan.policy.goes_back_on_failure

    @once
    def under_way(self) -> StepRun | None:
        """The step that was cut short, also before recovery has marked it."""
        return self.cut_short or next(iter(self._store.runs.unfinished(self.plan.plan_id)), None)

    @property
    def never_begun(self) -> list[Decision]:
        """Decisions for a step that was cut short before it began: they are made again when it does."""
        used = {run.decision_id for run in self.runs}
        return [
            decision
            for decision in self.decisions
            if not decision.is_superseded
            and decision.step_index == self.plan.next_step
            and not is_within(decision.sequence, self.plan.active_decisions)
            and not used.intersection((decision.decision_id, decision.parent_decision_id))
        ]

    def spawned_by(self, run: StepRun) -> list[Plan]:
        """The subplans of one run of a step, in the order in which they are listed."""
        spawning = {each.decision_id for each in self.decisions if is_of(each, run)}
        return [plan for plan in self.subplans if plan.spawn_decision_id in spawning]

    # What groups hold

    @once
    def held_decisions(self) -> Ranges:
        """What a group of now holds: of a step that was cut short also its decisions, so that it can come back."""
        run, held = self.run_of_next_step, self.plan.active_decisions
        if run is None or run.status not in CUT_SHORT:
            return held
        for decision in self.decisions:
            if not decision.is_superseded and is_of(decision, run):
                held = extended(held, decision.sequence, decision.sequence)
        return held

    def run_held_by(self, group: CheckpointGroup) -> StepRun | None:
        """The run of a step whose half-done work the group holds."""
        held = {each.decision_id for each in self.decisions if is_half_done(each, group)}
        return next((each for each in self.runs if each.decision_id in held), None)

    @property
    def is_recorded(self) -> bool:
        """Whether the last group holds all that steps did; not so if none is taken when a step has ended."""
        plan, last = self.plan, self.last_run
        if last is not None and last.status is RunStatus.FAILED:
            is_kept = last.step_index == plan.next_step and last.group_before_id in (None, plan.head_group_id)
            if is_kept and not plan.is_finished:
                return False
        return records_every_step(plan) or self.head.last_completed_step == plan.last_completed_step

    @property
    def superseded_groups(self) -> set[str]:
        """Groups that are not on the way that led to where the plan is now."""
        groups = {group.group_id: group for group in self.groups}
        at, way = self.plan.head_group_id, set()
        while at is not None and at in groups:
            way.add(at)
            at = groups[at].parent_group_id
        if at is None or not self._store.has(CheckpointGroup, at):
            return groups.keys() - way
        # The way leads through a damaged group, and which of those before it are on the way is not known.
        oldest = min((groups[each].sequence for each in way), default=math.inf)
        return {each.group_id for each in groups.values() if each.sequence > oldest} - way

    def position_at(self, target: CheckpointGroup) -> Plan:
        """The plan as it is at that group; a step that was cut short there is so again."""
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
            boot_id=boot_id(),  # a rollback looks at every file, so nothing that a crash lost is still missing
        )

    def _guidance_at(self, target: CheckpointGroup) -> str:
        """That of the last correction in force there; a subplan has its parent's, and is not corrected itself."""
        corrections = [each for each in self.decisions if each.is_correction]
        in_force = [each.chosen for each in corrections if is_within(each.sequence, target.active_decisions)]
        return in_force[-1] if in_force else "" if corrections else self.plan.guidance


def records_every_step(plan: Plan) -> bool:
    """Whether there is a group of what each step left, as soon as it has ended."""
    return _AFTER_STEPS.issubset(plan.policy.auto_create_on)


def first_of_attempt(plan: Plan, groups: Sequence[CheckpointGroup]) -> CheckpointGroup:
    """Not the first of all: that would give up a correction made since."""
    own = [each for each in groups if (each.attempt, each.revision) == (plan.attempt, plan.revision)]
    return own[0] if own else groups[0]


def is_of(decision: Decision, run: StepRun) -> bool:
    """Whether it started the run, or was made in it."""
    return run.decision_id in (decision.decision_id, decision.parent_decision_id)


def is_half_done(decision: Decision, group: CheckpointGroup) -> bool:
    """Whether the group holds it although the step that it is for was not done there."""
    is_of_next_step = decision.step_index == group.last_completed_step + 1
    return is_of_next_step and is_within(decision.sequence, group.active_decisions)


def goes_on_with_parent(subplan: Plan) -> str:
    """Why a subplan is not rolled back, corrected or resumed by itself."""
    return f"Plan {subplan.plan_id} ({subplan.name}) is a subplan of {subplan.parent_plan_id} and goes on with it."
