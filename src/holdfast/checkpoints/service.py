"""CheckpointService: keeps snapshots and their records together, in groups over all resources of a plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import msgspec

from holdfast.checkpoints.changes import Changes
from holdfast.checkpoints.damage import get_sound_checkpoint
from holdfast.checkpoints.garbage import Garbage
from holdfast.checkpoints.history import History
from holdfast.checkpoints.pruning import Pruning
from holdfast.checkpoints.recorded import RecordedSnapshots
from holdfast.checkpoints.recorder import GroupRecorder, Occasion, group_checkpoints, same_position
from holdfast.checkpoints.releasing import Others, Release
from holdfast.checkpoints.rollback import Compensate, Rollback, no_compensation
from holdfast.checkpoints.sandboxes import Sandboxes
from holdfast.checkpoints.verification import VerifyResult, verify_plans
from holdfast.db.store import Store
from holdfast.errors import ContentError, DatabaseFullError
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    CheckpointRetentionPolicy,
    Correction,
    DecisionSpec,
    Lease,
    Plan,
    Record,
    Resource,
    RollbackResult,
    Trigger,
)
from holdfast.sandbox.bulk import CopySink
from holdfast.sandbox.spares import Spares, forget_spare, index_of_spare
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.scan.forked_tree import Lent


@contextmanager
def _no_others() -> Iterator[Sequence[Store]]:
    yield ()


class CheckpointService:
    """The entry point for checkpoints.

    Its parts: ``sandboxes``, ``changes`` (between moments), ``rollback``, ``pruning``, ``garbage``, ``release``.
    """

    def __init__(
        self,
        store: Store,
        manager: CheckpointManager,
        *,
        max_bytes: int | None = None,
        other_records: Others = _no_others,
        spares: Spares | None = None,
    ) -> None:
        """``other_records``: opens the other records for which this content store may keep content."""
        self.store, self.manager, self.spares = store, manager, spares
        manager.records = RecordedSnapshots(store)
        self._max_bytes, self._other_records = max_bytes, other_records
        self.release = Release(manager.objects, store, other_records)
        self.changes = Changes(manager.reader)
        self.sandboxes = Sandboxes(store, manager)
        self.garbage = Garbage(manager, self.release, spares)
        self.pruning = Pruning(store, self.garbage)
        self._recorder = GroupRecorder(store, manager, self.release, self.pruning, self.garbage, max_bytes)
        self.rollback = Rollback(store, manager, self.sandboxes, self._recorder, self.pruning)

    def forking(self, plan: Plan) -> Callable[[], CheckpointService]:
        """Makes siblings that know what the sandboxes of the plan hold now, and so need not read forks of them."""
        lent = self.manager.lend((Path(resource.sandbox_path) for resource in plan.resources), self._max_bytes)
        return lambda: self.sibling(lent)

    def sibling(self, lent: Mapping[Path, Lent] | None = None) -> CheckpointService:
        """A second service on the same records and content, for another thread."""
        return CheckpointService(
            self.store,
            self.manager.sibling(lent),
            max_bytes=self._max_bytes,
            other_records=self._other_records,
            spares=self.spares,
        )

    def close(self) -> None:
        """Save the scan results of the sandboxes for the next process, and close the content store."""
        self.manager.remember()
        self.manager.objects.close()

    # Taking

    def learning(self, resource: Resource, parent: Resource | None = None) -> AbstractContextManager[CopySink]:
        """Store what is copied into the new sandbox of a resource meanwhile; its first checkpoint names it.

        ``parent``: that of the plan from whose sandbox it is forked.
        """
        of = None if parent is None else Path(parent.sandbox_path)
        return self.manager.learning(Path(resource.sandbox_path), self._max_bytes, of)

    def take_over_index(self, resource: Resource) -> None:
        """If a sandbox was made from a spare, continue with what was known of that, so that not all is read again."""
        path = Path(resource.sandbox_path)
        self.manager.indexes.take_over(path, index_of_spare(path))
        forget_spare(path)

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

        ``needed``: groups that must not be pruned to make room.
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
        """Take one group if the plan's policy has any of these triggers; every automatic checkpoint comes from here.

        The records are saved in any case.
        """
        wanted = tuple(trigger for trigger in triggers if trigger in plan.policy.auto_create_on)
        if wanted:
            return self.create_checkpoint(
                plan, lease, msgspec.structs.replace(occasion, triggers=wanted), records=records
            )
        with self.store.transaction(lease):
            self.store.save(plan)
            for record in records:
                self.store.save(record)
        return plan

    def adopt(
        self, plan: Plan, lease: Lease, occasion: Occasion, known: CheckpointGroup, records: Sequence[Record] = ()
    ) -> Plan:
        """Record a state of the same resources that is known already, without looking at them."""
        return self._recorder.adopt(plan, lease, occasion, known, records)

    def keep_for(self, plan: Plan, lease: Lease) -> None:
        """Note, before content is stored, in which records the plan is.

        A failure is ignored: then storing content fails as well.
        """
        if plan.store_id == self.manager.objects.store_id:
            with suppress(DatabaseFullError, ContentError):
                self.release.keep_for(lease.plan_id, lease.token, lease.owner or "")

    # Reading

    @property
    def last_group(self) -> CheckpointGroup | None:
        """The group that this process recorded last, if its record has not changed since."""
        return self._recorder.last_group

    def history(self, plan: Plan) -> History:
        """The records of the plan, each kind read once."""
        return History(self.store, plan)

    def list_checkpoints(self, plan_id: str) -> list[Checkpoint]:
        """The checkpoints whose records are sound."""
        return self.store.checkpoints.of(plan_id)

    def checkpoints_at(self, group: CheckpointGroup) -> list[Checkpoint]:
        """The checkpoints of a group, at least one, even if their own records are damaged."""
        return group_checkpoints(self.store, group)

    def get_checkpoint(self, plan_id: str, reference: str) -> Checkpoint:
        """Find a checkpoint by full id, display id, unique prefix or label; one with a damaged record is refused."""
        return get_sound_checkpoint(self.store, plan_id, reference)

    def is_as_at(self, plan: Plan, head: CheckpointGroup) -> bool:
        """Whether the plan's position and sandboxes are those of that group."""
        return same_position(head, plan) and self.sandboxes.states_now(plan, thorough=False) == head.states

    def verify(self, plans: Iterable[Plan]) -> VerifyResult:
        """Read everything that the checkpoints of these plans need, and check every digest."""
        return verify_plans(self.store, self.manager.objects, plans)

    # Rolling back

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
        """Roll files of all resources, position and decisions of the plan back to that checkpoint, all or nothing."""
        decided = self.rollback.decide(plan, checkpoint, undone=correction.undone if correction else ())
        return self.rollback.carry_out(
            decided, lease, reason=reason, correction=correction, recovery=recovery, compensate=compensate
        )

    # Pruning

    def prune_checkpoints(
        self, plan: Plan, lease: Lease, policy: CheckpointRetentionPolicy, needed: Collection[str] = ()
    ) -> int:
        """Delete what the policy does not keep, and free the content; how many checkpoints were deleted."""
        return len(self.pruning.prune(plan, lease, policy, needed))
