"""Undoing calls in a real folder, and taking that back: decided as one value, then carried out as one journaled change.

What is undone is merged out of the present files (``reverting``), so what a person or another agent changed since
stays. The state that is left is kept in a group first; ``redo`` merges it back in the same way.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.apply.journaled import files_in
from holdfast.apply.real_change import RealChange
from holdfast.apply.real_files import change_real_files
from holdfast.checkpoints.changes import visible_of_user, with_other_commits
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.content.batch import Batch
from holdfast.content.difference import Difference, StateReader
from holdfast.content.format import State
from holdfast.content.grafting import grafted
from holdfast.db.journal import UndoEntry
from holdfast.errors import ConflictError, NotFoundError, StateError
from holdfast.model import (
    CheckpointGroup,
    Decision,
    FileChange,
    Lease,
    Moment,
    Operation,
    OperationKind,
    Plan,
    Record,
    Resource,
    StepRun,
    numbers_of,
    ranges_of,
)
from holdfast.names import name_text
from holdfast.rollback.paths import grafted_states, select_paths
from holdfast.sessions.calls import Call
from holdfast.sessions.reverting import Way, reverted
from holdfast.snapshot.restore.decide import unheld_name
from holdfast.snapshot.selection import links_to_make
from holdfast.system.directories import ancestors, shown

_MOST_LISTED = 10


class UndoConflict(msgspec.Struct, frozen=True):
    """A path that was changed since, and cannot be merged."""

    path: str
    reason: str


class Wish(msgspec.Struct, frozen=True):
    """What is to be merged out of the present files of a session's folder, or back into them."""

    moment: Moment
    """``UNDO`` or ``REDO``."""
    title: str
    ways: tuple[Way, ...]
    """What is merged out, oldest first."""
    calls: tuple[Call, ...]
    """Those that are undone, or are in force again."""
    target: CheckpointGroup
    """The moment whose files are there again, as far as nothing was changed since."""
    is_exact: bool = False
    """The files become those of the target, whatever was changed since, by anybody."""
    only: tuple[str, ...] = ()
    """Only these paths, which become what they were in the target."""


class Undo(msgspec.Struct, frozen=True):
    """What undoing or redoing is going to do; nothing is changed yet."""

    plan: Plan
    wish: Wish
    present: str
    wanted: str
    differences: tuple[Difference, ...]
    changes: tuple[FileChange, ...]
    has_other_commits: bool
    """HEAD, branches or tags of the folder's repository change."""
    conflicts: tuple[UndoConflict, ...]


class UndoResult(msgspec.Struct, frozen=True):
    plan: Plan
    moment: Moment
    """``UNDO`` or ``REDO``."""
    calls: tuple[Call, ...]
    changes: tuple[FileChange, ...]
    has_other_commits: bool
    kept_checkpoint_id: str
    """The checkpoint of the files as they were before."""
    checkpoint_id: str
    """The checkpoint of the files as they are now."""


def folder_of(plan: Plan) -> Resource:
    return plan.resources[0]


def decide(plan: Plan, wish: Wish, service: CheckpointService, *, force: bool = False) -> Undo:
    """``force``: what cannot be merged becomes what it was, and loses what was changed since."""
    resource, reader = folder_of(plan), service.manager.reader
    with service.manager.storing() as batch:
        present = service.sandboxes.states_now(plan)[resource.name]
        wanted, conflicts = _merged(plan, batch, service, present, wish, force=force)
        batch.commit()
        unheld = _unheld_names(resource, wish)
        differences = tuple(
            each
            for each in _differences(reader, reader.state(present), reader.state(wanted))
            if each.new is not None or not _is_unheld(each.path, unheld)
        )
    seen = visible_of_user(plan, {resource.name: differences})[resource.name]
    return Undo(
        plan=plan,
        wish=wish,
        present=present,
        wanted=wanted,
        differences=differences,
        changes=tuple(_file_change(resource, each) for each in seen),
        has_other_commits=bool(with_other_commits(plan, {resource.name: differences})),
        conflicts=conflicts,
    )


def _differences(reader: StateReader, present: State, wanted: State) -> list[Difference]:
    """Also of files that differ in nothing but in which names they share."""
    found = list(reader.differences(present, wanted))
    changed = {each.path for each in found}
    regrouped = {path for group in {*present.links} ^ {*wanted.links} for path in group} - changed
    for path in sorted(regrouped):
        now, then = reader.find(present, path), reader.find(wanted, path)
        if now is not None and then is not None:
            found.append(Difference(path, now, then))
    return found


def _unheld_names(resource: Resource, wish: Wish) -> frozenset[str]:
    """The paths that the states to go back to could not hold: their absence does not mean deletion."""
    of_target = (each.path for each in wish.target.unheld.get(resource.name, ()))
    return frozenset(of_target).union(*(way.unheld for way in wish.ways))


def _is_unheld(path: bytes, unheld: frozenset[str]) -> bool:
    return any(unheld_name(each) in unheld for each in (path, *ancestors(path)) if each)


def _merged(
    plan: Plan, batch: Batch, service: CheckpointService, present: str, wish: Wish, *, force: bool
) -> tuple[str, tuple[UndoConflict, ...]]:
    resource = folder_of(plan)
    if wish.only:
        states = {resource.name: present}
        selected = select_paths(plan, service, wish.target, states, wish.only)
        return grafted_states(service, batch, wish.target, states, selected)[resource.name], ()
    ways = (Way(wish.target.states[resource.name], present),) if wish.is_exact else wish.ways
    found = reverted(service.manager.reader, batch, present, ways, wins=force)
    conflicts = () if force else tuple(UndoConflict(shown(each.path), each.reason) for each in found.conflicts)
    return found.state, conflicts


def _file_change(resource: Resource, difference: Difference) -> FileChange:
    path = shown(difference.path)
    if difference.new is None:
        return FileChange(resource=resource.name, file=path, action="removed")
    return FileChange(resource=resource.name, file=path, action="restored")


def refuse_conflicts(undo: Undo) -> None:
    if not undo.conflicts:
        return
    listed = "\n  ".join(f"{name_text(each.path)}: {each.reason}" for each in undo.conflicts[:_MOST_LISTED])
    more = len(undo.conflicts) - _MOST_LISTED
    raise ConflictError(
        f"These were changed since, and what is undone cannot be merged out of them; nothing was changed:\n  {listed}"
        + (f"\n  and {more} more" if more > 0 else ""),
        hint="Undo what changed them since first, or add `--force`: then they become what they were before. The "
        "present files are kept in a checkpoint in any case, and `holdfast redo` brings them back.",
        paths=tuple(each.path for each in undo.conflicts),
    )


def refuse_nothing(undo: Undo) -> None:
    """Refuse what would neither change a file nor mark a call: it would only be in the way of the next redo."""
    if undo.present == undo.wanted and not undo.wish.calls:
        raise StateError(
            "Nothing would change: the files are as they were at that moment.", hint="`holdfast log` shows the others."
        )


def carry_out(undo: Undo, lease: Lease, service: CheckpointService, refuse: Callable[[], None]) -> UndoResult:
    """Change the folder as it was decided: all of it, or nothing. Call it in the look in which it was decided.

    A file that was written since then is not replaced: if it was to be changed, nothing is. ``refuse`` is called when
    no other process records or changes the folder any more, and raises if a call has begun in it since.
    """
    plan, wish, resource = undo.plan, undo.wish, folder_of(undo.plan)
    refuse_conflicts(undo)
    before = Occasion((Moment.BEFORE_ROLLBACK,), source=wish.moment.value, title=f"before: {wish.title}")
    plan = service.create_checkpoint(plan, lease, before, only_if_changed=True, needed=(wish.target.group_id,))
    left = service.store.get(CheckpointGroup, plan.head_group_id or "")
    kept = service.checkpoints_at(left)[0]
    links = links_to_make(service.manager.reader.state(undo.wanted).links, [each.path for each in undo.differences])
    change = RealChange(resource, undo.differences, links)
    marked = _marked(plan, undo, service)
    entry = {
        "moment": wish.moment,
        "title": wish.title,
        "target_group_id": wish.target.group_id,
        "left_group_id": left.group_id,
        "run_ids": tuple(call.run_id for call in wish.calls),
    }
    plan = change_real_files(plan, lease, service, UndoEntry, [change], records=marked, more=entry, refuse=refuse)
    service.sandboxes.look_again(plan)
    plan = record_outcome(service.store.get(Plan, plan.plan_id), lease, service, is_late=False)
    at, commits = plan.last_checkpoint_id or "", undo.has_other_commits
    return UndoResult(plan, wish.moment, wish.calls, undo.changes, commits, kept.checkpoint_id, at)


def _marked(plan: Plan, undo: Undo, service: CheckpointService) -> list[Record]:
    """The calls marked as undone, or as in force again, and the plan with them."""
    wish, store = undo.wish, service.store
    is_undo = wish.moment is Moment.UNDO
    records: list[Record] = []
    numbers = set()
    for call in wish.calls:
        run, decision = store.get(StepRun, call.run_id), store.get(Decision, call.decision_id)
        if run.plan_id == plan.plan_id:
            numbers.add(decision.sequence)
        records += [each.model_copy(update={"is_superseded": is_undo}) for each in (run, decision)]
    before = set(numbers_of(plan.active_decisions))
    active = ranges_of(before - numbers if is_undo else before | numbers)
    return [*records, plan.changed(active_decisions=active)]


def record_outcome(plan: Plan, lease: Lease, service: CheckpointService, *, is_late: bool = True) -> Plan:
    """Record the files as the last undo left them, unless that was done: its process may have died.

    ``is_late``: others may have changed files since, which is their work; so the state is known from the journal.
    """
    operation = unrecorded_undo(plan, service)
    if operation is None:
        return plan
    entry = UndoEntry.of(operation)
    occasion = Occasion(
        (entry.moment,), source=entry.moment.value, title=entry.title, restored_group_id=entry.target_group_id
    )
    recorded = entry.model_copy(update={"states": {}}).put_into(operation)
    left = service.store.find(CheckpointGroup, entry.left_group_id, sound_only=True)
    if not is_late or left is None:
        return service.create_checkpoint(plan, lease, occasion, records=[recorded])
    resource, reader = folder_of(plan), service.manager.reader
    with service.manager.storing() as batch:
        files = files_in(entry, resource, reader)
        made = {} if files is None else {path: files.new.get(path) for path in files.old.keys() | files.new.keys()}
        state = grafted(reader, batch, reader.state(left.states[resource.name]), made)
        batch.commit()
        known = left.model_copy(update={"states": {resource.name: state}})
        return service.adopt(plan, lease, occasion, known, [recorded])


def unrecorded_undo(plan: Plan, service: CheckpointService) -> Operation | None:
    """The last undo, if there is no group of the files as it left them yet."""
    last = service.store.operations.done(plan.plan_id, OperationKind.UNDO, limit=1)
    is_missing = bool(last) and UndoEntry.of(last[0]).left_group_id == plan.head_group_id
    return last[0] if is_missing else None


def way_of(call: Call, service: CheckpointService, resource: Resource) -> Way:
    """What a call changed; refused if the checkpoints around it are no longer kept."""
    groups = []
    for group_id in (call.before_id, call.after_id or call.before_id):
        group = service.store.find(CheckpointGroup, group_id, sound_only=True) if group_id else None
        if group is None:
            raise NotFoundError(
                f"The checkpoints around {call.title} are no longer kept, so it cannot be undone by itself.",
                hint="`holdfast log` lists the moments that are kept; `holdfast undo CHECKPOINT --exact` goes back to "
                "one, and also takes back what you changed since.",
            )
        groups.append(group)
    unheld = frozenset(each.path for each in groups[0].unheld.get(resource.name, ()))
    return Way(groups[0].states[resource.name], groups[1].states[resource.name], unheld)
