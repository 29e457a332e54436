"""Plans: made, found, listed, and how each of them is now."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import AmbiguousError, ConfigError, DamagedRecordError, NotFoundError, StateError, UsageError
from holdfast.model import (
    Conflict,
    Decision,
    Lease,
    OperationKind,
    Plan,
    PlanState,
    Project,
    Resource,
    Revision,
    StepRun,
    now,
)
from holdfast.parts import Parts
from holdfast.system.ids import new_id
from holdfast.system.once import once

if TYPE_CHECKING:
    from holdfast.db.store import Store
    from holdfast.planfile.draft import PlanDraft
    from holdfast.process.confinement import Confinement

LATEST = "latest"

# What is imported in a function below is not needed by every command: most start without it.


@dataclass(frozen=True)
class PlanStatus:
    plan: Plan
    root_id: str
    """Of the plan that a subplan belongs to and goes on with; of any other its own."""
    runs: tuple[StepRun, ...]
    checkpoints: int
    holder: Lease | None
    """The process that is at work on it now."""
    interrupted: bool
    """It says processing, but its process is dead: the next command that changes it puts it right."""
    cut_short: tuple[OperationKind, ...]
    """What was begun by a process that is dead; the next command that changes the plan finishes or undoes it."""
    confinement: Confinement
    """Whether its steps are held to its sandboxes, by the settings and on the machine of now."""
    subplans: tuple[Plan, ...]
    conflicts: tuple[tuple[Plan, Conflict], ...]
    """What a person has to resolve, and in which plan's sandboxes: its own or those of a subplan."""
    outside_of_rollback: tuple[Path, ...]
    """Where else they may write then: ``sandbox.allow-write``."""


class Plans:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    # Making

    def create_plan(self, file: Path) -> Plan:
        from holdfast.planfile import load_plan_file

        policy, check_step = self._parts.settings.policy, self._parts.step_problems
        return self._created(load_plan_file(file, defaults=policy, check_step=check_step))

    def create_program_plan(
        self,
        argv: Sequence[str],
        *,
        resources: Sequence[Path] = (),
        folder: Path | None = None,
        pass_env: Sequence[str] = (),
        allow_write: Sequence[str] = (),
    ) -> Plan:
        """A plan of one step that runs a program in sandboxes of these folders, by default of the project's.

        ``pass_env`` and ``allow_write`` are what its ``Outfit`` will name; what is wrong with them is said here, before
        there is a plan.
        """
        from holdfast.planfile.program import program_draft
        from holdfast.process.environment import passed_variables, refuse_unknown_program, refuse_what_cannot_be_passed

        settings, environment = self._parts.settings, self._parts.environment
        refuse_what_cannot_be_passed(pass_env, environment)
        self._refuse_what_cannot_be_written(allow_write)
        folder = folder or Path.cwd()
        draft = program_draft(argv, resources or (project_root(folder),), folder, settings.policy)
        seen = passed_variables(environment, (*settings.pass_env, *pass_env))
        (step,) = draft.steps
        root = next(each.path for each in draft.resources if each.name == step.resource)
        refuse_unknown_program(argv[0], seen.get("PATH", os.defpath), root / step.args["folder"], root)
        return self._created(draft)

    def _refuse_what_cannot_be_written(self, places: Sequence[str]) -> None:
        from holdfast.process.confinement import allowed_paths

        parts = self._parts
        parts.allowed_paths()
        try:
            allowed_paths(places, user_home=parts.user_home, holdfast_home=parts.home, origin="--allow-write")
        except ConfigError as error:
            raise UsageError(error.message, hint=error.hint) from error

    def _created(self, draft: PlanDraft) -> Plan:
        from holdfast.execution.preflight import check_plan

        parts, store = self._parts, self._parts.store
        parts.refuse_read_only()
        plan_id = new_id()
        at = now()
        plan = Plan(
            plan_id=plan_id,
            project_id=self._project.project_id,
            name=draft.name,
            resources=tuple(
                Resource(
                    name=each.name,
                    type=each.type,
                    path=str(each.path),
                    sandbox_path=str(parts.home / "sandboxes" / plan_id / each.name),
                )
                for each in draft.resources
            ),
            policy=draft.policy,
            validation=draft.validation,
            steps=draft.steps,
            active_decisions=((1, 1),),
            source_file=str(draft.source_file or ""),
            store_id=parts.service.manager.objects.store_id,
            created_at=at,
            updated_at=at,
        )
        check_plan(plan, parts.tools, parts.home)
        with store.transaction():
            plan = plan.model_copy(update={"sequence": store.plans.next_sequence()})
            store.insert(plan)
            store.insert(Revision(plan_id=plan_id, revision=1, steps=plan.steps))
            store.insert(Decision.root_of(plan))
        return plan

    # Finding

    def find_plan(self, reference: str) -> Plan:
        """By full id, a unique beginning of it, or ``latest``."""
        if reference == LATEST:
            project_id = self._find_project_id()
            plan = self._parts.store.plans.latest(project_id) if project_id is not None else None
            if plan is None:
                raise NotFoundError(
                    f"There is no plan in the project {self._parts.project_root}.",
                    hint="Make one with `holdfast plan create FILE`.",
                )
            return plan
        found = self._parts.store.plans.by_prefix(reference) if reference else []
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(plan.plan_id for plan in found[:10])
            raise AmbiguousError(f"{len(found)} plans begin with {reference!r}.", hint=f"Say which one: {listed}.")
        from holdfast.names import did_you_mean

        guess = did_you_mean(reference, [LATEST]) or "."
        raise NotFoundError(f"There is no plan {reference!r}{guess}", hint="See them with `holdfast plan list`.")

    def list_plans(self, *, everywhere: bool = False, limit: int | None = None) -> list[Plan]:
        if everywhere:
            return self._parts.store.plans.of_project(None, limit)
        project_id = self._find_project_id()
        return self._parts.store.plans.of_project(project_id, limit) if project_id is not None else []

    def below(self, plan: Plan) -> Iterator[Plan]:
        """Its subplans, and theirs."""
        for subplan in self._parts.store.plans.below(plan.plan_id):
            yield subplan
            yield from self.below(subplan)

    @once
    def _project(self) -> Project:
        return self._parts.store.plans.project_for(str(self._parts.project_root))

    def _find_project_id(self) -> str | None:
        return self._parts.store.plans.find_project_id(str(self._parts.project_root))

    # How they are

    def find_damaged_plan(self, plan_id: str) -> str | None:
        """The id, if its record, its lease or a subplan is damaged, so that it can only be deleted.

        It must be named in full.
        """
        store, plan_id = self._parts.store, plan_id.strip().upper()
        damaged = {*store.damaged.plans(), *store.damaged.leases()}
        if damaged.isdisjoint(family_of(store, plan_id)):
            return None
        parent = store.damaged.parent_of_plan(plan_id)
        if parent is not None:
            raise StateError(
                f"Plan {plan_id} is damaged, and says that it is a subplan of {parent}.",
                hint=f"It goes with the whole plan: `holdfast plan delete {parent}`.",
            )
        return plan_id

    def is_done(self, plan: Plan) -> bool:
        """Whether executing it runs nothing: it is complete or applied, and nothing of it was cut short."""
        is_over = plan.state in (PlanState.COMPLETE, PlanState.APPLIED)
        return is_over and not self._parts.store.operations.unfinished(plan.plan_id)

    def root_of(self, plan: Plan) -> Plan:
        """The plan that a subplan belongs to and goes on with; any other plan itself."""
        return self._parts.store.plans.root_of(plan)

    def runs(self, plan_id: str) -> list[StepRun]:
        """Every try at a step or a validation of the plan, oldest first."""
        return self._parts.store.runs.of(plan_id)

    def project_roots(self, plans: Sequence[Plan]) -> dict[str, str]:
        """The folders of the plans' projects, by the ids of the projects; one whose record is damaged is left out."""
        ids = {plan.project_id for plan in plans}
        found = (self._parts.store.find(Project, each, sound_only=True) for each in ids)
        return {project.project_id: project.root for project in found if project is not None}

    def is_interrupted(self, plan: Plan) -> bool:
        """It says processing, but its process is dead."""
        if plan.state is PlanState.PROCESSING:
            with suppress(DamagedRecordError):  # then that is not known
                return self._root_and_holder(plan)[1] is None
        return False

    def _root_and_holder(self, plan: Plan) -> tuple[str, Lease | None]:
        from holdfast.db.lease import holder_of

        root_id = self._parts.store.plans.root_of(plan).plan_id
        return root_id, holder_of(self._parts.store, root_id)

    def status(self, reference: str) -> PlanStatus:
        from holdfast.process.confinement import confinement_of, expanded

        plan, store, settings = self.find_plan(reference), self._parts.store, self._parts.settings
        holder, root_id = None, plan.plan_id
        with suppress(DamagedRecordError):
            root_id, holder = self._root_and_holder(plan)
        unfinished = store.operations.unfinished(plan.plan_id, sound_only=True)
        return PlanStatus(
            plan=plan,
            root_id=root_id,
            runs=tuple(store.runs.of(plan.plan_id, sound_only=True)),
            checkpoints=store.checkpoints.count(plan.plan_id),
            holder=holder,
            interrupted=self.is_interrupted(plan),
            cut_short=() if holder else tuple(each.kind for each in unfinished),
            confinement=confinement_of(settings.confine),
            subplans=tuple(store.plans.below(plan.plan_id, sound_only=True)),
            conflicts=tuple(self.conflicts(plan)),
            outside_of_rollback=expanded(settings.allow_write, self._parts.user_home),
        )

    def conflicts(self, plan: Plan) -> list[tuple[Plan, Conflict]]:
        """What a person has to resolve before a constrained plan can go on, in its sandboxes or a subplan's."""
        if plan.state is not PlanState.CONSTRAINED:
            return []
        store = self._parts.store
        run = store.runs.latest_in_force(plan.plan_id)
        own = [(plan, conflict) for conflict in (run.conflicts or ())] if run else []
        return own + [found for each in store.plans.below(plan.plan_id) for found in self.conflicts(each)]


def project_root(start: Path) -> Path:
    """The root of the git repository around ``start``, or outside of one ``start`` itself."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / ".git").exists():
            return folder
    return start


def family_of(store: Store, plan_id: str) -> list[str]:
    """The plan and all below it; a damaged record may say that it is below itself."""
    found = [plan_id]
    for each in found:
        found += [below for below in store.plans.ids_below(each) if below not in found]
    return found
