"""Pruning: deletes checkpoints beyond the limit of a plan's policy, single ones, and those with damaged records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from holdfast.checkpoints.garbage import Garbage
from holdfast.checkpoints.history import HALF_DONE, is_half_done
from holdfast.checkpoints.oldest import (
    KnownGroups,
    OldGroup,
    checkpoints_of,
    fewest_to_read,
    kept_parents,
    read_groups,
    read_least_missed,
    read_oldest,
)
from holdfast.checkpoints.retention import GroupFacts, retention
from holdfast.checkpoints.session_retention import MomentFacts, going_moments
from holdfast.db.journal import Entry
from holdfast.db.store import Store
from holdfast.errors import StateError
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    CheckpointRetentionPolicy,
    DamagedCheckpoint,
    Decision,
    DecisionType,
    Lease,
    Plan,
    StepRun,
    now,
)

_SESSION_STEPS = 10
"""So many checkpoints of a session are pruned at a time."""


class Pruning:
    """Deletes checkpoints, and frees their content."""

    def __init__(self, store: Store, garbage: Garbage) -> None:
        self._store, self._garbage = store, garbage
        self._known: dict[str, KnownGroups] = {}
        self._pruned: Counter[str] = Counter()

    def prune(
        self, plan: Plan, lease: Lease, policy: CheckpointRetentionPolicy, needed: Collection[str] = ()
    ) -> list[Checkpoint]:
        """Delete what the policy does not keep, and free the content; the deleted checkpoints."""
        with self._store.transaction(lease):
            if plan.is_session:
                pruned = checkpoints_of(self._prune_session(plan, policy, needed))
            else:
                pruned = checkpoints_of(self.prune_records(plan, lease, policy, needed))
        self._garbage.collect(pruned)
        return pruned

    def prune_records(
        self, plan: Plan, lease: Lease, policy: CheckpointRetentionPolicy, needed: Collection[str] = ()
    ) -> list[OldGroup]:
        """Delete the records of groups that the policy does not keep; free their content only after the commit."""
        if plan.is_session:
            # It takes many, and all moments have to be looked at.
            count = self._store.checkpoints.count(plan.plan_id)
            is_time = count > policy.max_checkpoints and count % _SESSION_STEPS == 0
            return self._prune_session(plan, policy, needed) if is_time else []
        known = self._known_groups(plan, lease)
        gone: list[OldGroup] = []
        if known.count > policy.max_checkpoints:
            needed = self._needed(plan).union(needed)
        while (excess := known.count - policy.max_checkpoints) > 0:
            if _thins(plan):
                going = read_least_missed(self._store, plan.plan_id, excess, needed)
            else:
                known, going = self._beyond(known, plan, excess, needed)
            if not going:
                break
            self._delete_groups([each.group for each in going], known.oldest)
            known = known.without(going)
            gone += going
        # If the transaction fails, this is wrong; but then the next group does not follow this one (``with_head``).
        self._known[plan.plan_id] = self._noted(known, gone)
        self._pruned[plan.plan_id] += sum(each.count for each in gone)
        return gone

    def _prune_session(self, plan: Plan, policy: CheckpointRetentionPolicy, needed: Collection[str]) -> list[OldGroup]:
        moments = [MomentFacts(*each) for each in self._store.groups.times(plan.plan_id)]
        asked = self._store.decisions.of_type(plan.plan_id, DecisionType.USER_INTERVENTION)
        prompts = [each.created_at for each in asked]
        kept = self._needed(plan).union(needed)
        ids = going_moments(moments, prompts, newest=policy.max_checkpoints, at=now(), needed=kept)
        gone = read_groups(self._store, plan.plan_id, ids)
        if gone:
            self._delete_groups([each.group for each in gone])
            self._garbage.note_given_up(checkpoints_of(gone))
            self._pruned[plan.plan_id] += sum(each.count for each in gone)
        return gone

    def pruned(self, plan_id: str) -> int:
        """How many checkpoints of the plan this object has pruned so far, those asked for by a person included."""
        return self._pruned[plan_id]

    def _known_groups(self, plan: Plan, lease: Lease) -> KnownGroups:
        """All checkpoints are counted only once for each lease."""
        head = self._store.groups.place_of(plan.head_group_id or "")
        known = self._known.get(plan.plan_id)
        still_known = known.with_head(lease.token, head) if known is not None else None
        return still_known or KnownGroups(lease.token, head, self._store.checkpoints.count(plan.plan_id))

    def _beyond(
        self, known: KnownGroups, plan: Plan, excess: int, needed: Collection[str]
    ) -> tuple[KnownGroups, list[OldGroup]]:
        """The groups that retention removes, or only some of them: the caller asks again until there are none."""
        going = known.beyond(excess, needed)
        if not going:
            most = fewest_to_read(excess, needed) + known.ahead
            known = msgspec.structs.replace(known, oldest=read_oldest(self._store, plan.plan_id, most))
            going = known.beyond(excess, needed)
        return known, going

    def _noted(self, known: KnownGroups, gone: Sequence[OldGroup]) -> KnownGroups:
        """Note these groups as given up, unless they were noted ahead."""
        if not gone:
            return known
        noted = known.to_note(gone)
        self._garbage.note_given_up(checkpoints_of(noted))
        return known.pruned(gone, noted)

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
            removed = set(retention(facts, limit - damaged, needed, thins=_thins(plan)).remove)
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
        self._known.pop(plan.plan_id, None)
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
        self._known.pop(plan.plan_id, None)
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
            for child in self._children_of(damaged.group_id):
                # The parent only determines how history is drawn, so a guess does no harm.
                self._store.groups.set_parent(child, parent if is_known else None)
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
        """What retention needs to know of these groups."""
        counts = self._store.checkpoints.count_by_group(plan.plan_id)
        return [
            GroupFacts(group.group_id, group.sequence, group.label, counts.get(group.group_id, 0)) for group in groups
        ]

    def _delete_groups(self, going: Sequence[CheckpointGroup], known: Sequence[OldGroup] = ()) -> None:
        """Delete groups; the children of a deleted group follow its parent. ``known``: groups that need not be read."""
        parents = kept_parents(going)
        for group_id, parent in parents.items():
            for child in self._children_of(group_id, known):
                if child.group_id not in parents:
                    self._store.groups.set_parent(child, parent)
            self._store.delete(CheckpointGroup, group_id)

    def _children_of(self, group_id: str, known: Sequence[OldGroup] = ()) -> Iterator[CheckpointGroup]:
        """The sound groups that follow that group."""
        for child_id in self._store.groups.ids_of_children(group_id):
            read = next((each.group for each in known if each.group.group_id == child_id), None)
            child = read or self._store.find(CheckpointGroup, child_id, sound_only=True)
            if child is not None:
                yield child

    def _needed(self, plan: Plan) -> set[str]:
        """Groups that an operation, an unfinished step or a failure may have to be rolled back to."""
        store, plan_id = self._store, plan.plan_id
        needed = {plan.head_group_id or ""}
        for operation in store.operations.unfinished(plan_id):
            needed |= Entry.of(operation).groups
        needed.update(run.group_before_id or "" for run in self._runs_to_undo(plan))
        if plan.policy.rolls_back_to_start:
            needed.add(store.groups.start_of_attempt(plan) or "")
        return needed

    def _runs_to_undo(self, plan: Plan) -> list[StepRun]:
        """Runs that are under way, or failed or were interrupted last, or that a rollback would revive half done."""
        runs = self._store.runs.perhaps_to_undo(plan.plan_id, plan.next_step)
        return [run for run in runs if _is_open(plan, run) or self._can_come_back(plan, run)]

    def _can_come_back(self, plan: Plan, run: StepRun) -> bool:
        """Whether a rollback to an existing group would revive this run, which is half done."""
        if run.decision_id is None or run.status not in HALF_DONE:
            return False
        return self._is_held(plan, self._store.get(Decision, run.decision_id))

    def _is_held(self, plan: Plan, decision: Decision) -> bool:
        """Whether a group holds the decision although its step was not done at that moment."""
        if decision.step_index is None:
            return False
        groups = self._store.groups.after_step(plan.plan_id, decision.step_index - 1)
        return any(is_half_done(decision, group) for group in groups)


def _thins(plan: Plan) -> bool:
    """Whether it is a plan of ``holdfast run``: its program decides when there are moments, and there may be many.

    The moments of a plan of steps tell how each step was done; there the newest are worth more than some of all.
    """
    return bool(plan.steps) and plan.steps[0].is_program


def _is_open(plan: Plan, run: StepRun) -> bool:
    """Whether it is under way, or failed or was interrupted and is the run of the next step."""
    return not run.is_superseded and (run.finished_at is None or run.step_index == plan.next_step)
