"""CheckpointService: snapshots and their records kept together, in groups over all resources of a plan."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from holdfast.db.store import Store
from holdfast.descent import shown
from holdfast.errors import ContentError, DatabaseFullError, HoldfastError, QuotaError, SandboxError, StateError
from holdfast.ids import new_id
from holdfast.machine import boot_id
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    CheckpointMetadata,
    CheckpointRetentionPolicy,
    Correction,
    Decision,
    DecisionSpec,
    DecisionType,
    FileChange,
    Lease,
    Moment,
    Operation,
    OperationKind,
    OperationState,
    Phase,
    Plan,
    PlanState,
    Ranges,
    Record,
    Resource,
    ResourceType,
    Revision,
    RollbackImpact,
    RollbackResult,
    RunStatus,
    Step,
    StepRun,
    Trigger,
    extended,
    is_within,
    less,
    now,
    numbers_of,
)
from holdfast.names import name_text
from holdfast.place import is_missing, is_there
from holdfast.policy import GroupFacts, resolve_checkpoint, retention
from holdfast.sandbox import sandbox_for
from holdfast.sandbox.making import made_whole
from holdfast.snapshot.difference import Difference, visible
from holdfast.snapshot.going_back import Disturbed
from holdfast.snapshot.looking import was_only_looked_at
from holdfast.snapshot.manager import CheckpointManager
from holdfast.snapshot.restore import Restored
from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint
from holdfast.snapshot.verify import Verifier

_AFTER_STEPS = frozenset((Trigger.ON_TOOL_WRITE_COMPLETE, Trigger.AFTER_SUBPLAN))
CUT_SHORT = frozenset((RunStatus.INTERRUPTED, RunStatus.CONSTRAINED))
"""How a run is that can go on, or be undone: its half-done work may be in the sandboxes."""
_PARENT_WENT_BACK = "its parent was rolled back"
_HEADS = (b".git/HEAD", b".git/packed-refs")
_FEWEST = 2
"""The first and the last checkpoint are always kept."""


@dataclass(frozen=True)
class Occasion:
    """Why a group is made, and where in the plan."""

    triggers: tuple[str, ...]
    reason: str = ""
    source: str = ""
    step_index: int | None = None
    decision_id: str | None = None
    label: str | None = None
    resource: str | None = None
    """Gets the record when nothing changed."""


@dataclass(frozen=True)
class DamagedObject:
    """An object that checkpoints need and cannot have."""

    digest: str
    is_there: bool
    """It is in the store, but it is not what its name says; otherwise it is missing."""
    checkpoints: tuple[Checkpoint, ...]


@dataclass(frozen=True)
class VerifyResult:
    checkpoints: int
    objects: int
    damaged: tuple[DamagedObject, ...]
    structure: tuple[str, ...] = ()
    """What is wrong with the file of the content store itself, in SQLite's words."""

    @property
    def is_sound(self) -> bool:
        return not self.damaged and not self.structure


@dataclass(frozen=True)
class Consequences:
    """What going back to a group does to the records; computed before anything is done."""

    superseded: tuple[Decision, ...]
    revived: tuple[Decision, ...]
    runs: tuple[StepRun, ...]
    """Those of the decisions that change their mark."""
    subplans: tuple[Plan, ...]
    """Those spawned by such decisions."""
    applied: tuple[Plan, ...]
    """Those spawned by superseded decisions, or below such, whose result is in the real files already."""


Compensate = Callable[[Plan, Lease, CheckpointGroup], object]
"""Undoes what the steps that going back to the group undoes did outside of the sandboxes."""


class CheckpointService:
    def __init__(self, store: Store, manager: CheckpointManager, *, max_bytes: int | None = None) -> None:
        self.store = store
        self.manager = manager
        self._max_bytes = max_bytes
        self._recorded: set[str] = set()
        """Plans of which it is known that the last snapshots are recorded."""
        self.unfreed: str | None = None
        """Why the last collection freed nothing, if it could not; a sentence or two for a person."""

    def sibling(self) -> CheckpointService:
        """A second service on the same records and content, for another thread."""
        return CheckpointService(self.store, self.manager.sibling(), max_bytes=self._max_bytes)

    def close(self) -> None:
        """Keep what is known of the sandboxes for the next process, and close the content."""
        self.manager.remember()
        self.manager.objects.close()

    # Creating

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

        Content is durable before the records that name it are written, and all records are written at once.
        ``needed``: groups that must not be pruned for it.
        """
        try:
            return self._create(plan, lease, occasion, records, only_if_changed, needed)
        except QuotaError as error:
            has_room = self._make_room(plan, lease, needed)
            if self.unfreed is not None:
                raise QuotaError(error.message, hint=self.unfreed) from error
            if not has_room:
                raise
        return self._create(plan, lease, occasion, records, only_if_changed, needed)

    def _create(
        self,
        plan: Plan,
        lease: Lease,
        occasion: Occasion,
        records: Sequence[Record],
        only_if_changed: bool,
        needed: Collection[str],
    ) -> Plan:
        head = self.store.get(CheckpointGroup, plan.head_group_id) if plan.head_group_id else None
        known = head.states if head else {}
        self._disown_unrecorded(plan)
        with self.manager.taking(self._max_bytes) as batch:
            taken = {
                resource.name: self.manager.create_checkpoint(
                    batch,
                    sandbox_id=sandbox_ref(plan, resource),
                    plan_id=plan.plan_id,
                    phase=plan.phase,
                    path=Path(resource.sandbox_path),
                    metadata={"reason": occasion.reason, "triggers": list(occasion.triggers)},
                    previous_state=known.get(resource.name),
                    thorough=Moment.POST_EXECUTE in occasion.triggers,
                )
                for resource in plan.resources
            }
            batch.commit()
            changed = [name for name, snapshot in taken.items() if known.get(name) != snapshot.state_hash]
            if only_if_changed and head is not None and not changed and self._is_at(head, plan):
                return plan
            with self.store.transaction(lease):
                plan = self._record(plan, occasion, taken, changed or [occasion.resource or plan.resources[0].name])
                for record in records:
                    self.store.save(record)
                pruned = self._prune(plan, plan.policy.retention, needed)
            self._recorded.add(plan.plan_id)
        self._free(pruned)
        return plan

    def _disown_unrecorded(self, plan: Plan) -> None:
        """What was stored for a checkpoint that was never recorded, because a process died, counts with the next."""
        if plan.plan_id in self._recorded:
            self._recorded.remove(plan.plan_id)
            return
        for resource in plan.resources:
            path = Path(resource.sandbox_path)
            self.manager.disown_unrecorded(sandbox_ref(plan, resource), path, self._is_checkpoint)

    def _is_checkpoint(self, checkpoint_id: str) -> bool:
        return self.store.find(Checkpoint, checkpoint_id) is not None

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

    def _record(self, plan: Plan, occasion: Occasion, taken: dict[str, SandboxCheckpoint], rows: list[str]) -> Plan:
        group = CheckpointGroup(
            group_id=new_id(),
            plan_id=plan.plan_id,
            sequence=self.store.next_sequence(CheckpointGroup, plan.plan_id),
            parent_group_id=plan.head_group_id,
            triggers=occasion.triggers,
            reason=occasion.reason,
            source=occasion.source,
            phase=plan.phase,
            step_index=occasion.step_index,
            step=_step_name(plan, occasion.step_index),
            decision_id=occasion.decision_id,
            label=occasion.label,
            attempt=plan.attempt,
            revision=plan.revision,
            last_completed_step=plan.last_completed_step,
            active_decisions=self._held_decisions(plan),
            states={name: snapshot.state_hash for name, snapshot in taken.items()},
            unheld={name: snapshot.unheld for name, snapshot in taken.items() if snapshot.unheld},
            created_at=now(),
        )
        return self._insert(plan, group, [(name, taken[name].checkpoint_id, taken[name].size_bytes) for name in rows])

    def _insert(self, plan: Plan, group: CheckpointGroup, rows: Iterable[tuple[str, str, int]]) -> Plan:
        self.store.insert(group)
        last = plan.last_checkpoint_id
        for name, checkpoint_id, size_bytes in rows:
            resource = plan.resource(name)
            self.store.insert(
                Checkpoint(
                    checkpoint_id=checkpoint_id,
                    plan_id=plan.plan_id,
                    group_id=group.group_id,
                    sequence=group.sequence,
                    sandbox_ref=sandbox_ref(plan, resource),
                    resource_id=name,
                    checkpoint_type=group.triggers[0],
                    decision_id=group.decision_id,
                    filesystem_path=resource.sandbox_path,
                    size_bytes=size_bytes,
                    metadata=CheckpointMetadata(
                        reason=group.reason,
                        source=group.source,
                        phase=group.phase,
                        step_index=group.step_index,
                        step=group.step,
                        state_hash=group.states[name],
                        label=group.label,
                        triggers=group.triggers,
                    ),
                    created_at=group.created_at,
                )
            )
            last = checkpoint_id
        plan = plan.changed(last_checkpoint_id=last, head_group_id=group.group_id)
        self.store.save(plan)
        return plan

    def watching(self, plan: Plan) -> AbstractContextManager[None]:
        """While this lasts, checkpoints of the plan cost what changed and not what there is."""
        return self.manager.watching(Path(resource.sandbox_path) for resource in plan.resources)

    def heard(self, plan: Plan) -> tuple[int | str, ...]:
        """Something that is another whenever the sandboxes have changed, as cheap as can be had."""
        paths = [Path(resource.sandbox_path) for resource in plan.resources]
        heard = [self.manager.heard(path) for path in paths]
        return tuple(
            self.manager.state_of(path, thorough=False) if number is None else number
            for path, number in zip(paths, heard, strict=True)
        )

    # Looking

    def list_checkpoints(self, plan_id: str) -> list[Checkpoint]:
        return self.store.checkpoints_of(plan_id)

    def get_checkpoint(self, plan_id: str, reference: str) -> Checkpoint:
        """By full id, display id, unique prefix or label."""
        return resolve_checkpoint(reference, self.list_checkpoints(plan_id))

    def superseded_groups(self, plan: Plan) -> set[str]:
        """Groups that are not on the way that led to where the plan is now."""
        groups = {group.group_id: group for group in self.store.groups_of(plan.plan_id)}
        at, way = plan.head_group_id, set()
        while at is not None and at in groups:
            way.add(at)
            at = groups[at].parent_group_id
        return groups.keys() - way

    def changes_between(self, plan: Plan, old: dict[str, str], new: dict[str, str]) -> dict[str, list[Difference]]:
        """What a person would call changed, by resource."""
        found = self.differences_between(plan, old, new)
        return {name: visible(differences) for name, differences in found.items()}

    def differences_between(self, plan: Plan, old: dict[str, str], new: dict[str, str]) -> dict[str, list[Difference]]:
        """Every path of the user's files that differs, by resource; the sandboxes' own affairs are left out."""
        reader = self.manager.reader
        found = {}
        for resource in plan.resources:
            before, after = old[resource.name], new[resource.name]
            if before != after:
                hides = sandbox_for(plan, resource).hides
                differences = reader.differences(reader.state(before), reader.state(after))
                # The folder of a work tree itself is no part of a repository.
                has_root = resource.type is ResourceType.DIRECTORY
                found[resource.name] = [
                    each for each in differences if (each.path or has_root) and not hides(each.path)
                ]
        return found

    def file_changes(self, plan: Plan, old: dict[str, str], new: dict[str, str]) -> tuple[FileChange, ...]:
        """What going from one state to the other does to files, as a rollback tells it."""
        changes = self.changes_between(plan, old, new)
        return tuple(_file_change(name, difference) for name, listed in changes.items() for difference in listed)

    def repositories_changed(self, plan: Plan, old: dict[str, str], new: dict[str, str]) -> tuple[str, ...]:
        """Resources with another HEAD, other branches or tags, which are no files of the user."""
        reader = self.manager.reader
        return tuple(
            resource.name
            for resource in plan.resources
            if resource.type is ResourceType.GIT and old[resource.name] != new[resource.name]
            for differences in [reader.differences(reader.state(old[resource.name]), reader.state(new[resource.name]))]
            if any(_names_a_commit(difference) for difference in differences)
        )

    def states_now(self, plan: Plan, *, thorough: bool = True) -> dict[str, str]:
        """What is in the sandboxes now; ``thorough``: every file is looked at, whatever the kernel told."""
        return {
            resource.name: self.manager.state_of(Path(resource.sandbox_path), thorough=thorough)
            for resource in plan.resources
        }

    def changed_since(self, plan: Plan, recorded: dict[str, str]) -> tuple[str, ...]:
        """The resources whose sandboxes are no longer what was recorded; looking into one does not change it."""
        with self.manager.taking():
            found, reader = self.states_now(plan), self.manager.reader
            changed = [resource for resource in plan.resources if found[resource.name] != recorded[resource.name]]
            return tuple(
                each.name
                for each in changed
                if not was_only_looked_at(reader, sandbox_for(plan, each), recorded[each.name], found[each.name])
            )

    # Going back

    def consequences(self, plan: Plan, group: CheckpointGroup) -> Consequences:
        decisions = self.store.decisions_of(plan.plan_id)
        kept = group.active_decisions
        superseded = tuple(d for d in decisions if not d.is_superseded and not is_within(d.sequence, kept))
        revived = tuple(d for d in decisions if d.is_superseded and is_within(d.sequence, kept))
        marked = {decision.decision_id for decision in (*superseded, *revived)}
        undone = {decision.decision_id for decision in superseded}
        subplans = self.store.subplans_of(plan.plan_id)
        return Consequences(
            superseded=superseded,
            revived=revived,
            runs=tuple(run for run in self.store.runs_of(plan.plan_id) if run.decision_id in marked),
            subplans=tuple(
                subplan
                for subplan in subplans
                if subplan.spawn_decision_id in marked and subplan.state is not PlanState.APPLIED
            ),
            applied=tuple(self._applied([each for each in subplans if each.spawn_decision_id in undone])),
        )

    def _applied(self, subplans: list[Plan]) -> Iterator[Plan]:
        """Of these and all below them."""
        while subplans:
            subplan = subplans.pop(0)
            if subplan.state is PlanState.APPLIED:
                yield subplan
            subplans += self.store.subplans_of(subplan.plan_id)

    def step_of(self, plan: Plan, run: StepRun) -> Step | None:
        """The step that this is a run of; none if it is that of a validation, made at the end of fewer steps."""
        decision = self.store.find(Decision, run.decision_id) if run.decision_id is not None else None
        return None if decision is None or decision.step_index is None else plan.steps[decision.step_index]

    def run_of_next_step(self, plan: Plan) -> StepRun | None:
        """The last try at it that was not undone."""
        run = self.store.latest_run_in_force(plan.plan_id)
        is_of_it = run is not None and run.step_index == plan.next_step and self.step_of(plan, run) is not None
        return run if is_of_it else None

    def _held_decisions(self, plan: Plan) -> Ranges:
        """What a group of now holds: with a step that was cut short also its decisions, so that it can come back."""
        run, held = self.run_of_next_step(plan), plan.active_decisions
        if run is None or run.status not in CUT_SHORT:
            return held
        for decision in self.store.decisions_of(plan.plan_id):
            if not decision.is_superseded and _is_of(decision, run):
                held = extended(held, decision.sequence, decision.sequence)
        return held

    def _run_held_by(self, group: CheckpointGroup) -> StepRun | None:
        """The run of a step whose half-done work the group holds."""
        held = {each.decision_id for each in self.store.decisions_of(group.plan_id) if _is_half_done(each, group)}
        return next((each for each in self.store.runs_of(group.plan_id) if each.decision_id in held), None)

    def start_of_attempt(self, plan: Plan) -> CheckpointGroup:
        """Not the first of all: that would give up a correction made since."""
        groups = self.store.groups_of(plan.plan_id)
        own = [each for each in groups if (each.attempt, each.revision) == (plan.attempt, plan.revision)]
        return own[0] if own else groups[0]

    def rollback_to_checkpoint(
        self,
        plan: Plan,
        lease: Lease,
        checkpoint: Checkpoint,
        *,
        reason: str,
        correction: Correction | None = None,
        recovery: DecisionSpec | None = None,
        compensate: Compensate = lambda *_: None,
    ) -> RollbackResult:
        """Take the files of all resources, the plan's position and its decisions back to that moment, all or nothing.

        A correction is made in the same step: there is no moment at which the plan is back but not corrected. So is
        the decision to go back (``recovery``), when nobody asked for it but a failure. ``compensate`` undoes what steps
        did outside, where they say how: once it is sure that they will be undone, while their files are still there.
        """
        target = self.store.get(CheckpointGroup, checkpoint.group_id).without(correction.undone if correction else ())
        self.check_rollback(plan, target)
        plan = self.keep_present(plan, lease, target, reason)
        self.keep_sound(plan, self.store.get(CheckpointGroup, plan.head_group_id or "").states, target.states)
        operation = Operation(
            operation_id=new_id(),
            plan_id=plan.plan_id,
            kind=OperationKind.ROLLBACK,
            data={
                "target_group_id": target.group_id,
                "left_group_id": plan.head_group_id,
                "reason": reason,
                "states": target.states,
                "correction": correction.model_dump(mode="json") if correction else None,
                "recovery": recovery.model_dump(mode="json") if recovery else None,
            },
            created_at=now(),
        )
        noted_before = self._compensated(plan)
        with self.store.transaction(lease):
            self.store.insert(operation)
        try:
            compensate(plan, lease, target)
            return self._roll_back(plan, lease, operation, checkpoint)
        except HoldfastError as error:
            noted = [run for run_id, run in self._compensated(plan).items() if run_id not in noted_before]
            if noted:
                # Put back, its steps would count as done although what they did outside is not there any more.
                raise _stays_begun(error, noted) from error
            self.put_back(plan, lease, operation, error)
            raise

    def _compensated(self, plan: Plan) -> dict[str, StepRun]:
        """The runs whose effects outside were undone, or may have been."""
        return {run.run_id: run for run in self.store.runs_of(plan.plan_id) if run.compensation is not None}

    def is_recorded(self, plan: Plan, head: CheckpointGroup) -> bool:
        """Whether the group holds all that the plan's steps did; not where none is taken when a step has ended."""
        last = self.store.latest_run_in_force(plan.plan_id)
        if last is not None and last.status is RunStatus.FAILED:
            is_kept = last.step_index == plan.next_step and last.group_before_id in (None, head.group_id)
            if is_kept and not plan.is_finished:
                return False
        return self.records_every_step(plan) or head.last_completed_step == plan.last_completed_step

    def records_every_step(self, plan: Plan) -> bool:
        """Whether there is a group of what each step left, as soon as it has ended."""
        return _AFTER_STEPS.issubset(plan.policy.auto_create_on)

    def is_as_at(self, plan: Plan, head: CheckpointGroup) -> bool:
        """Whether plan and sandboxes are what that group holds."""
        return _same_position(head, plan) and self.states_now(plan, thorough=False) == head.states

    def kept_by(self, plan: Plan, states: dict[str, str]) -> int:
        """How many checkpoints ``keep_present`` will take, if the sandboxes are in these states."""
        head = self.store.get(CheckpointGroup, plan.head_group_id or "")
        changed = sum(head.states.get(name) != state for name, state in states.items())
        return changed or int(not self._is_at(head, plan))

    def _is_at(self, head: CheckpointGroup, plan: Plan) -> bool:
        if not _same_position(head, plan):
            return False
        return all(is_within(each, head.active_decisions) for each in numbers_of(self._held_decisions(plan)))

    def keep_present(self, plan: Plan, lease: Lease, target: CheckpointGroup, reason: str) -> Plan:
        """Make sure a group holds the state that is about to be left for ``target``."""
        before = Occasion((Moment.BEFORE_ROLLBACK,), reason=f"the state before: {reason}", step_index=_position(plan))
        return self.create_checkpoint(plan, lease, before, only_if_changed=True, needed=(target.group_id,))

    def finish_rollback(self, plan: Plan, lease: Lease, operation: Operation, compensate: Compensate) -> RollbackResult:
        """Complete a rollback that was cut short; everything it did already is done again or found done."""
        self.compensate_rollback(plan, lease, operation, compensate)
        rows = self.store.checkpoints_of_group(operation.data["target_group_id"])
        return self._roll_back(plan, lease, operation, rows[0])

    def compensate_rollback(self, plan: Plan, lease: Lease, operation: Operation, compensate: Compensate) -> None:
        """The part of a rollback that was cut short which is about what lies outside of the sandboxes."""
        self.make_empty_sandboxes(plan)
        compensate(plan, lease, self.target_of(operation))

    def target_of(self, operation: Operation) -> CheckpointGroup:
        """What a rollback goes back to: the group, without the decisions that its correction undoes."""
        correction = operation.data["correction"]
        undone = Correction.model_validate(correction).undone if correction else ()
        return self.store.get(CheckpointGroup, operation.data["target_group_id"]).without(undone)

    def make_empty_sandboxes(self, plan: Plan) -> None:
        """Where a sandbox is gone, an empty one that the restore to come will fill."""
        for resource in plan.resources:
            path = Path(resource.sandbox_path)
            if is_missing(path):
                self.manager.forget(path)
                path.mkdir(parents=True, mode=0o700)

    def check_rollback(self, plan: Plan, target: CheckpointGroup) -> None:
        """Everything that could refuse, found before anything is changed."""
        self.check_sandboxes(plan)
        run = self._run_held_by(target)
        if run is not None and run.status not in CUT_SHORT:
            raise StateError(
                f"At that checkpoint step {run.step_index + 1} ({run.step}) was under way. It has come to its end "
                "since, and cannot be under way again.",
                hint=f"Go back to before that step (`holdfast checkpoint list {plan.plan_id}`), or restore single "
                "files from that checkpoint with `--only`.",
            )
        for resource in plan.resources:
            self.manager.check(Path(resource.sandbox_path), target.states[resource.name])

    def present_to_leave(self, plan: Plan, target: CheckpointGroup) -> dict[str, str]:
        """What is in the sandboxes now; refuses if that could not come back once they are as at ``target``."""
        self.check_sandboxes(plan)
        with self.manager.taking():  # or what nothing names yet could be collected before it is looked at
            present = self.states_now(plan)
            self.keep_sound(plan, present, target.states)
        return present

    def keep_sound(self, plan: Plan, left: dict[str, str], target: dict[str, str]) -> None:
        """Refuse if the sandboxes, which are in the states ``left``, could not come back from ``target``.

        What of that is damaged in the store is stored anew from the sandboxes.
        """
        for resource in plan.resources:
            self.manager.keep_sound(Path(resource.sandbox_path), left[resource.name], target[resource.name])

    def check_sandboxes(self, plan: Plan) -> None:
        """Refuse to restore anything into sandboxes that are gone, or whose result is in the real files already."""
        if plan.state is PlanState.APPLIED:
            raise StateError(
                f"Plan {plan.plan_id} is applied: its result is in the real files and a rollback would not reach them.",
                hint=f"Take it out of them first: `holdfast plan unapply {plan.plan_id}`.",
            )
        for resource in plan.resources:
            if is_missing(Path(resource.sandbox_path)):
                raise SandboxError(
                    f"The sandbox of resource {resource.name!r} is missing: {resource.sandbox_path}.",
                    hint=f"Its checkpoints are safe. {self._how_it_is_made_anew(plan)}",
                )

    def _how_it_is_made_anew(self, plan: Plan) -> str:
        head = self.store.get(CheckpointGroup, plan.head_group_id or "")
        if self.is_recorded(plan, head):
            return "`plan rollback` and `plan correct` make it anew from the last one, but not in a dry run."
        return (
            "The last one does not hold all that steps did: "
            f"`holdfast plan resume --dry-run {plan.plan_id}` tells what `plan resume` runs again."
        )

    def _roll_back(self, plan: Plan, lease: Lease, operation: Operation, checkpoint: Checkpoint) -> RollbackResult:
        target = self.target_of(operation)
        left = self.store.get(CheckpointGroup, operation.data["left_group_id"])
        set_aside = self._turn_each(plan, lambda resource: self._restore(resource, target))
        consequences = self.consequences(plan, target)
        changes = self.file_changes(plan, left.states, target.states)
        with self.store.transaction(lease):
            plan = self._take_back(plan, target, left, consequences, operation)
            if operation.data["correction"]:
                plan = self.corrected(plan, Correction.model_validate(operation.data["correction"]))
            self.store.save(operation.model_copy(update={"state": OperationState.DONE, "finished_at": now()}))
        return RollbackResult(
            plan=plan,
            checkpoint=checkpoint,
            left_group_id=left.group_id,
            changes=changes,
            repositories=self.repositories_changed(plan, left.states, target.states),
            set_aside=set_aside,
            impact=impact_of(plan, consequences),
            checkpoints_remaining=self.store.checkpoint_count(plan.plan_id),
        )

    def _take_back(
        self,
        plan: Plan,
        target: CheckpointGroup,
        left: CheckpointGroup,
        consequences: Consequences,
        operation: Operation,
    ) -> Plan:
        for decision in consequences.superseded:
            self.store.save(decision.model_copy(update={"is_superseded": True}))
        for decision in consequences.revived:
            self.store.save(decision.model_copy(update={"is_superseded": False}))
        for run in consequences.runs:
            self.store.save(run.model_copy(update={"is_superseded": not run.is_superseded}))
        for subplan in consequences.subplans:
            self.store.save(self._revived(subplan) if subplan.is_superseded else _invalidated(subplan))
        plan = self.taken_back(plan, target)
        decision_id, held = target.decision_id, target.active_decisions
        if operation.data.get("recovery"):
            spec = DecisionSpec.model_validate(operation.data["recovery"])
            decision = self.decision(plan, spec, _position(plan), parent=None)
            self.store.insert(decision)
            plan, decision_id = plan.decided(decision.sequence, decision.sequence), decision.decision_id
            held = extended(held, decision.sequence, decision.sequence)
        group = target.model_copy(
            update={
                "group_id": new_id(),
                "decision_id": decision_id,
                "active_decisions": held,
                "sequence": self.store.next_sequence(CheckpointGroup, plan.plan_id),
                "parent_group_id": target.group_id,
                "restored_group_id": target.group_id,
                "triggers": (Moment.ROLLBACK.value,),
                "reason": operation.data["reason"],
                "source": "rollback",
                "label": None,
                "created_at": now(),
            }
        )
        moved = [name for name, state in target.states.items() if left.states.get(name) != state]
        return self._insert(plan, group, [(name, new_id(), 0) for name in moved or [plan.resources[0].name]])

    def taken_back(self, plan: Plan, target: CheckpointGroup) -> Plan:
        """The plan as it is at that group; a step that was cut short there is so again."""
        run = self._run_held_by(target)
        held = () if run is None else (d for d in self.store.decisions_of(plan.plan_id) if _is_of(d, run))
        is_constrained = run is not None and run.status is RunStatus.CONSTRAINED
        return plan.changed(
            phase=Phase.EXECUTE,
            state=PlanState.CONSTRAINED if is_constrained else PlanState.QUEUED,
            error=run and (run.error if is_constrained else f"step {run.step_index + 1} ({run.step}) was interrupted"),
            attempt=target.attempt,
            revision=target.revision,
            steps=self.store.get(Revision, plan.plan_id, target.revision).steps,
            last_completed_step=target.last_completed_step,
            active_decisions=less(target.active_decisions, [each.sequence for each in held]),
            guidance=self._guidance_at(plan, target),
            head_group_id=target.group_id,
            boot_id=boot_id(),  # going there looks at every file, so nothing a crash lost is still missing
        )

    def _revived(self, subplan: Plan) -> Plan:
        """As it was when its parent went back; a result that came into the parent's sandboxes is there again."""
        revived = subplan.changed(is_superseded=None)
        if subplan.error != _PARENT_WENT_BACK:
            return revived
        head = self.store.find(CheckpointGroup, subplan.head_group_id or "")
        run = self.store.latest_run_in_force(subplan.plan_id)
        if head is not None and Moment.POST_EXECUTE in head.triggers:
            return revived.changed(state=PlanState.COMPLETE, error=None)
        if run is not None and run.status is RunStatus.CONSTRAINED:
            return revived.changed(state=PlanState.CONSTRAINED, error=run.error)
        return revived.changed(state=PlanState.QUEUED, error=None)

    def _guidance_at(self, plan: Plan, target: CheckpointGroup) -> str:
        """That of the last correction in force there; a subplan has its parent's, and is not corrected itself."""
        corrections = [each for each in self.store.decisions_of(plan.plan_id) if each.is_correction]
        in_force = [each.chosen for each in corrections if is_within(each.sequence, target.active_decisions)]
        return in_force[-1] if in_force else "" if corrections else plan.guidance

    def decision(self, plan: Plan, spec: DecisionSpec, step_index: int | None, parent: str | None) -> Decision:
        """What was decided, as the plan's next decision; below the plan's root if no parent is named."""
        root = self.store.root_decision(plan.plan_id)
        return Decision(
            decision_id=new_id(),
            plan_id=plan.plan_id,
            parent_decision_id=parent or (root.decision_id if root else None),
            sequence=self.store.next_sequence(Decision, plan.plan_id),
            step_index=step_index,
            attempt=plan.attempt,
            created_at=now(),
            **spec.model_dump(),
        )

    def corrected(self, plan: Plan, correction: Correction) -> Plan:
        """Record the intervention and put its steps in force, from the plan's head on, which is to be new.

        To be called in the transaction that goes back, if it does.
        """
        sequence = self.store.next_sequence(Decision, plan.plan_id)
        attempt = self.store.latest_attempt(plan.plan_id) + 1
        self.store.insert(
            Decision(
                decision_id=new_id(),
                plan_id=plan.plan_id,
                parent_decision_id=correction.parent_decision_id,
                sequence=sequence,
                type=DecisionType.USER_INTERVENTION,
                question=correction.question,
                chosen=correction.guidance,
                alternatives=correction.alternatives,
                is_correction=True,
                step_index=None if plan.is_finished else plan.next_step,
                attempt=attempt,
                created_at=now(),
            )
        )
        revision = self.store.latest_revision(plan.plan_id) + 1 if correction.steps is not None else plan.revision
        if correction.steps is not None:
            self.store.insert(Revision(plan_id=plan.plan_id, revision=revision, steps=correction.steps))
        plan = plan.decided(sequence, sequence).changed(
            attempt=attempt,
            revision=revision,
            steps=plan.steps if correction.steps is None else correction.steps,
            guidance=correction.guidance,
            phase=Phase.EXECUTE,
            state=PlanState.QUEUED,
            error=None,
        )
        self.store.save(plan)
        if plan.head_group_id is not None:
            # Who goes back to where the correction begins does not give it up.
            head = self.store.get(CheckpointGroup, plan.head_group_id)
            position = {name: getattr(plan, name) for name in ("attempt", "revision", "active_decisions")}
            self.store.save(head.model_copy(update=position))
        return plan

    def put_back(self, plan: Plan, lease: Lease, operation: Operation, failure: HoldfastError) -> None:
        """Put back the state that a rollback was leaving when it failed; if that fails as well, it stays begun."""
        left = self.store.get(CheckpointGroup, operation.data["left_group_id"])
        try:
            for resource in plan.resources:
                # What a program that is at work there has done since is not the rollback's, and stays.
                with suppress(Disturbed):
                    if is_there(Path(resource.sandbox_path)):
                        self._restore(resource, left)
        except HoldfastError as error:
            raise _is_not_put_back(failure, error) from error
        with self.store.transaction(lease):
            self.store.save(operation.model_copy(update={"state": OperationState.UNDONE, "finished_at": now()}))

    def restore_sandbox(self, plan: Plan, resource: Resource) -> None:
        """Make a sandbox that is gone anew, as the last group recorded it, whole or not at all.

        One that is there counts as what was recorded, so a part of one must never stand in its place.
        """
        group = self.store.get(CheckpointGroup, plan.head_group_id or "")
        path = Path(resource.sandbox_path)
        self.manager.forget(path)
        with made_whole(path) as unfinished:
            unfinished.mkdir(mode=0o700)
            state = group.states[resource.name]
            self.manager.rollback_to(unfinished, state, aside=self._aside(resource), name=path.name)
            self.manager.forget(unfinished)

    def bring_to(self, plan: Plan, states: dict[str, str]) -> tuple[str, ...]:
        """Turn the sandboxes into these states, and say where to what stood in the way was set aside.

        Whoever calls has made sure that what is there now is kept or not needed.
        """
        return self._turn_each(plan, lambda resource: self._turn_into(resource, states[resource.name]))

    def _turn_each(self, plan: Plan, turn: Callable[[Resource], Restored]) -> tuple[str, ...]:
        """Where to what stood in the way was set aside; that is told also if it fails at a later resource."""
        set_aside: list[str] = []
        for resource in plan.resources:
            try:
                restored = turn(resource)
            except HoldfastError as error:
                if not set_aside:
                    raise
                raise _with_set_aside(error, set_aside) from error
            set_aside += [str(place) for _, place in restored.set_aside]
        return tuple(set_aside)

    def _restore(self, resource: Resource, group: CheckpointGroup) -> Restored:
        unheld = {each.path for each in group.unheld.get(resource.name, ())}
        return self._turn_into(resource, group.states[resource.name], unheld)

    def _turn_into(self, resource: Resource, state: str, unheld: Collection[str] = ()) -> Restored:
        """Take a sandbox to a state; where to something was set aside is told also if that fails in the end."""
        path, aside = Path(resource.sandbox_path), self._aside(resource)
        try:
            return self.manager.rollback_to(path, state, aside=aside, unheld=unheld)[1]
        except SandboxError as error:
            if not aside.is_dir():
                raise
            raise _with_set_aside(error, [str(aside)]) from error

    def _aside(self, resource: Resource) -> Path:
        path = Path(resource.sandbox_path)
        return path.parent / ".set-aside" / f"{path.name}-{secrets.token_hex(4)}"

    # Keeping house

    def prune_checkpoints(
        self, plan: Plan, lease: Lease, policy: CheckpointRetentionPolicy, needed: Collection[str] = ()
    ) -> int:
        """Prune to what the policy keeps, and free the content; how many checkpoints went."""
        with self.store.transaction(lease):
            pruned = self._prune(plan, policy, needed)
        self.collect(pruned)
        return len(pruned)

    def delete_checkpoint(self, plan: Plan, lease: Lease, checkpoint: Checkpoint) -> int:
        """Delete the whole group of a checkpoint and free its content; how many checkpoints went."""
        groups = {group.group_id: group for group in self.store.groups_of(plan.plan_id)}
        first = min(groups.values(), key=lambda group: group.sequence)
        if checkpoint.group_id in {first.group_id, *self._needed(plan)}:
            raise StateError(
                f"Checkpoint {checkpoint.checkpoint_id} is needed: as the first, as the last, or to return to.",
                hint=f"See the others with `holdfast checkpoint list {plan.plan_id}`.",
            )
        gone = self.store.checkpoints_of_group(checkpoint.group_id)
        with self.store.transaction(lease):
            self._delete_groups(groups, [checkpoint.group_id])
            self.note_given_up(gone)
        self.collect(gone)
        return len(gone)

    def _prune(self, plan: Plan, policy: CheckpointRetentionPolicy, needed: Collection[str] = ()) -> list[Checkpoint]:
        """Delete the records of the groups retention gives up; their content may be freed once this is committed."""
        if self.store.checkpoint_count(plan.plan_id) <= policy.max_checkpoints:
            return []
        groups = {group.group_id: group for group in self.store.groups_of(plan.plan_id)}
        rows: dict[str, list[Checkpoint]] = {group_id: [] for group_id in groups}
        for checkpoint in self.store.checkpoints_of(plan.plan_id):
            rows[checkpoint.group_id].append(checkpoint)
        facts = [
            GroupFacts(group.group_id, group.sequence, group.label, len(rows[group.group_id]))
            for group in groups.values()
        ]
        decision = retention(facts, policy.max_checkpoints, self._needed(plan).union(needed))
        self._delete_groups(groups, decision.remove)
        pruned = [checkpoint for group_id in decision.remove for checkpoint in rows[group_id]]
        self.note_given_up(pruned)
        return pruned

    def expected_checkpoints(self, plan: Plan, taken: Iterable[int], needed: Collection[str]) -> int:
        """How many checkpoints there will be once groups of so many each were taken, with pruning at each of them."""
        needed = {*needed, *self._needed(plan)} - {plan.head_group_id}
        counts = Counter(checkpoint.group_id for checkpoint in self.store.checkpoints_of(plan.plan_id))
        facts = [
            GroupFacts(group.group_id, group.sequence, group.label, counts[group.group_id])
            for group in self.store.groups_of(plan.plan_id)
        ]
        for checkpoints in taken:
            sequence = facts[-1].sequence + 1
            facts.append(GroupFacts(f"expected {sequence}", sequence, None, checkpoints))
            removed = retention(facts, plan.policy.max_checkpoints, needed).remove
            facts = [each for each in facts if each.group_id not in removed]
        return sum(each.checkpoints for each in facts)

    def _delete_groups(self, groups: dict[str, CheckpointGroup], going: Sequence[str]) -> None:
        """History stays in one piece: what came after a group that goes continues where that group continued."""
        for group_id in going:
            parent = groups[group_id].parent_group_id
            for child in [group for group in groups.values() if group.parent_group_id == group_id]:
                groups[child.group_id] = child.model_copy(update={"parent_group_id": parent})
                if child.group_id not in going:
                    self.store.save(groups[child.group_id])
            self.store.delete(CheckpointGroup, group_id)

    def _make_room(self, plan: Plan, lease: Lease, needed: Collection[str]) -> bool:
        """Prune all that retention can spare of this plan and free everything nobody needs; whether that freed any."""
        self.manager.objects.unpack_parcels()  # which would take room while others free it
        before_bytes = self.manager.objects.content_bytes()
        self.prune_checkpoints(plan, lease, CheckpointRetentionPolicy(max_checkpoints=_FEWEST), needed)
        return self.manager.objects.content_bytes() < before_bytes

    def _needed(self, plan: Plan) -> set[str]:
        """What an operation, a step under way or a failure would have to return to."""
        needed = {plan.head_group_id or ""}
        for operation in self.store.unfinished_operations(plan.plan_id):
            needed.update(value for key, value in operation.data.items() if key.endswith("_group_id"))
        runs = self.store.unfinished_runs(plan.plan_id)
        last = self.store.latest_run_in_force(plan.plan_id)
        if last is not None and last.step_index == plan.next_step:
            runs.append(last)  # it failed or was interrupted, and may have to be undone
        runs += self._runs_that_can_come_back(plan)
        needed.update(run.group_before_id or "" for run in runs)
        if plan.policy.goes_back_to_start:
            needed.add(self.start_of_attempt(plan).group_id)
        return needed

    def _runs_that_can_come_back(self, plan: Plan) -> list[StepRun]:
        """Those that were cut short, and are so again if one goes back to a group that is still there."""
        runs = [run for run in self.store.runs_with(plan.plan_id, *CUT_SHORT) if run.decision_id is not None]
        groups = self.store.groups_of(plan.plan_id) if runs else []
        decisions = (self.store.get(Decision, run.decision_id or "") for run in runs)
        return [
            run
            for run, decision in zip(runs, decisions, strict=True)
            if any(_is_half_done(decision, group) for group in groups)
        ]

    def note_given_up(self, gone: Sequence[Checkpoint]) -> None:
        """Before it is committed that they go: killed in between, a collection comes too early, and not never."""
        if gone:
            size_bytes = sum(checkpoint.size_bytes for checkpoint in gone)
            with suppress(DatabaseFullError):  # on a full disk what frees space must not fail for a note
                self.manager.objects.note_given_up(len(gone), size_bytes)

    def _free(self, pruned: Sequence[Checkpoint]) -> None:
        """Forget pruned snapshots, and free their content once it is worth it.

        Trying reads every directory that is kept, so a process that could free nothing does not try once more.
        """
        if not pruned:
            return
        with suppress(DatabaseFullError):  # the catalogue then lists what is gone until its state is collected
            self.manager.delete_checkpoint(*(checkpoint.checkpoint_id for checkpoint in pruned))
        if self.unfreed is None and self.manager.objects.is_worth_collecting():
            self.collect()

    def verify(self, plans: Iterable[Plan]) -> VerifyResult:
        """Read everything these plans' checkpoints need back and check every digest."""
        verifier = Verifier(self.manager.objects)
        damaged: dict[bytes, list[Checkpoint]] = {}
        checked = 0
        for plan in plans:
            checkpoints = self.store.checkpoints_of(plan.plan_id)
            states = {group.group_id: group.states for group in self.store.groups_of(plan.plan_id)}
            # What was pruned meanwhile has no group any more, and perhaps no content.
            for checkpoint in [each for each in checkpoints if each.group_id in states]:
                bad = [verifier.bad_objects_of(state) for state in states[checkpoint.group_id].values()]
                if any(bad) and self.store.find(Checkpoint, checkpoint.checkpoint_id) is None:
                    continue
                checked += 1
                for digest in frozenset[bytes]().union(*bad):
                    damaged.setdefault(digest, []).append(checkpoint)
        found = [
            DamagedObject(digest.hex(), digest not in verifier.missing, tuple(affected))
            for digest, affected in damaged.items()
        ]
        return VerifyResult(checked, verifier.objects_read, tuple(found))

    def collect(self, gone: Sequence[Checkpoint] = ()) -> int:
        """Forget the snapshots of checkpoints that are gone and free the content that no record needs; the bytes freed.

        Nothing is freed while a state that is kept cannot be read in full: what else it needs is not known then. That
        is no reason to stop whoever does not need that state; ``unfreed`` tells it.
        """
        self.unfreed = None
        try:
            if gone:
                self.manager.delete_checkpoint(*(checkpoint.checkpoint_id for checkpoint in gone))
            return self.manager.collect(lambda: self.store.referenced_states(self.manager.objects.store_id))
        except ContentError as error:
            self._postpone_collecting()
            self.unfreed = (
                f"No saved content was freed, because something that is kept cannot be read in full: {error.message} "
                "`holdfast checkpoint verify` names the checkpoints; once they are deleted, content is freed again."
            )
            return 0
        except DatabaseFullError:
            self._postpone_collecting()
            self.unfreed = (
                "The saved content that was given up still takes its space: the disk is too full to give it back. "
                "Delete a plan or something else on that disk; the next prune then gives it back."
            )
            return 0

    def _postpone_collecting(self) -> None:
        """The next processes would only try in vain as well, and read every directory that is kept for it."""
        with suppress(HoldfastError):
            self.manager.objects.postpone_collecting()


def impact_of(plan: Plan, consequences: Consequences) -> RollbackImpact:
    return RollbackImpact(
        child_plans_invalidated=sum(not subplan.is_superseded for subplan in consequences.subplans),
        sandbox=", ".join(resource.sandbox_path for resource in plan.resources),
        decisions_after_cp=len(consequences.superseded),
        tool_calls_after_cp=sum(not run.is_superseded for run in consequences.runs),
        child_plans_applied=tuple(subplan.name for subplan in consequences.applied),
    )


def _stays_begun(error: HoldfastError, compensated: Sequence[StepRun]) -> HoldfastError:
    listed = ", ".join(f"step {run.step_index + 1} ({run.step}): {run.compensation}" for run in compensated)
    return type(error)(
        f"{error.message} Effects outside of the sandboxes were undone before that ({listed}), so the rollback stays "
        "begun.",
        hint=f"{error.hint} The next command that changes the plan finishes the rollback first.",
    )


def _with_set_aside(error: HoldfastError, places: Iterable[str]) -> HoldfastError:
    moved = f"{error.message} What stood in the way was moved to {', '.join(map(name_text, places))}."
    return type(error)(moved, hint=error.hint)


def _is_not_put_back(failure: HoldfastError, error: HoldfastError) -> HoldfastError:
    return type(failure)(
        f"{failure.message} The state before could not be put back either, so this stays begun: {error.message}",
        hint=f"{failure.hint} The next command that changes the plan finishes what was begun first.",
    )


def sandbox_ref(plan: Plan, resource: Resource) -> str:
    return f"{plan.plan_id}/{resource.name}"


def _invalidated(subplan: Plan) -> Plan:
    if subplan.state in (PlanState.ERRORED, PlanState.CANCELLED):
        return subplan.changed(is_superseded=True)  # why it did not come to its end stays to be seen
    return subplan.changed(is_superseded=True, state=PlanState.CANCELLED, error=_PARENT_WENT_BACK)


def _is_of(decision: Decision, run: StepRun) -> bool:
    """Whether it started the run, or was made in it."""
    return run.decision_id in (decision.decision_id, decision.parent_decision_id)


def _is_half_done(decision: Decision, group: CheckpointGroup) -> bool:
    """Whether the group holds it although the step that it is for was not done there."""
    is_of_next_step = decision.step_index == group.last_completed_step + 1
    return is_of_next_step and is_within(decision.sequence, group.active_decisions)


def _same_position(group: CheckpointGroup, plan: Plan) -> bool:
    return (group.last_completed_step, group.attempt, group.revision) == (
        plan.last_completed_step, plan.attempt, plan.revision,
    )  # fmt: skip


def _position(plan: Plan) -> int | None:
    return None if plan.is_finished else plan.next_step


def _step_name(plan: Plan, step_index: int | None) -> str | None:
    return None if step_index is None else plan.steps[step_index].name


def _names_a_commit(difference: Difference) -> bool:
    if not (difference.path in _HEADS or difference.path.startswith(b".git/refs/")):
        return False
    old, new = difference.old, difference.new
    return any(entry is not None and entry.is_file for entry in (old, new)) and (
        old is None or new is None or old.content != new.content
    )


def _file_change(resource: str, difference: Difference) -> FileChange:
    action: Literal["removed", "restored"] = "removed" if difference.new is None else "restored"
    return FileChange(resource=resource, file=shown(difference.path), action=action)
