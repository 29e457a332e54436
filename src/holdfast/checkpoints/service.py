"""CheckpointService: snapshots and their records kept together, in groups over all resources of a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from holdfast.checkpoints.damage import get_sound_checkpoint
from holdfast.checkpoints.policy import GroupFacts, retention
from holdfast.checkpoints.recorded import RecordedSnapshots
from holdfast.checkpoints.releasing import NotReleased, Others, Release
from holdfast.checkpoints.titles import changes_in_words, left_for, title_of
from holdfast.checkpoints.unkept import UnkeptPresent, look_at_unkept, take_back_unkept
from holdfast.content.difference import Difference, visible
from holdfast.content.verify import Verifier
from holdfast.db.store import Store
from holdfast.errors import (
    ContentError,
    DamagedRecordError,
    DatabaseFullError,
    HoldfastError,
    QuotaError,
    SandboxError,
    StateError,
)
from holdfast.git.head import git_head
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    CheckpointMetadata,
    CheckpointRetentionPolicy,
    Correction,
    DamagedCheckpoint,
    Decision,
    DecisionSpec,
    DecisionType,
    FileChange,
    GitHead,
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
from holdfast.sandbox import sandbox_for
from holdfast.sandbox.making import made_whole
from holdfast.snapshot.looking import was_only_looked_at
from holdfast.snapshot.manager import CheckpointManager, aside_of
from holdfast.snapshot.restore.carry_out import Disturbed
from holdfast.snapshot.restore.restore import Restored
from holdfast.snapshot.sandbox_checkpoint import SandboxCheckpoint
from holdfast.system.directories import shown
from holdfast.system.ids import new_id
from holdfast.system.machine import boot_id
from holdfast.system.place import is_missing, is_there

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
    source: str
    """The tool that is about to run or has run, or the command that asked for it."""
    reason: str = ""
    title: str = ""
    """What it is called, if its triggers and its step do not say it all."""
    try_number: int = 1
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
    calls: tuple[StepRun, ...]
    """The calls of tools that are undone, also inside of subplans."""


Compensate = Callable[[Plan, Lease, CheckpointGroup], object]
"""Undoes what the steps that going back to the group undoes did outside of the sandboxes."""


@contextmanager
def _no_others() -> Iterator[Sequence[Store]]:
    yield ()


class CheckpointService:
    def __init__(
        self,
        store: Store,
        manager: CheckpointManager,
        *,
        max_bytes: int | None = None,
        other_records: Others = _no_others,
    ) -> None:
        """``other_records``: opens those for which this content store may keep content as well."""
        self.store = store
        self.manager = manager
        manager.records = RecordedSnapshots(store)
        self._other_records = other_records
        self.release = Release(manager.objects, store, other_records)
        self._max_bytes = max_bytes
        self._recorded: set[str] = set()
        """Plans of which it is known that the last snapshots are recorded."""
        self.unfreed: str | None = None
        """Why the last collection freed nothing, if it could not; a sentence or two for a person."""

    def sibling(self) -> CheckpointService:
        """A second service on the same records and content, for another thread."""
        return CheckpointService(
            self.store, self.manager.sibling(), max_bytes=self._max_bytes, other_records=self._other_records
        )

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
        self.keep_for(lease)
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
            occasion = self._with_changes(plan, occasion, known, taken)
            with self.store.transaction(lease):
                plan = self._record(plan, occasion, taken, changed or [occasion.resource or plan.resources[0].name])
                for record in records:
                    self.store.save(record)
                pruned = self._prune(plan, plan.policy.retention, needed)
            self._recorded.add(plan.plan_id)
        self._free(pruned)
        return plan

    def _with_changes(
        self, plan: Plan, occasion: Occasion, known: dict[str, str], taken: dict[str, SandboxCheckpoint]
    ) -> Occasion:
        """While a program runs, only what it has just changed tells one moment from the next."""
        if Moment.SETTLED not in occasion.triggers or not known:
            return occasion
        states = {name: snapshot.state_hash for name, snapshot in taken.items()}
        try:
            words = self._changes_in_words(plan, known, states)
        except ContentError:
            return occasion  # what was saved earlier is damaged, which must not keep this from being saved
        return replace(occasion, title=f"{occasion.title}: {words}" if words else occasion.title)

    def _changes_in_words(self, plan: Plan, old: dict[str, str], new: dict[str, str]) -> str:
        found = self.changes_between(plan, old, new)
        prefixed = len(plan.resources) > 1
        by_kind: dict[str, list[str]] = {"removed": [], "added": [], "changed": []}
        for name, listed in found.items():
            for each in listed:
                kind = "removed" if each.new is None else "added" if each.old is None else "changed"
                by_kind[kind].append(f"{name}/{shown(each.path)}" if prefixed else shown(each.path))
        return changes_in_words(**by_kind)

    def keep_for(self, lease: Lease) -> None:
        """Note, before content is stored, in which records the plan is that the lease is for."""
        self.release.keep_for(lease.plan_id, lease.token, lease.owner or "")

    def _disown_unrecorded(self, plan: Plan) -> None:
        """What was stored for a checkpoint that was never recorded, because a process died, counts with the next."""
        if plan.plan_id in self._recorded:
            self._recorded.remove(plan.plan_id)
            return
        for resource in plan.resources:
            path = Path(resource.sandbox_path)
            self.manager.disown_unrecorded(sandbox_ref(plan, resource), path, self._is_checkpoint)

    def _is_checkpoint(self, checkpoint_id: str) -> bool:
        return self.store.has(Checkpoint, checkpoint_id)

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
        title = occasion.title or title_of(group, try_number=occasion.try_number)
        found = [(name, taken[name].checkpoint_id, taken[name].size_bytes) for name in rows]
        return self._insert(plan, group, found, title)

    def _insert(self, plan: Plan, group: CheckpointGroup, rows: Iterable[tuple[str, str, int]], title: str) -> Plan:
        self.store.insert(group)
        last = plan.last_checkpoint_id
        for name, checkpoint_id, size_bytes in rows:
            resource = plan.resource(name)
            head = git_head(Path(resource.sandbox_path)) if resource.type is ResourceType.GIT else None
            self.store.insert(_checkpoint(plan, group, name, checkpoint_id, size_bytes, title=title, git=head))
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
        """Those whose records are sound."""
        return self.store.checkpoints.of(plan_id)

    def checkpoints_at(self, group: CheckpointGroup) -> list[Checkpoint]:
        """Those of a group, at least one: the group holds all that is needed if their own records are damaged."""
        sound = self.store.checkpoints.of_group(group.group_id)
        if sound:
            return sound
        damaged = [each for each in self.store.damaged.checkpoints(group.plan_id) if each.group_id == group.group_id]
        names = [each.checkpoint_id for each in damaged] or [group.group_id]
        plan = self.store.get(Plan, group.plan_id)
        return [_checkpoint(plan, group, plan.resources[0].name, names[0], size_bytes=0)]

    def get_checkpoint(self, plan_id: str, reference: str) -> Checkpoint:
        """By full id, display id, unique prefix or label; one whose record is damaged is refused."""
        return get_sound_checkpoint(self.store, plan_id, reference)

    def superseded_groups(self, plan: Plan) -> set[str]:
        """Groups that are not on the way that led to where the plan is now."""
        groups = {group.group_id: group for group in self.store.groups.of(plan.plan_id, sound_only=True)}
        at, way = plan.head_group_id, set()
        while at is not None and at in groups:
            way.add(at)
            at = groups[at].parent_group_id
        if at is None or not self.store.has(CheckpointGroup, at):
            return groups.keys() - way
        # The way leads through a damaged group, and which of those before it are on the way is not known.
        oldest = min((groups[each].sequence for each in way), default=math.inf)
        return {each.group_id for each in groups.values() if each.sequence > oldest} - way

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
                differences = reader.differences(reader.state(before), reader.state(after))
                found[resource.name] = _of_user(plan, resource, differences)
        return found

    def file_changes(self, plan: Plan, old: dict[str, str], new: dict[str, str]) -> tuple[FileChange, ...]:
        """What going from one state to the other does to files, as a rollback tells it."""
        return _file_changes(self.changes_between(plan, old, new))

    def repositories_changed(self, plan: Plan, old: dict[str, str], new: dict[str, str]) -> tuple[str, ...]:
        """Resources with another HEAD, other branches or tags, which are no files of the user."""
        reader = self.manager.reader
        differing = {
            name: reader.differences(reader.state(old[name]), reader.state(new[name]))
            for name in (resource.name for resource in plan.resources)
            if old[name] != new[name]
        }
        return _with_other_commits(plan, differing)

    def states_now(self, plan: Plan, *, thorough: bool = True) -> dict[str, str]:
        """What is in the sandboxes now; ``thorough``: every file is looked at, whatever the kernel told."""
        return {
            resource.name: self.manager.state_of(Path(resource.sandbox_path), thorough=thorough)
            for resource in plan.resources
        }

    def changed_since(self, plan: Plan, recorded: dict[str, str]) -> tuple[str, ...]:
        """The resources whose sandboxes are no longer what was recorded; looking into one does not change it.

        One that is gone counts as unchanged: it is made anew as it was recorded.
        """
        with self.manager.taking():
            there = [each for each in plan.resources if not is_missing(Path(each.sandbox_path))]
            found, reader = (
                {each.name: self.manager.state_of(Path(each.sandbox_path)) for each in there},
                self.manager.reader,
            )
            changed = [resource for resource in there if found[resource.name] != recorded[resource.name]]
            return tuple(
                each.name
                for each in changed
                if not was_only_looked_at(reader, sandbox_for(plan, each), recorded[each.name], found[each.name])
            )

    # Going back

    def consequences(self, plan: Plan, group: CheckpointGroup) -> Consequences:
        decisions = self.store.decisions.of(plan.plan_id)
        kept = group.active_decisions
        superseded = tuple(d for d in decisions if not d.is_superseded and not is_within(d.sequence, kept))
        revived = tuple(d for d in decisions if d.is_superseded and is_within(d.sequence, kept))
        marked = {decision.decision_id for decision in (*superseded, *revived)}
        undone = {decision.decision_id for decision in superseded}
        subplans = self.store.plans.below(plan.plan_id)
        runs = tuple(run for run in self.store.runs.of(plan.plan_id) if run.decision_id in marked)
        return Consequences(
            superseded=superseded,
            revived=revived,
            runs=runs,
            subplans=tuple(
                subplan
                for subplan in subplans
                if subplan.spawn_decision_id in marked and subplan.state is not PlanState.APPLIED
            ),
            applied=tuple(self._applied([each for each in subplans if each.spawn_decision_id in undone])),
            calls=tuple(self._calls(plan, [run for run in runs if not run.is_superseded])),
        )

    def _calls(self, plan: Plan, runs: Sequence[StepRun]) -> Iterator[StepRun]:
        """The calls of tools among these runs that count, and those of the subplans that the others stand for."""
        subplans = self.store.plans.below(plan.plan_id)
        spawning = {subplan.spawn_decision_id for subplan in subplans}
        decisions = [each for each in self.store.decisions.of(plan.plan_id) if each.decision_id in spawning]
        for run in runs:
            spawned = {each.decision_id for each in decisions if _is_of(each, run)}
            if not spawned:
                yield run
            for subplan in subplans:
                if subplan.spawn_decision_id in spawned:
                    below = (each for each in self.store.runs.of(subplan.plan_id) if not each.is_superseded)
                    yield from self._calls(subplan, list(below))

    def _applied(self, subplans: list[Plan]) -> Iterator[Plan]:
        """Of these and all below them."""
        while subplans:
            subplan = subplans.pop(0)
            if subplan.state is PlanState.APPLIED:
                yield subplan
            subplans += self.store.plans.below(subplan.plan_id)

    def step_of(self, plan: Plan, run: StepRun) -> Step | None:
        """The step that this is a run of; none if it is that of a validation, made at the end of fewer steps."""
        decision = self.store.find(Decision, run.decision_id) if run.decision_id is not None else None
        return None if decision is None or decision.step_index is None else plan.steps[decision.step_index]

    def run_of_next_step(self, plan: Plan) -> StepRun | None:
        """The last try at it that was not undone."""
        run = self.store.runs.latest_in_force(plan.plan_id)
        is_of_it = run is not None and run.step_index == plan.next_step and self.step_of(plan, run) is not None
        return run if is_of_it else None

    def _held_decisions(self, plan: Plan) -> Ranges:
        """What a group of now holds: with a step that was cut short also its decisions, so that it can come back."""
        run, held = self.run_of_next_step(plan), plan.active_decisions
        if run is None or run.status not in CUT_SHORT:
            return held
        for decision in self.store.decisions.of(plan.plan_id):
            if not decision.is_superseded and _is_of(decision, run):
                held = extended(held, decision.sequence, decision.sequence)
        return held

    def _run_held_by(self, group: CheckpointGroup) -> StepRun | None:
        """The run of a step whose half-done work the group holds."""
        held = {each.decision_id for each in self.store.decisions.of(group.plan_id) if _is_half_done(each, group)}
        return next((each for each in self.store.runs.of(group.plan_id) if each.decision_id in held), None)

    def start_of_attempt(self, plan: Plan) -> CheckpointGroup:
        """Not the first of all: that would give up a correction made since."""
        return _start_of(plan, self.store.groups.of(plan.plan_id))

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
        keeps_present: bool = True,
    ) -> RollbackResult:
        """Take the files of all resources, the plan's position and its decisions back to that moment, all or nothing.

        A correction is made in the same step: there is no moment at which the plan is back but not corrected. So is
        the decision to go back (``recovery``), when nobody asked for it but a failure. ``compensate`` undoes what steps
        did outside, where they say how: once it is sure that they will be undone, while their files are still there.

        ``keeps_present``: the state that is left gets a group of its own. Without it what no group holds is lost, and
        the way cannot be undone: only for a person who asked for it, on a disk without room.
        """
        target = self.store.get(CheckpointGroup, checkpoint.group_id).without(correction.undone if correction else ())
        if keeps_present:
            self.check_rollback(plan, target)
            plan = self.keep_present(plan, lease, target, reason)
            self.keep_sound(plan, self.store.get(CheckpointGroup, plan.head_group_id or "").states, target.states)
        else:
            self.check_position(plan, target)
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
                "is_unkept": not keeps_present,
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
            if not keeps_present:
                raise _cannot_be_put_back(error) from error
            self.put_back(plan, lease, operation, error)
            raise

    def _compensated(self, plan: Plan) -> dict[str, StepRun]:
        """The runs whose effects outside were undone, or may have been."""
        return {run.run_id: run for run in self.store.runs.of(plan.plan_id) if run.compensation is not None}

    def is_recorded(self, plan: Plan, head: CheckpointGroup) -> bool:
        """Whether the group holds all that the plan's steps did; not where none is taken when a step has ended."""
        last = self.store.runs.latest_in_force(plan.plan_id)
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
        before = Occasion(
            (Moment.BEFORE_ROLLBACK,),
            source="rollback",
            reason=f"the state before: {reason}",
            title=left_for(target),
            step_index=_position(plan),
        )
        return self.create_checkpoint(plan, lease, before, only_if_changed=True, needed=(target.group_id,))

    def finish_rollback(self, plan: Plan, lease: Lease, operation: Operation, compensate: Compensate) -> RollbackResult:
        """Complete a rollback that was cut short; everything it did already is done again or found done."""
        self.compensate_rollback(plan, lease, operation, compensate)
        rows = self.checkpoints_at(self.store.get(CheckpointGroup, operation.data["target_group_id"]))
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
        self.check_position(plan, target)
        for resource in plan.resources:
            self.manager.check(Path(resource.sandbox_path), target.states[resource.name])

    def check_position(self, plan: Plan, target: CheckpointGroup) -> None:
        """The same without a look at files and content."""
        self.check_sandboxes(plan)
        run = self._run_held_by(target)
        if run is not None and run.status not in CUT_SHORT:
            raise StateError(
                f"At that checkpoint step {run.step_index + 1} ({run.step}) was under way. It has come to its end "
                "since, and cannot be under way again.",
                hint=f"Go back to before that step (`holdfast checkpoint list {plan.plan_id}`), or restore single "
                "files from that checkpoint with `--only`.",
            )

    def present_to_leave(self, plan: Plan, target: CheckpointGroup) -> dict[str, str]:
        """What is in the sandboxes now; refuses if that could not come back once they are as at ``target``."""
        self.check_sandboxes(plan)
        with self.manager.taking():  # or what nothing names yet could be collected before it is looked at
            present = self.states_now(plan)
            self.keep_sound(plan, present, target.states)
        return present

    def look_at_unkept(self, plan: Plan, target: CheckpointGroup) -> UnkeptPresent:
        """What going back without keeping the present state changes, and what is lost with it; stores nothing."""
        head = self.store.get(CheckpointGroup, plan.head_group_id or "")
        return look_at_unkept(plan, self.manager, head, target)

    def unkept_changes(self, plan: Plan, found: UnkeptPresent) -> dict[str, Any]:
        """What a rollback that does not keep the present state tells of what it changes."""
        reverted = _visible_of_user(plan, found.differences_to_target)
        lost = _visible_of_user(plan, found.unrecorded)
        return {
            "changes": _file_changes(reverted),
            "repositories": _with_other_commits(plan, found.differences_to_target),
            "is_unkept": True,
            "lost": (
                *(f"{name}:{shown(each.path)}" for name, listed in lost.items() for each in listed),
                *(f"{name}:.git" for name in _with_other_commits(plan, found.unrecorded)),
            ),
        }

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
        self.refuse_missing(plan)

    def refuse_missing(self, plan: Plan) -> None:
        """Refuse what needs a sandbox that is gone; only going on with the plan makes it anew."""
        for resource in plan.resources:
            if is_missing(Path(resource.sandbox_path)):
                raise SandboxError(
                    f"The sandbox of resource {resource.name!r} is missing: {resource.sandbox_path}.",
                    hint=f"Its checkpoints are safe. {self._how_it_is_made_anew(plan)}",
                )

    def _how_it_is_made_anew(self, plan: Plan) -> str:
        root_id = self.store.plans.root_of(plan).plan_id
        head = self.store.get(CheckpointGroup, plan.head_group_id or "")
        goes_on = "" if plan.state in (PlanState.COMPLETE, PlanState.CONSTRAINED) else " and goes on with the plan"
        making = f"`holdfast plan resume {root_id}` makes it anew{goes_on}; then run this command again."
        if self.is_recorded(plan, head):
            return making
        return (
            f"{making} The last one does not hold all that steps did: "
            f"`holdfast plan resume --dry-run {root_id}` tells what is run again."
        )

    def _roll_back(self, plan: Plan, lease: Lease, operation: Operation, checkpoint: Checkpoint) -> RollbackResult:
        target = self.target_of(operation)
        left = self.store.get(CheckpointGroup, operation.data["left_group_id"])
        is_unkept = operation.data.get("is_unkept", False)
        set_aside = self._turn_each(plan, lambda resource: self._restore(resource, target, is_unkept=is_unkept))
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
            left_group_id=None if is_unkept else left.group_id,
            changes=changes,
            repositories=self.repositories_changed(plan, left.states, target.states),
            set_aside=set_aside,
            impact=impact_of(plan, consequences),
            checkpoints_remaining=self.store.checkpoints.count(plan.plan_id),
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
        rows = [(name, new_id(), 0) for name in moved or [plan.resources[0].name]]
        return self._insert(plan, group, rows, title_of(group))

    def taken_back(self, plan: Plan, target: CheckpointGroup) -> Plan:
        """The plan as it is at that group; a step that was cut short there is so again."""
        run = self._run_held_by(target)
        held = () if run is None else (d for d in self.store.decisions.of(plan.plan_id) if _is_of(d, run))
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
        run = self.store.runs.latest_in_force(subplan.plan_id)
        if head is not None and Moment.POST_EXECUTE in head.triggers:
            return revived.changed(state=PlanState.COMPLETE, error=None)
        if run is not None and run.status is RunStatus.CONSTRAINED:
            return revived.changed(state=PlanState.CONSTRAINED, error=run.error)
        return revived.changed(state=PlanState.QUEUED, error=None)

    def _guidance_at(self, plan: Plan, target: CheckpointGroup) -> str:
        """That of the last correction in force there; a subplan has its parent's, and is not corrected itself."""
        corrections = [each for each in self.store.decisions.of(plan.plan_id) if each.is_correction]
        in_force = [each.chosen for each in corrections if is_within(each.sequence, target.active_decisions)]
        return in_force[-1] if in_force else "" if corrections else plan.guidance

    def decision(self, plan: Plan, spec: DecisionSpec, step_index: int | None, parent: str | None) -> Decision:
        """What was decided, as the plan's next decision; below the plan's root if no parent is named."""
        root = self.store.decisions.root(plan.plan_id)
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
        attempt = self.store.decisions.latest_attempt(plan.plan_id) + 1
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
        revision = self.store.plans.latest_revision(plan.plan_id) + 1 if correction.steps is not None else plan.revision
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

    def restore_sandbox(self, resource: Resource, state: str) -> None:
        """Make a sandbox that is gone anew, whole or not at all.

        One that is there counts as what was recorded, so a part of one must never stand in its place.
        """
        path = Path(resource.sandbox_path)
        self.manager.forget(path)
        with made_whole(path) as unfinished:
            unfinished.mkdir(mode=0o700)
            self.manager.restore(unfinished, state, aside=aside_of(path), name=path.name)
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

    def _restore(self, resource: Resource, group: CheckpointGroup, *, is_unkept: bool = False) -> Restored:
        if is_unkept:
            return self._telling_aside(resource, lambda aside: take_back_unkept(self.manager, resource, group, aside))
        held = SandboxCheckpoint.held_by(group, resource)
        return self._telling_aside(resource, lambda aside: self.manager.rollback_to(held, aside=aside)[1])

    def _turn_into(self, resource: Resource, state: str) -> Restored:
        path = Path(resource.sandbox_path)
        return self._telling_aside(resource, lambda aside: self.manager.restore(path, state, aside=aside)[1])

    def _telling_aside(self, resource: Resource, turn: Callable[[Path], Restored]) -> Restored:
        """Take a sandbox to a state; where to something was set aside is told also if that fails in the end."""
        aside = aside_of(Path(resource.sandbox_path))
        try:
            return turn(aside)
        except SandboxError as error:
            if not aside.is_dir():
                raise
            raise _with_set_aside(error, [str(aside)]) from error

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
        if not self._may_go(plan, checkpoint.group_id):
            raise StateError(
                f"Checkpoint {checkpoint.checkpoint_id} is needed: as the first, as the last, or to return to.",
                hint=f"See the others with `holdfast checkpoint list {plan.plan_id}`.",
            )
        groups = {group.group_id: group for group in self.store.groups.of(plan.plan_id, sound_only=True)}
        count = self.store.checkpoints.count_by_group(plan.plan_id)[checkpoint.group_id]
        gone = self.store.checkpoints.of_group(checkpoint.group_id)
        with self.store.transaction(lease):
            self._delete_groups(groups, [checkpoint.group_id])
            self.note_given_up(gone)
        self.collect(gone)
        return count

    def delete_damaged_checkpoint(self, plan: Plan, lease: Lease, damaged: DamagedCheckpoint) -> int:
        """Delete the damaged record of a checkpoint, or that of its whole moment; how many checkpoints went.

        A sound moment stays if the plan needs it, without this checkpoint; with its last one it goes otherwise.
        """
        if damaged.is_group:
            return self._delete_damaged_group(plan, lease, damaged)
        groups = {group.group_id: group for group in self.store.groups.of(plan.plan_id, sound_only=True)}
        with self.store.transaction(lease):
            self.store.delete(Checkpoint, damaged.checkpoint_id)
            left = self.store.checkpoints.count_by_group(plan.plan_id)
            is_last = damaged.group_id in groups and damaged.group_id not in left
            if is_last and self._may_go(plan, damaged.group_id):
                self._delete_groups(groups, [damaged.group_id])
        self.collect()
        return 1

    def _delete_damaged_group(self, plan: Plan, lease: Lease, damaged: DamagedCheckpoint) -> int:
        if not self._may_go(plan, damaged.group_id):
            raise StateError(
                f"Checkpoint {damaged.checkpoint_id} is damaged, and its plan cannot do without it: it is the first, "
                "the last, or one to return to.",
                hint="Restore the database from a backup, or copy what you need out of the sandboxes and delete the "
                f"plan: `holdfast plan delete {plan.plan_id}`.",
            )
        groups = {group.group_id: group for group in self.store.groups.of(plan.plan_id, sound_only=True)}
        parent = self.store.damaged.parent_of_group(damaged.group_id)
        with self.store.transaction(lease):
            for child in [each for each in groups.values() if each.parent_group_id == damaged.group_id]:
                # It only says how history is drawn, so a guess does no harm.
                before = parent if parent in groups else None
                self.store.save(child.model_copy(update={"parent_group_id": before}))
            count = self.store.checkpoints.count_by_group(plan.plan_id).get(damaged.group_id, 0)
            self.store.delete(CheckpointGroup, damaged.group_id)
        self.collect()
        return count

    def _may_go(self, plan: Plan, group_id: str) -> bool:
        return group_id not in {*self.store.groups.ids(plan.plan_id)[:1], *self._needed(plan)}

    def _prune(self, plan: Plan, policy: CheckpointRetentionPolicy, needed: Collection[str] = ()) -> list[Checkpoint]:
        """Delete the records of the groups retention gives up; their content may be freed once this is committed."""
        if self.store.checkpoints.count(plan.plan_id) <= policy.max_checkpoints:
            return []
        groups = {group.group_id: group for group in self.store.groups.of(plan.plan_id, sound_only=True)}
        first = self.store.groups.ids(plan.plan_id)[:1]
        decision = retention(
            self._facts(plan, groups.values()), policy.max_checkpoints, self._needed(plan).union(needed, first)
        )
        going = set(decision.remove)
        pruned = [each for each in self.store.checkpoints.of(plan.plan_id) if each.group_id in going]
        self._delete_groups(groups, decision.remove)
        self.note_given_up(pruned)
        return pruned

    def _facts(self, plan: Plan, groups: Iterable[CheckpointGroup]) -> list[GroupFacts]:
        """What retention goes by; a damaged group is none of its business."""
        counts = self.store.checkpoints.count_by_group(plan.plan_id)
        return [
            GroupFacts(group.group_id, group.sequence, group.label, counts.get(group.group_id, 0)) for group in groups
        ]

    def expected_checkpoints(self, plan: Plan, taken: Iterable[int], needed: Collection[str]) -> int:
        """How many checkpoints there will be once groups of so many each were taken, with pruning at each of them."""
        needed = {*needed, *self._needed(plan)} - {plan.head_group_id}
        facts = self._facts(plan, self.store.groups.of(plan.plan_id, sound_only=True))
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
        for operation in self.store.operations.unfinished(plan.plan_id):
            needed.update(value for key, value in operation.data.items() if key.endswith("_group_id"))
        runs = self.store.runs.unfinished(plan.plan_id)
        last = self.store.runs.latest_in_force(plan.plan_id)
        if last is not None and last.step_index == plan.next_step:
            runs.append(last)  # it failed or was interrupted, and may have to be undone
        runs += self._runs_that_can_come_back(plan)
        needed.update(run.group_before_id or "" for run in runs)
        if plan.policy.goes_back_to_start:
            groups = self.store.groups.of(plan.plan_id, sound_only=True)
            needed.update(_start_of(plan, groups).group_id for _ in groups[:1])
        return needed

    def _runs_that_can_come_back(self, plan: Plan) -> list[StepRun]:
        """Those that were cut short, and are so again if one goes back to a group that is still there."""
        runs = [run for run in self.store.runs.with_status(plan.plan_id, *CUT_SHORT) if run.decision_id is not None]
        groups = self.store.groups.of(plan.plan_id, sound_only=True) if runs else []
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
            checkpoints = self.store.checkpoints.of(plan.plan_id)
            states = {group.group_id: group.states for group in self.store.groups.of(plan.plan_id, sound_only=True)}
            # What was pruned meanwhile has no group any more, and perhaps no content.
            for checkpoint in [each for each in checkpoints if each.group_id in states]:
                bad = [verifier.bad_objects_of(state) for state in states[checkpoint.group_id].values()]
                if any(bad) and not self.store.has(Checkpoint, checkpoint.checkpoint_id):
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

        Nothing is freed while a state that is kept cannot be read in full, because what else it needs is not known
        then, or while not all records can be asked for which content is kept. That is no reason to stop what does not
        need that state; ``unfreed`` tells it.
        """
        self.unfreed = None
        try:
            if gone:
                self.manager.delete_checkpoint(*(checkpoint.checkpoint_id for checkpoint in gone))
            return self.manager.collect(self.release.needed_states)
        except NotReleased as error:
            self._postpone_collecting()
            self.unfreed = f"{error.message} {error.hint}"
            return 0
        except ContentError as error:
            self._postpone_collecting()
            self.unfreed = (
                f"No saved content was freed, because something that is kept cannot be read in full: {error.message} "
                "`holdfast checkpoint verify` names the checkpoints; once they are deleted, content is freed again."
            )
            return 0
        except DamagedRecordError as error:
            self._postpone_collecting()
            self.unfreed = (
                "No saved content was freed, because a record that may need some of it is damaged: "
                f"{error.message} `holdfast doctor` says what can be done about it."
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
        tool_calls_after_cp=len(consequences.calls),
        child_plans_applied=tuple(subplan.name for subplan in consequences.applied),
    )


def _stays_begun(error: HoldfastError, compensated: Sequence[StepRun]) -> HoldfastError:
    listed = ", ".join(f"step {run.step_index + 1} ({run.step}): {run.compensation}" for run in compensated)
    return type(error)(
        f"{error.message} Effects outside of the sandboxes were undone before that ({listed}), so the rollback stays "
        "begun.",
        hint=f"{error.hint} The next command that changes the plan finishes the rollback first.",
    )


def _cannot_be_put_back(error: HoldfastError) -> HoldfastError:
    return type(error)(
        f"{error.message} The state before was not kept, so it is not put back: the rollback stays begun.",
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


def _checkpoint(
    plan: Plan,
    group: CheckpointGroup,
    resource_name: str,
    checkpoint_id: str,
    size_bytes: int,
    *,
    title: str = "",
    git: GitHead | None = None,
) -> Checkpoint:
    """The record of one resource at the moment of a group."""
    resource = plan.resource(resource_name)
    return Checkpoint(
        checkpoint_id=checkpoint_id,
        plan_id=plan.plan_id,
        group_id=group.group_id,
        sequence=group.sequence,
        sandbox_ref=sandbox_ref(plan, resource),
        resource_id=resource_name,
        checkpoint_type=group.triggers[0],
        decision_id=group.decision_id,
        filesystem_path=resource.sandbox_path,
        size_bytes=size_bytes,
        metadata=CheckpointMetadata(
            title=name_text(title) or title_of(group),
            reason=group.reason,
            source=group.source,
            phase=group.phase,
            step_index=group.step_index,
            step=group.step,
            state_hash=group.states[resource_name],
            label=group.label,
            triggers=group.triggers,
            git=git,
        ),
        created_at=group.created_at,
    )


def _start_of(plan: Plan, groups: Sequence[CheckpointGroup]) -> CheckpointGroup:
    own = [each for each in groups if (each.attempt, each.revision) == (plan.attempt, plan.revision)]
    return own[0] if own else groups[0]


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


def _with_other_commits(plan: Plan, differing: Mapping[str, Iterable[Difference]]) -> tuple[str, ...]:
    return tuple(
        name
        for name, differences in differing.items()
        if plan.resource(name).type is ResourceType.GIT and any(map(_names_a_commit, differences))
    )


def _names_a_commit(difference: Difference) -> bool:
    if not (difference.path in _HEADS or difference.path.startswith(b".git/refs/")):
        return False
    old, new = difference.old, difference.new
    return any(entry is not None and entry.is_file for entry in (old, new)) and (
        old is None or new is None or old.content != new.content
    )


def _of_user(plan: Plan, resource: Resource, differences: Iterable[Difference]) -> list[Difference]:
    """Without the sandbox's own affairs."""
    hides = sandbox_for(plan, resource).hides
    # The folder of a work tree itself is no part of a repository.
    has_root = resource.type is ResourceType.DIRECTORY
    return [each for each in differences if (each.path or has_root) and not hides(each.path)]


def _visible_of_user(plan: Plan, found: Mapping[str, Iterable[Difference]]) -> dict[str, tuple[Difference, ...]]:
    return {name: tuple(visible(_of_user(plan, plan.resource(name), listed))) for name, listed in found.items()}


def _file_changes(changes: Mapping[str, Iterable[Difference]]) -> tuple[FileChange, ...]:
    return tuple(_file_change(name, difference) for name, listed in changes.items() for difference in listed)


def _file_change(resource: str, difference: Difference) -> FileChange:
    action: Literal["removed", "restored"] = "removed" if difference.new is None else "restored"
    return FileChange(resource=resource, file=shown(difference.path), action=action)
