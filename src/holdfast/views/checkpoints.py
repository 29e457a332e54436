"""CheckpointViews: the checkpoints of plans, found and shown."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from holdfast.checkpoints.display import display_ids_of
from holdfast.checkpoints.line import Line
from holdfast.errors import AmbiguousError, DamagedRecordError, NotFoundError, SandboxError, StateError
from holdfast.model import Checkpoint, CheckpointGroup, DamagedCheckpoint, Plan, PlanState
from holdfast.names import TIME_CHARACTERS, lasting_id
from holdfast.parts import Parts
from holdfast.plans.finding import LATEST, Plans
from holdfast.system.place import is_missing
from holdfast.views.timeline import CheckpointView, Timeline

# What a function imports is not needed by most commands: they start without it.


class CheckpointViews:
    def __init__(self, parts: Parts, plans: Plans) -> None:
        self._parts, self._plans = parts, plans

    def timeline(self, reference: str, *, moments: int | None = None) -> Timeline:
        """The history of a plan, or the newest moments of it."""
        return Timeline(self._parts.store, self._plans.find_plan(reference), moments)

    def checkpoints(self, reference: str) -> list[CheckpointView]:
        """The checkpoints whose records are sound, oldest first."""
        return [each for moment in self.timeline(reference).oldest_first() for each in moment.checkpoints]

    def display_id(self, plan_id: str, checkpoint_id: str) -> str:
        """The id of one checkpoint of a plan, as short as it is unique now."""
        return display_ids_of(self._parts.store, plan_id, [checkpoint_id])[checkpoint_id]

    def lasting_id(self, plan_id: str, checkpoint_id: str) -> str:
        """The id of one checkpoint of a plan, as short as it stays unique; the whole id if there is no such one."""
        found = self._parts.store.checkpoints.ids_beside(plan_id, [checkpoint_id], TIME_CHARACTERS)
        return lasting_id(checkpoint_id, found) if checkpoint_id in found else checkpoint_id

    def damaged_checkpoints(self, reference: str, *, since: int | None = None) -> list[tuple[DamagedCheckpoint, str]]:
        """The checkpoints whose own record, or whose group's record, is damaged, each with its display id.

        ``since``: only those with this number or a larger one.
        """
        plan = self._plans.find_plan(reference)
        damaged = self._parts.store.damaged.checkpoints(plan.plan_id, since=since)
        return [(each, self.display_id(plan.plan_id, each.checkpoint_id)) for each in damaged]

    def checkpoint(self, checkpoint_reference: str, plan_reference: str | None = None) -> CheckpointView:
        """One checkpoint of the plan; without a plan, of the plan that its id names, or of the latest one."""
        plan = self._plans.find_plan(plan_reference or self._plan_of_checkpoint(checkpoint_reference))
        return self.view_of(plan, self.find_checkpoint(plan, checkpoint_reference))

    def view_of(self, plan: Plan, checkpoint: Checkpoint) -> CheckpointView:
        store, line = self._parts.store, Line(self._parts.store, plan)
        for group in store.groups.newest_first(plan.plan_id, page=1):
            is_superseded = line.is_superseded(group)
            if group.group_id == checkpoint.group_id:
                shown = self.display_id(plan.plan_id, checkpoint.checkpoint_id)
                return CheckpointView(checkpoint, group, shown, is_superseded)
        raise store.missing(CheckpointGroup, checkpoint.group_id)

    def _plan_of_checkpoint(self, reference: str) -> str:
        store, prefix = self._parts.store, reference.removeprefix("cp_").upper()
        found = store.checkpoints.plans_with(prefix) if prefix else set()
        return found.pop() if len(found) == 1 else LATEST

    def find_checkpoint(self, plan: Plan, reference: str) -> Checkpoint:
        """The checkpoint of this plan; if it is another plan's, the refusal says so."""
        try:
            return self._parts.service.get_checkpoint(plan.plan_id, reference)
        except AmbiguousError:
            raise
        except NotFoundError:
            prefix = reference.removeprefix("cp_").upper()
            others = self._parts.store.checkpoints.by_prefix(prefix) if len(prefix) >= 8 else []
            if others:
                raise StateError(
                    f"Checkpoint {reference} belongs to plan {others[0].plan_id}, not to {plan.plan_id}.",
                    hint=f"See this plan's checkpoints with `holdfast checkpoint list {plan.plan_id}`.",
                ) from None
            raise

    def find_damaged_checkpoint(self, reference: str, checkpoint: str) -> DamagedCheckpoint | None:
        """The checkpoint, if it is damaged, so that it can only be deleted."""
        from holdfast.checkpoints.damage import find_damaged_checkpoint

        with suppress(NotFoundError):
            return find_damaged_checkpoint(self._parts.store, self._plans.find_plan(reference).plan_id, checkpoint)
        return None

    def can_roll_back(self, plan: Plan, group: CheckpointGroup | None = None) -> bool:
        """Whether the present state of the plan allows `plan rollback`, to that group or to any."""
        if plan.head_group_id is None or plan.parent_plan_id is not None or not plan.policy.rollback_enabled:
            return False
        try:
            if group is None:
                return _is_restorable(plan)
            service = self._parts.service
            service.rollback.check_position(service.history(plan), group)
        except (StateError, SandboxError, DamagedRecordError):
            return False
        return True

    def checkpoint_ids(self, plan_id: str) -> list[str]:
        """The ids of the plan's checkpoints whose records are sound, oldest first."""
        return [each.checkpoint_id for each in self._parts.store.checkpoints.of(plan_id)]

    def count_checkpoints(self, plan_id: str) -> int:
        """How many checkpoints the plan has, damaged ones included."""
        return self._parts.store.checkpoints.count(plan_id)

    def find_group(self, group_id: str | None) -> CheckpointGroup | None:
        return self._parts.store.find(CheckpointGroup, group_id) if group_id is not None else None

    def checkpoints_at(self, group: CheckpointGroup) -> list[Checkpoint]:
        """The checkpoints of a group; at least one."""
        return self._parts.service.checkpoints_at(group)


def _is_restorable(plan: Plan) -> bool:
    """Whether its result is not in the real files, and every sandbox is in its place; asks no content store."""
    if plan.state is PlanState.APPLIED:
        return False
    return not any(is_missing(Path(resource.sandbox_path)) for resource in plan.resources)
