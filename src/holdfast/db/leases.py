"""The queries on leases, which are given to one process at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from holdfast.db.access import in_use
from holdfast.db.queries import PlanRecords, Queries
from holdfast.model import Lease, Plan


class LeaseRecords(Queries):
    """The leases: which process may change a plan."""

    def tokens(self) -> dict[str, int]:
        """The token of the last lease of every plan, subplans too; 0 for a plan that never had one."""
        plan_ids = PlanRecords(self._records).ids()
        return dict.fromkeys(plan_ids, 0) | {each.plan_id: each.token for each in self._leases()}

    def plans_with_content(self, store_id: str) -> list[tuple[str, int, str]]:
        """The plans, without subplans, that have checkpoints in that content store.

        Each with its id, and the token and the owner of its last lease: 0 if unknown, and empty if there is none.
        """
        sql = "SELECT plan_id FROM plan WHERE parent_plan_id IS NULL AND head_group_id IS NOT NULL AND store_id = ?"
        leases = {each.plan_id: (each.token, each.owner or "") for each in self._leases(sound_only=True)}
        return [(plan_id, *leases.get(plan_id, (0, ""))) for (plan_id,) in self._records.execute(sql, store_id)]

    def acquire(self, asked: Lease, *, is_dead: Callable[[Lease], bool]) -> Lease:
        """Give the plan's lease to the owner in ``asked``, unless another process holds it that is not dead."""
        plan_id = asked.plan_id
        with self._records.transaction():
            held = self._locked_lease(plan_id)
            if held.owner is not None and not is_dead(held):
                raise in_use(held)
            at = self._records.now()  # we may have waited for the lock
            lease = asked.model_copy(update={"token": held.token + 1, "acquired_at": at, "heartbeat_at": at})
            self._records.save(lease)
            return lease

    def _locked_lease(self, plan_id: str) -> Lease:
        if not self._records.has(Plan, plan_id):
            raise self._records.missing(Plan, plan_id)
        # Only an existing row can be locked, so the first owner inserts one without an owner.
        at = self._records.now()
        unowned = Lease(plan_id=plan_id, token=0, owner=None, acquired_at=at, heartbeat_at=at)
        self._records.insert(unowned, " ON CONFLICT (plan_id) DO NOTHING")
        return cast("Lease", self._records.find_locked_lease(plan_id))

    def _leases(self, *, sound_only: bool = False) -> list[Lease]:
        return self._records.select(Lease, "plan_id IS NOT NULL", sound_only=sound_only)

    def heartbeat(self, lease: Lease) -> Lease:
        """Note that the owner is alive; returns the present lease, perhaps with a request to stop."""
        with self._records.transaction(lease):
            alive = self._records.get(Lease, lease.plan_id).model_copy(update={"heartbeat_at": self._records.now()})
            self._records.save(alive)
            return alive

    def request_stop(self, plan_id: str) -> Lease | None:
        """Ask the process that works on the plan to stop; returns its lease, or None if there is no such process."""
        with self._records.transaction():
            held = self._records.find_locked_lease(plan_id)
            if held is None or held.owner is None:
                return None
            asked = held.model_copy(update={"stop_requested": True})
            self._records.save(asked)
            return asked

    def release(self, lease: Lease) -> None:
        """Give the lease up; if another process has taken it already, that process keeps it."""
        with self._records.transaction():
            if self._records.still_holds(lease, self._records.find_locked_lease(lease.plan_id)):
                released = {"owner": None, "heartbeat_at": self._records.now(), "stop_requested": None}
                self._records.save(lease.model_copy(update=released))
