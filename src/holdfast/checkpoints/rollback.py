"""Rollback: restores files of all resources, position and decisions of a plan to a group, all or nothing.

What would happen is decided first, as one value. The preview shows it, and carrying it out takes it: so both refuse the
same things.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from holdfast.checkpoints.changes import Changes, States, reverted, visible_of_user, with_other_commits
from holdfast.checkpoints.consequences import Consequences, consequences_of
from holdfast.checkpoints.correction import next_decision, record_correction
from holdfast.checkpoints.history import HALF_DONE, History
from holdfast.checkpoints.pruning import Pruning
from holdfast.checkpoints.recorder import GroupRecorder, Occasion, group_checkpoints, is_at
from holdfast.checkpoints.sandboxes import Sandboxes
from holdfast.checkpoints.titles import back_at, has_own_name, left_for
from holdfast.checkpoints.unkept import look_at_unkept
from holdfast.db.journal import RollbackEntry, SandboxEntry
from holdfast.db.store import Store
from holdfast.errors import HoldfastError, StateError
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    Correction,
    DecisionSpec,
    Lease,
    Moment,
    Operation,
    OperationState,
    Plan,
    PlanState,
    RollbackResult,
    RunStatus,
    StepRun,
    extended,
    now,
)
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.restore.restoration import Disturbed
from holdfast.system.directories import shown
from holdfast.system.ids import new_id
from holdfast.system.place import is_there

Compensate = Callable[[Plan, Lease, Consequences], Consequences]
"""Undoes what steps did outside of the sandboxes, if a rollback undoes the steps; then their runs say how it ended."""


def no_compensation(_plan: Plan, _lease: Lease, consequences: Consequences) -> Consequences:
    return consequences


class RollbackDecision(msgspec.Struct, frozen=True):
    """What a rollback is going to do; nothing is changed yet."""

    plan: Plan
    """As it is now."""
    history: History
    checkpoint: Checkpoint
    target: CheckpointGroup
    """What the checkpoint stands for, without the decisions that a correction undoes."""
    consequences: Consequences
    undone: tuple[int, ...]
    """Numbers of these decisions."""
    keeps_present: bool
    """The state that is left gets a group of its own."""


class Rollback:
    def __init__(
        self, store: Store, manager: CheckpointManager, sandboxes: Sandboxes, recorder: GroupRecorder, pruning: Pruning
    ) -> None:
        self._store, self._manager, self._sandboxes = store, manager, sandboxes
        self._recorder, self._pruning = recorder, pruning

    # Deciding

    def decide(
        self, plan: Plan, checkpoint: Checkpoint, *, undone: Sequence[int] = (), keeps_present: bool = True
    ) -> RollbackDecision:
        """Decide what a rollback will do, or refuse it; nothing is changed.

        ``undone``: decisions that the checkpoint's group holds and that are not to be in force.
        ``keeps_present``: without it what no group holds is lost, and the rollback cannot be undone: only for a person
        who asked for it, on a disk without room.
        """
        history = History(self._store, plan)
        target = self._store.get(CheckpointGroup, checkpoint.group_id).without(undone)
        self.check_position(history, target)
        if keeps_present:  # otherwise ``expected`` checks it, without storing anything
            self._sandboxes.check_content(plan, target.states)
        consequences = consequences_of(history, target)
        return RollbackDecision(plan, history, checkpoint, target, consequences, tuple(undone), keeps_present)

    def check_position(self, history: History, target: CheckpointGroup) -> None:
        """Refuse what can be refused without reading files and content."""
        self._sandboxes.check(history.plan)
        run = history.run_held_by(target)
        if run is not None and run.status not in HALF_DONE:
            raise StateError(
                f"At that checkpoint step {run.step_index + 1} ({run.step}) was running. It has ended since, and "
                "cannot be running again.",
                hint=f"Roll back to before that step (`holdfast checkpoint list {history.plan.plan_id}`), or restore "
                "single files from that checkpoint with `--only`.",
            )

    def expected(self, decision: RollbackDecision) -> RollbackResult:
        """The expected result; ``set_aside`` names files, not their new places. Refuses what ``carry_out`` would."""
        found = self._expected_unkept(decision) if not decision.keeps_present else self._expected_kept(decision)
        return RollbackResult(
            plan=decision.history.position_at(decision.target),
            checkpoint=decision.checkpoint,
            left_group_id=None,
            impact=decision.consequences.impact_on(decision.plan),
            **found,
        )

    def _expected_kept(self, decision: RollbackDecision) -> dict[str, Any]:
        plan, target = decision.plan, decision.target
        with self._manager.storing():  # otherwise content that nothing names yet could be collected before it is read
            present = self._sandboxes.states_now(plan, thorough=False)  # deciding has looked at every file
            self._sandboxes.keep_sound(plan, present, target.states)
        kept = self.kept_by(decision.history, present)
        moved = sum(present[name] != state for name, state in target.states.items())
        remaining = self._pruning.expected(plan, [kept] if kept else [], (target.group_id,))
        found = Changes(self._manager.reader).reverted(plan, present, target.states)
        return {
            "changes": found.files,
            "repositories": found.repositories,
            "set_aside": self._sandboxes.in_the_way(plan, target),
            "checkpoints_remaining": remaining + (moved or 1),
        }

    def _expected_unkept(self, decision: RollbackDecision) -> dict[str, Any]:
        """Stores nothing."""
        plan, target, head = decision.plan, decision.target, decision.history.head
        present = look_at_unkept(plan, self._manager, head, target)
        found = reverted(plan, present.differences_to_target)
        lost = visible_of_user(plan, present.unrecorded)
        moved = sum(head.states[name] != state for name, state in target.states.items())
        return {
            "changes": found.files,
            "repositories": found.repositories,
            "set_aside": present.in_the_way,
            "checkpoints_remaining": self._store.checkpoints.count(plan.plan_id) + (moved or 1),
            "is_unkept": True,
            "lost": (
                *(f"{name}:{shown(each.path)}" for name, listed in lost.items() for each in listed),
                *(f"{name}:.git" for name in with_other_commits(plan, present.unrecorded)),
            ),
        }

    def kept_by(self, history: History, present: States) -> int:
        """How many checkpoints ``keep_present`` will take, if the sandboxes are in these states."""
        head = history.head
        changed = sum(head.states.get(name) != state for name, state in present.items())
        return changed or int(not is_at(head, history))

    # Carrying out

    def carry_out(
        self,
        decision: RollbackDecision,
        lease: Lease,
        *,
        reason: str,
        correction: Correction | None = None,
        recovery: DecisionSpec | None = None,
        compensate: Compensate = no_compensation,
        title: str = "",
    ) -> RollbackResult:
        """Roll the plan back, as it was decided.

        A correction is made in the same step: at no moment is the plan rolled back but not corrected. So is the
        decision to roll back (``recovery``), if a failure caused it. ``compensate`` undoes what steps did outside, if
        they say how. It is called when it is certain that they will be undone, and while their files are still there.
        """
        plan, target = decision.plan, decision.target
        if decision.keeps_present:
            plan = self.keep_present(plan, lease, target, reason)
            left = self._store.get(CheckpointGroup, plan.head_group_id or "")
            self._sandboxes.keep_sound(plan, left.states, target.states)
            self._sandboxes.refuse_changed(plan, target.states)
        operation = RollbackEntry(
            target_group_id=target.group_id,
            left_group_id=plan.head_group_id,
            reason=reason,
            states=target.states,
            correction=correction,
            recovery=recovery,
            is_unkept=not decision.keeps_present,
            title=title or msgspec.UNSET,
        ).begun(plan.plan_id)
        with self._store.transaction(lease):
            self._store.insert(operation)
        try:
            compensate(plan, lease, decision.consequences)
            if self._compensated_since(decision):
                self._sandboxes.look_again(plan)  # the commands that undo things may have changed files
            return self._restore_and_record(plan, lease, operation, decision.checkpoint)
        except HoldfastError as error:
            noted = self._compensated_since(decision)
            if noted:
                # If the rollback were undone, these steps would count as done without their effects outside.
                raise _stays_begun(error, noted) from error
            if not decision.keeps_present:
                raise _cannot_be_restored(error) from error
            self.undo(plan, lease, operation, error)
            raise

    def _compensated_since(self, decision: RollbackDecision) -> list[StepRun]:
        """The runs whose effects outside were undone, or may have been, since that was decided."""
        before = (run for run in decision.consequences.runs if run.compensation is None)
        noted = (self._store.get(StepRun, run.run_id) for run in before)
        return [run for run in noted if run.compensation is not None]

    def keep_present(self, plan: Plan, lease: Lease, target: CheckpointGroup, reason: str) -> Plan:
        """Make sure a group holds the state that is about to be left for ``target``."""
        before = Occasion(
            (Moment.BEFORE_ROLLBACK,),
            source="rollback",
            reason=f"the state before: {reason}",
            title=left_for(target, self._own_name(plan, target)),
            step_index=_position(plan),
        )
        return self._recorder.take(plan, lease, before, only_if_changed=True, needed=(target.group_id,))

    def finish(self, plan: Plan, lease: Lease, operation: Operation, compensate: Compensate) -> RollbackResult:
        """Complete a rollback that was cut short; everything it did already is done again or found done."""
        self.compensate_unfinished(plan, lease, operation, compensate)
        target = self._store.get(CheckpointGroup, RollbackEntry.of(operation).target_group_id)
        return self._restore_and_record(plan, lease, operation, group_checkpoints(self._store, target)[0])

    def compensate_unfinished(
        self, plan: Plan, lease: Lease, operation: Operation, compensate: Compensate
    ) -> Consequences:
        """Undo the effects outside of the sandboxes, for a rollback that was cut short."""
        self._sandboxes.make_empty(plan)
        return compensate(plan, lease, consequences_of(History(self._store, plan), self.target_of(operation)))

    def target_of(self, operation: Operation) -> CheckpointGroup:
        """The target of a rollback: the group, without the decisions that its correction undoes."""
        entry = RollbackEntry.of(operation)
        undone = entry.correction.undone if entry.correction else ()
        return self._store.get(CheckpointGroup, entry.target_group_id).without(undone)

    def _restore_and_record(
        self, plan: Plan, lease: Lease, operation: Operation, checkpoint: Checkpoint
    ) -> RollbackResult:
        target, entry = self.target_of(operation), RollbackEntry.of(operation)
        left, is_unkept = self._store.get(CheckpointGroup, entry.left_group_id or ""), entry.is_unkept
        set_aside = self._sandboxes.restore_group(plan, target, is_unkept=is_unkept)
        consequences = consequences_of(History(self._store, plan), target)  # compensating may have recorded decisions
        found = Changes(self._manager.reader).reverted(plan, left.states, target.states)
        with self._store.transaction(lease):
            plan = self._record(plan, target, left, consequences, entry)
            if entry.correction is not None:
                plan = record_correction(self._store, plan, entry.correction)
                self._recorder.last_group = None  # it has another position now
            self._store.save(operation.ended(OperationState.DONE))
        return RollbackResult(
            plan=plan,
            checkpoint=checkpoint,
            left_group_id=None if is_unkept else left.group_id,
            changes=found.files,
            repositories=found.repositories,
            set_aside=set_aside,
            impact=consequences.impact_on(plan),
            checkpoints_remaining=self._store.checkpoints.count(plan.plan_id),
        )

    def _record(
        self,
        plan: Plan,
        target: CheckpointGroup,
        left: CheckpointGroup,
        consequences: Consequences,
        entry: RollbackEntry,
    ) -> Plan:
        for decision in consequences.superseded:
            self._store.save(decision.model_copy(update={"is_superseded": True}))
        for decision in consequences.revived:
            self._store.save(decision.model_copy(update={"is_superseded": False}))
        for run in consequences.runs:
            self._store.save(run.model_copy(update={"is_superseded": not run.is_superseded}))
        for subplan in consequences.subplans:
            self._store.save(self._revived(subplan) if subplan.is_superseded else _invalidated(subplan))
        plan = History(self._store, plan).position_at(target)
        decision_id, held = target.decision_id, target.active_decisions
        if entry.recovery is not None:
            decision = next_decision(self._store, plan, entry.recovery, _position(plan))
            self._store.insert(decision)
            plan, decision_id = plan.decided(decision.sequence, decision.sequence), decision.decision_id
            held = extended(held, decision.sequence, decision.sequence)
        group = target.model_copy(
            update={
                "group_id": new_id(),
                "decision_id": decision_id,
                "active_decisions": held,
                "sequence": self._store.next_sequence(CheckpointGroup, plan.plan_id),
                "parent_group_id": target.group_id,
                "restored_group_id": target.group_id,
                "triggers": _triggers_of(entry),
                "reason": entry.reason,
                "source": "rollback",
                "label": None,
                "created_at": now(),
            }
        )
        moved = [name for name, state in target.states.items() if left.states.get(name) != state]
        rows = [(name, new_id(), 0) for name in moved or [plan.resources[0].name]]
        title = entry.title or back_at(group, self._own_name(plan, target))
        return self._recorder.insert(plan, group, rows, title)

    def _own_name(self, plan: Plan, group: CheckpointGroup) -> str | None:
        if not has_own_name(plan, group):
            return None
        return group_checkpoints(self._store, group)[0].metadata.title or None

    def _revived(self, subplan: Plan) -> Plan:
        """The subplan as it was when its parent was rolled back; what was merged of it is there again."""
        revived = subplan.changed(is_superseded=None, is_cancelled_by_rollback=None)
        if not subplan.is_cancelled_by_rollback:
            return revived  # its state is its own: no rollback had changed it
        head = self._store.find(CheckpointGroup, subplan.head_group_id or "")
        run = self._store.runs.latest_in_force(subplan.plan_id)
        if head is not None and Moment.POST_EXECUTE in head.triggers:
            return revived.changed(state=PlanState.COMPLETE, error=None)
        if run is not None and run.status is RunStatus.CONSTRAINED:
            return revived.changed(state=PlanState.CONSTRAINED, error=run.error)
        return revived.changed(state=PlanState.QUEUED, error=None)

    # Undoing

    def undo(self, plan: Plan, lease: Lease, operation: Operation, failure: HoldfastError) -> None:
        """Restore the state that a failed rollback was leaving; if that fails too, the rollback stays unfinished."""
        left = self._store.get(CheckpointGroup, SandboxEntry.of(operation).left_group_id or "")
        try:
            for resource in plan.resources:
                # What another program has changed there since the rollback began stays.
                with suppress(Disturbed):
                    if is_there(Path(resource.sandbox_path)):
                        self._sandboxes.restore_one(resource, left)
        except HoldfastError as error:
            raise _is_not_restored(failure, error) from error
        with self._store.transaction(lease):
            self._store.save(operation.ended(OperationState.UNDONE))


def _triggers_of(entry: RollbackEntry) -> tuple[str, ...]:
    is_result = entry.correction is not None and bool(entry.correction.is_result)
    return (Moment.ROLLBACK.value, Moment.POST_EXECUTE.value) if is_result else (Moment.ROLLBACK.value,)


def _invalidated(subplan: Plan) -> Plan:
    if subplan.state in (PlanState.ERRORED, PlanState.CANCELLED):
        return subplan.changed(is_superseded=True)  # its own state and error say why it did not finish
    return subplan.changed(
        is_superseded=True,
        state=PlanState.CANCELLED,
        error="its parent was rolled back",
        is_cancelled_by_rollback=True,
    )


def _position(plan: Plan) -> int | None:
    return None if plan.is_finished else plan.next_step


def _stays_begun(error: HoldfastError, compensated: Sequence[StepRun]) -> HoldfastError:
    listed = ", ".join(f"step {run.step_index + 1} ({run.step}): {run.compensation}" for run in compensated)
    return type(error)(
        f"{error.message} Effects outside of the sandboxes were undone before that ({listed}), so the rollback is "
        "not finished.",
        hint=f"{error.hint} The next command that changes the plan finishes the rollback first.",
    )


def _cannot_be_restored(error: HoldfastError) -> HoldfastError:
    return type(error)(
        f"{error.message} The state before was not kept, so it is not restored: the rollback is not finished.",
        hint=f"{error.hint} The next command that changes the plan finishes the rollback first.",
    )


def _is_not_restored(failure: HoldfastError, error: HoldfastError) -> HoldfastError:
    return type(failure)(
        f"{failure.message} The state before could not be restored either, so this is not finished: {error.message}",
        hint=f"{failure.hint} The next command that changes the plan finishes what was begun first.",
    )
