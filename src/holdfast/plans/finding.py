"""Plans: finds and lists them, and tells how each of them is now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import AmbiguousError, DamagedRecordError, NotFoundError, StateError
from holdfast.model import (
    Conflict,
    Lease,
    Operation,
    OperationKind,
    OperationState,
    Plan,
    PlanState,
    Project,
    StepRun,
    now,
)
from holdfast.names import TIME_CHARACTERS, did_you_mean, short_ids
from holdfast.parts import Parts

if TYPE_CHECKING:
    from holdfast.db.store import Store
    from holdfast.process.confinement import Confinement

LATEST = "latest"

# What a function imports is not needed by most commands: they start without it.


class PlanStatus(msgspec.Struct, frozen=True):
    plan: Plan
    root_id: str
    """The id of the root plan, with which a subplan is resumed; its own id if it is no subplan."""
    steps: range
    """The indexes of the steps that were asked about."""
    runs: tuple[StepRun, ...]
    """All runs, or those that tell how these steps are; oldest first."""
    checkpoints: int
    holder: Lease | None
    """The lease of the process that works on it now."""
    interrupted: bool
    """Its state is processing, but its process is dead; the next command that changes the plan recovers it."""
    cut_short: tuple[OperationKind, ...]
    """Operations that a dead process began; the next command that changes the plan finishes or undoes them."""
    confinement: Confinement
    """Whether its steps are confined to its sandboxes, with the present settings on this machine."""
    subplans: tuple[Plan, ...]
    conflicts: tuple[tuple[Plan, Conflict], ...]
    """What a person has to resolve, each with the plan in whose sandboxes it is: this one or a subplan."""
    outside_of_rollback: tuple[Path, ...]
    """Where its steps may write besides: ``sandbox.allow-write``, and what its programs were given."""
    program_run: StepRun | None
    """How the last program ended, if the step that was done last is one."""
    applied_parts: tuple[str, ...] = ()
    """The paths of its result that were applied already, as they were chosen, if something of it is left."""


class Plans:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    # Finding

    def find_plan(self, reference: str) -> Plan:
        """By full id, a unique beginning of it, or ``latest``."""
        if reference == LATEST:
            project_id = self._find_project_id()
            plan = self._parts.store.plans.latest(project_id) if project_id is not None else None
            if plan is None:
                raise NotFoundError(
                    f"There is no plan in the project {self._parts.project_root}.",
                    hint="Create one with `holdfast plan create FILE`.",
                )
            return plan
        found = self._parts.store.plans.by_prefix(reference) if reference else []
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(plan.plan_id for plan in found[:10])
            raise AmbiguousError(f"{len(found)} plans begin with {reference!r}.", hint=f"Say which one: {listed}.")
        guess = did_you_mean(reference, [LATEST]) or "."
        raise NotFoundError(f"There is no plan {reference!r}{guess}", hint="See them with `holdfast plan list`.")

    def list_plans(self, *, everywhere: bool = False, limit: int | None = None) -> list[Plan]:
        return list(self.plans_newest_first(everywhere=everywhere, limit=limit))

    def plans_newest_first(self, *, everywhere: bool = False, limit: int | None = None) -> Iterator[Plan]:
        """The plans of this project, or of all projects, read as they are asked for."""
        project_id = None if everywhere else self._find_project_id()
        if everywhere or project_id is not None:
            yield from self._parts.store.plans.newest_first(project_id, limit)

    def count_plans(self, *, everywhere: bool = False) -> int:
        """How many plans there are, damaged ones too."""
        if everywhere:
            return self._parts.store.plans.count_of_project(None)
        project_id = self._find_project_id()
        return self._parts.store.plans.count_of_project(project_id) if project_id is not None else 0

    def plans_to_prune(
        self,
        states: Collection[PlanState] = (PlanState.APPLIED,),
        *,
        older_than: timedelta | None = None,
        keep: int = 0,
        everywhere: bool = False,
    ) -> list[Plan]:
        """The plans of this project, or of all, that are in such a state and can be deleted; newest first.

        ``older_than``: only those in which nothing happened for so long. ``keep``: not the newest ones of each project
        in such a state, so many. Never those that a process works on, or in which something was cut short.
        """
        listed = self.plans_newest_first(everywhere=everywhere)
        found = prunable(listed, states, before=None if older_than is None else now() - older_than, keep=keep)
        return [plan for plan in found if not self._is_in_use(plan)]

    def _is_in_use(self, plan: Plan) -> bool:
        with suppress(DamagedRecordError):
            return self._root_and_holder(plan)[1] is not None or bool(
                self._parts.store.operations.unfinished(plan.plan_id, sound_only=True)
            )
        return True  # it is not known

    def short_ids(self, plan_ids: Sequence[str]) -> dict[str, str]:
        """A beginning of each id that no other plan has, as short as later plans do not make it ambiguous."""
        return short_ids(plan_ids, self._parts.store.plans.ids_beside(plan_ids, TIME_CHARACTERS))

    def below(self, plan: Plan) -> Iterator[Plan]:
        """All its subplans, at any depth."""
        for subplan in self._parts.store.plans.below(plan.plan_id):
            yield subplan
            yield from self.below(subplan)

    def _find_project_id(self) -> str | None:
        return self._parts.store.plans.find_project_id(str(self._parts.project_root))

    # How they are

    def find_damaged_plan(self, plan_id: str) -> str | None:
        """The id, if the record of the plan, its lease or a subplan is damaged, so that it can only be deleted.

        ``plan_id`` must be the whole id.
        """
        store, plan_id = self._parts.store, plan_id.strip().upper()
        if not any(map(store.damaged.is_plan_damaged, family_of(store, plan_id))):
            return None
        parent = store.damaged.parent_of_plan(plan_id)
        if parent is not None:
            raise StateError(
                f"Plan {plan_id} is damaged; according to its record it is a subplan of {parent}.",
                hint=f"Delete the whole plan: `holdfast plan delete {parent}`.",
            )
        return plan_id

    def delete_damaged(self, plan_id: str) -> None:
        """Delete a plan whose record is damaged, without relying on the record."""
        from holdfast.plans.deleting import delete_damaged_plan

        self._parts.refuse_read_only()
        with self._parts.reserve.given_up():
            delete_damaged_plan(plan_id, self._parts)
            self._parts.service.garbage.collect()

    def is_done(self, plan: Plan) -> bool:
        """Whether executing it runs nothing: it is complete or applied, and nothing of it was cut short."""
        is_over = plan.state in (PlanState.COMPLETE, PlanState.APPLIED)
        return is_over and not self._parts.store.operations.unfinished(plan.plan_id)

    def root_of(self, plan: Plan) -> Plan:
        """The root plan of a subplan, with which it is resumed; any other plan itself."""
        return self._parts.store.plans.root_of(plan)

    def runs(self, plan_id: str) -> list[StepRun]:
        """Every run of a step or a validation of the plan, oldest first."""
        return self._parts.store.runs.of(plan_id)

    def program_run(self, plan: Plan) -> StepRun | None:
        """How the last program of the plan ended; None if the step that was done last is not one."""
        last = plan.last_completed_step
        if not 0 <= last < len(plan.steps) or not plan.steps[last].is_program:
            return None
        return self._parts.store.runs.latest_of_step(plan.plan_id, last)

    def project_roots(self, plans: Sequence[Plan]) -> dict[str, str]:
        """The folders of the plans' projects by project id; a project whose record is damaged is left out."""
        ids = {plan.project_id for plan in plans}
        found = (self._parts.store.find(Project, each, sound_only=True) for each in ids)
        return {project.project_id: project.root for project in found if project is not None}

    def is_interrupted(self, plan: Plan) -> bool:
        """Whether its state is processing although its process is dead."""
        if plan.state is PlanState.PROCESSING and not plan.is_session:
            with suppress(DamagedRecordError):  # then it is not known which process works on it
                return self._root_and_holder(plan)[1] is None
        return False

    def _root_and_holder(self, plan: Plan) -> tuple[str, Lease | None]:
        from holdfast.db.lease import holder_of

        root_id = self._parts.store.plans.root_of(plan).plan_id
        return root_id, holder_of(self._parts.store, root_id)

    def status(self, reference: str, *, steps: int | None = None) -> PlanStatus:
        """How a plan is now; ``steps``: with the runs of only so many of its steps, the next one among them."""
        from holdfast.process.confinement import confinement_of, expanded

        plan, store, settings = self.find_plan(reference), self._parts.store, self._parts.settings
        allowed = expanded(settings.allow_write, self._parts.user_home)
        shown = range(len(plan.steps)) if steps is None else steps_around(plan, steps)
        holder, root_id = None, plan.plan_id
        with suppress(DamagedRecordError):
            root_id, holder = self._root_and_holder(plan)
        operations = store.operations.unfinished_or_applied(plan.plan_id)
        applied = [each for each in operations if each.state is OperationState.DONE]
        return PlanStatus(
            plan=plan,
            root_id=root_id,
            steps=shown,
            runs=tuple(store.runs.of(plan.plan_id, sound_only=True) if steps is None else self._runs_of(plan, shown)),
            checkpoints=store.checkpoints.count(plan.plan_id),
            holder=holder,
            interrupted=self.is_interrupted(plan),
            cut_short=() if holder else tuple(each.kind for each in operations if each not in applied),
            confinement=confinement_of(settings.confine),
            subplans=tuple(store.plans.below(plan.plan_id, sound_only=True)),
            conflicts=tuple(self.conflicts(plan)),
            outside_of_rollback=tuple(dict.fromkeys((*allowed, *_places_given(plan)))),
            program_run=self.program_run(plan),
            applied_parts=_parts_of(plan, applied),
        )

    def applied_parts(self, plan: Plan) -> tuple[str, ...]:
        """The paths of its result that were applied already, if something of it is left."""
        operations = self._parts.store.operations.unfinished_or_applied(plan.plan_id)
        return _parts_of(plan, [each for each in operations if each.state is OperationState.DONE])

    def _runs_of(self, plan: Plan, steps: range) -> list[StepRun]:
        """The runs in force of these steps and of all after them, and the last run of all."""
        store = self._parts.store
        page = len(steps) + len(plan.validation) + 1
        in_force = store.runs.in_force_newest_first(plan.plan_id, page)
        found = {run.sequence: run for run in takewhile(lambda run: run.step_index >= steps.start, in_force)}
        last = next(store.runs.newest_first(plan.plan_id, page=1), None)
        if last is not None:
            found[last.sequence] = last
        return [found[sequence] for sequence in sorted(found)]

    def conflicts(self, plan: Plan) -> list[tuple[Plan, Conflict]]:
        """What a person has to resolve before a constrained plan can go on, in its sandboxes or a subplan's."""
        if plan.state is not PlanState.CONSTRAINED:
            return []
        store = self._parts.store
        run = store.runs.latest_in_force(plan.plan_id)
        own = [(plan, conflict) for conflict in (run.conflicts or ())] if run else []
        return own + [found for each in store.plans.below(plan.plan_id) for found in self.conflicts(each)]


def prunable(
    newest_first: Iterable[Plan], states: Collection[PlanState], *, before: datetime | None, keep: int
) -> Iterator[Plan]:
    """The plans in one of these states without the newest of each project, and without what was changed later."""
    seen: Counter[str] = Counter()
    for plan in newest_first:
        if plan.state in states:
            seen[plan.project_id] += 1
            if seen[plan.project_id] > keep and (before is None or plan.updated_at < before):
                yield plan


def _parts_of(plan: Plan, applied: Sequence[Operation]) -> tuple[str, ...]:
    if not applied or plan.state is PlanState.APPLIED:
        return ()
    from holdfast.apply.parts import parts_applied  # few plans are applied in parts

    return parts_applied(applied)


_COMING = 10
"""How many of the steps that are shown have not been done yet, if there are so many."""


def steps_around(plan: Plan, most: int) -> range:
    """The steps that are shown of a plan: at most so many, around its next one."""
    count = len(plan.steps)
    first = max(0, min(plan.next_step + _COMING, count) - most)
    return range(first, min(first + most, count))


def project_root(start: Path) -> Path:
    """The root of the git repository around ``start``, or outside of one ``start`` itself."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / ".git").exists():
            return folder
    return start


def family_of(store: Store, plan_id: str) -> list[str]:
    """The ids of the plan and of all its subplans; a damaged record may name the plan itself as its parent."""
    found = [plan_id]
    for each in found:
        found += [below for below in store.plans.ids_below(each) if below not in found]
    return found


def _places_given(plan: Plan) -> list[Path]:
    """Where its programs may write besides, as a person or the profile of an agent said."""
    given = [each for step in plan.steps for each in (step.run_settings, step.grant) if each is not None]
    return [Path(place) for each in given for place in each.allow_write]
