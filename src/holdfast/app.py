"""Holdfast: the parts put together, and the verbs that the command line and the Python API share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config import Settings, home_directory, load_settings
from holdfast.db.store import Store, open_store
from holdfast.errors import AmbiguousError, ConflictError, NotFoundError, SandboxError, StateError, UsageError
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    CheckpointRetentionPolicy,
    Decision,
    DecisionType,
    Lease,
    Moment,
    Operation,
    OperationKind,
    Plan,
    PlanState,
    Project,
    Resource,
    Revision,
    RollbackResult,
    Step,
    StepRun,
    new_id,
    now,
)

if TYPE_CHECKING:
    from holdfast.apply import ApplyResult
    from holdfast.checkpoints import CheckpointService, VerifyResult
    from holdfast.confinement import Confinement
    from holdfast.correct import CorrectionPreview
    from holdfast.diff import FileDiff
    from holdfast.events import Listener
    from holdfast.executor import ExecutionResult
    from holdfast.resume import ResumePreview
    from holdfast.rollback import RollbackPreview
    from holdfast.tools import Toolbox

LATEST = "latest"


@dataclass(frozen=True)
class PlanStatus:
    plan: Plan
    runs: tuple[StepRun, ...]
    checkpoints: int
    holder: Lease | None
    """Who is at work on it now."""
    interrupted: bool
    """It says processing, but its process is dead: the next command that changes it puts it right."""
    confinement: Confinement
    """Whether its steps are held to its sandboxes, by the settings and on the machine of now."""
    outside_of_rollback: tuple[Path, ...]
    """Where else they may write then: ``sandbox.allow-write``."""


@dataclass(frozen=True)
class CheckpointView:
    checkpoint: Checkpoint
    group: CheckpointGroup
    display_id: str
    is_superseded: bool


@dataclass(frozen=True)
class Declined:
    """The person was asked and said no; nothing was changed."""


class Holdfast:
    """All of Holdfast for one project. Nothing is opened before it is needed."""

    def __init__(self, project: Path, home: Path, settings: Settings, environment: Mapping[str, str]) -> None:
        self.project_root = project
        self.home = home
        self.settings = settings
        self._environment = environment

    @classmethod
    def open(
        cls,
        project: Path | None = None,
        *,
        home: Path | None = None,
        environment: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> Holdfast:
        """For the project around ``project`` (by default the current folder), with its settings."""
        variables = os.environ if environment is None else environment
        root = project_root(project or Path.cwd())
        folder = home or home_directory(variables)
        return cls(root, folder, load_settings(folder, root, variables, overrides or {}), variables)

    def close(self) -> None:
        if "service" in self.__dict__:
            self.service.manager.remember()
            self.service.manager.objects.close()
        if "store" in self.__dict__:
            self.store.close()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Parts

    @cached_property
    def store(self) -> Store:
        self._make_home()
        return open_store(self.settings.database_url, self.home)

    def _make_home(self) -> None:
        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in (self.home / "sandboxes", self.home / "indexes"):
                folder.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise SandboxError(
                f"Holdfast's home {self.home} cannot be made: {error.strerror}.",
                hint="Set HOLDFAST_HOME to a folder you may write to.",
            ) from error

    @cached_property
    def service(self) -> CheckpointService:
        from holdfast.checkpoints import CheckpointService
        from holdfast.snapshot.manager import CheckpointManager
        from holdfast.snapshot.objects import ObjectStore

        store = self.store
        manager = CheckpointManager(ObjectStore(self.home / "objects.db"), self.home / "indexes")
        return CheckpointService(store, manager, max_bytes=self.settings.max_bytes)

    @cached_property
    def tools(self) -> Toolbox:
        from holdfast.tools import Toolbox

        return Toolbox.standard()

    @property
    def _user_home(self) -> Path:
        return Path(self._environment.get("HOME") or Path.home())

    def allowed_paths(self) -> tuple[Path, ...]:
        """Where steps may write besides their sandboxes; a ConfigError if the setting names what cannot be allowed."""
        from holdfast.confinement import allowed_paths

        return allowed_paths(self.settings.allow_write, user_home=self._user_home, holdfast_home=self.home)

    @cached_property
    def _project(self) -> Project:
        return self.store.project_for(str(self.project_root))

    # Plans

    def create_plan(self, file: Path) -> Plan:
        from holdfast.planfile import load_plan_file
        from holdfast.sandbox import sandbox_for

        draft = load_plan_file(file, defaults=self.settings.policy, check_step=self._step_problems)
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
                    sandbox_path=str(self.home / "sandboxes" / plan_id / each.name),
                )
                for each in draft.resources
            ),
            policy=draft.policy,
            validation=draft.validation,
            steps=draft.steps,
            active_decisions=((1, 1),),
            source_file=str(draft.source_file),
            store_id=self.service.manager.objects.store_id,
            created_at=at,
            updated_at=at,
        )
        self._preflight(plan)
        for resource in plan.resources:
            sandbox_for(plan, resource).check()
        root = Decision(
            decision_id=new_id(),
            plan_id=plan_id,
            sequence=1,
            type=DecisionType.PROMPT_DEFINITION,
            question="What is to be done?",
            chosen=plan.name,
            created_at=at,
        )
        with self.store.transaction():
            self.store.insert(plan)
            self.store.insert(Revision(plan_id=plan_id, revision=1, steps=plan.steps))
            self.store.insert(root)
        return plan

    def _step_problems(self, tool: str, args: dict[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
        return self.tools.problems(tool, args)

    def _preflight(self, plan: Plan) -> None:
        if any(step.subplans for step in plan.steps):
            raise StateError(
                "This plan has subplans, which this version of Holdfast cannot run yet.",
                hint="Write their steps one after another, or make a plan of each.",
            )
        if not plan.policy.require_checkpoints:
            return
        declarations = [(step, self.tools.declaration_for(step)) for step in plan.steps]
        unsafe = [step.name for step, declared in declarations if declared.writes and not declared.checkpointable]
        if unsafe:
            raise StateError(
                f"These steps write what no checkpoint can hold: {', '.join(unsafe)}.",
                hint="Set `require_checkpoints: false` in the plan's policy to run them all the same.",
            )

    def find_plan(self, reference: str) -> Plan:
        """By full id, a unique beginning of it, or ``latest``."""
        if reference == LATEST:
            project = self.store.find_project(str(self.project_root))
            plan = self.store.latest_plan(project.project_id) if project else None
            if plan is None:
                raise NotFoundError(
                    f"There is no plan in the project {self.project_root}.",
                    hint="Make one with `holdfast plan create FILE`.",
                )
            return plan
        found = self.store.find_plans_by_prefix(reference) if reference else []
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(plan.plan_id for plan in found[:10])
            raise AmbiguousError(f"{len(found)} plans begin with {reference!r}.", hint=f"Say which one: {listed}.")
        raise NotFoundError(f"There is no plan {reference!r}.", hint="See them with `holdfast plan list`.")

    def list_plans(self, *, everywhere: bool = False, limit: int | None = None) -> list[Plan]:
        if everywhere:
            return self.store.plans_of(None, limit)
        project = self.store.find_project(str(self.project_root))
        return self.store.plans_of(project.project_id, limit) if project else []

    def status(self, reference: str) -> PlanStatus:
        from holdfast.confinement import confinement_of, expanded
        from holdfast.lease import is_dead

        plan = self.find_plan(reference)
        lease = self.store.find(Lease, plan.plan_id)
        holder = lease if lease is not None and lease.owner is not None and not is_dead(lease) else None
        return PlanStatus(
            plan=plan,
            runs=tuple(self.store.runs_of(plan.plan_id)),
            checkpoints=self.store.checkpoint_count(plan.plan_id),
            holder=holder,
            interrupted=plan.state is PlanState.PROCESSING and holder is None,
            confinement=confinement_of(self.settings.confine),
            outside_of_rollback=expanded(self.settings.allow_write, self._user_home),
        )

    # Verbs

    @contextmanager
    def _changing(
        self, reference: str, command: str, *, on_stop_request: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[Plan, Lease]]:
        """The plan, ours alone, with everything put right that a dead process left."""
        from holdfast.apply import undo_apply
        from holdfast.lease import leased
        from holdfast.operations import recover

        plan = self.find_plan(reference)
        service = self.service
        if plan.store_id != service.manager.objects.store_id:
            raise StateError(
                f"The checkpoints of plan {plan.plan_id} are kept on another machine or in another home.",
                hint="Run the command there.",
            )

        def finish_rollback(plan: Plan, lease: Lease, operation: Operation) -> Plan:
            return service.finish_rollback(plan, lease, operation)

        def undo(plan: Plan, lease: Lease, operation: Operation) -> Plan:
            return undo_apply(plan, lease, service, operation)

        with leased(self.store, plan.plan_id, command, on_stop_request=on_stop_request) as lease:
            recoveries = {OperationKind.ROLLBACK: finish_rollback, OperationKind.APPLY: undo}
            yield recover(plan.plan_id, lease, service, recoveries), lease

    def execute(
        self, reference: str, *, listener: Listener | None = None, cancelled: threading.Event | None = None
    ) -> ExecutionResult:
        """Start the plan, or go on with it; what is complete stays as it is."""
        from holdfast.executor import ExecutionResult, ExecutorSettings, PlanExecutor
        from holdfast.operations import make_missing_sandboxes

        cancelled = cancelled or threading.Event()
        with self._changing(reference, "plan execute", on_stop_request=cancelled.set) as (plan, lease):
            if plan.state is PlanState.COMPLETE:
                make_missing_sandboxes(plan, self.service)
            if plan.state in (PlanState.COMPLETE, PlanState.APPLIED):
                return ExecutionResult(plan)
            settings = ExecutorSettings(
                environment=self._environment,
                passed_variables=self.settings.pass_env,
                include_ignored=self.settings.include_ignored,
                output_limit_bytes=self.settings.output_limit_bytes,
                step_timeout_seconds=self.settings.step_timeout_seconds,
                confine=self.settings.confine,
                allow_write=self.allowed_paths(),
            )
            executor = PlanExecutor(self.service, self.tools, settings, listener=listener, cancelled=cancelled)
            return executor.execute(plan, lease)

    def rollback(
        self, reference: str, checkpoint: str, *, confirm: Callable[[RollbackPreview], bool] = lambda _: True
    ) -> RollbackResult | Declined:
        from holdfast.rollback import preview_rollback, roll_back

        wanted = self._checkpoint_of(self.find_plan(reference), checkpoint)
        with self._changing(reference, "plan rollback") as (plan, lease):
            if not confirm(preview_rollback(plan, self.service, wanted)):
                return Declined()
            return roll_back(plan, lease, self.service, wanted)

    def correct(
        self,
        decision_reference: str,
        *,
        guidance: str,
        mode: str = "revert",
        steps_file: Path | None = None,
        confirm: Callable[[CorrectionPreview], bool] = lambda _: True,
    ) -> Plan | Declined:
        from holdfast.correct import CorrectionService

        decision = self.find_decision(decision_reference)
        corrections = CorrectionService(self.service)
        with self._changing(decision.plan_id, "plan correct") as (plan, lease):
            steps = self._steps_from(steps_file, plan)
            if mode == "append":
                if steps is None:
                    raise UsageError("Appending needs new steps.", hint="Give them with `--with FILE`.")
                return corrections.append(plan, lease, decision, guidance, steps)
            if not confirm(corrections.preview(plan, decision, steps)):
                return Declined()
            return corrections.revert(plan, lease, decision, guidance, steps).plan

    def _steps_from(self, file: Path | None, plan: Plan) -> tuple[Step, ...] | None:
        from holdfast.planfile import load_steps_file

        if file is None:
            return None
        names = [resource.name for resource in plan.resources]
        return load_steps_file(file, resources=names, check_step=self._step_problems)

    def find_decision(self, reference: str) -> Decision:
        found = self.store.find_decisions_by_prefix(reference) if reference else []
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(decision.decision_id for decision in found[:10])
            raise AmbiguousError(f"{len(found)} decisions begin with {reference!r}.", hint=f"Say which one: {listed}.")
        raise NotFoundError(f"There is no decision {reference!r}.", hint="See them with `holdfast plan status`.")

    def apply(
        self, reference: str, *, commit: bool = True, confirm: Callable[[Plan], bool] = lambda _: True
    ) -> ApplyResult | Declined:
        from holdfast.apply import ApplyOptions, apply_plan

        options = ApplyOptions(commit=commit, include_ignored=self.settings.include_ignored)
        with self._changing(reference, "plan apply") as (plan, lease):
            return apply_plan(plan, lease, self.service, options, confirm) or Declined()

    def cancel(self, reference: str, *, patience_seconds: float = 30.0) -> Plan:
        """Stop a plan, also one that runs in another process; everything is kept, and it can go on later."""
        plan = self.find_plan(reference)
        deadline = time.monotonic() + patience_seconds
        while self.status(plan.plan_id).holder is not None and self.store.request_stop(plan.plan_id) is not None:
            if time.monotonic() > deadline:
                raise ConflictError(
                    f"Plan {plan.plan_id} was asked to stop and has not done so yet.",
                    hint=f"See who works on it with `holdfast plan status {plan.plan_id}`.",
                )
            time.sleep(0.1)
        with self._changing(plan.plan_id, "plan cancel") as (plan, lease):
            if plan.state in (PlanState.COMPLETE, PlanState.APPLIED):
                raise StateError(
                    f"Plan {plan.plan_id} is {plan.state}: there is nothing to stop.",
                    hint=f"See what it made with `holdfast plan diff {plan.plan_id}`.",
                )
            if plan.state is not PlanState.CANCELLED:
                plan = plan.changed(state=PlanState.CANCELLED, error=plan.error or "cancelled")
                with self.store.transaction(lease):
                    self.store.save(plan)
            return plan

    def resume_preview(self, reference: str) -> ResumePreview:
        """From where the plan would go on; changes nothing."""
        from holdfast.resume import preview_resume

        return preview_resume(self.find_plan(reference), self.service)

    def delete(self, reference: str) -> Plan:
        """Forget a plan: its sandboxes, its records and the content only it needs."""
        from holdfast.sandbox.making import remove_tree

        with self._changing(reference, "plan delete") as (plan, lease):
            for resource in plan.resources:
                self.service.manager.forget(Path(resource.sandbox_path))
            # The records go last: killed before that, the plan can be deleted again.
            remove_tree(self.home / "sandboxes" / plan.plan_id)
            with self.store.transaction(lease):
                self.store.delete(Plan, plan.plan_id)
        self.service.collect()
        return plan

    def create_checkpoint(self, reference: str, label: str | None = None) -> CheckpointView:
        """Take a checkpoint of the sandboxes as they are now; one with a label is never pruned."""
        from holdfast.checkpoints import Occasion

        with self._changing(reference, "checkpoint create") as (plan, lease):
            if plan.head_group_id is None:
                raise StateError(
                    f"Plan {plan.plan_id} has no sandboxes yet.", hint=f"Run `holdfast plan execute {plan.plan_id}`."
                )
            if label is not None and any(
                each.metadata.label == label for each in self.service.list_checkpoints(plan.plan_id)
            ):
                raise UsageError(f"There is a checkpoint labelled {label!r} already.", hint="Choose another label.")
            occasion = Occasion((Moment.MANUAL,), reason="asked for by a person", label=label)
            plan = self.service.create_checkpoint(plan, lease, occasion)
        return self.checkpoint(plan.last_checkpoint_id or "", plan.plan_id)

    def delete_checkpoint(self, reference: str, checkpoint: str) -> int:
        wanted = self._checkpoint_of(self.find_plan(reference), checkpoint)
        with self._changing(reference, "checkpoint delete") as (plan, lease):
            return self.service.delete_checkpoint(plan, lease, wanted)

    def prune(self, reference: str, keep: int | None = None) -> int:
        """Prune to ``keep`` checkpoints, or to what the plan's policy says; how many went."""
        with self._changing(reference, "checkpoint prune") as (plan, lease):
            policy = CheckpointRetentionPolicy(max_checkpoints=keep) if keep is not None else plan.policy.retention
            return self.service.prune_checkpoints(plan, lease, policy)

    # Looking

    def checkpoints(self, reference: str) -> list[CheckpointView]:
        from holdfast.policy import display_ids

        plan = self.find_plan(reference)
        listed = self.service.list_checkpoints(plan.plan_id)
        shown = display_ids(checkpoint.checkpoint_id for checkpoint in listed)
        groups = {group.group_id: group for group in self.store.groups_of(plan.plan_id)}
        superseded = self.service.superseded_groups(plan)
        return [
            CheckpointView(
                checkpoint=checkpoint,
                group=groups[checkpoint.group_id],
                display_id=shown[checkpoint.checkpoint_id],
                is_superseded=checkpoint.group_id in superseded,
            )
            for checkpoint in listed
        ]

    def checkpoint(self, checkpoint_reference: str, plan_reference: str | None = None) -> CheckpointView:
        """One checkpoint of a plan; without a plan its id must say which one is meant."""
        plan_id = plan_reference or self._plan_of_checkpoint(checkpoint_reference)
        plan = self.find_plan(plan_id)
        wanted = self._checkpoint_of(plan, checkpoint_reference)
        return next(each for each in self.checkpoints(plan.plan_id) if each.checkpoint == wanted)

    def _plan_of_checkpoint(self, reference: str) -> str:
        prefix = reference.removeprefix("cp_").upper()
        found = self.store.find_checkpoints_by_prefix(prefix) if prefix else []
        return found[0].plan_id if len({each.plan_id for each in found}) == 1 else LATEST

    def _checkpoint_of(self, plan: Plan, reference: str) -> Checkpoint:
        """The checkpoint of this plan; if it is another plan's, the refusal says so."""
        try:
            return self.service.get_checkpoint(plan.plan_id, reference)
        except AmbiguousError:
            raise
        except NotFoundError:
            prefix = reference.removeprefix("cp_").upper()
            others = self.store.find_checkpoints_by_prefix(prefix) if len(prefix) >= 8 else []
            if others:
                raise StateError(
                    f"Checkpoint {reference} belongs to plan {others[0].plan_id}, not to {plan.plan_id}.",
                    hint=f"See this plan's checkpoints with `holdfast checkpoint list {plan.plan_id}`.",
                ) from None
            raise

    def changed_files(self, view: CheckpointView) -> list[FileDiff]:
        """What changed between the group before this one and this one."""
        from holdfast.diff import file_diff

        plan = self.store.get(Plan, view.checkpoint.plan_id)
        parent = self.store.find(CheckpointGroup, view.group.parent_group_id) if view.group.parent_group_id else None
        if parent is None:
            return []
        changes = self.service.changes_between(plan, parent.states, view.group.states)
        reader = self.service.manager.reader
        return [file_diff(reader, name, difference) for name, listed in changes.items() for difference in listed]

    def diff(self, reference: str, old: str | None = None, new: str | None = None) -> list[FileDiff]:
        """Base against now, a checkpoint against now, or one checkpoint against another."""
        from holdfast.diff import file_diff

        plan = self.find_plan(reference)
        if plan.head_group_id is None:
            return []
        groups = self.store.groups_of(plan.plan_id)
        before = groups[0].states if old is None else self._states_at(plan, old)
        after = self._states_now(plan) if new is None else self._states_at(plan, new)
        changes = self.service.changes_between(plan, before, after)
        reader = self.service.manager.reader
        return [file_diff(reader, name, difference) for name, listed in changes.items() for difference in listed]

    def _states_at(self, plan: Plan, reference: str) -> dict[str, str]:
        return self.store.get(CheckpointGroup, self._checkpoint_of(plan, reference).group_id).states

    def _states_now(self, plan: Plan) -> dict[str, str]:
        """Of an applied plan whose sandboxes are gone, the last state recorded."""
        if all(Path(resource.sandbox_path).is_dir() for resource in plan.resources):
            return self.service.states_now(plan)
        return self.store.get(CheckpointGroup, plan.head_group_id or "").states

    def verify(self, reference: str | None = None) -> VerifyResult:
        """Read back everything the checkpoints need, of one plan or of all that are kept in this home."""
        if reference is not None:
            return self.service.verify([self.find_plan(reference)])
        store_id = self.service.manager.objects.store_id
        return self.service.verify(plan for plan in self.store.plans_of(None) if plan.store_id == store_id)

    def decisions(self, reference: str) -> list[Decision]:
        return self.store.decisions_of(self.find_plan(reference).plan_id)


def project_root(start: Path) -> Path:
    """The root of the git repository around ``start``, or outside of one ``start`` itself."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / ".git").exists():
            return folder
    return start
