"""What a person can ask to be undone, and what that means for the calls of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from holdfast.checkpoints.service import CheckpointService
from holdfast.checkpoints.titles import checkpoint_title, shortened
from holdfast.db.journal import UndoEntry
from holdfast.errors import ConflictError, NotFoundError, StateError
from holdfast.model import Checkpoint, CheckpointGroup, Moment, OperationKind, Plan
from holdfast.sessions.calls import Call, calls_of, together_with, with_inner
from holdfast.sessions.reverting import Way
from holdfast.sessions.undoing import Wish, folder_of, way_of

_PAGE = 50


class LastCall(msgspec.Struct, frozen=True):
    """The last call that changed something."""


class CallNumber(msgspec.Struct, frozen=True):
    """That call, and all after it."""

    number: int


class PromptNumber(msgspec.Struct, frozen=True):
    """All calls that follow from that prompt, and all after them."""

    number: int


class OnlyCall(msgspec.Struct, frozen=True):
    """That call alone; all later work stays."""

    number: int


class ToCheckpoint(msgspec.Struct, frozen=True):
    """All calls after that checkpoint. ``is_exact``: also what anybody else changed since."""

    reference: str
    is_exact: bool = False


Target = LastCall | CallNumber | PromptNumber | OnlyCall | ToCheckpoint


def wish_to_undo(
    plan: Plan, target: Target, service: CheckpointService, others: Sequence[Call], checkpoint: Checkpoint | None
) -> Wish:
    """``others``: calls of other sessions in the folder. ``checkpoint``: the one that the target names."""
    calls = calls_of(service.store, plan)
    if checkpoint is not None:
        assert isinstance(target, ToCheckpoint)
        group = service.store.get(CheckpointGroup, checkpoint.group_id)
        chosen = _after(service, group, calls)
        title = f"undo: back to {checkpoint_title(checkpoint, group)}"
        return _wish(plan, service, title, chosen, calls, others, group, is_exact=target.is_exact)
    chosen = _chosen(plan, target, [each for each in calls if not each.is_undone])
    return _wish(plan, service, f"undo {_words(chosen)}", chosen, calls, others, None)


def _chosen(plan: Plan, target: Target, calls: Sequence[Call]) -> list[Call]:
    match target:
        case LastCall():
            found = [each for each in calls if each.changed_something][-1:]
            if not found:
                raise StateError(
                    "Nothing is left to undo: no call in this session changed a file.",
                    hint="`holdfast log` shows the session; `holdfast undo CHECKPOINT` goes back to a moment of it.",
                )
            return found
        case CallNumber(number):
            _refuse_unknown(plan, "call", number, [each.number for each in calls])
            return [each for each in calls if each.number >= number]
        case OnlyCall(number):
            _refuse_unknown(plan, "call", number, [each.number for each in calls])
            return [each for each in calls if each.number == number]
        case PromptNumber(number):
            _refuse_unknown(plan, "prompt", number, [each.prompt_number or 0 for each in calls])
            return [each for each in calls if (each.prompt_number or 0) >= number]
    raise AssertionError("a checkpoint is looked for first")


def _refuse_unknown(plan: Plan, what: str, number: int, known: Sequence[int]) -> None:
    if number in known:
        return
    listed = sorted({each for each in known if each > 0})
    there = f"There are {listed[0]} to {listed[-1]}" if listed else "There is none"
    raise NotFoundError(
        f"Session {plan.plan_id} has no {what} {number} that is in force. {there}.",
        hint=f"`holdfast log {plan.plan_id}` shows them.",
    )


def _after(service: CheckpointService, group: CheckpointGroup, calls: Iterable[Call]) -> list[Call]:
    """The calls in force whose changes came after that group."""
    return [each for each in calls if not each.is_undone and each.after_id and _comes_after(service, each, group)]


def _comes_after(service: CheckpointService, call: Call, group: CheckpointGroup) -> bool:
    found = service.store.find(CheckpointGroup, call.after_id or "", sound_only=True)
    if found is None:  # it is no longer kept, but what the call changed may still be there
        return call.finished_at is None or call.finished_at > group.created_at
    return found.sequence > group.sequence


def _wish(
    plan: Plan,
    service: CheckpointService,
    title: str,
    chosen: Sequence[Call],
    calls: Sequence[Call],
    others: Sequence[Call],
    target: CheckpointGroup | None,
    *,
    is_exact: bool = False,
) -> Wish:
    resource = folder_of(plan)
    outer = together_with(chosen, calls)
    if not is_exact:
        _refuse_overlap(outer, others)
    ways = () if is_exact else tuple(_ways(outer, calls, lambda call: way_of(call, service, resource)))
    if target is None:
        target = service.store.get(CheckpointGroup, outer[0].before_id or "")
    in_force = tuple(each for each in with_inner(outer, calls) if not each.is_undone)
    return Wish(Moment.UNDO, title, ways, in_force, target, is_exact)


def _ways(outer: Sequence[Call], calls: Sequence[Call], way_of_call: Callable[[Call], Way]) -> Iterable[Way]:
    """One way for each call, or for all that ran at the same time: it is unknown which of them changed what."""
    cluster: list[Call] = []
    for call in outer:
        if cluster and not any(call.overlaps(each) for each in cluster):
            yield _way_of_cluster(cluster, calls, way_of_call)
            cluster = []
        cluster.append(call)
    if cluster:
        yield _way_of_cluster(cluster, calls, way_of_call)


def _way_of_cluster(cluster: Sequence[Call], calls: Sequence[Call], way_of_call: Callable[[Call], Way]) -> Way:
    # What a call did through its subagent is known from their calls; then its own end finds nothing new.
    changing = [each for each in with_inner(cluster, calls) if each.changed_something] or cluster[:1]
    last = max(changing, key=lambda call: call.finished_at or call.started_at)
    first = way_of_call(cluster[0])
    return Way(first.before, way_of_call(last).after, first.unheld)


def _refuse_overlap(calls: Sequence[Call], others: Iterable[Call]) -> None:
    for other in others:
        for call in calls:
            if other.changed_something and call.changed_something and not other.is_undone and call.overlaps(other):
                raise ConflictError(
                    f"{call.title} ran at the same time as {other.title} of another session ({other.plan_id}); what "
                    "the two changed cannot be told apart. Nothing was changed.",
                    hint="Restore single files with `holdfast undo CHECKPOINT --only PATH`, or go back to a moment "
                    "before both with `holdfast undo CHECKPOINT --exact`.",
                )


def _words(calls: Sequence[Call]) -> str:
    if len(calls) == 1:
        return f"{shortened(calls[0].title)}"
    return f"calls {calls[0].number} to {calls[-1].number}"


def wish_to_redo(plan: Plan, service: CheckpointService) -> Wish | None:
    """What the last undo took away that was not brought back since; None if there is none, or it is no longer kept."""
    back: set[str] = set()
    for operation in service.store.operations.done(plan.plan_id, OperationKind.UNDO):
        entry = UndoEntry.of(operation)
        if entry.moment is Moment.REDO:
            back.add(entry.target_group_id)
        elif entry.left_group_id not in back:
            return _redo(plan, service, entry)
    return None


def _redo(plan: Plan, service: CheckpointService, entry: UndoEntry) -> Wish | None:
    name, store = folder_of(plan).name, service.store
    left = store.find(CheckpointGroup, entry.left_group_id, sound_only=True)
    undone = None if left is None else _group_after(plan, service, left)
    if left is None or undone is None:
        return None
    calls = tuple(each for each in calls_of(store, plan) if each.run_id in entry.run_ids)
    way = Way(left.states[name], undone.states[name], frozenset(each.path for each in left.unheld.get(name, ())))
    return Wish(Moment.REDO, f"redo {_words(calls) if calls else 'what was undone'}", (way,), calls, left)


def _group_after(plan: Plan, service: CheckpointService, group: CheckpointGroup) -> CheckpointGroup | None:
    for newer in service.store.groups.newest_first(plan.plan_id, _PAGE):
        if newer.sequence <= group.sequence + 1:
            return newer if newer.sequence > group.sequence else None
    return None
