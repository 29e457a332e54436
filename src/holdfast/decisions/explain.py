"""Explains one decision of a plan: what it changed, and what depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from holdfast.checkpoints.consequences import consequences_of
from holdfast.checkpoints.file_diffs import FileDiff, file_diff
from holdfast.checkpoints.history import History
from holdfast.checkpoints.service import CheckpointService
from holdfast.db.store import Store
from holdfast.decisions.correct import CorrectionService, Target
from holdfast.decisions.tree import DecisionCheckpoint, DecisionRecords
from holdfast.errors import DamagedRecordError, StateError
from holdfast.model import CheckpointGroup, Decision, Moment, Plan, StepRun, Trigger
from holdfast.tools import Toolbox

_ENDINGS = (Trigger.ON_ERROR, Moment.BEFORE_ROLLBACK)
"""Groups of these moments hold the work of a step that did not succeed."""


@dataclass(frozen=True)
class Explanation:
    """One decision, with what it changed and what depends on it."""

    plan: Plan
    decision: Decision
    parent: Decision | None
    step: str | None
    run: StepRun | None
    """The run of its step."""
    checkpoint: DecisionCheckpoint | None
    """Correcting the decision rolls back to it; None if none was taken, or it was pruned."""
    changes: tuple[FileDiff, ...] | None
    """What its step changed after the decision; None if that was not recorded."""
    dependents: tuple[Decision, ...]
    """Later decisions that correcting this one supersedes."""
    subplans: tuple[Plan, ...]
    """The subplans that it or its dependents spawned."""
    refusal: str | None
    """Why it cannot be reverted; None if it can."""
    correctable: Decision | None
    """The decision to correct in order to undo it: itself, or the one that spawned its subplan; None if neither can."""


def explain_decision(plan: Plan, service: CheckpointService, tools: Toolbox, decision: Decision) -> Explanation:
    store, history, records = service.store, service.history(plan), DecisionRecords(plan, service.store)
    checkpoints = records.checkpoints_of([decision])[decision.decision_id]
    run = records.runs_of([decision]).get(decision.decision_id)
    corrections, target = CorrectionService(service, tools), None
    with suppress(StateError, DamagedRecordError):
        target = corrections.target_of(history, decision)
    dependents = tuple(_dependents(history, store, decision, target))
    undone = {each.decision_id for each in (decision, *dependents)}
    return Explanation(
        plan=plan,
        decision=decision,
        parent=store.find(Decision, decision.parent_decision_id or "", sound_only=True),
        step=records.step_of(decision, run),
        run=run,
        checkpoint=checkpoints[0] if checkpoints else None,
        changes=_changes(history, service, decision, checkpoints),
        dependents=dependents,
        subplans=tuple(subplan for subplan in records.subplans if subplan.spawn_decision_id in undone),
        refusal=corrections.find_refusal(plan, decision),
        correctable=corrections.correctable_for(plan, decision),
    )


def _dependents(history: History, store: Store, decision: Decision, target: Target | None) -> Iterator[Decision]:
    if target is not None:
        superseded = consequences_of(history, target.group).superseded
        yield from (each for each in superseded if each.decision_id != decision.decision_id)
    elif not decision.is_superseded:
        later = store.decisions.of(decision.plan_id, sound_only=True)
        yield from (each for each in later if each.sequence > decision.sequence and not each.is_superseded)


def _changes(
    history: History, service: CheckpointService, decision: Decision, checkpoints: tuple[DecisionCheckpoint, ...]
) -> tuple[FileDiff, ...] | None:
    """What changed from the moment of the decision to the end of its step."""
    if not checkpoints or decision.step_index is None:
        return None
    groups = {group.group_id: group for group in history.groups}
    before = groups[checkpoints[0].checkpoint.group_id]
    after = _group_after(groups, before, decision.step_index)
    if after is None:
        return None
    changes = service.changes.between(history.plan, before.states, after.states)
    reader = service.manager.reader
    return tuple(file_diff(reader, name, difference) for name, listed in changes.items() for difference in listed)


def _group_after(
    groups: dict[str, CheckpointGroup], before: CheckpointGroup, step_index: int
) -> CheckpointGroup | None:
    """The first descendant of the group that was taken when the step had ended."""
    followed = {before.group_id}
    for group in groups.values():
        if group.parent_group_id not in followed:
            continue
        if Moment.ROLLBACK in group.triggers:
            return None
        if group.last_completed_step == step_index or any(moment in group.triggers for moment in _ENDINGS):
            return group
        if group.last_completed_step > step_index:
            return None
        followed.add(group.group_id)
    return None
