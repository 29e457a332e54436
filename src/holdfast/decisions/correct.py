"""CorrectionService: reverts a decision with all that followed from it, or appends steps to a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.checkpoints.consequences import Consequences, consequences_of
from holdfast.checkpoints.correction import record_correction
from holdfast.checkpoints.history import History, goes_on_with_parent
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.rollback import Compensate, RollbackDecision
from holdfast.checkpoints.service import CheckpointService
from holdfast.db.journal import Entry, RollbackEntry
from holdfast.errors import DamagedRecordError, SandboxError, StateError, UsageError
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    Correction,
    CorrectionMode,
    Decision,
    DecisionType,
    FileChange,
    Lease,
    Moment,
    Plan,
    PlanState,
    RollbackImpact,
    RollbackResult,
    Step,
    StepRun,
    is_within,
    numbers_of,
)
from holdfast.rollback.rollback import carry_out, full_impact, refuse_if_disabled

if TYPE_CHECKING:
    from holdfast.tools import Toolbox


@dataclass(frozen=True)
class Target:
    """The moment just before a decision, to which reverting the decision rolls the plan back."""

    checkpoint: Checkpoint
    undone: tuple[int, ...]
    """Sequence numbers of decisions that the checkpoint's group holds and that must not be in force."""
    group: CheckpointGroup
    """The checkpoint's group without these decisions."""


@dataclass(frozen=True)
class CorrectionPreview:
    """What a correction will do, for the dry run and for the question before the real correction."""

    plan: Plan
    """As it is now."""
    decision: Decision
    rollback: RollbackDecision | None
    """The rollback; None if nothing is undone."""
    files: tuple[FileChange, ...]
    superseded: tuple[Decision, ...]
    subplans: tuple[Plan, ...]
    """Subplans that will be invalidated."""
    impact: RollbackImpact
    resumes_at: int
    steps: tuple[Step, ...]
    brings_steps: bool

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.rollback.checkpoint if self.rollback is not None else None


@dataclass(frozen=True)
class CorrectionResult:
    plan: Plan
    impact: RollbackImpact | None
    """None if this very correction had been cut short, and was only finished now."""
    set_aside: tuple[str, ...] = ()
    """Where files are that no checkpoint could hold and that stood in the way."""


class CorrectionService:
    """Previews and carries out corrections."""

    def __init__(self, service: CheckpointService, tools: Toolbox) -> None:
        self._service, self._tools = service, tools

    def is_interrupted(self, decision: Decision, guidance: str) -> bool:
        """Whether this correction was begun and interrupted; the next command that takes the lease finishes it."""
        entries = map(Entry.of, self._service.store.operations.unfinished(decision.plan_id))
        corrections = (entry.correction for entry in entries if isinstance(entry, RollbackEntry))
        # Reverting a correction also keeps undone what it had undone, which are earlier decisions (``target_of``).
        return any(
            each and each.guidance == guidance and max(each.undone, default=0) == decision.sequence
            for each in corrections
        )

    def preview(
        self, plan: Plan, decision: Decision, mode: CorrectionMode, new_steps: tuple[Step, ...] | None
    ) -> CorrectionPreview:
        """What the correction will do; refuses what ``correct`` would refuse, and changes nothing."""
        if mode not in tuple(CorrectionMode):
            raise UsageError(f"There is no mode {mode!r}.", hint=f"The modes are {', '.join(CorrectionMode)}.")
        if mode != CorrectionMode.APPEND:
            return self._preview_revert(plan, decision, new_steps)
        if new_steps is None:
            raise UsageError("Appending needs new steps.", hint="Give them with `--with FILE`.")
        return self._preview_append(plan, decision, new_steps)

    def correct(
        self,
        lease: Lease,
        preview: CorrectionPreview,
        guidance: str,
        compensate: Compensate,
        confirm: Callable[[CorrectionPreview], bool] | None,
    ) -> CorrectionResult | None:
        """Do what the preview says; if ``confirm``, which is shown it, says no, change nothing and return None."""
        if confirm is not None and not confirm(preview):
            return None
        if preview.rollback is None:
            return CorrectionResult(self._append(lease, preview, guidance), preview.impact)
        if confirm is not None:
            # The answer may have taken long, and not every write is reported.
            self._service.sandboxes.states_now(preview.plan)
        result = self._revert(lease, preview, preview.rollback, guidance, compensate)
        return CorrectionResult(result.plan, result.impact, result.set_aside)

    # Reverting

    def _preview_revert(self, plan: Plan, decision: Decision, new_steps: tuple[Step, ...] | None) -> CorrectionPreview:
        refuse_if_disabled(plan)
        history = self._service.history(plan)
        target = self.target_of(history, decision)
        _refuse_if_applied(consequences_of(history, target.group))
        rollback = self._service.rollback.decide(plan, target.checkpoint, undone=target.undone)
        expected = self._service.rollback.expected(rollback)
        before, consequences = expected.plan, rollback.consequences
        return CorrectionPreview(
            plan=plan,
            decision=decision,
            rollback=rollback,
            files=expected.changes,
            superseded=consequences.superseded,
            subplans=tuple(subplan for subplan in consequences.subplans if not subplan.is_superseded),
            impact=full_impact(plan, self._service, self._tools, consequences),
            resumes_at=before.next_step,
            steps=before.steps if new_steps is None else (*before.steps[: before.next_step], *new_steps),
            brings_steps=new_steps is not None,
        )

    def _revert(
        self,
        lease: Lease,
        preview: CorrectionPreview,
        rollback: RollbackDecision,
        guidance: str,
        compensate: Compensate,
    ) -> RollbackResult:
        """Roll back to just before the decision; the guidance supersedes it and all that followed from it."""
        decision = preview.decision
        correction = Correction(
            question=decision.question,
            guidance=guidance,
            alternatives=(decision.chosen,),
            parent_decision_id=decision.parent_decision_id,
            steps=preview.steps if preview.brings_steps else None,
            undone=rollback.undone,
        )
        reason = f"decision {decision.decision_id} is corrected"
        return carry_out(rollback, lease, self._service, self._tools, compensate, reason=reason, correction=correction)

    def check_revert(self, plan: Plan, decision: Decision) -> Target:
        """Refuse what reverting would refuse, as far as that is known without reading files and content."""
        refuse_if_disabled(plan)
        history = self._service.history(plan)
        target = self.target_of(history, decision)
        _refuse_if_applied(consequences_of(history, target.group))
        self._service.rollback.check_position(history, target.group)
        return target

    def find_refusal(self, plan: Plan, decision: Decision) -> str | None:
        """Why this decision cannot be reverted at present; None if it can."""
        if plan.parent_plan_id is not None:
            return goes_on_with_parent(plan)
        try:
            self.check_revert(plan, decision)
        except (StateError, SandboxError, DamagedRecordError) as error:
            return error.message
        return None

    def correctable_for(self, plan: Plan, decision: Decision) -> Decision | None:
        """The decision to revert in order to undo this one: itself, or the one that spawned its subplan."""
        store = self._service.store
        if plan.parent_plan_id is None:
            return decision if self.find_refusal(plan, decision) is None else None
        root = store.plans.root_of(plan)
        while plan.parent_plan_id != root.plan_id:
            plan = store.get(Plan, plan.parent_plan_id or "")
        spawning = store.find(Decision, plan.spawn_decision_id or "")
        # If the step states a decision of its own, reverting that undoes the subplan as well.
        parent = store.find(Decision, spawning.parent_decision_id or "") if spawning is not None else None
        found = (each for each in (spawning, parent) if each is not None and self.find_refusal(root, each) is None)
        return next(found, None)

    def target_of(self, history: History, decision: Decision) -> Target:
        """What reverting this decision would roll the plan back to."""
        checkpoint = self._checkpoint_before(history, decision)
        group = self._service.store.get(CheckpointGroup, checkpoint.group_id)
        undone = {decision.sequence}
        if decision.is_correction:
            # What the correction undid stays undone.
            [first, *_] = self._groups_with(decision)
            undone.update(
                each for each in numbers_of(group.active_decisions) if not is_within(each, first.active_decisions)
            )
        return Target(checkpoint, tuple(sorted(undone)), group.without(undone))

    def _checkpoint_before(self, history: History, decision: Decision) -> Checkpoint:
        plan_id = history.plan.plan_id
        if decision.parent_decision_id is None:
            raise StateError(
                f"Decision {decision.decision_id} is the plan's goal: nothing comes before it.",
                hint=f"Correct one that followed from it (`holdfast plan tree {plan_id}`), or roll back to the "
                f"start (`holdfast checkpoint list {plan_id}`).",
            )
        found = self._checkpoints_before(history, decision)
        # A rolled-back decision, as after a failure, may come directly before the plan's present position.
        leads_here = bool(found) and found[0].group_id not in history.superseded_groups
        if decision.is_superseded and not leads_here:
            raise StateError(
                f"Decision {decision.decision_id} is already superseded: it does not belong to the present state.",
                hint="Roll back to a checkpoint of that time first, or correct a decision that is in force.",
            )
        if not found:
            raise StateError(
                f"There is no checkpoint of decision {decision.decision_id} to roll back to.",
                hint="None was taken when it was made, or it was pruned. "
                f"`holdfast checkpoint list {plan_id}` shows those that exist.",
            )
        return found[0]

    def _checkpoints_before(self, history: History, decision: Decision) -> list[Checkpoint]:
        """The checkpoints taken when the decision was made; those from the end of its step name it, too."""
        store = self._service.store
        if decision.is_correction:
            return self._before_correction(decision)
        runs = self._undone_runs(history, decision)
        if runs and decision.step_index is not None:
            before = (store.find(CheckpointGroup, run.group_before_id) for run in runs if run.group_before_id)
            return [each for group in before if group is not None for each in self._service.checkpoints_at(group)]
        made = [each for each in history.groups if each.decision_id == decision.decision_id]
        return [each for group in made for each in self._service.checkpoints_at(group)]

    def _undone_runs(self, history: History, decision: Decision) -> list[StepRun]:
        """The runs that the decision started, or that it ended by a skip or by resolving conflicts."""
        started = [run for run in history.runs if run.decision_id == decision.decision_id]
        if started or decision.type is not DecisionType.USER_INTERVENTION:
            return started
        ended = [run for run in history.runs if run.decision_id == decision.parent_decision_id]
        is_skip = any(decision.decision_id == group.decision_id for group in self._groups_with(decision))
        # Other interventions were recorded by a tool during its run, and have a checkpoint of their own.
        return ended if is_skip or any(map(history.spawned_by, ended)) else []

    def _before_correction(self, correction: Decision) -> list[Checkpoint]:
        """The checkpoints of what the correction rolled back to or, if it appended steps, of the state before it."""
        store = self._service.store
        for first in self._groups_with(correction)[:1]:
            before = store.find(CheckpointGroup, first.parent_group_id or "")
            if before is not None and before.last_completed_step == first.last_completed_step:
                return self._service.checkpoints_at(before)
        return []

    def _groups_with(self, decision: Decision) -> list[CheckpointGroup]:
        """The groups that hold the decision as one in force, oldest first."""
        groups = self._service.store.groups.of(decision.plan_id)
        return [each for each in groups if is_within(decision.sequence, each.active_decisions)]

    # Appending

    def _preview_append(self, plan: Plan, decision: Decision, new_steps: tuple[Step, ...]) -> CorrectionPreview:
        if plan.state in (PlanState.APPLIED, PlanState.CANCELLED):
            raise StateError(f"Plan {plan.plan_id} is {plan.state}.", hint="Make a new plan for the new work.")
        half_done = self._service.history(plan).half_done_run
        if half_done is not None and _is_resumed(plan, half_done):
            raise StateError(
                f"Step {half_done.step_index + 1} ({half_done.step}) has not finished: resuming may roll the plan back "
                "to before it, which would remove the steps you add now.",
                hint=f"Resume first: `holdfast plan resume {plan.plan_id}`.",
            )
        if plan.head_group_id is not None:
            self._service.sandboxes.check(plan)
        return CorrectionPreview(
            plan=plan,
            decision=decision,
            rollback=None,
            files=(),
            superseded=(),
            subplans=(),
            impact=RollbackImpact(
                sandbox=", ".join(resource.sandbox_path for resource in plan.resources),
                decisions_after_cp=0,
                tool_calls_after_cp=0,
            ),
            resumes_at=plan.next_step,
            steps=(*plan.steps, *new_steps),
            brings_steps=True,
        )

    def _append(self, lease: Lease, preview: CorrectionPreview, guidance: str) -> Plan:
        correction = Correction(
            question=f"What else has to be done after: {preview.decision.question}",
            guidance=guidance,
            parent_decision_id=preview.decision.decision_id,
            steps=preview.steps,
        )
        plan = preview.plan
        if plan.head_group_id is not None:
            # So that a rollback after a failure finds a group that has the new steps.
            occasion = Occasion((Moment.MANUAL,), source="correct", reason="steps are added at the end")
            plan = self._service.create_checkpoint(plan, lease, occasion)
        with self._service.store.transaction(lease):
            return record_correction(self._service.store, plan, correction)


def _is_resumed(plan: Plan, half_done: StepRun) -> bool:
    """Whether resuming undoes this run, or continues its subplans."""
    return half_done.group_before_id is not None or bool(plan.steps[half_done.step_index].subplans)


def _refuse_if_applied(consequences: Consequences) -> None:
    """Rolling back a parent cannot undo what a subplan has applied to the real files."""
    if consequences.applied:
        listed = ", ".join(f"{subplan.name} ({subplan.plan_id})" for subplan in consequences.applied)
        raise StateError(
            f"The correction would undo subplans whose results are already in the real files: {listed}.",
            hint="Correct a decision that came after them, or add steps that undo their work: `--mode append`.",
        )
