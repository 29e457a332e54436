"""The subplans of a step: each runs in sandboxes forked from its parent's, and their results are brought together.

They run under the lease of the plan at the root. Results come into the parent's sandboxes in the order in which the
subplans are listed, one merge at a time; each merge is a stored state before it is files, so that a merge that was cut
short is simply done again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.service import CheckpointService
from holdfast.content.difference import Difference, StateReader
from holdfast.content.format import DIRECTORY, Entry, State
from holdfast.errors import ConflictError, HoldfastError
from holdfast.events import Event, SubplanEnded, SubplanMerged, SubplanStarted
from holdfast.model import (
    CheckpointGroup,
    Conflict,
    Decision,
    DecisionSpec,
    DecisionType,
    Lease,
    MergeStrategy,
    Phase,
    Plan,
    PlanState,
    Record,
    Revision,
    RunStatus,
    Step,
    StepRun,
    Trigger,
    now,
)
from holdfast.names import name_text
from holdfast.sandbox import sandbox_for
from holdfast.snapshot.merge import Merged, PathConflict, merge_states
from holdfast.snapshot.selection import change
from holdfast.system.directories import shown, with_ancestors
from holdfast.system.ids import new_id
from holdfast.system.trees import remove_tree

_CONFLICTS = ".conflicts"
_MARKS = (b"<<<<<<< ", b">>>>>>> ")


class Host(Protocol):
    """What runs the plan that the subplans belong to."""

    def execute_subplan(self, subplan: Plan, lease: Lease, service: CheckpointService) -> Plan: ...

    def trigger(
        self, plan: Plan, lease: Lease, triggers: list[Trigger], occasion: Occasion, records: Collection[Record] = ()
    ) -> Plan: ...

    def tell(self, event: Event) -> None: ...


def spawn_spec(step: Step) -> DecisionSpec:
    names = ", ".join(subplan.name for subplan in step.subplans)
    if step.parallel > 1:
        return DecisionSpec(
            type=DecisionType.SUBPLAN_PARALLEL_SPAWN,
            question=f"How is this divided: {step.name}?",
            chosen=f"{names}; up to {step.parallel} at the same time, merged by {step.merge}",
        )
    return DecisionSpec(
        type=DecisionType.SUBPLAN_SPAWN,
        question=f"How is this divided: {step.name}?",
        chosen=f"{names}; one after another",
    )


def spawned_records(plan: Plan, step: Step, decision: Decision) -> list[Record]:
    """The step's subplans as they are before anything of them has run."""
    folder = plan_folder(plan).parent
    records: list[Record] = []
    for each in step.subplans:
        plan_id, at = new_id(), now()
        resources = tuple(
            resource.model_copy(update={"sandbox_path": str(folder / plan_id / resource.name)})
            for resource in plan.resources
        )
        subplan = Plan(
            plan_id=plan_id,
            project_id=plan.project_id,
            name=each.name,
            resources=resources,
            policy=plan.policy,
            steps=each.steps,
            active_decisions=((1, 1),),
            parent_plan_id=plan.plan_id,
            spawn_decision_id=decision.decision_id,
            guidance=plan.guidance,
            source_file=plan.source_file,
            store_id=plan.store_id,
            created_at=at,
            updated_at=at,
        )
        records += [subplan, Revision(plan_id=plan_id, revision=1, steps=each.steps), Decision.root_of(subplan)]
    return records


def plan_folder(plan: Plan) -> Path:
    return Path(plan.resources[0].sandbox_path).parent


def clear_away_what_came_back(plan: Plan, service: CheckpointService) -> None:
    """What was removed when a step with subplans had ended: a power cut may bring it back."""
    history = service.history(plan)
    if history.subplans:
        for run in history.runs:
            if run.status is RunStatus.SUCCEEDED and not run.is_superseded:
                _clear_away(plan, history.spawned_by(run))


def _clear_away(plan: Plan, merged: Sequence[Plan]) -> None:
    """The sandboxes of subplans whose results came in, and the versions of files in a conflict that is resolved."""
    kept = plan_folder(plan) / _CONFLICTS
    for subplan in merged:
        remove_tree(plan_folder(subplan))
        remove_tree(kept / subplan.plan_id)
    if kept.is_dir() and not any(kept.iterdir()):
        kept.rmdir()


class SubplanRunner:
    """Runs the subplans of one run of a step to their end, or as far as they come."""

    def __init__(
        self,
        host: Host,
        service: CheckpointService,
        lease: Lease,
        cancelled: threading.Event,
        step: Step,
        run: StepRun,
        *,
        is_begun: bool,
    ) -> None:
        """``is_begun``: the run was cut short, or waited for a person, and goes on now."""
        self._host, self._service, self._lease, self._cancelled = host, service, lease, cancelled
        self._step, self._run, self._is_begun = step, run, is_begun
        self._stop_starting = threading.Event()

    def run(self, plan: Plan) -> tuple[Plan, StepRun]:
        subplans = self._service.history(plan).spawned_by(self._run)
        plan = self._ready(plan, subplans)
        together = [subplans] if self._step.parallel > 1 else [[subplan] for subplan in subplans]
        for number, waiting in enumerate(together):
            if number and waiting[0].head_group_id is None and not self._cancelled.is_set():
                occasion = self._occasion(f"before {waiting[0].name}")
                plan = self._host.trigger(plan, self._lease, [Trigger.ON_SUBPLAN_SPAWN], occasion)
            batch = self._execute(waiting)
            if any(subplan.state is not PlanState.COMPLETE for subplan in batch):
                return self._cut_off(plan)
            for subplan in batch:
                if subplan.merged_states is None:
                    plan, conflicts = self._merge(plan, subplan)
                    if conflicts:
                        return plan, self._run
        _clear_away(plan, subplans)
        return plan, self._ended(RunStatus.SUCCEEDED, None)

    def _ready(self, plan: Plan, subplans: Sequence[Plan]) -> Plan:
        """The sandboxes as the last merge left them, whatever a merge that was cut short has done to them since."""
        if self._run.status is RunStatus.CONSTRAINED:
            return self._resolved(plan, subplans)
        merged = [(subplan, subplan.merged_states) for subplan in subplans if subplan.merged_states is not None]
        if merged:
            last, states = merged[-1]
            self._service.sandboxes.restore_states(plan, states)
            if self._service.store.get(CheckpointGroup, plan.head_group_id or "").states != states:
                # It was merged, but the checkpoint after it was not taken any more.
                occasion = self._occasion(f"after {last.name}")
                return self._host.trigger(plan, self._lease, [Trigger.AFTER_SUBPLAN], occasion)
        elif begun := [subplan for subplan in subplans if subplan.head_group_id is not None]:
            self._service.sandboxes.restore_states(plan, self._base(begun[0]))
        elif self._is_begun and self._run.group_before_id is not None:
            self._service.sandboxes.restore_states(
                plan, self._service.store.get(CheckpointGroup, self._run.group_before_id).states
            )
        return plan

    def _resolved(self, plan: Plan, subplans: Sequence[Plan]) -> Plan:
        """A person has resolved the conflicts: what is in the sandboxes now is what the rest starts from."""
        conflicts = self._run.conflicts or ()
        self._run = self._run.model_copy(update={"status": RunStatus.RUNNING, "conflicts": None, "error": None})
        if not conflicts:
            return plan  # they are in a subplan of a subplan, which goes on by itself
        last = [subplan for subplan in subplans if subplan.merged_states is not None][-1]
        spec = DecisionSpec(
            type=DecisionType.USER_INTERVENTION,
            question=f"How does {last.name} go together with the rest?",
            chosen="as resolved in the sandbox: " + ", ".join(conflict.path for conflict in conflicts),
        )
        decision = self._service.decision(plan, spec, self._run.step_index, self._run.decision_id)
        with self._service.manager.storing():
            last = last.changed(merged_states=self._service.sandboxes.states_now(plan))
            with self._service.store.transaction(self._lease):
                for record in (last, self._run, decision):
                    self._service.store.save(record)
        occasion = self._occasion(f"conflicts of {last.name} are resolved", decision.decision_id)
        return self._host.trigger(plan, self._lease, [Trigger.AFTER_SUBPLAN, Trigger.ON_DECISION], occasion)

    # Running

    def _execute(self, subplans: Sequence[Plan]) -> list[Plan]:
        with ThreadPoolExecutor(max_workers=self._step.parallel, thread_name_prefix="holdfast-subplan") as pool:
            return [each.result() for each in [pool.submit(self._execute_one, subplan) for subplan in subplans]]

    def _execute_one(self, subplan: Plan) -> Plan:
        if subplan.state is PlanState.COMPLETE or self._stop_starting.is_set() or self._cancelled.is_set():
            return subplan
        self._host.tell(SubplanStarted(subplan))
        service = self._service.sibling()
        try:
            subplan = self._host.execute_subplan(subplan, self._lease, service)
        except HoldfastError:
            self._stop_starting.set()
            raise
        finally:
            service.close()
        if subplan.state is not PlanState.COMPLETE:
            self._stop_starting.set()
        self._host.tell(SubplanEnded(subplan))
        return subplan

    def _cut_off(self, plan: Plan) -> tuple[Plan, StepRun]:
        """Not all came to their end: why, and what has not begun never will in this run."""
        subplans = self._service.history(plan).spawned_by(self._run)
        if self._cancelled.is_set():
            return plan, self._ended(RunStatus.INTERRUPTED, "stopped")
        constrained = [each for each in subplans if each.state is PlanState.CONSTRAINED]
        failed = [each for each in subplans if each.state is PlanState.ERRORED]
        if constrained and not failed:
            error = f"subplan {constrained[0].name} is constrained: {constrained[0].error}"
            self._run = self._run.model_copy(update={"status": RunStatus.CONSTRAINED, "conflicts": (), "error": error})
            plan = plan.changed(state=PlanState.CONSTRAINED, error=error)
            with self._service.store.transaction(self._lease):
                self._service.store.save(self._run)
                self._service.store.save(plan)
            return plan, self._run
        waiting = [each for each in subplans if each.state is PlanState.QUEUED]
        with self._service.store.transaction(self._lease):
            for each in waiting:
                error = f"not started, because {failed[0].name} failed"
                self._service.store.save(each.changed(state=PlanState.CANCELLED, error=error))
        named = "; ".join(f"subplan {each.name} failed: {each.error}" for each in failed)
        return plan, self._ended(RunStatus.FAILED, named)

    def _ended(self, status: RunStatus, error: str | None) -> StepRun:
        plan = self._service.store.get(Plan, self._run.plan_id)
        subplans = self._service.history(plan).spawned_by(self._run)
        output = "".join(f"{each.name}: {each.state}{_because(each)}\n" for each in subplans)
        return self._run.model_copy(
            update={
                "status": status,
                "error": error,
                "output": output,
                "output_bytes": len(output.encode(errors="surrogatepass")),
                "finished_at": now(),
            }
        )

    def _occasion(self, reason: str, decision_id: str | None = None) -> Occasion:
        return Occasion(
            triggers=(),
            reason=reason,
            title=f"step {self._run.step_index + 1}, subplans: {reason}",
            source=self._step.tool,
            step_index=self._run.step_index,
            decision_id=decision_id or self._run.decision_id,
            resource=self._step.resource,
        )

    # Merging

    def _base(self, subplan: Plan) -> dict[str, str]:
        return self._service.store.groups.first(subplan.plan_id).states

    def _merge(self, plan: Plan, subplan: Plan) -> tuple[Plan, tuple[Conflict, ...]]:
        """Bring the subplan's result into its parent's sandboxes; the content stays until the records name it."""
        store = self._service.store
        with self._service.manager.storing() as batch:
            ours = self._service.sandboxes.states_now(plan, thorough=False)
            theirs = store.get(CheckpointGroup, subplan.head_group_id or "").states
            base = self._base(subplan)
            merged = {
                resource.name: merge_states(
                    self._service.manager.reader,
                    batch,
                    base=base[resource.name],
                    ours=ours[resource.name],
                    theirs=theirs[resource.name],
                    labels=(plan.name, "before", subplan.name),
                    hides=sandbox_for(plan, resource).hides,
                    theirs_wins=self._step.merge is MergeStrategy.LAST_WINS,
                )
                for resource in plan.resources
            }
            conflicts = self._conflicts(plan, subplan, merged, {"ours": ours, "theirs": theirs})
            if conflicts and self._step.merge is MergeStrategy.FAIL_ON_CONFLICT:
                self._run = self._ended(RunStatus.FAILED, _conflict_text(subplan, conflicts))
                return plan, conflicts
            batch.commit()
            states = {name: each.state for name, each in merged.items()}
            self._service.sandboxes.restore_states(plan, states)
            subplan = subplan.changed(merged_states=states)
            if conflicts:
                # While it waits, nothing but these files says what is not resolved yet: a power cut must not take them.
                os.sync()
                error = _conflict_text(subplan, conflicts)
                changed = {"status": RunStatus.CONSTRAINED, "conflicts": conflicts, "error": error}
                self._run = self._run.model_copy(update=changed)
                plan = plan.changed(state=PlanState.CONSTRAINED, error=error)
            with store.transaction(self._lease):
                for record in (plan, subplan, self._run):
                    store.save(record)
        self._host.tell(SubplanMerged(subplan, conflicts))
        occasion = self._occasion(f"after {subplan.name}")
        return self._host.trigger(plan, self._lease, [Trigger.AFTER_SUBPLAN], occasion), conflicts

    def _conflicts(
        self, plan: Plan, subplan: Plan, merged: dict[str, Merged], sides: dict[str, dict[str, str]]
    ) -> tuple[Conflict, ...]:
        versions = plan_folder(plan) / _CONFLICTS / subplan.plan_id
        remove_tree(versions)  # a merge that was cut short may have left some
        found = []
        for name, result in merged.items():
            kept: dict[bytes, list[str]] = {each.path: [] for each in result.conflicts}
            for side, states in sides.items() if kept else ():
                place = versions / side / name
                for path in self._keep_versions(place, states[name], result.conflicts):
                    kept[path].append(os.fsdecode(os.path.join(os.fsencode(place), path)))
            found += [
                Conflict(
                    resource=name,
                    path=shown(each.path),
                    subplan=subplan.name,
                    reason=each.reason,
                    is_marked=each.is_marked,
                    kept=tuple(kept[each.path]),
                )
                for each in result.conflicts
            ]
        return tuple(found)

    def _keep_versions(self, folder: Path, state_hash: str, conflicts: Sequence[PathConflict]) -> list[bytes]:
        """One side of everything in conflict, to look at and to take from; the paths it has at all."""
        reader = self._service.manager.reader
        state = reader.state(state_hash)
        held = [each for each in conflicts if each.path and reader.find(state, each.path) is not None]
        entries = {path: reader.find(state, path) for path in with_ancestors(each.path for each in held) if path}
        for each in held:
            if not each.is_of_folders:
                entries |= reader.walk(state, each.path)
        folder.mkdir(parents=True, mode=0o700)
        made = [Difference(path, None, entry) for path, entry in entries.items()]
        change(folder, reader, made, is_real=False)
        return [each.path for each in held]


def waiting_again(plan: Plan, lease: Lease, service: CheckpointService) -> Plan | None:
    """The plan as it waits for a person, if a step of it does: whatever ended its execution, all is still there."""
    runs = service.store.runs.unfinished(plan.plan_id)
    constrained = [run for run in runs if run.status is RunStatus.CONSTRAINED]
    if not constrained:
        return None
    if plan.state is not PlanState.CONSTRAINED:
        plan = plan.changed(phase=Phase.EXECUTE, state=PlanState.CONSTRAINED, error=constrained[0].error)
        with service.store.transaction(lease):
            service.store.save(plan)
    return plan


def refuse_unresolved(plan: Plan, service: CheckpointService, *, take_as_is: bool = False) -> None:
    """Refuse to go on with a constrained plan while a conflict is as the merge left it."""
    run = service.store.runs.latest_in_force(plan.plan_id)
    if run is None or run.status is not RunStatus.CONSTRAINED:
        return
    subplans = service.history(plan).spawned_by(run)
    for subplan in subplans:
        if subplan.state is PlanState.CONSTRAINED:
            refuse_unresolved(subplan, service, take_as_is=take_as_is)
    if take_as_is or not run.conflicts:
        return
    last = [subplan for subplan in subplans if subplan.merged_states is not None][-1]
    open_conflicts = _unresolved(plan, service, run.conflicts, last.merged_states or {})
    if open_conflicts:
        raise ConflictError(
            f"These conflicts are not resolved yet:\n{_conflict_lines(plan, open_conflicts)}",
            hint="Edit the files there, then run `holdfast plan resume` again; `--resolved` takes them as they are.",
            paths=tuple(conflict.path for conflict in open_conflicts),
        )


def _unresolved(
    plan: Plan, service: CheckpointService, conflicts: Sequence[Conflict], left: dict[str, str]
) -> list[Conflict]:
    reader, found = service.manager.reader, []
    present = service.sandboxes.states_now(plan)
    for conflict in conflicts:
        path = b"" if conflict.path == "." else os.fsencode(conflict.path)
        entry = _at_or_above(reader, reader.state(present[conflict.resource]), path)
        if conflict.is_marked:
            lines = b"".join(reader.content(entry)).splitlines() if entry is not None and entry.is_file else []
            if any(line.startswith(_MARKS) for line in lines):
                found.append(conflict)
        elif entry == _at_or_above(reader, reader.state(left[conflict.resource]), path):
            found.append(conflict)
    return found


def _at_or_above(reader: StateReader, state: State, path: bytes) -> Entry | None:
    """What is at that path, or is in the place of a folder it would lie in."""
    on_the_way = (reader.find(state, place) for place in sorted(with_ancestors([path])))
    return next((each for each in on_the_way if each is None or each.kind != DIRECTORY), reader.find(state, path))


def _conflict_lines(plan: Plan, conflicts: Sequence[Conflict]) -> str:
    """One line a conflict: the file to edit, and why."""
    roots = {each.name: Path(each.sandbox_path) for each in plan.resources}
    return "\n".join(f"  {name_text(str(roots[each.resource] / each.path))}: {each.reason}" for each in conflicts)


def _conflict_text(subplan: Plan, conflicts: Sequence[Conflict]) -> str:
    listed = ", ".join(f"{name_text(each.path)} ({each.reason})" for each in conflicts)
    return f"subplan {subplan.name} conflicts with what the plan has: {listed}"


def _because(subplan: Plan) -> str:
    return f" ({subplan.error})" if subplan.error else ""
