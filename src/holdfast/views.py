"""Views: checkpoints, differences, decisions and verification. Nothing here changes a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.checkpoints.line import Line
from holdfast.errors import AmbiguousError, DamagedRecordError, NotFoundError, SandboxError, StateError
from holdfast.model import Checkpoint, CheckpointGroup, DamagedCheckpoint, Decision, FileChange, Moment, Plan
from holdfast.names import SHORTEST_DISPLAY, TIME_CHARACTERS, display_ids, lasting_id
from holdfast.parts import Parts
from holdfast.plans.finding import LATEST, Plans
from holdfast.system.place import is_there
from holdfast.system.progress import Watcher, watched_by
from holdfast.system.sqlite import damage_in

if TYPE_CHECKING:
    from holdfast.checkpoints.file_diffs import FileDiff
    from holdfast.checkpoints.releasing import HeldBack
    from holdfast.checkpoints.verification import VerifyResult
    from holdfast.decisions.explain import DecisionTree, Explanation

_PAGE = 1000
"""How many groups are read at once if all are asked for."""

# What a function imports is not needed by most commands: they start without it.


@dataclass(frozen=True)
class CheckpointView:
    checkpoint: Checkpoint
    group: CheckpointGroup
    display_id: str
    is_superseded: bool


@dataclass(frozen=True)
class Timeline:
    """The moments of a plan."""

    plan: Plan
    checkpoints: list[CheckpointView]
    """Oldest first."""
    decisions: Mapping[str, Decision]
    """The decisions that these moments name, by their ids."""
    older: int
    """How many moments there are before these."""


class Views:
    def __init__(self, parts: Parts, plans: Plans) -> None:
        self._parts, self._plans = parts, plans

    # Checkpoints

    def timeline(self, reference: str, *, moments: int | None = None) -> Timeline:
        """The history of a plan, or the newest moments of it."""
        plan, store = self._plans.find_plan(reference), self._parts.store
        views = self._checkpoints(plan, moments)
        named = {each.group.decision_id for each in views if each.group.decision_id is not None}
        decisions = {each.decision_id: each for each in store.decisions.with_ids(named)}
        older = store.groups.count_before(plan.plan_id, views[0].group.sequence) if views and moments else 0
        return Timeline(plan, views, decisions, older)

    def checkpoints(self, reference: str) -> list[CheckpointView]:
        """The checkpoints whose records are sound, oldest first."""
        return self._checkpoints(self._plans.find_plan(reference), None)

    def _checkpoints(self, plan: Plan, moments: int | None) -> list[CheckpointView]:
        """The sound checkpoints of a plan, or of its newest groups, oldest first."""
        found = list(islice(self._moments(plan, moments or _PAGE), moments))
        some = None if moments is None else [each.checkpoint_id for _, rows, _ in found for each in rows]
        shown = self._display_ids(plan.plan_id, some)
        return [
            CheckpointView(each, group, shown[each.checkpoint_id], is_superseded)
            for group, rows, is_superseded in reversed(found)
            for each in rows
        ]

    def _moments(self, plan: Plan, page: int) -> Iterator[tuple[CheckpointGroup, list[Checkpoint], bool]]:
        """The groups that have checkpoints, newest first: each with them, and whether it is superseded."""
        store, line = self._parts.store, Line(self._parts.store, plan)
        groups = store.groups.newest_first(plan.plan_id, page)
        while some := list(islice(groups, page)):
            rows: dict[str, list[Checkpoint]] = {}
            for each in store.checkpoints.between(plan.plan_id, some[-1].sequence, some[0].sequence):
                rows.setdefault(each.group_id, []).append(each)
            for group in some:
                is_superseded = line.is_superseded(group)
                if group.group_id in rows:
                    yield group, rows[group.group_id], is_superseded

    def _display_ids(self, plan_id: str, some: Sequence[str] | None) -> dict[str, str]:
        """The display ids of some checkpoints of a plan, or of all, damaged ones too."""
        if some is None:
            return display_ids(self._parts.store.checkpoints.ids(plan_id))
        return {each: self.display_id(plan_id, each) for each in some}

    def display_id(self, plan_id: str, checkpoint_id: str) -> str:
        """The id of one checkpoint of a plan, as short as it is unique now."""
        prefix = checkpoint_id[:SHORTEST_DISPLAY]
        beside = self._parts.store.checkpoints.ids_beside(plan_id, checkpoint_id, prefix)
        return display_ids([checkpoint_id, *beside])[checkpoint_id]

    def lasting_id(self, plan_id: str, checkpoint_id: str) -> str:
        """The id of one checkpoint of a plan, as short as it stays unique; the whole id if there is no such one."""
        found = self._parts.store.checkpoints.ids_beside(plan_id, checkpoint_id, checkpoint_id[:TIME_CHARACTERS])
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

    def can_go_back(self, plan: Plan, group: CheckpointGroup | None = None) -> bool:
        """Whether the present state of the plan allows `plan rollback`, to that group or to any."""
        from holdfast.rollback.rollback import refuse_if_disabled

        if plan.head_group_id is None or plan.parent_plan_id is not None:
            return False
        try:
            refuse_if_disabled(plan)
            if group is None:
                self._parts.service.sandboxes.check(plan)
            else:
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

    def can_be_reverted(self, plan: Plan, decision_id: str) -> bool:
        """Whether the present state of the plan allows `plan correct --mode revert` of the decision."""
        return self._parts.corrections.find_refusal(plan, self._parts.store.get(Decision, decision_id)) is None

    def content_bytes(self) -> int:
        """How much space all saved content takes."""
        return self._parts.service.manager.objects.content_bytes()

    def watched_by(self, watcher: Watcher | None) -> AbstractContextManager[None]:
        """Tell ``watcher`` about all long work that this thread does meanwhile; None changes nothing."""
        return watched_by(watcher)

    # Differences

    def changes(self, plan: Plan) -> list[FileChange]:
        """What the plan changed in its sandboxes, from its first checkpoint to its last."""
        from holdfast.checkpoints.changes import file_change

        if plan.head_group_id is None:
            return []
        store = self._parts.store
        first, head = store.groups.first(plan.plan_id), store.get(CheckpointGroup, plan.head_group_id)
        changes = self._parts.service.changes.between(plan, first.states, head.states)
        return [file_change(name, difference) for name, listed in changes.items() for difference in listed]

    def changed_files(self, view: CheckpointView) -> list[FileDiff]:
        """What changed between the group before this one and this one."""
        store = self._parts.store
        plan = store.get(Plan, view.checkpoint.plan_id)
        self._parts.refuse_without_content(plan)
        parent = store.find(CheckpointGroup, view.group.parent_group_id) if view.group.parent_group_id else None
        return [] if parent is None else self._diffs(plan, parent.states, view.group.states)

    def diff(self, reference: str, old: str | None = None, new: str | None = None) -> list[FileDiff]:
        """What differs between two checkpoints; by default between the first one and the present files."""
        plan = self._plans.find_plan(reference)
        if plan.head_group_id is None:
            return []
        self._parts.refuse_without_content(plan)
        before = self._parts.store.groups.first(plan.plan_id).states if old is None else self._states_at(plan, old)
        if new is None and self._parts.is_read_only and _has_all_sandboxes(plan):
            from holdfast.checkpoints.present import diff_to_present

            return diff_to_present(plan, self._parts.service.manager, before)
        after = self._states_now(plan) if new is None else self._states_at(plan, new)
        return self._diffs(plan, before, after)

    def _diffs(self, plan: Plan, old: dict[str, str], new: dict[str, str]) -> list[FileDiff]:
        from holdfast.checkpoints.file_diffs import file_diff

        changes = self._parts.service.changes.between(plan, old, new)
        reader = self._parts.service.manager.reader
        return [file_diff(reader, name, difference) for name, listed in changes.items() for difference in listed]

    def _states_at(self, plan: Plan, reference: str) -> dict[str, str]:
        return self._parts.store.get(CheckpointGroup, self.find_checkpoint(plan, reference).group_id).states

    def _states_now(self, plan: Plan) -> dict[str, str]:
        """What the sandboxes hold now; if they are gone, as after an apply, the last states recorded."""
        if _has_all_sandboxes(plan):
            return self._parts.service.sandboxes.states_now(plan)
        return self._parts.store.get(CheckpointGroup, plan.head_group_id or "").states

    def result_of_attempt(self, reference: str, attempt: int) -> Checkpoint:
        """The first checkpoint of the last group of an attempt, also of one that a correction ended."""
        plan = self._plans.find_plan(reference)
        groups = sorted(self._parts.store.groups.of(plan.plan_id), key=lambda group: group.sequence)
        # A group that a rollback made holds the result of an earlier attempt.
        results = {group.attempt: group for group in groups if Moment.ROLLBACK not in group.triggers}
        if attempt not in results:
            known = ", ".join(map(str, sorted(results)))
            raise NotFoundError(
                f"Plan {plan.plan_id} has no result of an attempt {attempt}.",
                hint=f"There are results of these attempts: {known}." if known else "It has not run yet.",
            )
        return self._parts.service.checkpoints_at(results[attempt])[0]

    # Content

    def verify(self, reference: str | None = None) -> VerifyResult:
        """Read back everything the checkpoints need, of one plan or of all that are kept in this home.

        If the structure of the store is damaged, the result still says which objects can be read.
        """
        parts = self._parts
        if reference is not None:
            plans = [self._plans.find_plan(reference)]
        else:
            plans = [plan for plan in parts.store.plans.of_project(None) if parts.is_kept_here(plan)]
        for plan in plans:
            parts.refuse_without_content(plan)
        objects = parts.service.manager.objects
        structure = damage_in(objects.path)
        if structure:
            objects.leave_as_it_is()
        found = parts.service.verify(each for plan in plans for each in (plan, *self._plans.below(plan)))
        return replace(found, structure=tuple(structure))

    def held_back(self) -> list[HeldBack]:
        """The plans for which content is kept although no records that can be read say that they need it."""
        return self._parts.service.release.held_back()

    # Decisions

    def decisions(self, reference: str) -> list[Decision]:
        """The decisions of the plan whose records are sound."""
        return self._parts.store.decisions.of(self._plans.find_plan(reference).plan_id, sound_only=True)

    def decision_tree(self, reference: str, *, with_superseded: bool = False) -> DecisionTree:
        """The decisions of a plan and of its subplans, each below the one it came from."""
        from holdfast.decisions.explain import decision_tree

        return decision_tree(self._plans.find_plan(reference), self._parts.service, with_superseded=with_superseded)

    def find_decision(self, reference: str) -> Decision:
        found = self._parts.store.decisions.by_prefix(reference) if reference else []
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(decision.decision_id for decision in found[:10])
            raise AmbiguousError(f"{len(found)} decisions begin with {reference!r}.", hint=f"Say which one: {listed}.")
        raise NotFoundError(f"There is no decision {reference!r}.", hint="See them with `holdfast plan tree`.")

    def explain(self, decision_reference: str) -> Explanation:
        """One decision: why, what it changed, and what depends on it."""
        from holdfast.decisions.explain import explain_decision

        decision = self.find_decision(decision_reference)
        plan = self._parts.store.get(Plan, decision.plan_id)
        self._parts.refuse_without_content(plan)
        return explain_decision(plan, self._parts.service, self._parts.tools, decision)


def _has_all_sandboxes(plan: Plan) -> bool:
    return all(is_there(Path(resource.sandbox_path)) for resource in plan.resources)
