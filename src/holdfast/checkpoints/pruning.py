"""Pruning: deletes checkpoints beyond the limit of a plan's policy, single ones, and those with damaged records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from holdfast.checkpoints.garbage import Garbage
from holdfast.checkpoints.history import is_half_done
from holdfast.checkpoints.retention import GroupFacts, retention
from holdfast.db.journal import Entry
from holdfast.db.queries import HeadPlace
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


@dataclass(frozen=True)
class _Counted:
    """How many checkpoints a plan has after pruning."""

    token: int
    """Of the lease: no other process changes the plan while its owner has it."""
    head: HeadPlace
    count: int

    def is_before(self, token: int, head: HeadPlace) -> bool:
        """Whether only that group was taken since, and none was deleted."""
        is_next = (head.parent_group_id, head.sequence) == (self.head.group_id, self.head.sequence + 1)
        return token == self.token and is_next


class Pruning:
    """Deletes checkpoints, and frees their content."""

    def __init__(self, store: Store, garbage: Garbage) -> None:
        self._store, self._garbage = store, garbage
        self._counted: dict[str, _Counted] = {}

    def prune(
        self, plan: Plan, lease: Lease, policy: CheckpointRetentionPolicy, needed: Collection[str] = ()
    ) -> list[Checkpoint]:
        """Delete what the policy does not keep, and free the content; the deleted checkpoints."""
        with self._store.transaction(lease):
            pruned = self.prune_records(plan, lease, policy, needed)
        self._garbage.collect(pruned)
        return pruned

    def prune_records(
        self, plan: Plan, lease: Lease, policy: CheckpointRetentionPolicy, needed: Collection[str] = ()
    ) -> list[Checkpoint]:
        """Delete the records of groups that the policy does not keep; free their content only after the commit."""
        pruned: list[Checkpoint] = []
        head = self._store.groups.place_of(plan.head_group_id or "")
        count = self._count(plan, lease, head)
        excess = count - policy.max_checkpoints
        needed = self._needed(plan).union(needed) if excess > 0 else ()
        while excess > 0 and (going := self._beyond(plan, excess, needed)):
            pruned += [each for group, _ in going for each in self._store.checkpoints.of_group(group.group_id)]
            self._delete_groups([group for group, _ in going])
            excess -= sum(each for _, each in going)
        if head is not None:
            self._counted[plan.plan_id] = _Counted(lease.token, head, excess + policy.max_checkpoints)
        self._garbage.note_given_up(pruned)
        return pruned

    def _count(self, plan: Plan, lease: Lease, head: HeadPlace | None) -> int:
        """How many checkpoints the plan has, damaged ones too; all are counted only once for each lease."""
        known = self._counted.get(plan.plan_id)
        if known is not None and head is not None and known.is_before(lease.token, head):
            return known.count + head.checkpoints
        return self._store.checkpoints.count(plan.plan_id)

    def _beyond(self, plan: Plan, excess: int, needed: Collection[str]) -> list[tuple[CheckpointGroup, int]]:
        """The groups that retention removes, or enough of them to go on with, each with its number of checkpoints.

        Only as many of the oldest are read as can be enough; of these, retention keeps the first and the last. What is
        needed is seldom among the oldest.
        """
        few = excess + 2
        return self._beyond_among(few, plan, excess, needed) or self._beyond_among(
            few + len(needed), plan, excess, needed
        )

    def _beyond_among(
        self, most: int, plan: Plan, excess: int, needed: Collection[str]
    ) -> list[tuple[CheckpointGroup, int]]:
        oldest = list(islice(self._store.groups.oldest_prunable(plan.plan_id, most), most))
        facts = self._facts(plan, oldest)
        kept = sum(each.checkpoints for each in facts) - excess
        removed = set(retention(facts, kept, needed).remove)
        return [
            (group, each.checkpoints) for group, each in zip(oldest, facts, strict=True) if group.group_id in removed
        ]

    def expected(self, plan: Plan, taken: Iterable[int], needed: Collection[str]) -> int:
        """How many checkpoints there will be after groups of these sizes were taken, each followed by pruning."""
        sizes, limit = list(taken), plan.policy.max_checkpoints
        count = self._store.checkpoints.count(plan.plan_id)
        if count + sum(sizes) <= limit:
            return count + sum(sizes)
        needed = {*needed, *self._needed(plan)} - {plan.head_group_id}
        facts = self._facts(plan, self._store.groups.of(plan.plan_id, sound_only=True))
        damaged = count - sum(each.checkpoints for each in facts)
        for checkpoints in sizes:
            sequence = facts[-1].sequence + 1
            facts.append(GroupFacts(f"expected {sequence}", sequence, None, checkpoints))
            removed = set(retention(facts, limit - damaged, needed).remove)
            facts = [each for each in facts if each.group_id not in removed]
        return damaged + sum(each.checkpoints for each in facts)

    def delete(self, plan: Plan, lease: Lease, checkpoint: Checkpoint) -> int:
        """Delete the whole group of a checkpoint and free its content; how many checkpoints were deleted."""
        if not self._is_deletable(plan, checkpoint.group_id):
            raise StateError(
                f"Checkpoint {checkpoint.checkpoint_id} is needed: it is the first, the last, or one that "
                "the plan may have to be rolled back to.",
                hint=f"See the others with `holdfast checkpoint list {plan.plan_id}`.",
            )
        gone = self._store.checkpoints.of_group(checkpoint.group_id)
        with self._store.transaction(lease):
            count = self._store.checkpoints.count_of_group(checkpoint.group_id)
            self._delete_groups([self._store.get(CheckpointGroup, checkpoint.group_id)])
            self._garbage.note_given_up(gone)
        self._garbage.collect(gone)
        return count

    def delete_damaged(self, plan: Plan, lease: Lease, damaged: DamagedCheckpoint) -> int:
        """Delete the damaged record of a checkpoint, or that of its whole group; how many checkpoints were deleted.

        A sound group whose last checkpoint is deleted goes too, unless the plan needs it.
        """
        if damaged.is_group:
            return self._delete_damaged_group(plan, lease, damaged)
        with self._store.transaction(lease):
            self._store.delete(Checkpoint, damaged.checkpoint_id)
            is_last = self._store.checkpoints.count_of_group(damaged.group_id) == 0
            group = self._store.find(CheckpointGroup, damaged.group_id, sound_only=True)
            if group is not None and is_last and self._is_deletable(plan, damaged.group_id):
                self._delete_groups([group])
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
        parent = self._store.damaged.parent_of_group(damaged.group_id)
        is_known = parent is not None and self._store.find(CheckpointGroup, parent, sound_only=True) is not None
        with self._store.transaction(lease):
            for child in self._store.groups.children_of(damaged.group_id):
                # The parent only determines how history is drawn, so a guess does no harm.
                self._store.save(child.model_copy(update={"parent_group_id": parent if is_known else None}))
            count = self._store.checkpoints.count_of_group(damaged.group_id)
            self._store.delete(CheckpointGroup, damaged.group_id)
        self._garbage.collect()
        return count

    def _first(self, plan: Plan) -> set[str]:
        first = self._store.groups.first_id(plan.plan_id)
        return set() if first is None else {first}

    def _is_deletable(self, plan: Plan, group_id: str) -> bool:
        return group_id not in self._needed(plan) | self._first(plan)

    def _facts(self, plan: Plan, groups: Sequence[CheckpointGroup]) -> list[GroupFacts]:
        """What retention needs to know of these groups, which are the oldest."""
        if not groups:
            return []
        counts = self._store.checkpoints.count_by_group(plan.plan_id, up_to=groups[-1].sequence)
        return [
            GroupFacts(group.group_id, group.sequence, group.label, counts.get(group.group_id, 0)) for group in groups
        ]

    def _delete_groups(self, going: Sequence[CheckpointGroup]) -> None:
        """Delete groups; the children of a deleted group get its parent, so that history stays connected."""
        parents = {group.group_id: group.parent_group_id for group in going}
        for group_id in list(parents):
            for child in self._store.groups.children_of(group_id):
                if child.group_id in parents:
                    parents[child.group_id] = parents[group_id]
                else:
                    self._store.save(child.model_copy(update={"parent_group_id": parents[group_id]}))
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
            needed.add(store.groups.start_of_attempt(plan) or "")
        return needed

    def _runs_that_can_come_back(self, plan: Plan) -> list[StepRun]:
        """Half-done runs that a rollback to an existing group would revive."""
        store = self._store
        runs = [run for run in store.runs.half_done(plan.plan_id) if run.decision_id is not None]
        decisions = (store.get(Decision, run.decision_id or "") for run in runs)
        return [run for run, decision in zip(runs, decisions, strict=True) if self._is_held(plan, decision)]

    def _is_held(self, plan: Plan, decision: Decision) -> bool:
        """Whether a group holds the decision although its step was not done at that moment."""
        if decision.step_index is None:
            return False
        groups = self._store.groups.after_step(plan.plan_id, decision.step_index - 1)
        return any(is_half_done(decision, group) for group in groups)
