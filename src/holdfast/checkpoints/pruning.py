"""Pruning: deletes checkpoints beyond the limit of a plan's policy, single ones, and those with damaged records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from holdfast.checkpoints.garbage import Garbage
from holdfast.checkpoints.history import HALF_DONE, first_of_attempt, is_half_done
from holdfast.checkpoints.retention import GroupFacts, retention
from holdfast.db.journal import Entry
from holdfast.db.store import Store
from holdfast.errors import StateError
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    CheckpointRetentionPolicy,
    DamagedCheckpoint,
    Decision,
    Lease,
    Plan,
    StepRun,
)


class Pruning:
    """Deletes checkpoints, and frees their content."""

    def __init__(self, store: Store, garbage: Garbage) -> None:
        self._store, self._garbage = store, garbage

    def prune(
        self, plan: Plan, lease: Lease, policy: CheckpointRetentionPolicy, needed: Collection[str] = ()
    ) -> list[Checkpoint]:
        """Delete what the policy does not keep, and free the content; the deleted checkpoints."""
        with self._store.transaction(lease):
            pruned = self.prune_records(plan, policy, needed)
        self._garbage.collect(pruned)
        return pruned

    def prune_records(
        self, plan: Plan, policy: CheckpointRetentionPolicy, needed: Collection[str] = ()
    ) -> list[Checkpoint]:
        """Delete the records of groups that the policy does not keep; free their content only after the commit."""
        if self._store.checkpoints.count(plan.plan_id) <= policy.max_checkpoints:
            return []
        groups = self._sound_groups(plan)
        first = self._store.groups.ids(plan.plan_id)[:1]
        retained = retention(
            self._facts(plan, groups.values()), policy.max_checkpoints, self._needed(plan).union(needed, first)
        )
        going = set(retained.remove)
        pruned = [each for each in self._store.checkpoints.of(plan.plan_id) if each.group_id in going]
        self._delete_groups(groups, retained.remove)
        self._garbage.note_given_up(pruned)
        return pruned

    def expected(self, plan: Plan, taken: Iterable[int], needed: Collection[str]) -> int:
        """How many checkpoints there will be after groups of these sizes were taken, each followed by pruning."""
        needed = {*needed, *self._needed(plan)} - {plan.head_group_id}
        facts = self._facts(plan, self._store.groups.of(plan.plan_id, sound_only=True))
        for checkpoints in taken:
            sequence = facts[-1].sequence + 1
            facts.append(GroupFacts(f"expected {sequence}", sequence, None, checkpoints))
            removed = retention(facts, plan.policy.max_checkpoints, needed).remove
            facts = [each for each in facts if each.group_id not in removed]
        return sum(each.checkpoints for each in facts)

    def delete(self, plan: Plan, lease: Lease, checkpoint: Checkpoint) -> int:
        """Delete the whole group of a checkpoint and free its content; how many checkpoints were deleted."""
        if not self._is_deletable(plan, checkpoint.group_id):
            raise StateError(
                f"Checkpoint {checkpoint.checkpoint_id} is needed: it is the first, the last, or one that "
                "the plan may have to be rolled back to.",
                hint=f"See the others with `holdfast checkpoint list {plan.plan_id}`.",
            )
        count = self._store.checkpoints.count_by_group(plan.plan_id)[checkpoint.group_id]
        gone = self._store.checkpoints.of_group(checkpoint.group_id)
        with self._store.transaction(lease):
            self._delete_groups(self._sound_groups(plan), [checkpoint.group_id])
            self._garbage.note_given_up(gone)
        self._garbage.collect(gone)
        return count

    def delete_damaged(self, plan: Plan, lease: Lease, damaged: DamagedCheckpoint) -> int:
        """Delete the damaged record of a checkpoint, or that of its whole group; how many checkpoints were deleted.

        A sound group whose last checkpoint is deleted goes too, unless the plan needs it.
        """
        if damaged.is_group:
            return self._delete_damaged_group(plan, lease, damaged)
        groups = self._sound_groups(plan)
        with self._store.transaction(lease):
            self._store.delete(Checkpoint, damaged.checkpoint_id)
            left = self._store.checkpoints.count_by_group(plan.plan_id)
            is_last = damaged.group_id in groups and damaged.group_id not in left
            if is_last and self._is_deletable(plan, damaged.group_id):
                self._delete_groups(groups, [damaged.group_id])
        self._garbage.collect()
        return 1

    def _delete_damaged_group(self, plan: Plan, lease: Lease, damaged: DamagedCheckpoint) -> int:
        if not self._is_deletable(plan, damaged.group_id):
            raise StateError(
                f"Checkpoint {damaged.checkpoint_id} is damaged, and its plan needs it: it is the first, the last, "
                "or one that the plan may have to be rolled back to.",
                hint="Restore the database from a backup, or copy what you need out of the sandboxes and delete the "
                f"plan: `holdfast plan delete {plan.plan_id}`.",
            )
        groups = self._sound_groups(plan)
        parent = self._store.damaged.parent_of_group(damaged.group_id)
        with self._store.transaction(lease):
            for child in [each for each in groups.values() if each.parent_group_id == damaged.group_id]:
                # The parent only determines how history is drawn, so a guess does no harm.
                before = parent if parent in groups else None
                self._store.save(child.model_copy(update={"parent_group_id": before}))
            count = self._store.checkpoints.count_by_group(plan.plan_id).get(damaged.group_id, 0)
            self._store.delete(CheckpointGroup, damaged.group_id)
        self._garbage.collect()
        return count

    def _sound_groups(self, plan: Plan) -> dict[str, CheckpointGroup]:
        return {group.group_id: group for group in self._store.groups.of(plan.plan_id, sound_only=True)}

    def _is_deletable(self, plan: Plan, group_id: str) -> bool:
        return group_id not in {*self._store.groups.ids(plan.plan_id)[:1], *self._needed(plan)}

    def _facts(self, plan: Plan, groups: Iterable[CheckpointGroup]) -> list[GroupFacts]:
        """What retention needs to know of these groups."""
        counts = self._store.checkpoints.count_by_group(plan.plan_id)
        return [
            GroupFacts(group.group_id, group.sequence, group.label, counts.get(group.group_id, 0)) for group in groups
        ]

    def _delete_groups(self, groups: dict[str, CheckpointGroup], going: Sequence[str]) -> None:
        """Delete groups; the children of a deleted group get its parent, so that history stays connected."""
        for group_id in going:
            parent = groups[group_id].parent_group_id
            for child in [group for group in groups.values() if group.parent_group_id == group_id]:
                groups[child.group_id] = child.model_copy(update={"parent_group_id": parent})
                if child.group_id not in going:
                    self._store.save(groups[child.group_id])
            self._store.delete(CheckpointGroup, group_id)

    def _needed(self, plan: Plan) -> set[str]:
        """Groups that an operation, an unfinished step or a failure may have to be rolled back to."""
        store, plan_id = self._store, plan.plan_id
        needed = {plan.head_group_id or ""}
        for operation in store.operations.unfinished(plan_id):
            needed |= Entry.of(operation).groups
        runs = store.runs.unfinished(plan_id)
        last = store.runs.latest_in_force(plan_id)
        if last is not None and last.step_index == plan.next_step:
            runs.append(last)  # it failed or was interrupted, and may be rolled back
        runs += self._runs_that_can_come_back(plan)
        needed.update(run.group_before_id or "" for run in runs)
        if plan.policy.goes_back_to_start:
            groups = store.groups.of(plan_id, sound_only=True)
            needed.update(first_of_attempt(plan, groups).group_id for _ in groups[:1])
        return needed

    def _runs_that_can_come_back(self, plan: Plan) -> list[StepRun]:
        """Half-done runs that a rollback to an existing group would revive."""
        store = self._store
        runs = [run for run in store.runs.with_status(plan.plan_id, *HALF_DONE) if run.decision_id is not None]
        groups = store.groups.of(plan.plan_id, sound_only=True) if runs else []
        decisions = (store.get(Decision, run.decision_id or "") for run in runs)
        return [
            run
            for run, decision in zip(runs, decisions, strict=True)
            if any(is_half_done(decision, group) for group in groups)
        ]
