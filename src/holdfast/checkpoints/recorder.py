"""GroupRecorder: takes a checkpoint group of all resources of a plan; content is stored first, records second."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from holdfast.checkpoints.garbage import Garbage
from holdfast.checkpoints.history import History
from holdfast.checkpoints.oldest import checkpoints_of
from holdfast.checkpoints.pruning import Pruning
from holdfast.checkpoints.releasing import Release
from holdfast.checkpoints.titles import NAMED_BY_CHANGES, title_of, title_with_changes
from holdfast.db.store import Store
from holdfast.errors import ContentError, QuotaError
from holdfast.git.head import git_head
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    CheckpointMetadata,
    CheckpointRetentionPolicy,
    GitHead,
    Lease,
    Moment,
    Plan,
    Record,
    Resource,
    ResourceType,
    Unheld,
    is_within,
    now,
    numbers_of,
)
from holdfast.names import name_text
from holdfast.sandbox.protocol import sandbox_for
from holdfast.snapshot.inspected import was_only_inspected
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.taken import TakenSnapshot
from holdfast.system.ids import new_id

_FEWEST = 2
"""The least that can be kept: the first and the last checkpoint."""


class Occasion(msgspec.Struct, frozen=True):
    """Why a group is taken, and at which point of the plan."""

    triggers: tuple[str, ...]
    source: str
    """The tool that is about to run or has run, or the command that asked for the group."""
    reason: str = ""
    title: str = ""
    """The title of the group, if its triggers and its step do not describe it well enough."""
    try_number: int = 1
    step_index: int | None = None
    decision_id: str | None = None
    label: str | None = None
    resource: str | None = None
    """The resource that gets the checkpoint if no resource changed."""
    restored_group_id: str | None = None
    """The group whose files are there again."""


class GroupRecorder:
    """Takes groups for one service."""

    def __init__(
        self,
        store: Store,
        manager: CheckpointManager,
        release: Release,
        pruning: Pruning,
        garbage: Garbage,
        max_bytes: int | None,
    ) -> None:
        self._store, self._manager, self._release = store, manager, release
        self._pruning, self._garbage, self._max_bytes = pruning, garbage, max_bytes
        self.last_group: CheckpointGroup | None = None
        """The group that was recorded last, so that it need not be read back."""
        self._recorded: set[str] = set()
        """Ids of plans whose last snapshots are known to be recorded."""

    def take(
        self,
        plan: Plan,
        lease: Lease,
        occasion: Occasion,
        *,
        records: Sequence[Record] = (),
        only_if_changed: bool = False,
        needed: Collection[str] = (),
    ) -> Plan:
        """Take a group; the plan, its position and the given records are saved with it.

        Content is durable before the records that name it are written; all records are written in one transaction.
        ``needed``: groups that must not be pruned to make room.
        """
        try:
            return self._take(plan, lease, occasion, records, only_if_changed, needed)
        except QuotaError as error:
            has_room = self._make_room(plan, lease, needed)
            if self._garbage.unfreed is not None:
                raise QuotaError(error.message, hint=self._garbage.unfreed) from error
            if not has_room:
                raise
        return self._take(plan, lease, occasion, records, only_if_changed, needed)

    def _take(
        self,
        plan: Plan,
        lease: Lease,
        occasion: Occasion,
        records: Sequence[Record],
        only_if_changed: bool,
        needed: Collection[str],
    ) -> Plan:
        head = self._head(plan)
        known = head.states if head else {}
        self._release.keep_for(lease.plan_id, lease.token, lease.owner or "")
        self._disown_unrecorded(plan)
        with self._manager.storing(self._max_bytes) as batch:
            taken = {
                resource.name: self._manager.take(
                    batch,
                    sandbox_id=sandbox_ref(plan, resource),
                    plan_id=plan.plan_id,
                    phase=plan.phase,
                    path=self._manager.place_of(resource),
                    metadata={"reason": occasion.reason, "triggers": list(occasion.triggers)},
                    previous_state=known.get(resource.name),
                    thorough=Moment.POST_EXECUTE in occasion.triggers,
                )
                for resource in plan.resources
            }
            batch.commit()
            changed = self._changed(plan, known, taken)
            if only_if_changed and head is not None and not changed and self._has_same_position(plan, head):
                return plan
            occasion = self._with_changes(plan, occasion, known, taken)
            with self._store.transaction(lease):
                plan = self._record(plan, occasion, taken, changed or [occasion.resource or plan.resources[0].name])
                for record in records:
                    self._store.save(record)
                pruned = self._pruning.prune_records(plan, lease, plan.policy.retention, needed)
            self._recorded.add(plan.plan_id)
        if self.last_group and any(each.group_id == self.last_group.parent_group_id for each in pruned):
            self.last_group = None  # it follows another group now
        self._garbage.forget(checkpoints_of(pruned))
        return plan

    def _changed(self, plan: Plan, known: dict[str, str], taken: dict[str, TakenSnapshot]) -> list[str]:
        states = {name: snapshot.state_hash for name, snapshot in taken.items()}
        changed = [name for name, state in states.items() if known.get(name) != state]
        if plan.is_session and known:
            # The person's own git, or their editor's, looks at the folder all the time.
            reader = self._manager.reader
            changed = [
                name
                for name in changed
                if not was_only_inspected(reader, sandbox_for(plan, plan.resource(name)), known[name], states[name])
            ]
        return changed

    def _has_same_position(self, plan: Plan, head: CheckpointGroup) -> bool:
        # What a session decides does not belong to a state: prompts and calls stay when their effects are undone.
        return plan.is_session or is_at(head, History(self._store, plan))

    def _head(self, plan: Plan) -> CheckpointGroup | None:
        if self.last_group is not None and self.last_group.group_id == plan.head_group_id:
            return self.last_group
        return self._store.get(CheckpointGroup, plan.head_group_id) if plan.head_group_id else None

    def _make_room(self, plan: Plan, lease: Lease, needed: Collection[str]) -> bool:
        """Prune this plan as far as possible, and free all content that is not needed; whether that freed any."""
        objects = self._manager.objects
        objects.unpack_parcels()  # unpacked later, they would take room that is being freed
        before_bytes = objects.content_bytes()
        self._garbage.give_up_spares()
        self._pruning.prune(plan, lease, CheckpointRetentionPolicy(max_checkpoints=_FEWEST), needed)
        return objects.content_bytes() < before_bytes

    def _with_changes(
        self, plan: Plan, occasion: Occasion, known: dict[str, str], taken: dict[str, TakenSnapshot]
    ) -> Occasion:
        """Name a moment of a program or a session by what changed since the one before: that tells them apart."""
        index, states = occasion.step_index, {name: snapshot.state_hash for name, snapshot in taken.items()}
        if not known or not _is_named_by_changes(plan, occasion, is_same=states == known):
            return occasion
        from holdfast.checkpoints.changes_named import name_changes

        try:
            words = name_changes(plan, self._manager.reader, known, states)
        except ContentError:
            return occasion  # damaged content of an earlier group must not prevent this one
        if index is None:
            title = " → ".join(filter(None, (occasion.title, words)))
        else:
            title = title_with_changes(occasion.title, occasion.triggers, index, words)
        return msgspec.structs.replace(occasion, title=title)

    def _disown_unrecorded(self, plan: Plan) -> None:
        """Count the content of a checkpoint that was never recorded, because a process died, with the next one."""
        if plan.plan_id in self._recorded:
            self._recorded.remove(plan.plan_id)
            return
        for resource in plan.resources:
            path = Path(resource.sandbox_path)
            self._manager.disown_unrecorded(sandbox_ref(plan, resource), path, self._is_checkpoint)

    def _is_checkpoint(self, checkpoint_id: str) -> bool:
        return self._store.has(Checkpoint, checkpoint_id)

    def adopt(
        self, plan: Plan, lease: Lease, occasion: Occasion, known: CheckpointGroup, records: Sequence[Record]
    ) -> Plan:
        """Record a state of the same resources that is known already, without looking at them."""
        with self._manager.storing(), self._store.transaction(lease):
            group = self._group(plan, occasion, known.states, known.unheld)
            rows = [(name, new_id(), 0) for name in known.states]
            plan = self.insert(plan, group, rows, occasion.title)
            for record in records:
                self._store.save(record)
            self._pruning.prune_records(plan, lease, plan.policy.retention)
        return plan

    def _record(self, plan: Plan, occasion: Occasion, taken: dict[str, TakenSnapshot], rows: list[str]) -> Plan:
        states = {name: snapshot.state_hash for name, snapshot in taken.items()}
        unheld = {name: snapshot.unheld for name, snapshot in taken.items() if snapshot.unheld}
        group = self._group(plan, occasion, states, unheld)
        title = occasion.title or title_of(group, try_number=occasion.try_number)
        found = [(name, taken[name].checkpoint_id, taken[name].size_bytes) for name in rows]
        return self.insert(plan, group, found, title)

    def _group(
        self, plan: Plan, occasion: Occasion, states: dict[str, str], unheld: dict[str, tuple[Unheld, ...]]
    ) -> CheckpointGroup:
        step_index = occasion.step_index
        return CheckpointGroup(
            group_id=new_id(),
            plan_id=plan.plan_id,
            sequence=self._store.next_sequence(CheckpointGroup, plan.plan_id),
            parent_group_id=plan.head_group_id,
            restored_group_id=occasion.restored_group_id,
            triggers=occasion.triggers,
            reason=occasion.reason,
            source=occasion.source,
            phase=plan.phase,
            step_index=step_index,
            step=None if step_index is None else plan.steps[step_index].name,
            decision_id=occasion.decision_id,
            label=occasion.label,
            attempt=plan.attempt,
            revision=plan.revision,
            last_completed_step=plan.last_completed_step,
            active_decisions=History(self._store, plan).held_decisions,
            states=states,
            unheld=unheld,
            created_at=now(),
        )

    def insert(self, plan: Plan, group: CheckpointGroup, rows: Iterable[tuple[str, str, int]], title: str) -> Plan:
        """Insert a group with a checkpoint for each of these rows (resource, id, bytes), and make it the head group."""
        self._store.insert(group)
        self.last_group = group
        last = plan.last_checkpoint_id
        for name, checkpoint_id, size_bytes in rows:
            resource = plan.resource(name)
            head = git_head(Path(resource.sandbox_path)) if resource.type is ResourceType.GIT else None
            self._store.insert(checkpoint_of(plan, group, name, checkpoint_id, size_bytes, title=title, git=head))
            last = checkpoint_id
        plan = plan.changed(last_checkpoint_id=last, head_group_id=group.group_id)
        self._store.save(plan)
        return plan


def _is_named_by_changes(plan: Plan, occasion: Occasion, *, is_same: bool) -> bool:
    if plan.is_session:
        return not is_same
    index = occasion.step_index
    if index is None or NAMED_BY_CHANGES.isdisjoint(occasion.triggers) or not plan.steps[index].is_program:
        return False
    return not is_same or Moment.SETTLED in occasion.triggers


def checkpoint_of(
    plan: Plan,
    group: CheckpointGroup,
    resource_name: str,
    checkpoint_id: str,
    size_bytes: int,
    *,
    title: str = "",
    git: GitHead | None = None,
) -> Checkpoint:
    """The checkpoint of one resource in a group."""
    resource = plan.resource(resource_name)
    return Checkpoint(
        checkpoint_id=checkpoint_id,
        plan_id=plan.plan_id,
        group_id=group.group_id,
        sequence=group.sequence,
        sandbox_ref=sandbox_ref(plan, resource),
        resource_id=resource_name,
        checkpoint_type=group.triggers[0],
        decision_id=group.decision_id,
        filesystem_path=resource.sandbox_path,
        size_bytes=size_bytes,
        metadata=CheckpointMetadata(
            title=name_text(title) or title_of(group),
            reason=group.reason,
            source=group.source,
            phase=group.phase,
            step_index=group.step_index,
            step=group.step,
            state_hash=group.states[resource_name],
            label=group.label,
            triggers=group.triggers,
            git=git,
        ),
        created_at=group.created_at,
    )


def group_checkpoints(store: Store, group: CheckpointGroup) -> list[Checkpoint]:
    """The checkpoints of a group, at least one: if all their records are damaged, the group's record serves."""
    sound = store.checkpoints.of_group(group.group_id)
    if sound:
        return sound
    damaged = [each for each in store.damaged.checkpoints(group.plan_id) if each.group_id == group.group_id]
    names = [each.checkpoint_id for each in damaged] or [group.group_id]
    plan = store.get(Plan, group.plan_id)
    return [checkpoint_of(plan, group, plan.resources[0].name, names[0], size_bytes=0)]


def sandbox_ref(plan: Plan, resource: Resource) -> str:
    return f"{plan.plan_id}/{resource.name}"


def is_at(head: CheckpointGroup, history: History) -> bool:
    """Whether the plan is at the position of that group, which holds all its decisions."""
    if not same_position(head, history.plan):
        return False
    return all(is_within(each, head.active_decisions) for each in numbers_of(history.held_decisions))


def same_position(group: CheckpointGroup, plan: Plan) -> bool:
    return (group.last_completed_step, group.attempt, group.revision) == (
        plan.last_completed_step, plan.attempt, plan.revision,
    )  # fmt: skip
