"""Restoring single files or folders of a checkpoint into the sandboxes; everything else of the plan stays as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.content.batch import Batch
from holdfast.content.difference import StateReader
from holdfast.content.format import DIRECTORY, FORMAT_VERSION, Entry, State
from holdfast.content.grafting import grafted
from holdfast.db.journal import RestorePathsEntry
from holdfast.errors import AmbiguousError, HoldfastError, NotFoundError, StateError, UsageError
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    Lease,
    Moment,
    Operation,
    OperationState,
    Phase,
    Plan,
    PlanState,
    Resource,
    RollbackImpact,
    RollbackResult,
)
from holdfast.names import name_text
from holdfast.rollback.rollback import RollbackPreview, refuse_if_disabled
from holdfast.sandbox.protocol import sandbox_for
from holdfast.snapshot.restore.decide import unheld_name
from holdfast.system.directories import ancestors
from holdfast.system.paths import readings

_MOST_NAMES = 10

Selected = dict[str, tuple[bytes, ...]]
"""The chosen paths by resource; the empty path is all of it."""
States = dict[str, str]


class _Decided(msgspec.Struct, frozen=True):
    """What restoring some paths is going to do; nothing is changed yet."""

    group: CheckpointGroup
    present: States
    selected: Selected
    wanted: States
    """What the sandboxes become."""
    expected: RollbackResult

    @property
    def shown(self) -> tuple[str, ...]:
        return _shown(self.selected)


def _decide(
    plan: Plan,
    service: CheckpointService,
    checkpoint: Checkpoint,
    only: Sequence[str],
    present: dict[str, str] | None = None,
) -> _Decided:
    group = _checked(plan, service, checkpoint)
    if present is None:
        present = service.sandboxes.states_now(plan, thorough=False)
    selected = select_paths(plan, service, group, present, only)
    with service.manager.storing() as batch:
        wanted = grafted_states(service, batch, group, present, selected)
        batch.commit()
        service.sandboxes.keep_sound(plan, present, wanted)
        expected = _expected(plan, service, checkpoint, present, wanted, _shown(selected))
    return _Decided(group, present, selected, wanted, expected)


def preview_restore(
    plan: Plan, service: CheckpointService, checkpoint: Checkpoint, only: Sequence[str]
) -> RollbackPreview:
    """What restoring these paths would do; refuses whatever restoring them would refuse."""
    decided = _decide(plan, service, checkpoint, only)
    return RollbackPreview(plan, decided.group, decided.expected)


def restore_paths(
    plan: Plan,
    lease: Lease,
    service: CheckpointService,
    checkpoint: Checkpoint,
    only: Sequence[str],
    confirm: Callable[[RollbackPreview], bool] | None = None,
) -> RollbackResult | None:
    """Restore them, keeping the present state in a group of its own, and record the outcome as a group.

    If ``confirm``, which is shown what will happen, says no, nothing is changed and None is returned.
    """
    decided = _decide(plan, service, checkpoint, only)
    if confirm is not None:
        if not confirm(RollbackPreview(plan, decided.group, decided.expected)):
            return None
        if service.sandboxes.states_now(plan) != decided.present:
            decided = _decide(plan, service, checkpoint, only)  # something was changed while the person was asked
    reason = f"{_listed(decided.shown)} restored from {checkpoint.checkpoint_id}"
    if decided.wanted == decided.present:
        return decided.expected
    # This may prune and collect, which waits for all processes that hold the store.
    plan = service.rollback.keep_present(plan, lease, decided.group, reason)
    kept = service.store.get(CheckpointGroup, plan.head_group_id or "").states
    if kept != decided.present:
        # Files that were not asked for and were written meanwhile stay as they are.
        decided = _decide(plan, service, checkpoint, only, kept)
    group, present, selected, expected = decided.group, decided.present, decided.selected, decided.expected
    # Made once more: now it is not collected before the journal names it.
    with service.manager.storing() as batch:
        wanted = grafted_states(service, batch, group, present, selected)
        batch.commit()
        service.sandboxes.refuse_changed(plan, wanted)
        entry = RestorePathsEntry(
            target_group_id=group.group_id, left_group_id=plan.head_group_id, reason=reason, states=wanted
        )
        operation = entry.begun(plan.plan_id)
        with service.store.transaction(lease):
            service.store.insert(operation)
    try:
        plan, set_aside = _carry_out(plan, lease, service, operation)
    except HoldfastError as error:
        service.rollback.undo(plan, lease, operation, error)
        raise
    return expected.model_copy(
        update={
            "plan": plan,
            "left_group_id": entry.left_group_id,
            "set_aside": set_aside,
            "checkpoints_remaining": service.store.checkpoints.count(plan.plan_id),
        }
    )


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_NAMES
    return ", ".join(map(name_text, paths[:_MOST_NAMES])) + (f" and {more} more" if more > 0 else "")


def finish_restore(
    plan: Plan, lease: Lease, service: CheckpointService, operation: Operation
) -> tuple[Plan, tuple[str, ...]]:
    """Complete a restore that was cut short; what it did already is found done. Also returns what was set aside."""
    service.sandboxes.make_empty(plan)
    return _carry_out(plan, lease, service, operation)


def _carry_out(
    plan: Plan, lease: Lease, service: CheckpointService, operation: Operation
) -> tuple[Plan, tuple[str, ...]]:
    entry = RestorePathsEntry.of(operation)
    set_aside = service.sandboxes.restore_states(plan, entry.states)
    occasion = Occasion((Moment.RESTORE_PATHS,), reason=entry.reason, source="rollback")
    done = operation.ended(OperationState.DONE)
    return service.create_checkpoint(_after(plan), lease, occasion, records=[done]), set_aside


def _after(plan: Plan) -> Plan:
    """A result that was changed is no longer complete: executing the plan checks and records it again."""
    if plan.state is not PlanState.COMPLETE:
        return plan
    return plan.changed(phase=Phase.EXECUTE, state=PlanState.QUEUED)


def _checked(plan: Plan, service: CheckpointService, checkpoint: Checkpoint) -> CheckpointGroup:
    refuse_if_disabled(plan)
    service.sandboxes.check(plan)
    half_done = service.history(plan).half_done_run
    if half_done is not None and half_done.group_before_id is not None:
        keeping = (
            f"Keep what it made with `holdfast plan resume --skip {plan.plan_id}`, or a moment of it with "
            f"`holdfast plan keep {plan.plan_id} CHECKPOINT`, or roll back"
        )
        first = keeping if plan.steps[half_done.step_index].is_program else "Roll back"
        raise StateError(
            f"Step {half_done.step_index + 1} ({half_done.step}) was cut short: resuming restores all files as "
            "they were before it, which undoes what you restore now.",
            hint=f"{first} first: `holdfast plan rollback {plan.plan_id} {half_done.group_before_id}`.",
        )
    return service.store.get(CheckpointGroup, checkpoint.group_id)


def _expected(
    plan: Plan,
    service: CheckpointService,
    checkpoint: Checkpoint,
    present: States,
    wanted: States,
    only: tuple[str, ...],
) -> RollbackResult:
    changed = [name for name in wanted if wanted[name] != present[name]]
    set_aside: list[str] = []
    for name in changed:
        path = Path(plan.resource(name).sandbox_path)
        # Also finds out whether all that is needed is there, and sound.
        service.manager.check(path, wanted[name])
        set_aside += map(str, service.manager.in_the_way(path, wanted[name]))
    groups = [service.rollback.kept_by(service.history(plan), present), len(changed)] if changed else []
    return RollbackResult(
        plan=_after(plan) if changed else plan,
        checkpoint=checkpoint,
        left_group_id=None,
        changes=service.changes.reverted(plan, present, wanted).files,
        set_aside=tuple(set_aside),
        impact=RollbackImpact(
            sandbox=", ".join(plan.resource(name).sandbox_path for name in changed),
            decisions_after_cp=0,
            tool_calls_after_cp=0,
        ),
        checkpoints_remaining=service.pruning.expected(
            plan, [count for count in groups if count], (checkpoint.group_id,)
        ),
        only=only,
    )


def _shown(selected: Selected) -> tuple[str, ...]:
    return tuple(f"{name}:{os.fsdecode(path) or '.'}" for name, paths in selected.items() for path in paths)


def _name(path: bytes) -> str:
    return name_text(os.fsdecode(path))


# Which paths are meant


def select_paths(
    plan: Plan, service: CheckpointService, group: CheckpointGroup, present: States, only: Sequence[str]
) -> Selected:
    """What ``PATH`` or ``RESOURCE:PATH`` stand for, each in exactly one resource; one inside another is left out."""
    chosen: dict[str, set[bytes]] = {}
    for text in only:
        found = [
            (resource, path)
            for resource, path in _readings(plan, text)
            if _is_there(service.manager.reader, resource, path, group.states, present)
        ]
        if len(found) > 1:
            listed = ", ".join(f"{resource.name}:{_name(path) or '.'}" for resource, path in found)
            raise AmbiguousError(f"'{name_text(text)}' is in several resources.", hint=f"Say which one: {listed}.")
        if not found:
            raise _unknown(plan, service, group, present, text)
        resource, path = found[0]
        _refuse_what_is_not_held(plan, resource, path, group)
        chosen.setdefault(resource.name, set()).add(path)
    return {
        name: tuple(sorted(path for path in paths if not any(each in paths for each in ancestors(path))))
        for name, paths in chosen.items()
    }


def _readings(plan: Plan, text: str) -> Iterator[tuple[Resource, bytes]]:
    return ((plan.resource(name), path) for name, path in readings([each.name for each in plan.resources], text))


def _is_there(reader: StateReader, resource: Resource, path: bytes, then: States, present: States) -> bool:
    states = {then[resource.name], present[resource.name]}
    return any(reader.find(reader.state(state), path) is not None for state in states)


def _unknown(
    plan: Plan, service: CheckpointService, group: CheckpointGroup, present: States, text: str
) -> NotFoundError:
    for resource, path in _readings(plan, text):
        _refuse_what_is_not_held(plan, resource, path, group)
    listed = [
        f"{resource.name}: {', '.join(_names_beside(service.manager.reader, resource, path, group, present))}"
        for resource, path in _readings(plan, text)
    ]
    return NotFoundError(
        f"There is no '{name_text(text)}', neither in the checkpoint nor in the sandbox.",
        hint=f"There is {'; '.join(listed)}.",
    )


def _names_beside(
    reader: StateReader, resource: Resource, path: bytes, group: CheckpointGroup, present: States
) -> list[str]:
    """The content of the nearest existing folder above a path that does not exist."""
    roots = [reader.state(states[resource.name]) for states in (group.states, present)]
    folder, entries = next(
        (folder, entries)
        for folder in ancestors(path)
        if (entries := [entry for root in roots if (entry := reader.find(root, folder)) and entry.kind == DIRECTORY])
    )
    names = sorted({_name(name) for entry in entries for name in reader.directory(entry)})
    where = f"{_name(folder)}/" if folder else ""
    shown = [where + name for name in names[:_MOST_NAMES]]
    return [*shown, f"and {len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else shown


def _refuse_what_is_not_held(plan: Plan, resource: Resource, path: bytes, group: CheckpointGroup) -> None:
    if path and sandbox_for(plan, resource).hides(path):
        raise UsageError(
            f"{_name(path)} of {resource.name} belongs to the sandbox's repository, which is restored whole.",
            hint=f"Restore all of it with `--only {resource.name}:.`, or roll back without `--only`.",
        )
    for each in group.unheld.get(resource.name, ()):
        if each.path == unheld_name(path):
            raise StateError(
                f"The checkpoint does not hold {resource.name}:{_name(path)}: {each.reason}.",
                hint="It stays as it is. What a checkpoint does not hold cannot be restored from it.",
            )


# What the sandboxes become


def grafted_states(
    service: CheckpointService, batch: Batch, group: CheckpointGroup, present: States, selected: Selected
) -> States:
    """The present states with the chosen paths as they were in the group."""
    reader = service.manager.reader
    wanted = dict(present)
    for name, paths in selected.items():
        unheld = {each.path for each in group.unheld.get(name, ())}
        graft = _Graft(reader, reader.state(present[name]), reader.state(group.states[name]), unheld)
        for path in paths:
            graft.take(name, path)
        # The root itself is restored only with its whole resource.
        is_whole = paths == (b"",) and not graft.spared
        wanted[name] = group.states[name] if is_whole else graft.state(batch, present[name])
    return wanted


class _Graft:
    """Collects what has to change in one state so that some paths of it are those of another."""

    def __init__(self, reader: StateReader, mine: State, theirs: State, unheld: set[str]) -> None:
        self._reader, self._mine, self._theirs, self._unheld = reader, mine, theirs, unheld
        self._changes: dict[bytes, Entry | None] = {}
        self._paths: list[bytes] = []
        self.spared: list[bytes] = []
        """What the other state's snapshot could not hold: a missing entry does not mean that it must be removed."""

    def take(self, resource: str, path: bytes) -> None:
        self._paths.append(path)
        mine, theirs = self._reader.find(self._mine, path), self._reader.find(self._theirs, path)
        if theirs is not None:
            self._make_way(resource, path)
        for below, old, new in self._reader.differences(_as_state(mine), _as_state(theirs)):
            place = path + b"/" + below if path and below else path or below
            if old == new or not place:
                continue
            if new is None and (
                unheld_name(place) in self._unheld or any(each in self.spared for each in ancestors(place))
            ):
                self.spared.append(place)
                continue
            self._changes[place] = new

    def _make_way(self, resource: str, path: bytes) -> None:
        """Missing folders above are restored as well, with nothing else in them."""
        for folder in ancestors(path):
            now_there = self._reader.find(self._mine, folder)
            if now_there is None:
                self._changes[folder] = self._reader.find(self._theirs, folder)
            elif now_there.kind != DIRECTORY:
                raise StateError(
                    f"{resource}:{_name(folder)} is no longer a folder, so {_name(path)} cannot be restored into it.",
                    hint=f"Restore the folder: `--only {resource}:{_name(folder)}`.",
                )

    def state(self, batch: Batch, present: str) -> str:
        links = self._links()
        if not self._changes:
            return present
        return grafted(self._reader, batch, self._mine, self._changes, tuple(links))

    def _links(self) -> list[tuple[bytes, ...]]:
        """The chosen paths that have to be one file again; those that must no longer be one file become changes too."""
        for group in self._mine.links:
            inside = self._inside(group)
            others = {self._inside(each) for each in self._theirs.links} if inside == group else {*self._theirs.links}
            if self._changes.keys() & set(inside) or group not in others:
                self._write_anew(inside)
        found = []
        for group in self._theirs.links:
            inside = self._inside(group)
            is_so = any(set(inside) <= set(each) for each in self._mine.links)
            if len(inside) > 1 and (not is_so or self._changes.keys() & set(inside)):
                self._write_anew(inside)
                found.append(inside)
        return found

    def _inside(self, group: tuple[bytes, ...]) -> tuple[bytes, ...]:
        chosen = set(self._paths)
        return tuple(
            path
            for path in group
            if path not in self.spared and (path in chosen or any(each in chosen for each in ancestors(path)))
        )

    def _write_anew(self, paths: tuple[bytes, ...]) -> None:
        for path in paths:
            self._changes.setdefault(path, self._reader.find(self._theirs, path))


def _as_state(entry: Entry | None) -> State | None:
    return None if entry is None else State(FORMAT_VERSION, entry, ())
