"""PlanExecutor: runs the steps of a plan that remain, with a checkpoint at every write and every decision."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from holdfast.apply.real_folders import reading
from holdfast.checkpoints.consequences import Consequences, consequences_of
from holdfast.checkpoints.history import first_of_attempt, records_every_step
from holdfast.checkpoints.missing import (
    lost_with_a_sandbox,
    make_missing_sandboxes,
    make_recorded_sandboxes,
    missing_sandboxes,
)
from holdfast.checkpoints.recorder import Occasion
from holdfast.checkpoints.references import refuse_label
from holdfast.checkpoints.service import CheckpointService
from holdfast.checkpoints.titles import shortened
from holdfast.errors import HoldfastError, LeaseLostError, StateError
from holdfast.events import (
    CheckpointTaken,
    Compensating,
    EffectsOutside,
    Event,
    InSubplan,
    Listener,
    SandboxesMadeAnew,
    SandboxMade,
    SetAside,
    StepFinished,
    StepPrinted,
    StepStarted,
    Validating,
    WentBack,
)
from holdfast.execution.pauses import settling
from holdfast.execution.subplans import (
    SubplanRunner,
    plan_folder,
    refuse_unresolved,
    spawn_spec,
    spawned_records,
    waiting_again,
)
from holdfast.model import (
    DEFAULT_PASSED_VARIABLES,
    CheckpointGroup,
    Decision,
    DecisionSpec,
    DecisionType,
    Lease,
    Moment,
    Phase,
    Plan,
    PlanState,
    Record,
    Resource,
    RollbackResult,
    RunStatus,
    SideEffect,
    Step,
    StepRun,
    Trigger,
    is_within,
    now,
)
from holdfast.process.command import DEFAULT_OUTPUT_LIMIT_BYTES
from holdfast.process.confinement import Confinement, Writable, confinement_of
from holdfast.process.environment import passed_variables, resource_variable
from holdfast.process.leftovers import mark_of
from holdfast.process.passthrough import Passthrough
from holdfast.process.refusals import Border, explain
from holdfast.rollback.compensation import compensate, effects_outside
from holdfast.sandbox import sandbox_for
from holdfast.sandbox.forking import fork
from holdfast.system.ids import new_id
from holdfast.system.machine import boot_id
from holdfast.system.place import refuse_replaced
from holdfast.system.progress import watched_by
from holdfast.system.stopping import Stopped, stoppable
from holdfast.system.trees import remove_tree
from holdfast.tools import Toolbox, ToolContext, ToolDeclaration, ToolResult

_EXIT_NOT_EXECUTABLE = 126
"""How a shell says that it may not run a file, in the same words as that it may not write one."""


class AfterInterruption(StrEnum):
    """What becomes of a step that was cut short and may have done something outside of the sandboxes already."""

    RERUN = "rerun"
    SKIP = "skip"


@dataclass(frozen=True)
class Choices:
    """What a person decided before going on."""

    interrupted_step: AfterInterruption | None = None
    conflicts_are_resolved: bool = False
    """Also where a file in conflict is as the merge left it."""


@dataclass(frozen=True)
class ExecutorSettings:
    environment: Mapping[str, str] = field(default_factory=dict)
    """The environment of the command that runs the plan."""
    passed_variables: Collection[str] = DEFAULT_PASSED_VARIABLES
    include_ignored: Collection[str] = ()
    output_limit_bytes: int = DEFAULT_OUTPUT_LIMIT_BYTES
    step_timeout_seconds: float | None = None
    confine: bool = True
    """Whether processes of a step may write only into the plan's sandboxes, where the kernel can enforce it."""
    allow_write: Sequence[Path] = ()
    """Where they may write besides, as ``confinement.allowed_paths`` gives it."""
    choices: Choices = Choices()
    passthrough: Passthrough | None = None
    """The terminal of whoever started the plan, for a program that is to have it."""
    settle_seconds: float | None = None
    """Take a checkpoint whenever a running tool has written something and then been quiet for so long."""


@dataclass(frozen=True)
class ExecutionResult:
    plan: Plan
    failed_run: StepRun | None = None
    """The run that failed, of a step or of a validation."""
    failure_group: CheckpointGroup | None = None
    """Holds the files as they were when it failed; None if no group does, and they are only in the sandboxes."""
    returned_to: CheckpointGroup | None = None
    """What the failure policy restored."""
    effects: tuple[EffectsOutside, ...] = ()
    """Of each going back on the way, if steps that it undid had any."""
    set_aside: tuple[str, ...] = ()
    """Where to going back on the way moved what no checkpoint holds and stood in the way."""
    made_anew: tuple[str, ...] = ()
    """Resources whose sandboxes were gone and are made anew."""
    was_done: bool = False
    """The plan was complete or applied already, and nothing was run."""

    @property
    def succeeded(self) -> bool:
        return self.plan.state is PlanState.COMPLETE


class PlanExecutor:
    def __init__(
        self,
        service: CheckpointService,
        tools: Toolbox,
        settings: ExecutorSettings,
        *,
        listener: Listener | None = None,
        cancelled: threading.Event | None = None,
    ) -> None:
        self.service, self._store = service, service.store
        self._tools, self._settings = tools, settings
        self._listener = listener
        self._telling = threading.RLock()  # subplans tell from threads of their own
        self._cancelled = cancelled or threading.Event()
        self._to_go_on_with: StepRun | None = None
        self.effects: list[EffectsOutside] = []
        self._set_aside: list[str] = []
        self._made_anew: tuple[str, ...] = ()

    def execute(self, plan: Plan, lease: Lease) -> ExecutionResult:
        """Run what remains; a failed step is a result, an error is what stops us from running it safely."""
        refuse_unresolved(plan, self.service, take_as_is=self._settings.choices.conflicts_are_resolved)
        refuse_to_repeat(plan, self.service, self._tools, self._settings.choices)
        try:
            result = self._execute(plan, lease)
            return replace(
                result, effects=tuple(self.effects), set_aside=tuple(self._set_aside), made_anew=self._made_anew
            )
        except HoldfastError as error:
            if not isinstance(error, LeaseLostError):
                self.broken_off(self._store.get(Plan, plan.plan_id), lease, error.message)
                # The step may have removed its own sandbox: going on makes it anew, but also runs the step again.
                with suppress(HoldfastError):
                    make_recorded_sandboxes(self._store.get(Plan, plan.plan_id), self.service)
            raise

    def _execute(self, plan: Plan, lease: Lease) -> ExecutionResult:
        try:
            plan = self._begin(plan, lease)
        except Stopped:
            return self.stopped_at_the_start(plan, lease)
        with self.service.sandboxes.watching(plan):
            return self._run_remaining(plan, lease)

    def _run_remaining(self, plan: Plan, lease: Lease) -> ExecutionResult:
        for index in range(plan.next_step, len(plan.steps)):
            if self._cancelled.is_set():
                return self._stopped(plan, lease, None)
            plan, run = self._run_with_retries(plan, lease, index)
            if run.status is RunStatus.INTERRUPTED:
                return self._stopped(plan, lease, run)
            if run.status is RunStatus.CONSTRAINED:
                return ExecutionResult(plan, run)
            if run.status is RunStatus.FAILED:
                return self._failed(plan, lease, run)
        return self._finish(plan, lease)

    # Beginning

    def _is_to_be_skipped(self, plan: Plan, run: StepRun | None) -> bool:
        is_asked_for = self._settings.choices.interrupted_step is AfterInterruption.SKIP
        return is_asked_for and may_count_as_done(plan, run, self._tools)

    def _skip(self, plan: Plan, lease: Lease, run: StepRun) -> Plan:
        """Take the step as done, with the files as it left them; a person said so."""
        spec = DecisionSpec(
            type=DecisionType.USER_INTERVENTION,
            question=f"{run.step} was interrupted: is it run again?",
            chosen="no, it counts as done",
        )
        decision = self.service.decision(plan, spec, run.step_index, run.decision_id)
        run = run.model_copy(update={"status": RunStatus.SUCCEEDED, "error": "interrupted, and skipped"})
        plan = plan.advanced_past(run.step_index, [*self._decisions_since(run), decision.sequence])
        occasion = replace(
            occasion_of(plan.steps[run.step_index], run, f"{run.step} is skipped"), decision_id=decision.decision_id
        )
        triggers = [Trigger.ON_TOOL_WRITE_COMPLETE, Trigger.ON_DECISION]
        return self.trigger(plan, lease, triggers, occasion, [decision, run])

    def _begin(self, plan: Plan, lease: Lease) -> Plan:
        history = self.service.history(plan)
        half_done = history.cut_short
        plan = plan.changed(phase=Phase.EXECUTE, state=PlanState.PROCESSING, error=None)
        with self._store.transaction(lease):
            self._store.save(plan)
            for decision in self.service.history(plan).never_begun:
                self._store.save(decision.model_copy(update={"is_superseded": True}))
        if plan.head_group_id is None:
            with stoppable(self._cancelled):
                return self._start_from_nothing(plan.changed(boot_id=boot_id()), lease)
        lost_since = lost_with_a_sandbox(self.service.history(plan))
        with stoppable(self._cancelled):
            self._made_anew = tuple(make_missing_sandboxes(plan, self.service))
        if self._made_anew:
            self.tell(SandboxesMadeAnew(self._made_anew))
        if lost_since is not None:
            made = self._made_anew
            plan, half_done = self._go_back(plan, lease, lost_since.group_id, f"{made[0]} was gone").plan, None
        if goes_on_divided(plan, half_done):
            self._to_go_on_with = half_done
        elif self._is_to_be_skipped(plan, half_done) and half_done is not None:
            plan = self._skip(plan, lease, half_done)
        elif half_done is not None and half_done.group_before_id is not None:
            plan = self._go_back(plan, lease, half_done.group_before_id, f"{half_done.step} was interrupted").plan
        plan = plan.changed(state=PlanState.PROCESSING, boot_id=boot_id())
        with self._store.transaction(lease):
            self._store.save(plan)
        return plan

    def _start_from_nothing(self, plan: Plan, lease: Lease) -> Plan:
        resources = []
        is_of_real_folders = plan.parent_plan_id is None
        with reading(plan.resources, self.service) if is_of_real_folders else nullcontext():
            for resource in plan.resources:
                self.service.manager.forget(Path(resource.sandbox_path))
                resources.append(self._make_sandbox(plan, resource))
                self.tell(SandboxMade(resources[-1]))
        # The store that it was made with may have been lost since.
        plan = plan.changed(resources=tuple(resources), store_id=self.service.manager.objects.store_id)
        return self.group(
            plan, lease, Occasion((Moment.PRE_EXECUTE,), source="execute", reason="before the first step")
        )

    def _make_sandbox(self, plan: Plan, resource: Resource) -> Resource:
        if plan.parent_plan_id is not None:
            return fork(self._store.get(Plan, plan.parent_plan_id).resource(resource.name), resource)
        return sandbox_for(plan, resource, include_ignored=self._settings.include_ignored).create()

    def group(self, plan: Plan, lease: Lease, occasion: Occasion, *, only_if_changed: bool = False) -> Plan:
        before = plan.head_group_id
        plan = self.service.create_checkpoint(plan, lease, occasion, only_if_changed=only_if_changed)
        if plan.head_group_id != before:
            self._tell_checkpoint(plan)
        return plan

    # A step

    def _run_with_retries(self, plan: Plan, lease: Lease, index: int) -> tuple[Plan, StepRun]:
        step = plan.steps[index]
        if step.subplans:
            return self._run_subplans(plan, lease, index)
        try_number = 1
        while True:
            plan, run = self._run_step(plan, lease, index, try_number)
            if run.status is not RunStatus.FAILED or try_number > step.retries:
                return plan, run
            try_number += 1
            recovery = _recovery(run, f"try again, try {try_number} of {step.retries + 1}")
            if run.group_before_id is not None and plan.policy.rollback_enabled:
                plan = self._keep_failed(plan, lease, run)
                back = self._go_back(plan, lease, run.group_before_id, f"{step.name} is tried again", recovery)
                plan = back.plan.changed(state=PlanState.PROCESSING)
            else:
                plan = self._decide_on_failure(plan, lease, run, recovery)

    def _run_step(self, plan: Plan, lease: Lease, index: int, try_number: int) -> tuple[Plan, StepRun]:
        step, declaration = plan.steps[index], self._tools.declaration_for(plan.steps[index])
        triggers = [Trigger.BEFORE_STEP, Trigger.ON_DECISION]
        if declaration.writes:
            triggers.insert(1, Trigger.ON_TOOL_WRITE)
        spec = step.decision or _invocation(step, declaration)
        plan, run = self._start_step(plan, lease, index, try_number, spec, triggers)
        plan, run = self._call(plan, lease, step, run)
        plan = self._end_step(plan, lease, run, [Trigger.ON_TOOL_WRITE_COMPLETE] if declaration.writes else [])
        return plan, run

    def _end_step(self, plan: Plan, lease: Lease, run: StepRun, triggers: list[Trigger]) -> Plan:
        """Record how the step ended; all decisions made since it began are in force if it succeeded."""
        if run.status is RunStatus.SUCCEEDED:
            step = plan.steps[run.step_index]
            plan = plan.advanced_past(run.step_index, self._decisions_since(run))
            if not records_every_step(plan):
                # Nothing but the files will say what it did, so they are on the disk before it counts as done.
                os.sync()
            plan = self.trigger(plan, lease, triggers, occasion_of(step, run, f"after {step.name}"), [run])
        else:
            with self._store.transaction(lease):
                self._store.save(run)
        self.tell(StepFinished(run.step_index, len(plan.steps), run))
        return plan

    def _decisions_since(self, run: StepRun) -> list[int]:
        """Those made since it began, but for those of another way that a rollback came back from."""
        first = self._store.get(Decision, run.decision_id or "").sequence
        return [each.sequence for each in self._store.decisions.in_force_from(run.plan_id, first)]

    # Subplans

    def _run_subplans(self, plan: Plan, lease: Lease, index: int) -> tuple[Plan, StepRun]:
        step, run = plan.steps[index], self._to_go_on_with
        is_begun, self._to_go_on_with = run is not None, None
        if run is None:
            plan, run = self._start_divided(plan, lease, index)
        elif run.status is not RunStatus.CONSTRAINED:
            run = run.model_copy(update={"status": RunStatus.RUNNING, "error": None, "finished_at": None})
            with self._store.transaction(lease):
                self._store.save(run)
        plan = self._spawn(plan, lease, run)
        self.tell(StepStarted(index, len(plan.steps), run))
        runner = SubplanRunner(self, self.service, lease, self._cancelled, step, run, is_begun=is_begun)
        plan, run = runner.run(plan)
        return self._end_step(plan, lease, run, []), run

    def _start_divided(self, plan: Plan, lease: Lease, index: int) -> tuple[Plan, StepRun]:
        """Record that a step with subplans starts; a decision of its own comes before the one to divide it."""
        step, triggers = plan.steps[index], [Trigger.BEFORE_STEP, Trigger.ON_DECISION]
        self._remove_old_forks(plan)
        if step.decision is None:
            return self._start_step(plan, lease, index, 1, spawn_spec(step), [*triggers, Trigger.ON_SUBPLAN_SPAWN])
        return self._start_step(plan, lease, index, 1, step.decision, triggers)

    def _spawn(self, plan: Plan, lease: Lease, run: StepRun) -> Plan:
        """Make the step's subplans, unless that was done before the step was cut short."""
        if self.service.history(plan).spawned_by(run):
            return plan
        step = plan.steps[run.step_index]
        decision = self._store.get(Decision, run.decision_id or "")
        if step.decision is None:
            with self._store.transaction(lease):
                for record in spawned_records(plan, step, decision):
                    self._store.save(record)
            return plan
        decision = self.service.decision(plan, spawn_spec(step), run.step_index, run.decision_id)
        occasion = replace(occasion_of(step, run, f"before {step.name}"), decision_id=decision.decision_id)
        triggers = [Trigger.ON_DECISION, Trigger.ON_SUBPLAN_SPAWN]
        return self.trigger(plan, lease, triggers, occasion, [decision, *spawned_records(plan, step, decision)])

    def _remove_old_forks(self, plan: Plan) -> None:
        """The sandboxes of subplans of earlier tries; their checkpoints stay."""
        for subplan in self._store.plans.below(plan.plan_id):
            remove_tree(plan_folder(subplan))

    def execute_subplan(self, subplan: Plan, lease: Lease, service: CheckpointService) -> Plan:
        def tell(event: Event) -> None:
            self.tell(InSubplan(subplan, event))

        executor = PlanExecutor(service, self._tools, self._settings, listener=tell, cancelled=self._cancelled)
        with watched_by(None if self._listener is None else tell):
            result = executor.execute(subplan, lease)
        self._set_aside += result.set_aside
        return result.plan

    def _call(self, plan: Plan, lease: Lease, step: Step, run: StepRun) -> tuple[Plan, StepRun]:
        """Run the step's tool; the plan as the tool's own requests left it, and how the run ended."""
        self.tell(StepStarted(run.step_index, len(plan.steps), run))
        plan, result = self._result_of(plan, lease, step, run, self._cancelled)
        return plan, _ended(run, result)

    def _result_of(
        self, plan: Plan, lease: Lease, step: Step, run: StepRun, cancelled: threading.Event
    ) -> tuple[Plan, ToolResult]:
        bridge = _Bridge(self, plan, lease, step, run)
        writable = self._writable(plan)
        context = ToolContext(
            root=Path(plan.resource(step.resource).sandbox_path),
            environment=self._environment(plan, run.step_index),
            record_decision=bridge.record_decision,
            checkpoint=bridge.checkpoint,
            timeout_seconds=self._tools.declaration_for(step).timeout_seconds or self._settings.step_timeout_seconds,
            output_limit_bytes=self._settings.output_limit_bytes,
            on_output=lambda text: self.tell(StepPrinted(run.step_index, text)),
            cancelled=cancelled,
            mark=mark_of(run.run_id, self._store.home),
            writable=writable,
            passthrough=self._settings.passthrough,
        )
        try:
            with self._settling(plan, bridge, cancelled):
                result = self._tools.run(step, context)
        except HoldfastError as error:
            result = ToolResult.failed(error.message)
        except Exception as error:  # noqa: BLE001 - see below
            # A tool may come from anybody; whatever it raises, its step failed and the plan goes on being safe.
            result = ToolResult.failed(f"the tool {step.tool} raised {type(error).__name__}: {error}")
        if writable is not None and result.error is not None and result.exit_code != _EXIT_NOT_EXECUTABLE:
            result = self._explained(plan, context, result)
        return bridge.plan, result

    def _settling(self, plan: Plan, bridge: _Bridge, stop: threading.Event) -> AbstractContextManager[None]:
        if self._settings.settle_seconds is None:
            return nullcontext()
        return settling(plan, self.service, self._settings.settle_seconds, bridge.settled, stop)

    def _writable(self, plan: Plan) -> Sequence[Path] | None:
        if confinement_of(self._settings.confine) is not Confinement.ON:
            return None
        sandboxes = [Path(resource.sandbox_path) for resource in plan.resources]
        return Writable(sandboxes, (_temporary_folder(plan), *self._settings.allow_write))

    def _explained(self, plan: Plan, context: ToolContext, result: ToolResult) -> ToolResult:
        """A failure with the reason for it, if that was a write outside of where the step may write."""
        border = Border(
            writable=context.writable or (),
            allowed=self._settings.allow_write,
            copies={Path(resource.path): Path(resource.sandbox_path) for resource in plan.resources},
            holdfast_home=plan_folder(plan).parents[1],
        )
        refusal = explain(f"{result.output}\n{result.error}", context.root, border)
        return replace(result, error=f"{result.error}; {refusal}") if refusal else result

    def _start_step(
        self, plan: Plan, lease: Lease, index: int, try_number: int, spec: DecisionSpec, triggers: list[Trigger]
    ) -> tuple[Plan, StepRun]:
        """Record that the step starts, with its decision, and protect what it may change."""
        refuse_replaced_sandboxes(plan)
        step = plan.steps[index]
        decision = self.service.decision(plan, spec, index, parent=None)
        run = StepRun(
            run_id=new_id(),
            plan_id=plan.plan_id,
            sequence=self._store.next_sequence(StepRun, plan.plan_id),
            step_index=index,
            step=step.name,
            attempt=plan.attempt,
            try_number=try_number,
            decision_id=decision.decision_id,
            started_at=now(),
        )
        before = plan.head_group_id
        plan = self.trigger(plan, lease, triggers, occasion_of(step, run, f"before {step.name}"), [decision])
        # Without a trigger now, the last group will do if nothing has changed since.
        if plan.head_group_id != before or self.service.is_as_at(plan, self._head(plan)):
            run = run.model_copy(update={"group_before_id": plan.head_group_id})
        with self._store.transaction(lease):
            for record in self._tried_before(plan, run):
                self._store.save(record)
            self._store.insert(run)
        return plan, run

    def _tried_before(self, plan: Plan, run: StepRun) -> list[Record]:
        """What is left of a try of the same step that nothing undid, superseded: it is no part of what leads on."""
        last = self._store.runs.latest(plan.plan_id)
        if last is None or last.is_superseded or last.step_index != run.step_index:
            return []
        decisions = [
            each
            for each in self._store.decisions.of(plan.plan_id)
            if each.step_index == run.step_index
            and each.decision_id != run.decision_id
            and not each.is_superseded
            and not is_within(each.sequence, plan.active_decisions)
        ]
        made = {each.decision_id for each in decisions}
        runs = [each for each in self._store.runs.of(plan.plan_id) if each.decision_id in made]
        subplans = [each for each in self._store.plans.below(plan.plan_id) if each.spawn_decision_id in made]
        return [
            *(each.model_copy(update={"is_superseded": True}) for each in (*decisions, *runs)),
            *(each.changed(is_superseded=True) for each in subplans if each.state is not PlanState.APPLIED),
        ]

    def trigger(
        self, plan: Plan, lease: Lease, triggers: list[Trigger], occasion: Occasion, records: Collection[Record] = ()
    ) -> Plan:
        before = plan.head_group_id
        plan = self.service.auto_create_if_configured(plan, lease, triggers, occasion, records=list(records))
        if plan.head_group_id != before:
            self._tell_checkpoint(plan)
        return plan

    def _environment(self, plan: Plan, index: int) -> dict[str, str]:
        passed = passed_variables(self._settings.environment, self._settings.passed_variables)
        temporary = _temporary_folder(plan)
        # Every step finds it empty: what one left there would not come back with a rollback.
        remove_tree(temporary)
        temporary.mkdir(parents=True, mode=0o700)
        return {
            **passed,
            **{resource_variable(resource.name): resource.sandbox_path for resource in plan.resources},
            "TMPDIR": str(temporary),
            "HOLDFAST_PLAN_ID": plan.plan_id,
            "HOLDFAST_STEP": str(index),
            "HOLDFAST_GUIDANCE": plan.guidance,
        }

    # Endings

    def _finish(self, plan: Plan, lease: Lease) -> ExecutionResult:
        for command in plan.validation:
            plan, run = self._validate(plan, lease, command)
            before = plan.head_group_id
            plan, run = self._judged(plan, lease, run)
            self.tell(StepFinished(run.step_index, len(plan.steps), run))
            if run.status is RunStatus.INTERRUPTED:
                return self._stopped(plan, lease, run)
            if run.status is RunStatus.FAILED:
                kept = self._group_of_failure(plan, before)
                plan = self._errored(plan, lease, f"validation failed: {run.step}: {run.error}")
                return ExecutionResult(plan, run, kept)
        plan = plan.changed(state=PlanState.COMPLETE)
        plan = self.group(plan, lease, Occasion((Moment.POST_EXECUTE,), source="execute", reason="all steps are done"))
        return ExecutionResult(plan)

    def _validate(self, plan: Plan, lease: Lease, command: str) -> tuple[Plan, StepRun]:
        self.tell(Validating(command))
        refuse_replaced_sandboxes(plan)
        step = Step(name=command, tool="shell", args={"command": command}, resource=plan.resources[0].name)
        run = StepRun(
            run_id=new_id(),
            plan_id=plan.plan_id,
            sequence=self._store.next_sequence(StepRun, plan.plan_id),
            step_index=len(plan.steps),
            step=command,
            attempt=plan.attempt,
            started_at=now(),
        )
        with self._store.transaction(lease):
            self._store.insert(run)
        return self._call(plan, lease, step, run)

    def _judged(self, plan: Plan, lease: Lease, run: StepRun) -> tuple[Plan, StepRun]:
        """Record what a validation says."""
        if run.status is RunStatus.INTERRUPTED:
            # It said nothing yet, and is asked again when the plan goes on.
            with self._store.transaction(lease):
                self._store.save(run)
            return plan, run
        verdict = DecisionSpec(
            type=DecisionType.VALIDATION_RESPONSE,
            question=f"Does `{run.step}` accept the result?",
            chosen="yes" if run.status is RunStatus.SUCCEEDED else "no",
            rationale=run.error or "",
        )
        decision = self.service.decision(plan, verdict, None, parent=None)
        run = run.model_copy(update={"decision_id": decision.decision_id})
        has_failed = run.status is RunStatus.FAILED
        occasion = Occasion(
            (),
            source="validate",
            reason=f"validation: {run.step}",
            title=f"when the validation `{run.step}` failed" if has_failed else f"after the validation `{run.step}`",
            decision_id=decision.decision_id,
        )
        plan = plan.decided(decision.sequence, decision.sequence)
        triggers = [Trigger.ON_ERROR, Trigger.ON_DECISION] if has_failed else [Trigger.ON_DECISION]
        return self.trigger(plan, lease, triggers, occasion, [decision, run]), run

    def _failed(self, plan: Plan, lease: Lease, run: StepRun) -> ExecutionResult:
        """Keep the failed state, then do what the plan's policy says."""
        before = plan.head_group_id
        target = self._target_after_failure(plan, run)
        returned = None
        if target is None:
            plan = self._decide_on_failure(plan, lease, run, _recovery(run, "keep what is there and stop"))
            kept = self._group_of_failure(plan, before)
        else:
            plan = self._keep_failed(plan, lease, run)
            returned = self._store.get(CheckpointGroup, target)
            recovery = _recovery(run, f"{plan.policy.on_failure.value.replace('_', ' ')} and stop")
            failed_at = plan.head_group_id
            result = self._go_back(plan, lease, target, f"{run.step} failed", recovery)
            plan, left = result.plan, result.left_group_id
            # Going back has kept what it left, if nothing else had.
            kept = self._store.find(CheckpointGroup, (failed_at if failed_at != before else left) or "")
        error = f"step {run.step_index + 1} ({run.step}) failed: {run.error}"
        if target is None and plan.policy.goes_back_on_failure:
            error += "; what it changed is still there, because no checkpoint was taken before it"
        plan = self._errored(plan, lease, error)
        return ExecutionResult(plan, run, kept, returned)

    def _keep_failed(self, plan: Plan, lease: Lease, run: StepRun, decided: Decision | None = None) -> Plan:
        """Fire what a failed step fires, tied to what was decided about the failure if something was."""
        step, triggers = plan.steps[run.step_index], [Trigger.ON_ERROR]
        occasion = occasion_of(step, run, str(run.error))
        if step.subplans:
            triggers.append(Trigger.AFTER_SUBPLAN)  # one has ended, in a failure or in a conflict that is one
        if decided is None:
            return self.trigger(plan, lease, triggers, occasion)
        occasion = replace(occasion, decision_id=decided.decision_id)
        return self.trigger(plan, lease, [*triggers, Trigger.ON_DECISION], occasion, [decided])

    def _decide_on_failure(self, plan: Plan, lease: Lease, run: StepRun, spec: DecisionSpec) -> Plan:
        """Keep the failed state, tied to what was decided about it."""
        decision = self.service.decision(plan, spec, run.step_index, run.decision_id)
        return self._keep_failed(plan.decided(decision.sequence, decision.sequence), lease, run, decision)

    def _group_of_failure(self, plan: Plan, before: str | None) -> CheckpointGroup | None:
        """The group that was taken since ``before``, or that one if it holds what is in the sandboxes all the same."""
        head = self._head(plan)
        return head if head.group_id != before or self.service.sandboxes.states_now(plan) == head.states else None

    def compensate(self, plan: Plan, lease: Lease, consequences: Consequences) -> Consequences:
        """Undo what the steps that a rollback undoes did outside of the sandboxes, as they say how."""

        def run_tool(plan: Plan, step: Step, run: StepRun) -> ToolResult:
            self.tell(Compensating(run.step_index, step.name))
            # It is tried only once, so a request to stop lets it come to its end.
            return self._result_of(plan, lease, step, run, threading.Event())[1]

        consequences = compensate(plan, lease, self.service, consequences, run_tool)
        # Now: afterwards these steps are undone, and nothing is left to tell of them.
        effects = effects_outside(plan, self.service, self._tools, consequences)
        if effects.side_effects_not_undone or effects.compensated:
            self.effects.append(effects)
            self.tell(effects)
        return consequences

    def _target_after_failure(self, plan: Plan, run: StepRun) -> str | None:
        if not plan.policy.goes_back_on_failure:
            return None
        if plan.policy.goes_back_to_start:
            return first_of_attempt(plan, self._store.groups.of(plan.plan_id)).group_id
        return run.group_before_id

    def stopped_at_the_start(self, plan: Plan, lease: Lease) -> ExecutionResult:
        """While sandboxes were made, of which there is nothing then: going on makes them anew."""
        return self._stopped(self._store.get(Plan, plan.plan_id), lease, None, "while its sandboxes were made")

    def _stopped(
        self, plan: Plan, lease: Lease, run: StepRun | None, where: str = "between two steps"
    ) -> ExecutionResult:
        where = where if run is None else f"during {run.step}"
        plan = plan.changed(state=PlanState.CANCELLED, error=f"stopped {where}")
        with self._store.transaction(lease):
            self._store.save(plan)
        return ExecutionResult(plan, run)

    def broken_off(self, plan: Plan, lease: Lease, error: str) -> None:
        """Record why it does not go on."""
        if waiting_again(plan, lease, self.service) is None:
            self._errored(plan, lease, error)

    def _errored(self, plan: Plan, lease: Lease, error: str) -> Plan:
        plan = plan.changed(state=PlanState.ERRORED, error=error)
        with self._store.transaction(lease):
            self._store.save(plan)
        return plan

    def _go_back(
        self, plan: Plan, lease: Lease, group_id: str, reason: str, recovery: DecisionSpec | None = None
    ) -> RollbackResult:
        checkpoint = self.service.checkpoints_at(self._store.get(CheckpointGroup, group_id))[0]
        result = self.service.rollback_to_checkpoint(
            plan, lease, checkpoint, reason=reason, recovery=recovery, compensate=self.compensate
        )
        if not result.plan.is_finished:
            index = result.plan.next_step
            self.tell(WentBack(index, result.plan.steps[index].name, checkpoint.checkpoint_id))
        if result.set_aside:
            self._set_aside += result.set_aside
            self.tell(SetAside(result.set_aside))
        return result

    # Telling

    def _head(self, plan: Plan) -> CheckpointGroup:
        return self._store.get(CheckpointGroup, plan.head_group_id or "")

    def tell(self, event: Event) -> None:
        if self._listener is not None:
            with self._telling:
                self._listener(event)

    def _tell_checkpoint(self, plan: Plan) -> None:
        if self._listener is not None:
            self.tell(CheckpointTaken(self._head(plan), plan.last_checkpoint_id or ""))


class _Bridge:
    """What a running tool can ask of the executor; keeps the plan as it is after each request."""

    def __init__(self, executor: PlanExecutor, plan: Plan, lease: Lease, step: Step, run: StepRun) -> None:
        self._executor, self.plan, self._lease, self._step, self._run = executor, plan, lease, step, run
        self._pauses = 0

    def record_decision(self, spec: DecisionSpec) -> str:
        decision = self._executor.service.decision(self.plan, spec, self._run.step_index, self._run.decision_id)
        occasion = replace(
            occasion_of(self._step, self._run, f"decided: {spec.chosen}"),
            decision_id=decision.decision_id,
            title=f"during step {self._run.step_index + 1}, decided: {shortened(spec.chosen)}",
        )
        self.plan = self._executor.trigger(self.plan, self._lease, [Trigger.ON_DECISION], occasion, [decision])
        return decision.decision_id

    def checkpoint(self, label: str | None) -> str:
        if label is not None:
            refuse_label(label)
        occasion = occasion_of(self._step, self._run, "asked for by the step")
        self.plan = self._executor.group(
            self.plan, self._lease, replace(occasion, triggers=(Moment.MANUAL.value,), label=label)
        )
        return self.plan.last_checkpoint_id or ""

    def settled(self) -> None:
        before, pause = self.plan.head_group_id, self._pauses + 1
        occasion = replace(
            occasion_of(self._step, self._run, f"while {self._step.name} runs"),
            triggers=(Moment.SETTLED.value,),
            title=f"during step {self._run.step_index + 1}, pause {pause}",
        )
        self.plan = self._executor.group(self.plan, self._lease, occasion, only_if_changed=True)
        if self.plan.head_group_id != before:
            self._pauses = pause


def refuse_replaced_sandboxes(plan: Plan) -> None:
    """No step is started in what a symlink in the place of a sandbox leads to."""
    for resource in plan.resources:
        refuse_replaced(Path(resource.sandbox_path))


def may_count_as_done(plan: Plan, run: StepRun | None, tools: Toolbox) -> bool:
    """Whether a person may say of a step that was cut short that it is not run again."""
    step = plan.interrupted_step(run)
    return step is not None and (step.is_program or _cannot_repeat(step, tools))


def _cannot_repeat(step: Step, tools: Toolbox) -> bool:
    """Whether it may have done something that doing again does twice."""
    declared = tools.declaration_for(step)
    return declared.side_effects and not declared.idempotent


def goes_on_divided(plan: Plan, run: StepRun | None) -> bool:
    """Whether the subplans of a step that was cut short go on; otherwise the step starts from before it."""
    if run is None or run.step_index >= len(plan.steps) or run.status is RunStatus.FAILED:
        return False
    return bool(plan.steps[run.step_index].subplans)


def refuse_to_repeat(plan: Plan, service: CheckpointService, tools: Toolbox, choices: Choices) -> None:
    """What steps did outside of the sandboxes, also those of subplans that go on, is not silently done twice."""
    history = service.history(plan)
    head = lost_with_a_sandbox(history)
    if head is not None:
        _refuse_to_lose(plan, head, service, tools, choices)
        return
    run = history.under_way
    step = plan.interrupted_step(run)
    if run is not None and goes_on_divided(plan, run):
        for subplan in history.spawned_by(run):
            if subplan.state is not PlanState.COMPLETE:
                refuse_to_repeat(subplan, service, tools, choices)
    elif run is not None and step is not None and choices.interrupted_step is None and _cannot_repeat(step, tools):
        root_id = service.store.plans.root_of(plan).plan_id
        where = "" if plan.parent_plan_id is None else f" of subplan {plan.name}"
        raise StateError(
            f"Step {run.step_index + 1} ({run.step}){where} was interrupted, and what it does outside of the sandboxes "
            "may have happened already.",
            hint=f"`holdfast plan resume --rerun {root_id}` runs it again, "
            f"`holdfast plan resume --skip {root_id}` goes on after it.",
        )


def _refuse_to_lose(
    plan: Plan, head: CheckpointGroup, service: CheckpointService, tools: Toolbox, choices: Choices
) -> None:
    """A sandbox is gone, and steps that count as done are run again: also what they did outside."""
    history = service.history(plan)
    effects = effects_outside(plan, service, tools, consequences_of(history, head)).side_effects_not_undone
    repeated = [each for each in effects if _is_repeated(each, service, tools)]
    is_skip = choices.interrupted_step is AfterInterruption.SKIP
    if choices.interrupted_step is AfterInterruption.RERUN or not (repeated or is_skip):
        return
    gone = ", ".join(resource.name for resource in missing_sandboxes(plan))
    listed = ", ".join(f"step {each.step_index + 1} ({each.step})" for each in repeated)
    outside = f" What these did outside of the sandboxes would happen again: {listed}." if repeated else ""
    back = history.position_at(head)
    raise StateError(
        f"The sandbox of {gone} is gone, with all that steps did in it since the last checkpoint: nothing can be "
        f"skipped, and going on runs the plan again from step {back.next_step + 1} "
        f"({back.steps[back.next_step].name}).{outside}",
        hint=f"`holdfast plan resume --rerun {service.store.plans.root_of(plan).plan_id}` does so.",
    )


def _is_repeated(effect: SideEffect, service: CheckpointService, tools: Toolbox) -> bool:
    """Whether it was perhaps done, and doing it again does it twice; a step that failed is tried again in any case."""
    run = service.store.get(StepRun, effect.run_id)
    step = service.store.get(Plan, run.plan_id).steps[run.step_index]
    return run.status is not RunStatus.FAILED and _cannot_repeat(step, tools)


def refuse_to_skip_nothing(plan: Plan, service: CheckpointService, tools: Toolbox, choices: Choices) -> None:
    """Whoever asks for a step to be left out must not see it run."""
    if choices.interrupted_step is AfterInterruption.SKIP and not _can_skip(plan, service, tools):
        raise StateError(
            "There is nothing to skip: neither a step with effects outside of the sandboxes nor a program was "
            "interrupted.",
            hint=f"`holdfast plan resume {plan.plan_id}` goes on; to leave a step out, correct its decision.",
        )


def _can_skip(plan: Plan, service: CheckpointService, tools: Toolbox) -> bool:
    run = service.history(plan).under_way
    below = (each for each in service.store.plans.below(plan.plan_id) if not each.is_superseded)
    return may_count_as_done(plan, run, tools) or any(_can_skip(each, service, tools) for each in below)


def _temporary_folder(plan: Plan) -> Path:
    return plan_folder(plan) / ".tmp"


def occasion_of(step: Step, run: StepRun, reason: str) -> Occasion:
    return Occasion(
        triggers=(),
        reason=reason,
        source=step.tool,
        try_number=run.try_number,
        step_index=run.step_index,
        decision_id=run.decision_id,
        resource=step.resource,
    )


def _invocation(step: Step, declaration: ToolDeclaration) -> DecisionSpec:
    return DecisionSpec(
        type=DecisionType.TOOL_INVOCATION,
        question=f"How is this done: {step.name}?",
        chosen=_call_text(step),
        rationale="" if declaration.writes else "It only looks.",
    )


def _recovery(run: StepRun, chosen: str) -> DecisionSpec:
    return DecisionSpec(
        type=DecisionType.ERROR_RECOVERY,
        question=f"{run.step} failed: what now?",
        chosen=chosen,
        rationale=run.error or "",
    )


def _call_text(step: Step) -> str:
    if step.tool == "shell":
        return str(step.args.get("command", ""))
    target = step.args.get("path") or step.args.get("callable") or ""
    return f"{step.tool} {target}".strip()


def _ended(run: StepRun, result: ToolResult) -> StepRun:
    status = RunStatus.SUCCEEDED if result.succeeded else RunStatus.FAILED
    return run.model_copy(
        update={
            "status": RunStatus.INTERRUPTED if result.cancelled else status,
            "exit_code": result.exit_code,
            "output": result.output,
            "output_bytes": result.output_bytes,
            "error": result.error,
            "finished_at": now(),
        }
    )
