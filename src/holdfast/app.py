"""Holdfast: the parts put together, and the verbs that the command line and the Python API share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.config.loading import Settings, home_directory, load_settings
from holdfast.db.access import in_use
from holdfast.db.store import FILE as RECORDS_FILE
from holdfast.db.store import Store, open_store
from holdfast.errors import (
    AmbiguousError,
    ConfigError,
    ConflictError,
    ContentError,
    DamagedRecordError,
    DatabaseError,
    DatabaseFullError,
    HoldfastError,
    NotFoundError,
    SandboxError,
    StateError,
    UsageError,
)
from holdfast.model import (
    Checkpoint,
    CheckpointGroup,
    CheckpointRetentionPolicy,
    Conflict,
    DamagedCheckpoint,
    Decision,
    FileChange,
    Lease,
    Moment,
    Operation,
    OperationKind,
    OperationState,
    Plan,
    PlanState,
    Project,
    Resource,
    Revision,
    RollbackResult,
    Step,
    StepRun,
    now,
)
from holdfast.names import display_ids, name_text
from holdfast.system.ids import new_id
from holdfast.system.place import is_there
from holdfast.system.reserve import Reserve, full_disk
from holdfast.system.sqlite import is_empty, is_read_only

if TYPE_CHECKING:
    from holdfast.apply.apply import ApplyResult
    from holdfast.apply.preview import ApplyOptions, ApplyPreview
    from holdfast.apply.unapply import UnapplyPreview
    from holdfast.checkpoints.file_diffs import FileDiff
    from holdfast.checkpoints.releasing import HeldBack
    from holdfast.checkpoints.service import CheckpointService
    from holdfast.checkpoints.verification import VerifyResult
    from holdfast.decisions.correct import CorrectionPreview, CorrectionService
    from holdfast.decisions.explain import DecisionTree, Explanation
    from holdfast.events import Listener
    from holdfast.execution.executor import Choices, ExecutionResult, PlanExecutor
    from holdfast.execution.resume import ResumePreview
    from holdfast.planfile.draft import PlanDraft
    from holdfast.process.confinement import Confinement
    from holdfast.process.passthrough import Passthrough
    from holdfast.rollback.rollback import RollbackPreview
    from holdfast.system.progress import Watcher
    from holdfast.tools import Toolbox

T = TypeVar("T")

LATEST = "latest"
_FOR_SUBPLANS_TOO = ("plan apply", "plan unapply", "checkpoint delete", "checkpoint prune")
"""What may be done to a subplan by itself; it takes the lease of the whole plan all the same."""
_PUTTING_RIGHT = "a command on the same folder"
"""What a lease says of a command that only undoes what the plan began in a folder of another plan."""


@dataclass(frozen=True)
class PlanStatus:
    plan: Plan
    root_id: str
    """Of the plan that a subplan belongs to and goes on with; of any other its own."""
    runs: tuple[StepRun, ...]
    checkpoints: int
    holder: Lease | None
    """Who is at work on it now."""
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


@dataclass(frozen=True)
class CheckpointView:
    checkpoint: Checkpoint
    group: CheckpointGroup
    display_id: str
    is_superseded: bool


@dataclass(frozen=True)
class Outfit:
    """What a program of one execution gets besides what the settings say."""

    passthrough: Passthrough | None = None
    """The terminal of whoever started it."""
    settle_seconds: float | None = None
    """Take a checkpoint whenever it has written something and then been quiet for so long."""
    pass_env: tuple[str, ...] = ()
    allow_write: tuple[str, ...] = ()


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
        self._reserve = Reserve(home)

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
        folder = (home or home_directory(variables)).absolute()
        return cls(root, folder, load_settings(folder, root, variables, overrides or {}), variables)

    def close(self) -> None:
        if "service" in self.__dict__:
            self.service.close()
        if "store" in self.__dict__:
            self.store.close()
            self._reserve.keep()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Parts

    @cached_property
    def store(self) -> Store:
        from holdfast.content.keeping import kept_records

        self._make_home()
        self._reserve.keep()
        kept = kept_records(self.home / "objects.db")
        return self._opened(lambda: open_store(self.settings.database_url, self.home, kept))

    @contextmanager
    def _other_records(self) -> Iterator[Sequence[Store]]:
        """Those in the home, while the present ones are in PostgreSQL: they may need content of this home as well."""
        from holdfast.content.keeping import kept_records

        if self.settings.database_url is None or is_empty(self.home / RECORDS_FILE):
            yield ()
            return
        try:
            store = open_store(None, self.home, kept_records(self.home / "objects.db"))
        except HoldfastError:
            yield ()
            return
        with store:
            yield (store,)

    def _opened(self, opening: Callable[[], T]) -> T:
        """Even to be read, a database takes some space: SQLite makes an index of its write-ahead log."""
        try:
            return opening()
        except DatabaseError:
            if not self._reserve.give_up_if_full():
                raise
            return opening()

    @property
    def is_read_only(self) -> bool:
        """Whether the home is there, and this user can only look at it."""
        if not self.home.is_dir():
            return False
        files = (self.home / RECORDS_FILE, self.home / "objects.db")
        return not os.access(self.home, os.W_OK | os.X_OK) or any(map(is_read_only, files))

    def _refuse_read_only(self) -> None:
        if self.is_read_only:
            raise SandboxError(
                f"Holdfast's home {name_text(str(self.home))} is read-only: it can only be looked at.",
                hint="Make it, and all in it, writable for you, or set HOLDFAST_HOME to another folder.",
            )

    def _make_home(self) -> None:
        if self.is_read_only:
            return
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
        from holdfast.checkpoints.service import CheckpointService
        from holdfast.content.store import ObjectStore
        from holdfast.snapshot.manager import CheckpointManager

        store = self.store
        objects = self._opened(lambda: ObjectStore(self.home / "objects.db"))
        manager = CheckpointManager(objects, self.home / "indexes")
        return CheckpointService(store, manager, max_bytes=self.settings.max_bytes, other_records=self._other_records)

    @cached_property
    def tools(self) -> Toolbox:
        from holdfast.tools import Toolbox

        return Toolbox.standard()

    @property
    def _user_home(self) -> Path:
        return Path(self._environment.get("HOME") or Path.home())

    def allowed_paths(self, more: Sequence[str] = ()) -> tuple[Path, ...]:
        """Where steps may write besides their sandboxes; a ConfigError if the setting names what cannot be allowed."""
        from holdfast.process.confinement import allowed_paths

        return allowed_paths((*self.settings.allow_write, *more), user_home=self._user_home, holdfast_home=self.home)

    @cached_property
    def _project(self) -> Project:
        return self.store.plans.project_for(str(self.project_root))

    # Plans

    def create_plan(self, file: Path) -> Plan:
        from holdfast.planfile import load_plan_file

        return self._created(load_plan_file(file, defaults=self.settings.policy, check_step=self._step_problems))

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

        refuse_what_cannot_be_passed(pass_env, self._environment)
        self._refuse_what_cannot_be_written(allow_write)
        folder = folder or Path.cwd()
        draft = program_draft(argv, resources or (project_root(folder),), folder, self.settings.policy)
        seen = passed_variables(self._environment, (*self.settings.pass_env, *pass_env))
        (step,) = draft.steps
        root = next(each.path for each in draft.resources if each.name == step.resource)
        refuse_unknown_program(argv[0], seen.get("PATH", os.defpath), root / step.args["folder"], root)
        return self._created(draft)

    def _refuse_what_cannot_be_written(self, places: Sequence[str]) -> None:
        from holdfast.process.confinement import allowed_paths

        self.allowed_paths()
        try:
            allowed_paths(places, user_home=self._user_home, holdfast_home=self.home, origin="--allow-write")
        except ConfigError as error:
            raise UsageError(error.message, hint=error.hint) from error

    def _created(self, draft: PlanDraft) -> Plan:
        from holdfast.execution.preflight import check_plan

        self._refuse_read_only()
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
            source_file=str(draft.source_file or ""),
            store_id=self.service.manager.objects.store_id,
            created_at=at,
            updated_at=at,
        )
        check_plan(plan, self.tools, self.home)
        with self.store.transaction():
            plan = plan.model_copy(update={"sequence": self.store.plans.next_sequence()})
            self.store.insert(plan)
            self.store.insert(Revision(plan_id=plan_id, revision=1, steps=plan.steps))
            self.store.insert(Decision.root_of(plan))
        return plan

    def _step_problems(self, tool: str, args: dict[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
        return self.tools.problems(tool, args)

    def find_plan(self, reference: str) -> Plan:
        """By full id, a unique beginning of it, or ``latest``."""
        if reference == LATEST:
            project_id = self.store.plans.find_project_id(str(self.project_root))
            plan = self.store.plans.latest(project_id) if project_id is not None else None
            if plan is None:
                raise NotFoundError(
                    f"There is no plan in the project {self.project_root}.",
                    hint="Make one with `holdfast plan create FILE`.",
                )
            return plan
        found = self.store.plans.by_prefix(reference) if reference else []
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
            return self.store.plans.of_project(None, limit)
        project_id = self.store.plans.find_project_id(str(self.project_root))
        return self.store.plans.of_project(project_id, limit) if project_id is not None else []

    def is_interrupted(self, plan: Plan) -> bool:
        """It says processing, but its process is dead."""
        from holdfast.db.lease import holder_of

        with suppress(DamagedRecordError):  # then that is not known
            root_id = self.store.plans.root_of(plan).plan_id
            return plan.state is PlanState.PROCESSING and holder_of(self.store, root_id) is None
        return False

    def is_done(self, plan: Plan) -> bool:
        """Whether executing it runs nothing: it is complete or applied, and nothing of it was cut short."""
        is_over = plan.state in (PlanState.COMPLETE, PlanState.APPLIED)
        return is_over and not self.store.operations.unfinished(plan.plan_id)

    def root_of(self, plan: Plan) -> Plan:
        """The plan that a subplan belongs to and goes on with; any other plan itself."""
        return self.store.plans.root_of(plan)

    def project_roots(self, plans: Sequence[Plan]) -> dict[str, str]:
        """The folders of the plans' projects, by the ids of the projects; one whose record is damaged is left out."""
        ids = {plan.project_id for plan in plans}
        found = (self.store.find(Project, each, sound_only=True) for each in ids)
        return {project.project_id: project.root for project in found if project is not None}

    def runs(self, plan_id: str) -> list[StepRun]:
        """Every try at a step or a validation of the plan, oldest first."""
        return self.store.runs.of(plan_id)

    @property
    def skipped_records(self) -> Sequence[str]:
        """What answers since it was opened have left out, because the records are damaged."""
        return self.store.skipped

    def watched_by(self, watcher: Watcher | None) -> AbstractContextManager[None]:
        """Tell ``watcher`` of all long work that this thread does meanwhile; None changes nothing."""
        from holdfast.system.progress import watched_by

        return watched_by(watcher)

    def status(self, reference: str) -> PlanStatus:
        from holdfast.db.lease import holder_of
        from holdfast.process.confinement import confinement_of, expanded

        plan = self.find_plan(reference)
        holder, root_id = None, plan.plan_id
        with suppress(DamagedRecordError):
            root_id = self.store.plans.root_of(plan).plan_id
            holder = holder_of(self.store, root_id)
        unfinished = self.store.operations.unfinished(plan.plan_id, sound_only=True)
        return PlanStatus(
            plan=plan,
            root_id=root_id,
            runs=tuple(self.store.runs.of(plan.plan_id, sound_only=True)),
            checkpoints=self.store.checkpoints.count(plan.plan_id),
            holder=holder,
            interrupted=self.is_interrupted(plan),
            cut_short=() if holder else tuple(each.kind for each in unfinished),
            confinement=confinement_of(self.settings.confine),
            subplans=tuple(self.store.plans.below(plan.plan_id, sound_only=True)),
            conflicts=tuple(self.conflicts(plan)),
            outside_of_rollback=expanded(self.settings.allow_write, self._user_home),
        )

    def conflicts(self, plan: Plan) -> list[tuple[Plan, Conflict]]:
        """What a person has to resolve before a constrained plan can go on, in its sandboxes or a subplan's."""
        if plan.state is not PlanState.CONSTRAINED:
            return []
        run = self.store.runs.latest_in_force(plan.plan_id)
        own = [(plan, conflict) for conflict in (run.conflicts or ())] if run else []
        return own + [found for each in self.store.plans.below(plan.plan_id) for found in self.conflicts(each)]

    # Verbs

    @contextmanager
    def _changing(
        self,
        reference: str,
        command: str,
        *,
        on_stop_request: Callable[[], None] = lambda: None,
        listener: Listener | None = None,
    ) -> Iterator[tuple[Plan, Lease]]:
        """The plan, ours alone, with everything put right that a dead process left."""
        from holdfast.apply.real_folders import unmark_settled
        from holdfast.recovery import recover
        from holdfast.rollback.paths import finish_restore
        from holdfast.system.progress import watched_by

        service = self.service

        def finish_rollback(plan: Plan, lease: Lease, operation: Operation) -> Plan:
            result = service.rollback.finish(plan, lease, operation, self._executor(listener).compensate)
            _tell_set_aside(listener, result.set_aside)
            return result.plan

        def finish_paths(plan: Plan, lease: Lease, operation: Operation) -> Plan:
            plan, set_aside = finish_restore(plan, lease, service, operation)
            _tell_set_aside(listener, set_aside)
            return plan

        recoveries = {
            OperationKind.ROLLBACK: finish_rollback,
            OperationKind.RESTORE_PATHS: finish_paths,
            OperationKind.APPLY: self._undo,
            OperationKind.UNAPPLY: self._undo,
        }
        with watched_by(listener), self._holding(reference, command, on_stop_request) as (plan, root, lease):
            root = recover(root.plan_id, lease, service, recoveries, listener or (lambda _: None))
            unmark_settled(root, service)
            yield root if root.plan_id == plan.plan_id else self.store.get(Plan, plan.plan_id), lease

    @contextmanager
    def _holding(
        self, reference: str, command: str, on_stop_request: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[Plan, Plan, Lease]]:
        """The plan and the one whose lease it needs, ours alone, as a dead process may have left them."""
        from holdfast.db.lease import leased

        plan = self.find_plan(reference)
        self._refuse_read_only()
        if command != "plan delete" or self._takes_content_to_delete(plan):
            self._refuse_without_content(plan)
        root = self._root_for(plan, command)
        try:
            with (
                self._telling_way_out(root),
                leased(self.store, root.plan_id, command, on_stop_request=on_stop_request) as lease,
            ):
                self._keep_for(root, lease)
                yield plan, root, lease
        except OSError as error:
            full = full_disk(error, self.home)
            if full is None:
                raise
            raise full from error

    @contextmanager
    def _telling_way_out(self, plan: Plan) -> Iterator[None]:
        """On a full disk: say how the plan gets out of it."""
        try:
            yield
        except HoldfastError as error:
            if full_disk(error, self.home) is not None and (out := self._way_out(plan)) not in error.hint:
                error.hint = f"{error.hint} {out}".strip()
            raise

    def _way_out(self, plan: Plan) -> str:
        """What helps a plan whose sandboxes hold so much that there is no room to keep it."""
        plan = self.store.get(Plan, plan.plan_id)
        if plan.head_group_id is None or plan.state is PlanState.APPLIED:
            return ""
        places = ", ".join(resource.sandbox_path for resource in plan.resources)
        by_hand = f"What is not needed can also be removed from the sandboxes by hand: {places}."
        last = self.store.checkpoints.of_group(plan.head_group_id)
        if not last or not plan.policy.rollback_enabled:
            return by_hand
        return (
            f"Going back without keeping what is in the sandboxes now takes no space: "
            f"`holdfast plan rollback --without-keeping {plan.plan_id} {last[0].checkpoint_id}`. {by_hand}"
        )

    def _keep_for(self, root: Plan, lease: Lease) -> None:
        """Note whose content may come, as well as can be: where that fails, content cannot be stored either."""
        if root.store_id == self.service.manager.objects.store_id:
            with suppress(DatabaseFullError, ContentError):
                self.service.keep_for(lease)

    def _undo(self, plan: Plan, lease: Lease, operation: Operation) -> Plan:
        from holdfast.apply.undo import undo_change

        return undo_change(plan, lease, self.service, operation)

    def _put_right_around(self, plan: Plan, listener: Listener | None) -> None:
        """Undo what dead processes began to change in the plan's real folders, whichever plans they worked for.

        Whatever is alive has the folders locked, and is waited for when they are used.
        """
        from holdfast.apply.real_folders import unfinished_in
        from holdfast.db.lease import holder_of, leased
        from holdfast.events import RealFilesPutBack

        for other, operation in unfinished_in(plan.resources, self.service):
            root = self.store.plans.root_of(other)
            if holder_of(self.store, root.plan_id) is not None:
                continue
            with leased(self.store, root.plan_id, _PUTTING_RIGHT) as lease:
                self._keep_for(root, lease)
                found = self.store.get(Operation, operation.operation_id)
                if found.state is OperationState.BEGUN:
                    self._undo(self.store.get(Plan, other.plan_id), lease, found)
                    if listener is not None:
                        listener(RealFilesPutBack(other, operation.kind))

    def _at_rest(self, reference: str, command: str) -> Plan:
        """The plan, only to be looked at; refused while somebody works on it, or something of it was cut short."""
        from holdfast.db.lease import refuse_if_held
        from holdfast.recovery import refuse_cut_short

        plan = self.find_plan(reference)
        self._refuse_read_only()
        self._refuse_without_content(plan)
        root = self._root_for(plan, command)
        refuse_if_held(self.store, root.plan_id)
        for each in (root, *self._below(root)):
            refuse_cut_short(each, root, self.service)
        return plan

    def _root_for(self, plan: Plan, command: str) -> Plan:
        """The plan whose lease the command needs."""
        root = self.store.plans.root_of(plan)
        if root != plan and command not in _FOR_SUBPLANS_TOO:
            from holdfast.checkpoints.history import goes_on_with_parent

            raise StateError(goes_on_with_parent(plan), hint=self._for_the_whole_plan(plan, root, command))
        return root

    def _for_the_whole_plan(self, subplan: Plan, root: Plan, command: str) -> str:
        if command == "plan rollback":
            return f"Go back in the whole plan: `holdfast checkpoint list {root.plan_id}` tells where to."
        if command != "plan correct":
            return f"Run the command for the whole plan: `holdfast {command} {root.plan_id}`."
        from holdfast.decisions.correct import CorrectionService

        corrections = CorrectionService(self.service, self.tools)
        found = corrections.correctable_for(subplan, self.store.decisions.of(subplan.plan_id)[0])
        if found is None:
            return f"Correct a decision of the whole plan that is in force: `holdfast plan tree {root.plan_id}`."
        options = "--mode revert --guidance TEXT"
        return f"Correct the decision that spawned it: `holdfast plan correct {options} {found.decision_id}`."

    def can_go_back(self, plan: Plan, group: CheckpointGroup | None = None) -> bool:
        """Whether `plan rollback` to that group, or to any, is not refused already for what the plan is now."""
        from holdfast.rollback.rollback import refuse_if_disabled

        if plan.head_group_id is None:
            return False
        try:
            self._root_for(plan, "plan rollback")
            refuse_if_disabled(plan)
            if group is None:
                self.service.sandboxes.check(plan)
            else:
                self.service.rollback.check_position(self.service.history(plan), group)
        except (StateError, SandboxError, DamagedRecordError):
            return False
        return True

    def _takes_content_to_delete(self, plan: Plan) -> bool:
        """Real files have to be put back first, or the plan is another machine's, whose sandboxes would stay there."""
        plans = (plan, *self._below(plan))
        begun = {operation.kind for each in plans for operation in self.store.operations.unfinished(each.plan_id)}
        is_begun = not begun.isdisjoint((OperationKind.APPLY, OperationKind.UNAPPLY))
        may_be_elsewhere = self._is_shared and plan.head_group_id is not None and not self._has_sandbox(plan)
        return is_begun or may_be_elsewhere

    @property
    def _is_shared(self) -> bool:
        """Whether the records may be those of other machines too."""
        return self.settings.database_url is not None

    def _refuse_without_content(self, plan: Plan) -> None:
        if plan.store_id == self.service.manager.objects.store_id:
            if self._was_used_from_a_copy(plan):
                raise StateError(
                    f"Plan {plan.plan_id} was last used from another home, which has a copy of the content of this "
                    "one: what it did is not here.",
                    hint="Run the command there. If that home is gone, copy what you need out of the sandboxes and "
                    f"delete the plan: `holdfast plan delete {self.store.plans.root_of(plan).plan_id}`.",
                )
            return
        if not self._is_shared and self.store.plans.root_of(plan).head_group_id is None:
            return  # nothing of it was saved yet
        if self._has_sandbox(plan):
            raise ContentError(
                f"The saved content of plan {plan.plan_id} is gone: {self.home / 'objects.db'} is not the store it was "
                "saved in.",
                hint="Put the right objects.db back, from a backup. The sandboxes are as they were.",
            )
        raise StateError(
            f"The checkpoints of plan {plan.plan_id} are kept on another machine or in another home.",
            hint="Run the command there.",
        )

    def _was_used_from_a_copy(self, plan: Plan) -> bool:
        """Whether the last lease was taken from a home that this one was copied from, or that is a copy of it.

        Where records are shared, both use the same ones, each with sandboxes and content of its own. A home that was
        moved counts as another machine's as well, but has noted the lease.
        """
        from holdfast.system.identity import find_machine_id

        root = self.store.plans.root_of(plan)
        if not self._is_shared or root.head_group_id is None:
            return False
        last = self.store.find(Lease, root.plan_id, sound_only=True)
        if last is None or last.machine_id in (None, find_machine_id(self.home)):
            return False
        return not self.service.release.has_noted(last.plan_id, last.token)

    def execute(
        self,
        reference: str,
        *,
        listener: Listener | None = None,
        cancelled: threading.Event | None = None,
        choices: Choices | None = None,
        outfit: Outfit | None = None,
    ) -> ExecutionResult:
        """Start the plan, or go on with it; what is complete stays as it is."""
        from holdfast.execution.executor import Choices, ExecutionResult, refuse_to_skip_nothing
        from holdfast.execution.preflight import check_plan, check_space
        from holdfast.system.stopping import Stopped, stoppable

        cancelled = cancelled or threading.Event()
        changing = self._changing(reference, "plan execute", on_stop_request=cancelled.set, listener=listener)
        with ExitStack() as room, changing as (plan, lease):
            executor = self._executor(listener, cancelled, choices, outfit)
            is_done = plan.state in (PlanState.COMPLETE, PlanState.APPLIED)
            try:
                # What is done cannot be stopped any more.
                with nullcontext() if is_done else stoppable(cancelled):
                    plan, made = self._with_all_sandboxes(plan, lease, listener)
                    if plan.head_group_id is None:
                        check_plan(plan, self.tools, self.home)
                        check_space(plan, self.home, self.settings.include_ignored)
            except Stopped:
                return executor.stopped_at_the_start(plan, lease)
            if plan.state in (PlanState.COMPLETE, PlanState.APPLIED):
                return ExecutionResult(plan, was_done=True, made_anew=made)
            if plan.head_group_id is None:
                self._put_right_around(plan, listener)
            refuse_to_skip_nothing(plan, self.service, self.tools, choices or Choices())
            try:
                result = executor.execute(plan, lease)
                return replace(result, made_anew=(*made, *result.made_anew))
            except (HoldfastError, OSError) as error:
                full = full_disk(error, self.home)
                if full is None:
                    raise
                room.enter_context(self._reserve.given_up())
                out = self._way_out(plan)
                with suppress(HoldfastError):  # then the next command finds it interrupted
                    executor.broken_off(self.store.get(Plan, plan.plan_id), lease, f"{full.message} {out}".strip())
                raise full from error

    def _with_all_sandboxes(self, plan: Plan, lease: Lease, listener: Listener | None) -> tuple[Plan, tuple[str, ...]]:
        """The plan with sandboxes that were gone made anew; what was resolved in one is to be resolved again."""
        from holdfast.checkpoints.missing import make_anew
        from holdfast.events import SandboxesMadeAnew
        from holdfast.execution.subplans import refuse_unresolved

        if plan.state is PlanState.APPLIED:
            return plan, ()
        tell = listener or (lambda _: None)
        plan, made = make_anew(plan, lease, self.service, tell)
        if made and plan.state is PlanState.CONSTRAINED:
            try:
                refuse_unresolved(plan, self.service)
            except ConflictError as error:
                gone = f"The sandbox of {', '.join(made)} was gone and is made anew."
                raise ConflictError(f"{gone} {error.message}", hint=error.hint, paths=error.paths) from error
        if made:
            tell(SandboxesMadeAnew(made))
        return plan, made

    def _executor(
        self,
        listener: Listener | None = None,
        cancelled: threading.Event | None = None,
        choices: Choices | None = None,
        outfit: Outfit | None = None,
    ) -> PlanExecutor:
        from holdfast.execution.executor import Choices, ExecutorSettings, PlanExecutor

        outfit = outfit or Outfit()
        settings = ExecutorSettings(
            environment=self._environment,
            passed_variables=(*self.settings.pass_env, *outfit.pass_env),
            include_ignored=self.settings.include_ignored,
            output_limit_bytes=self.settings.output_limit_bytes,
            step_timeout_seconds=self.settings.step_timeout_seconds,
            confine=self.settings.confine,
            allow_write=self.allowed_paths(outfit.allow_write),
            choices=choices or Choices(),
            passthrough=outfit.passthrough,
            settle_seconds=outfit.settle_seconds,
        )
        return PlanExecutor(self.service, self.tools, settings, listener=listener, cancelled=cancelled)

    def rollback(
        self,
        reference: str,
        checkpoint: str,
        *,
        only: Sequence[str] = (),
        keeps_present: bool = True,
        confirm: Callable[[RollbackPreview], bool] = lambda _: True,
        listener: Listener | None = None,
    ) -> RollbackResult | Declined:
        """Go back to a checkpoint; with ``only`` restore just these paths (``PATH`` or ``RESOURCE:PATH``) from it.

        ``keeps_present``: the state that is left gets a checkpoint of its own. Without it, what no checkpoint holds is
        lost: for a disk that has no room for it.
        """
        from holdfast.rollback.paths import restore_paths
        from holdfast.rollback.rollback import roll_back

        _refuse_only_unkept(only, keeps_present)
        wanted = self._checkpoint_of(self.find_plan(reference), checkpoint)
        with (
            self._reserve.given_up_if_full(),
            self._changing(reference, "plan rollback", listener=listener) as (plan, lease),
            self._watching(plan, keeps_present),
        ):
            if only:
                return restore_paths(plan, lease, self.service, wanted, only, confirm) or Declined()
            # The result tells what came of effects outside; nobody has to hear it twice.
            compensate = self._executor().compensate
            parts = self.service, self.tools
            return (
                roll_back(plan, lease, *parts, wanted, compensate, confirm, keeps_present=keeps_present) or Declined()
            )

    def _watching(self, plan: Plan, keeps_present: bool = True) -> AbstractContextManager[None]:
        """While the sandboxes are watched, each tree is looked at as a whole only once."""
        return self.service.sandboxes.watching(plan) if keeps_present else nullcontext()

    def rollback_preview(
        self, reference: str, checkpoint: str, *, only: Sequence[str] = (), keeps_present: bool = True
    ) -> RollbackPreview:
        """What a rollback would do; changes nothing, and refuses what the rollback would refuse."""
        from holdfast.rollback.paths import preview_restore
        from holdfast.rollback.rollback import decide_rollback, preview_rollback

        _refuse_only_unkept(only, keeps_present)
        with self._reserve.given_up_if_full():
            plan = self._at_rest(reference, "plan rollback")
            wanted = self._checkpoint_of(plan, checkpoint)
            with self._telling_way_out(plan), self._watching(plan, keeps_present):
                if only:
                    return preview_restore(plan, self.service, wanted, only)
                decision = decide_rollback(plan, self.service, wanted, keeps_present=keeps_present)
                return preview_rollback(decision, self.service, self.tools)

    def correct(
        self,
        decision_reference: str,
        *,
        guidance: str,
        mode: str = "revert",
        steps_file: Path | None = None,
        confirm: Callable[[CorrectionPreview], bool] = lambda _: True,
        listener: Listener | None = None,
    ) -> Plan | Declined:
        from holdfast.decisions.correct import CorrectionService

        decision = self.find_decision(decision_reference)
        corrections = CorrectionService(self.service, self.tools)
        under_way = corrections.is_under_way(decision, guidance)
        with (
            self._changing(decision.plan_id, "plan correct", listener=listener) as (plan, lease),
            self._watching(plan),
        ):
            if under_way:
                return plan  # it was cut short, and is finished now
            preview = self._correction(corrections, plan, decision, mode, steps_file)
            if not confirm(preview):
                return Declined()
            if mode == "append":
                return corrections.append(lease, preview, guidance)
            result = corrections.revert(lease, preview, guidance, self._executor(listener).compensate)
            _tell_set_aside(listener, result.set_aside)
            return result.plan

    def _correction(
        self, corrections: CorrectionService, plan: Plan, decision: Decision, mode: str, steps_file: Path | None
    ) -> CorrectionPreview:
        steps = self._steps_from(steps_file, plan)
        if mode != "append":
            return corrections.preview_revert(plan, decision, steps)
        if steps is None:
            raise UsageError("Appending needs new steps.", hint="Give them with `--with FILE`.")
        return corrections.preview_append(plan, decision, steps)

    def correction_preview(
        self, decision_reference: str, *, mode: str = "revert", steps_file: Path | None = None
    ) -> CorrectionPreview:
        """What a correction would do; changes nothing, and refuses what the correction would refuse."""
        from holdfast.decisions.correct import CorrectionService

        decision = self.find_decision(decision_reference)
        plan = self._at_rest(decision.plan_id, "plan correct")
        with self._watching(plan):
            return self._correction(CorrectionService(self.service, self.tools), plan, decision, mode, steps_file)

    def _steps_from(self, file: Path | None, plan: Plan) -> tuple[Step, ...] | None:
        from holdfast.execution.preflight import check_steps
        from holdfast.planfile import load_steps_file

        if file is None:
            return None
        names = [resource.name for resource in plan.resources]
        steps = load_steps_file(file, resources=names, check_step=self._step_problems)
        check_steps(plan.changed(steps=steps), self.tools)
        return steps

    def find_decision(self, reference: str) -> Decision:
        found = self.store.decisions.by_prefix(reference) if reference else []
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(decision.decision_id for decision in found[:10])
            raise AmbiguousError(f"{len(found)} decisions begin with {reference!r}.", hint=f"Say which one: {listed}.")
        raise NotFoundError(f"There is no decision {reference!r}.", hint="See them with `holdfast plan tree`.")

    def apply(
        self,
        reference: str,
        *,
        commit: bool = True,
        branch: str | None = None,
        confirm: Callable[[ApplyPreview], bool] = lambda _: True,
        listener: Listener | None = None,
    ) -> ApplyResult | Declined:
        """Bring the result into the real files, or leave it on a new branch of the real repositories."""
        from holdfast.apply.apply import apply_plan

        options = self._apply_options(commit, branch)
        with self._changing(reference, "plan apply", listener=listener) as (plan, lease), self._watching(plan):
            self._put_right_around(plan, listener)
            return apply_plan(plan, lease, self.service, options, confirm) or Declined()

    def apply_preview(self, reference: str, *, commit: bool = True, branch: str | None = None) -> ApplyPreview:
        """What applying would do; refuses whatever it would refuse, and changes nothing."""
        from holdfast.apply.preview import preview_apply

        plan = self._at_rest(reference, "plan apply")
        return preview_apply(plan, self.service, self._apply_options(commit, branch))

    def _apply_options(self, commit: bool, branch: str | None) -> ApplyOptions:
        from holdfast.apply.preview import ApplyOptions

        if branch is not None and not commit:
            raise UsageError("A branch is a commit: `--branch` and `--no-commit` exclude each other.", hint="Use one.")
        return ApplyOptions(commit=commit, branch=branch, include_ignored=self.settings.include_ignored)

    def unapply(
        self,
        reference: str,
        *,
        confirm: Callable[[UnapplyPreview], bool] = lambda _: True,
        listener: Listener | None = None,
    ) -> UnapplyPreview | Declined:
        """Put the real files back as they were before the plan was applied."""
        from holdfast.apply.unapply import unapply_plan

        with self._changing(reference, "plan unapply", listener=listener) as (plan, lease):
            self._put_right_around(plan, listener)
            return unapply_plan(plan, lease, self.service, confirm) or Declined()

    def unapply_preview(self, reference: str) -> UnapplyPreview:
        """What that would do; changes nothing."""
        from holdfast.apply.unapply import preview_unapply

        return preview_unapply(self._at_rest(reference, "plan unapply"), self.service)

    def cancel(self, reference: str, *, patience_seconds: float = 30.0) -> Plan:
        """Stop a plan, also one that runs in another process; everything is kept, and it can go on later."""
        plan = self.find_plan(reference)
        self._root_for(plan, "plan cancel")
        _refuse_to_stop_what_is_done(plan)
        if not self._is_shared:
            self._refuse_read_only()
        if self._is_stopped_on_request(plan, patience_seconds):
            stopped = self.find_plan(plan.plan_id)
            _refuse_to_stop_what_is_done(stopped)
            if stopped.state is PlanState.CANCELLED:
                return stopped  # by the process that ran it; its content may be on another machine
        with self._changing(plan.plan_id, "plan cancel") as (plan, lease):
            _refuse_to_stop_what_is_done(plan)
            if plan.state is not PlanState.CANCELLED:
                plan = plan.changed(state=PlanState.CANCELLED, error=plan.error or "cancelled")
                with self.store.transaction(lease):
                    self.store.save(plan)
            return plan

    def _is_stopped_on_request(self, plan: Plan, patience_seconds: float) -> bool:
        """Whether a process was at work on the plan, was asked to stop, on whichever machine, and is gone now.

        One that does not hear such a request is waited for; one that was stopped and forgotten is ended.
        """
        from holdfast.db.lease import end_if_stopped, holder_of

        deadline, was_asked = time.monotonic() + patience_seconds, False
        while True:
            end_if_stopped(self.store, plan.plan_id)
            holder = holder_of(self.store, plan.plan_id)
            if holder is None:
                return was_asked
            if holder.can_be_stopped:
                # Asked once more, it may have just ended.
                was_asked = self.store.leases.request_stop(plan.plan_id) is not None or was_asked
            if time.monotonic() > deadline:
                raise self._not_stopped_yet(holder)
            time.sleep(0.1)

    def _not_stopped_yet(self, holder: Lease) -> ConflictError:
        if not holder.can_be_stopped:
            return in_use(holder)
        return ConflictError(
            f"Plan {holder.plan_id} was asked to stop and has not done so yet; it will as soon as it can.",
            hint=f"See who works on it with `holdfast plan status {holder.plan_id}`.",
        )

    def resume_preview(
        self, reference: str, *, choices: Choices | None = None, is_dry_run: bool = True
    ) -> ResumePreview:
        """From where the plan would go on; changes nothing, and refuses what going on would refuse.

        Not a dry run: going on follows, which takes the plan over from an owner that was stopped and forgotten.
        """
        from holdfast.db.lease import refuse_if_held
        from holdfast.execution.executor import Choices
        from holdfast.execution.resume import preview_resume

        plan = self.find_plan(reference)
        root = self._root_for(plan, "plan resume")
        if is_dry_run:
            refuse_if_held(self.store, root.plan_id)
        self._refuse_without_content(plan)
        return preview_resume(plan, self.service, self.tools, choices or Choices())

    def delete(self, reference: str) -> Plan:
        """Forget a plan: its sandboxes, its records and the content only it needs."""
        from holdfast.apply.real_folders import unmark_settled
        from holdfast.apply.undo import undo_change
        from holdfast.recovery import put_right_outside

        def compensate(plan: Plan, lease: Lease, operation: Operation) -> Plan:
            self.service.rollback.compensate_unfinished(plan, lease, operation, self._executor().compensate)
            return plan

        def undo(plan: Plan, lease: Lease, operation: Operation) -> Plan:
            return undo_change(plan, lease, self.service, operation, even_if_gone=True)

        recoveries = {OperationKind.ROLLBACK: compensate, OperationKind.APPLY: undo, OperationKind.UNAPPLY: undo}
        with self._reserve.given_up():
            with self._holding(reference, "plan delete") as (plan, _, lease):
                put_right_outside(plan.plan_id, lease, self.service, recoveries)
                unmark_settled(plan, self.service)
                self._delete(plan, lease)
            self.service.garbage.collect()
        return plan

    def find_damaged_plan(self, plan_id: str) -> str | None:
        """The id, if its record, its lease or a subplan is damaged; only ``delete_damaged`` can change it then."""
        from holdfast.damaged_plans import find_damaged_plan

        return find_damaged_plan(self.store, plan_id)

    def delete_damaged(self, plan_id: str) -> None:
        """Forget such a plan; what its record says is not relied on."""
        from holdfast.damaged_plans import delete_damaged_plan

        self._refuse_read_only()
        with self._reserve.given_up():
            delete_damaged_plan(self.service, self.home, plan_id, is_shared=self._is_shared)
            self.service.garbage.collect()

    def _delete(self, plan: Plan, lease: Lease) -> None:
        from holdfast.system.trees import remove_tree, sync_directory

        for resource in plan.resources:
            self.service.manager.forget(Path(resource.sandbox_path))
        # The records go last: killed before that, the plan can be deleted again.
        for each in (*self._below(plan), plan):
            remove_tree(self.home / "sandboxes" / each.plan_id)
        sync_directory(self.home / "sandboxes")
        with suppress(ContentError):  # a damaged content store is no reason to keep the plan, and frees nothing
            self.service.release.let_go(plan.plan_id)
        with self.store.transaction(lease):
            with suppress(DatabaseError):  # a damaged record is no reason to keep the plan
                family = (*self._below(plan), plan)
                self.service.garbage.note_given_up(
                    [each for one in family for each in self.store.checkpoints.of(one.plan_id)]
                )
            self.store.delete(Plan, plan.plan_id)

    def _below(self, plan: Plan) -> Iterator[Plan]:
        for subplan in self.store.plans.below(plan.plan_id):
            yield subplan
            yield from self._below(subplan)

    def create_checkpoint(
        self, reference: str, label: str | None = None, *, listener: Listener | None = None
    ) -> CheckpointView:
        """Take a checkpoint of the sandboxes as they are now; one with a label is never pruned."""
        from holdfast.checkpoints.recorder import Occasion
        from holdfast.checkpoints.references import refuse_label

        with self._changing(reference, "checkpoint create", listener=listener) as (plan, lease):
            if plan.head_group_id is None:
                raise StateError(
                    f"Plan {plan.plan_id} has no sandboxes yet.", hint=f"Run `holdfast plan execute {plan.plan_id}`."
                )
            self.service.sandboxes.refuse_missing(plan)
            if label is not None:
                refuse_label(label)
            if label is not None and any(
                each.metadata.label == label for each in self.service.list_checkpoints(plan.plan_id)
            ):
                raise UsageError(f"There is a checkpoint labelled {label!r} already.", hint="Choose another label.")
            occasion = Occasion((Moment.MANUAL,), source="user", reason="asked for by a person", label=label)
            plan = self.service.create_checkpoint(plan, lease, occasion)
        return self.checkpoint(plan.last_checkpoint_id or "", plan.plan_id)

    def delete_checkpoint(self, reference: str, checkpoint: str) -> int:
        """Delete it with those of the same moment, or a damaged one as far as that is needed; how many went."""
        damaged = self.find_damaged_checkpoint(reference, checkpoint)
        if damaged is not None:
            with self._reserve.given_up(), self._holding(reference, "checkpoint delete") as (plan, _, lease):
                return self.service.pruning.delete_damaged(plan, lease, damaged)
        wanted = self._checkpoint_of(self.find_plan(reference), checkpoint)
        with self._reserve.given_up(), self._holding(reference, "checkpoint delete") as (plan, _, lease):
            return self.service.pruning.delete(plan, lease, wanted)

    def find_damaged_checkpoint(self, reference: str, checkpoint: str) -> DamagedCheckpoint | None:
        """The checkpoint that is meant, if it is one that can only be deleted."""
        from holdfast.checkpoints.damage import find_damaged_checkpoint

        with suppress(NotFoundError):
            return find_damaged_checkpoint(self.store, self.find_plan(reference).plan_id, checkpoint)
        return None

    def prune(self, reference: str, keep: int | None = None) -> int:
        """Prune to ``keep`` checkpoints, or to what the plan's policy says; how many went.

        What something cut short needs is kept; putting it right is left to the next command, as it may take space.
        """
        with self._reserve.given_up(), self._holding(reference, "checkpoint prune") as (plan, _, lease):
            policy = CheckpointRetentionPolicy(max_checkpoints=keep) if keep is not None else plan.policy.retention
            return self.service.prune_checkpoints(plan, lease, policy)

    @property
    def unfreed(self) -> str | None:
        """Why the content that the last ``prune``, ``delete`` or ``delete_checkpoint`` gave up is still there."""
        return self.service.garbage.unfreed

    def held_back(self) -> list[HeldBack]:
        """The plans for which content is kept although no records at hand say that they need it."""
        return self.service.release.held_back()

    def release(self, given_up: Sequence[HeldBack]) -> int:
        """Give up what is kept for these plans, because their records are gone for ever; the bytes freed."""
        self._refuse_read_only()
        with self._reserve.given_up():
            self.service.release.give_up(given_up)
            return self.service.garbage.collect()

    # Looking

    def checkpoints(self, reference: str) -> list[CheckpointView]:
        plan = self.find_plan(reference)
        listed = self.service.list_checkpoints(plan.plan_id)
        shown = display_ids(self._checkpoint_ids(plan.plan_id))
        groups = {group.group_id: group for group in self.store.groups.of(plan.plan_id, sound_only=True)}
        superseded = self.service.history(plan).superseded_groups
        return [
            CheckpointView(
                checkpoint=checkpoint,
                group=groups[checkpoint.group_id],
                display_id=shown[checkpoint.checkpoint_id],
                is_superseded=checkpoint.group_id in superseded,
            )
            for checkpoint in listed
            if checkpoint.group_id in groups
        ]

    def damaged_checkpoints(self, reference: str) -> list[tuple[DamagedCheckpoint, str]]:
        """Those of the plan whose records, or those of their moments, are damaged, with the ids they are shown by."""
        plan = self.find_plan(reference)
        shown = display_ids(self._checkpoint_ids(plan.plan_id))
        return [(each, shown[each.checkpoint_id]) for each in self.store.damaged.checkpoints(plan.plan_id)]

    def checkpoint_ids(self, plan_id: str) -> list[str]:
        """Of those whose records are sound, oldest first."""
        return [each.checkpoint_id for each in self.store.checkpoints.of(plan_id)]

    def count_checkpoints(self, plan_id: str) -> int:
        """Damaged ones too."""
        return self.store.checkpoints.count(plan_id)

    def find_group(self, group_id: str | None) -> CheckpointGroup | None:
        return self.store.find(CheckpointGroup, group_id) if group_id is not None else None

    def checkpoints_at(self, group: CheckpointGroup) -> list[Checkpoint]:
        """Those of a group, at least one."""
        return self.service.checkpoints_at(group)

    @property
    def content_bytes(self) -> int:
        """How much space all saved content takes."""
        return self.service.manager.objects.content_bytes()

    def _checkpoint_ids(self, plan_id: str) -> set[str]:
        damaged = {each.checkpoint_id for each in self.store.damaged.checkpoints(plan_id)}
        return damaged.union(each.checkpoint_id for each in self.store.checkpoints.of(plan_id))

    def checkpoint(self, checkpoint_reference: str, plan_reference: str | None = None) -> CheckpointView:
        """One checkpoint of a plan; without a plan its id must say which one is meant."""
        plan_id = plan_reference or self._plan_of_checkpoint(checkpoint_reference)
        plan = self.find_plan(plan_id)
        wanted = self._checkpoint_of(plan, checkpoint_reference)
        return next(each for each in self.checkpoints(plan.plan_id) if each.checkpoint == wanted)

    def _plan_of_checkpoint(self, reference: str) -> str:
        prefix = reference.removeprefix("cp_").upper()
        found = {each.plan_id for each in self.store.checkpoints.by_prefix(prefix)} if prefix else set()
        found |= {each.plan_id for each in self.store.damaged.checkpoints(prefix=prefix)} if prefix else set()
        return found.pop() if len(found) == 1 else LATEST

    def _checkpoint_of(self, plan: Plan, reference: str) -> Checkpoint:
        """The checkpoint of this plan; if it is another plan's, the refusal says so."""
        try:
            return self.service.get_checkpoint(plan.plan_id, reference)
        except AmbiguousError:
            raise
        except NotFoundError:
            prefix = reference.removeprefix("cp_").upper()
            others = self.store.checkpoints.by_prefix(prefix) if len(prefix) >= 8 else []
            if others:
                raise StateError(
                    f"Checkpoint {reference} belongs to plan {others[0].plan_id}, not to {plan.plan_id}.",
                    hint=f"See this plan's checkpoints with `holdfast checkpoint list {plan.plan_id}`.",
                ) from None
            raise

    def changed_files(self, view: CheckpointView) -> list[FileDiff]:
        """What changed between the group before this one and this one."""
        from holdfast.checkpoints.file_diffs import file_diff

        plan = self.store.get(Plan, view.checkpoint.plan_id)
        self._refuse_without_content(plan)
        parent = self.store.find(CheckpointGroup, view.group.parent_group_id) if view.group.parent_group_id else None
        if parent is None:
            return []
        changes = self.service.changes.between(plan, parent.states, view.group.states)
        reader = self.service.manager.reader
        return [file_diff(reader, name, difference) for name, listed in changes.items() for difference in listed]

    def changes(self, plan: Plan) -> list[FileChange]:
        """What the plan changed in its sandboxes, from its first checkpoint to its last."""
        from holdfast.checkpoints.file_diffs import file_change

        if plan.head_group_id is None:
            return []
        first, head = self.store.groups.first(plan.plan_id), self.store.get(CheckpointGroup, plan.head_group_id)
        changes = self.service.changes.between(plan, first.states, head.states)
        return [file_change(name, difference) for name, listed in changes.items() for difference in listed]

    def diff(self, reference: str, old: str | None = None, new: str | None = None) -> list[FileDiff]:
        """Base against now, a checkpoint against now, or one checkpoint against another."""
        from holdfast.checkpoints.file_diffs import file_diff

        plan = self.find_plan(reference)
        if plan.head_group_id is None:
            return []
        self._refuse_without_content(plan)
        before = self.store.groups.first(plan.plan_id).states if old is None else self._states_at(plan, old)
        if new is None and self.is_read_only and self._is_whole(plan):
            from holdfast.checkpoints.present import diff_to_present

            return diff_to_present(plan, self.service.manager, before)
        after = self._states_now(plan) if new is None else self._states_at(plan, new)
        changes = self.service.changes.between(plan, before, after)
        reader = self.service.manager.reader
        return [file_diff(reader, name, difference) for name, listed in changes.items() for difference in listed]

    def result_of_attempt(self, reference: str, attempt: int) -> Checkpoint:
        """The first checkpoint of the last group of an attempt, also of one that a correction put an end to."""
        from holdfast.checkpoints.file_diffs import results_by_attempt

        plan = self.find_plan(reference)
        results = results_by_attempt(self.store.groups.of(plan.plan_id))
        if attempt not in results:
            known = ", ".join(map(str, sorted(results)))
            raise NotFoundError(
                f"Plan {plan.plan_id} has no result of an attempt {attempt}.",
                hint=f"There are results of these attempts: {known}." if known else "It has not run yet.",
            )
        return self.service.checkpoints_at(results[attempt])[0]

    def _states_at(self, plan: Plan, reference: str) -> dict[str, str]:
        return self.store.get(CheckpointGroup, self._checkpoint_of(plan, reference).group_id).states

    def _states_now(self, plan: Plan) -> dict[str, str]:
        """Of an applied plan whose sandboxes are gone, the last state recorded."""
        if self._is_whole(plan):
            return self.service.sandboxes.states_now(plan)
        return self.store.get(CheckpointGroup, plan.head_group_id or "").states

    def _is_whole(self, plan: Plan) -> bool:
        return all(is_there(Path(resource.sandbox_path)) for resource in plan.resources)

    def verify(self, reference: str | None = None) -> VerifyResult:
        """Read back everything the checkpoints need, of one plan or of all that are kept in this home.

        Where the structure of the store is damaged, objects that can be read are still told from those that cannot.
        """
        from holdfast.system.sqlite import damage_in

        if reference is not None:
            plans = [self.find_plan(reference)]
        else:
            plans = [plan for plan in self.store.plans.of_project(None) if self._is_kept_here(plan)]
        for plan in plans:
            self._refuse_without_content(plan)
        objects = self.service.manager.objects
        structure = damage_in(objects.path)
        if structure:
            objects.leave_as_it_is()
        found = self.service.verify(each for plan in plans for each in (plan, *self._below(plan)))
        return replace(found, structure=tuple(structure))

    def _has_sandbox(self, plan: Plan) -> bool:
        """Whether it was executed in this home, so that its content should be here."""
        return any(is_there(Path(resource.sandbox_path)) for resource in plan.resources)

    def _is_kept_here(self, plan: Plan) -> bool:
        if plan.store_id == self.service.manager.objects.store_id:
            return not self._was_used_from_a_copy(plan)
        return self._has_sandbox(plan)

    def decisions(self, reference: str) -> list[Decision]:
        """Those whose records are sound."""
        return self.store.decisions.of(self.find_plan(reference).plan_id, sound_only=True)

    def decision_tree(self, reference: str, *, with_superseded: bool = False) -> DecisionTree:
        """The decisions of a plan and of its subplans, each below the one it came from."""
        from holdfast.decisions.explain import decision_tree

        return decision_tree(self.find_plan(reference), self.service, with_superseded=with_superseded)

    def can_be_reverted(self, plan: Plan, decision_id: str) -> bool:
        """Whether `plan correct --mode revert` of the decision is not refused as things are."""
        from holdfast.decisions.correct import CorrectionService

        decision = self.store.get(Decision, decision_id)
        return CorrectionService(self.service, self.tools).find_refusal(plan, decision) is None

    def explain(self, decision_reference: str) -> Explanation:
        """One decision: why, what it changed, and what depends on it."""
        from holdfast.decisions.explain import explain_decision

        decision = self.find_decision(decision_reference)
        plan = self.store.get(Plan, decision.plan_id)
        self._refuse_without_content(plan)
        return explain_decision(plan, self.service, self.tools, decision)


def _refuse_only_unkept(only: Sequence[str], keeps_present: bool) -> None:
    if only and not keeps_present:
        raise UsageError(
            "Single paths are restored with the present state kept.",
            hint="Leave out either `--only` or `--without-keeping`.",
        )


def _refuse_to_stop_what_is_done(plan: Plan) -> None:
    if plan.state in (PlanState.COMPLETE, PlanState.APPLIED):
        raise StateError(
            f"Plan {plan.plan_id} is {plan.state}: there is nothing to stop.",
            hint=f"See what it made with `holdfast plan diff {plan.plan_id}`.",
        )


def _tell_set_aside(listener: Listener | None, places: tuple[str, ...]) -> None:
    from holdfast.events import SetAside

    if listener is not None and places:
        listener(SetAside(places))


def project_root(start: Path) -> Path:
    """The root of the git repository around ``start``, or outside of one ``start`` itself."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / ".git").exists():
            return folder
    return start
