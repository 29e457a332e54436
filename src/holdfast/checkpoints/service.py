"""CheckpointService: snapshots and their records kept together, in groups over all resources of a plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from holdfast.checkpoints.changes import Changes
from holdfast.checkpoints.correction import next_decision
from holdfast.checkpoints.damage import get_sound_checkpoint
from holdfast.checkpoints.garbage import Garbage
from holdfast.checkpoints.history import History
from holdfast.checkpoints.pruning import Pruning
from holdfast.checkpoints.recorded import RecordedSnapshots
from holdfast.checkpoints.recorder import Occasion, Recorder, group_checkpoints, same_position
from holdfast.checkpoints.releasing import Others, Release
from holdfast.checkpoints.rollback import Compensate, Rollback, no_compensation
from holdfast.checkpoints.sandboxes import Sandboxes
from holdfast.checkpoints.verification import VerifyResult, verify_plans
from holdfast.db.store import Store
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    CheckpointRetentionPolicy,
    Correction,
    Decision,
    DecisionSpec,
    Lease,
    Plan,
    Record,
    RollbackResult,
    Trigger,
)
from holdfast.snapshot.manager import CheckpointManager


@contextmanager
def _no_others() -> Iterator[Sequence[Store]]:
    yield ()


class CheckpointService:
    """The door to checkpoints, and to the parts that work on them:

    ``sandboxes`` what is in them, ``changes`` between moments, ``rollback``, ``pruning``, ``garbage``, ``release``.
    """

    def __init__(
        self,
        store: Store,
        manager: CheckpointManager,
        *,
        max_bytes: int | None = None,
        other_records: Others = _no_others,
    ) -> None:
        """``other_records``: opens those for which this content store may keep content as well."""
        self.store, self.manager = store, manager
        manager.records = RecordedSnapshots(store)
        self._max_bytes, self._other_records = max_bytes, other_records
        self.release = Release(manager.objects, store, other_records)
        self.changes = Changes(manager.reader)
        self.sandboxes = Sandboxes(store, manager)
        self.garbage = Garbage(manager, self.release)
        self.pruning = Pruning(store, self.garbage)
        self._recorder = Recorder(store, manager, self.release, self.pruning, self.garbage, max_bytes)
        self.rollback = Rollback(store, manager, self.sandboxes, self._recorder, self.pruning)

    def sibling(self) -> CheckpointService:
        """A second service on the same records and content, for another thread."""
        return CheckpointService(
            self.store, self.manager.sibling(), max_bytes=self._max_bytes, other_records=self._other_records
        )

    def close(self) -> None:
        """Keep what is known of the sandboxes for the next process, and close the content."""
        self.manager.remember()
        self.manager.objects.close()

    # Taken

    def create_checkpoint(
        self,
        plan: Plan,
        lease: Lease,
        occasion: Occasion,
        *,
        records: Sequence[Record] = (),
        only_if_changed: bool = False,
        needed: Collection[str] = (),
    ) -> Plan:
        """Take one group over all resources; the plan, its position and the given records are saved with it.

        ``needed``: groups that must not be pruned for it.
        """
        return self._recorder.take(
            plan, lease, occasion, records=records, only_if_changed=only_if_changed, needed=needed
        )

    def auto_create_if_configured(
        self,
        plan: Plan,
        lease: Lease,
        triggers: Collection[Trigger],
        occasion: Occasion,
        *,
        records: Sequence[Record] = (),
    ) -> Plan:
        """The one door for automatic checkpoints: one group for all triggers of this moment that are switched on.

        The records are saved in any case.
        """
        wanted = tuple(trigger for trigger in triggers if trigger in plan.policy.auto_create_on)
        if wanted:
            return self.create_checkpoint(plan, lease, replace(occasion, triggers=wanted), records=records)
        with self.store.transaction(lease):
            self.store.save(plan)
            for record in records:
                self.store.save(record)
        return plan

    def keep_for(self, lease: Lease) -> None:
        """Note, before content is stored, in which records the plan is that the lease is for."""
        self.release.keep_for(lease.plan_id, lease.token, lease.owner or "")

    # Looked at

    @property
    def last_group(self) -> CheckpointGroup | None:
        """The group that this process recorded last, if it is still what was recorded."""
        return self._recorder.last_group

    def history(self, plan: Plan) -> History:
        """What is recorded of the plan, read once."""
        return History(self.store, plan)

    def list_checkpoints(self, plan_id: str) -> list[Checkpoint]:
        """Those whose records are sound."""
        return self.store.checkpoints.of(plan_id)

    def checkpoints_at(self, group: CheckpointGroup) -> list[Checkpoint]:
        """Those of a group, at least one: the group holds all that is needed if their own records are damaged."""
        return group_checkpoints(self.store, group)

    def get_checkpoint(self, plan_id: str, reference: str) -> Checkpoint:
        """By full id, display id, unique prefix or label; one whose record is damaged is refused."""
        return get_sound_checkpoint(self.store, plan_id, reference)

    def is_as_at(self, plan: Plan, head: CheckpointGroup) -> bool:
        """Whether plan and sandboxes are what that group holds."""
        return same_position(head, plan) and self.sandboxes.states_now(plan, thorough=False) == head.states

    def verify(self, plans: Iterable[Plan]) -> VerifyResult:
        """Read everything these plans' checkpoints need back and check every digest."""
        return verify_plans(self.store, self.manager.objects, plans)

    # Rolled back

    def rollback_to_checkpoint(
        self,
        plan: Plan,
        lease: Lease,
        checkpoint: Checkpoint,
        *,
        reason: str,
        correction: Correction | None = None,
        recovery: DecisionSpec | None = None,
        compensate: Compensate = no_compensation,
    ) -> RollbackResult:
        """Take files of all resources, position and decisions of the plan back to that moment, all or nothing."""
        decided = self.rollback.decide(plan, checkpoint, undone=correction.undone if correction else ())
        return self.rollback.carry_out(
            decided, lease, reason=reason, correction=correction, recovery=recovery, compensate=compensate
        )

    def decision(self, plan: Plan, spec: DecisionSpec, step_index: int | None, parent: str | None) -> Decision:
        """What was decided, as the plan's next decision; below the plan's root if no parent is named."""
        return next_decision(self.store, plan, spec, step_index, parent)

    # Pruned

    def prune_checkpoints(
        self, plan: Plan, lease: Lease, policy: CheckpointRetentionPolicy, needed: Collection[str] = ()
    ) -> int:
        """Prune to what the policy keeps, and free the content; how many checkpoints went."""
        return len(self.pruning.prune(plan, lease, policy, needed))
