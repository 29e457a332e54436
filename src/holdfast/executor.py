"""PlanExecutor: runs the steps of a plan that remain, with a checkpoint at every write and every decision."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.checkpoints import CheckpointService, Occasion
from holdfast.confinement import Confinement, confinement_of
from holdfast.errors import HoldfastError, LeaseLostError
from holdfast.events import (
    CheckpointTaken,
    Event,
    Listener,
    SandboxMade,
    StepFinished,
    StepPrinted,
    StepStarted,
    Validating,
    WentBack,
)
from holdfast.model import (
    DEFAULT_PASSED_VARIABLES,
    CheckpointGroup,
    Decision,
    DecisionSpec,
    DecisionType,
    Lease,
    Moment,
    OnFailure,
    Phase,
    Plan,
    PlanState,
    Record,
    RunStatus,
    Step,
    StepRun,
    Trigger,
    new_id,
    now,
)
from holdfast.operations import cut_short, make_missing_sandboxes
from holdfast.policy import resource_variable
from holdfast.process import DEFAULT_OUTPUT_LIMIT_BYTES
from holdfast.refusals import Border, explain
from holdfast.sandbox import sandbox_for
from holdfast.sandbox.making import remove_tree
from holdfast.tools import Toolbox, ToolContext, ToolDeclaration, ToolResult

_EXIT_NOT_EXECUTABLE = 126
"""How a shell says that it may not run a file, in the same words as that it may not write one."""


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


@dataclass(frozen=True)
class ExecutionResult:
    plan: Plan
    failed_run: StepRun | None = None
    """The run that failed, of a step or of a validation."""
    failure_group: CheckpointGroup | None = None
    """Keeps the failed state."""
    returned_to: CheckpointGroup | None = None
    """What the failure policy restored."""

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
        self._service, self._store = service, service.store
        self._tools, self._settings = tools, settings
        self._listener = listener
        self._cancelled = cancelled or threading.Event()

    def execute(self, plan: Plan, lease: Lease) -> ExecutionResult:
        """Run what remains; a failed step is a result, an error is what stops us from running it safely."""
        try:
            return self._execute(plan, lease)
        except HoldfastError as error:
            if not isinstance(error, LeaseLostError):
                self._errored(self._store.get(Plan, plan.plan_id), lease, error.message)
            raise

    def _execute(self, plan: Plan, lease: Lease) -> ExecutionResult:
        plan = self._begin(plan, lease)
        with self._service.watching(plan):
            return self._run_remaining(plan, lease)

    def _run_remaining(self, plan: Plan, lease: Lease) -> ExecutionResult:
        for index in range(plan.next_step, len(plan.steps)):
            if self._cancelled.is_set():
                return self._stopped(plan, lease, None)
            plan, run = self._run_with_retries(plan, lease, index)
            if run.status is RunStatus.INTERRUPTED:
                return self._stopped(plan, lease, run)
            if run.status is RunStatus.FAILED:
                return self._failed(plan, lease, run)
        return self._finish(plan, lease)

    # Beginning

    def _begin(self, plan: Plan, lease: Lease) -> Plan:
        half_done = cut_short(plan, self._service)
        plan = plan.changed(phase=Phase.EXECUTE, state=PlanState.PROCESSING, error=None)
        with self._store.transaction(lease):
            self._store.save(plan)
        if plan.head_group_id is None:
            return self._start_from_nothing(plan, lease)
        make_missing_sandboxes(plan, self._service)
        if half_done is not None and half_done.group_before_id is not None:
            plan = self._go_back(plan, lease, half_done.group_before_id, f"{half_done.step} was interrupted")
        return plan

    def _start_from_nothing(self, plan: Plan, lease: Lease) -> Plan:
        resources = []
        for resource in plan.resources:
            self._service.manager.forget(Path(resource.sandbox_path))
            sandbox = sandbox_for(plan, resource, include_ignored=self._settings.include_ignored)
            resources.append(sandbox.create())
            self._tell(SandboxMade(resources[-1]))
        plan = plan.changed(resources=tuple(resources))
        return self.group(plan, lease, Occasion((Moment.PRE_EXECUTE,), reason="before the first step"))

    def group(self, plan: Plan, lease: Lease, occasion: Occasion) -> Plan:
        plan = self._service.create_checkpoint(plan, lease, occasion)
        self._tell_checkpoint(plan)
        return plan

    # A step

    def _run_with_retries(self, plan: Plan, lease: Lease, index: int) -> tuple[Plan, StepRun]:
        step = plan.steps[index]
        try_number = 1
        while True:
            plan, run = self._run_step(plan, lease, index, try_number)
            if run.status is not RunStatus.FAILED or try_number > step.retries:
                return plan, run
            try_number += 1
            plan = self.trigger(plan, lease, [Trigger.ON_ERROR], occasion_of(step, run, str(run.error)))
            if run.group_before_id is not None and plan.policy.rollback_enabled:
                plan = self._go_back(plan, lease, run.group_before_id, f"{step.name} is tried again")
                plan = plan.changed(state=PlanState.PROCESSING)

    def _run_step(self, plan: Plan, lease: Lease, index: int, try_number: int) -> tuple[Plan, StepRun]:
        step, declaration = plan.steps[index], self._tools.declaration_for(plan.steps[index])
        plan, run, decision = self._start_step(plan, lease, index, try_number, declaration)
        plan, run = self._call(plan, lease, step, run)
        if run.status is RunStatus.SUCCEEDED:
            last = self._store.next_sequence(Decision, plan.plan_id) - 1
            plan = plan.advanced_past(index, decision.sequence, last)
            triggers = [Trigger.ON_TOOL_WRITE_COMPLETE] if declaration.writes else []
            plan = self.trigger(plan, lease, triggers, occasion_of(step, run, f"after {step.name}"), [run])
        else:
            with self._store.transaction(lease):
                self._store.save(run)
        self._tell(StepFinished(index, len(plan.steps), run))
        return plan, run

    def _call(self, plan: Plan, lease: Lease, step: Step, run: StepRun) -> tuple[Plan, StepRun]:
        """Run the step's tool; the plan as the tool's own requests left it, and how the run ended."""
        self._tell(StepStarted(run.step_index, len(plan.steps), run))
        bridge = _Bridge(self, plan, lease, step, run)
        writable = self._writable(plan)
        context = ToolContext(
            root=Path(plan.resource(step.resource).sandbox_path),
            environment=self._environment(plan, run.step_index),
            record_decision=bridge.record_decision,
            checkpoint=bridge.checkpoint,
            timeout_seconds=self._tools.declaration_for(step).timeout_seconds or self._settings.step_timeout_seconds,
            output_limit_bytes=self._settings.output_limit_bytes,
            on_output=lambda text: self._tell(StepPrinted(run.step_index, text)),
            cancelled=self._cancelled,
            mark=run.run_id,
            writable=writable,
        )
        try:
            result = self._tools.run(step, context)
        except HoldfastError as error:
            result = ToolResult.failed(error.message)
        except Exception as error:  # noqa: BLE001 - see below
            # A tool may come from anybody; whatever it raises, its step failed and the plan goes on being safe.
            result = ToolResult.failed(f"the tool {step.tool} raised {type(error).__name__}: {error}")
        if writable is not None and not result.succeeded and result.exit_code != _EXIT_NOT_EXECUTABLE:
            result = self._explained(plan, context, result)
        return bridge.plan, _ended(run, result)

    def _writable(self, plan: Plan) -> Sequence[Path] | None:
        if confinement_of(self._settings.confine) is not Confinement.ON:
            return None
        sandboxes = [Path(resource.sandbox_path) for resource in plan.resources]
        return (*sandboxes, _temporary_folder(plan), *self._settings.allow_write)

    def _explained(self, plan: Plan, context: ToolContext, result: ToolResult) -> ToolResult:
        """A failure with the reason for it, if that was a write outside of where the step may write."""
        border = Border(
            writable=context.writable or (),
            allowed=self._settings.allow_write,
            copies={Path(resource.path): Path(resource.sandbox_path) for resource in plan.resources},
            holdfast_home=_plan_folder(plan).parents[1],
        )
        refusal = explain(f"{result.output}\n{result.error}", context.root, border)
        return replace(result, error=f"{result.error}; {refusal}") if refusal else result

    def _start_step(
        self, plan: Plan, lease: Lease, index: int, try_number: int, declaration: ToolDeclaration
    ) -> tuple[Plan, StepRun, Decision]:
        """Record that the step starts, with its decision, and protect what it may change."""
        step = plan.steps[index]
        decision = self.decision(plan, step.decision or _invocation(step, declaration), index, parent=self._root(plan))
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
        triggers = [Trigger.BEFORE_STEP, Trigger.ON_DECISION]
        if declaration.writes:
            triggers.insert(1, Trigger.ON_TOOL_WRITE)
        plan = self.trigger(plan, lease, triggers, occasion_of(step, run, f"before {step.name}"), [decision])
        # Without a trigger now, the last group will do if no step has come to its end since.
        if self._head(plan).last_completed_step == plan.last_completed_step:
            run = run.model_copy(update={"group_before_id": plan.head_group_id})
        with self._store.transaction(lease):
            self._store.insert(run)
        return plan, run, decision

    def trigger(
        self, plan: Plan, lease: Lease, triggers: list[Trigger], occasion: Occasion, records: Collection[Record] = ()
    ) -> Plan:
        before = plan.head_group_id
        plan = self._service.auto_create_if_configured(plan, lease, triggers, occasion, records=list(records))
        if plan.head_group_id != before:
            self._tell_checkpoint(plan)
        return plan

    def decision(self, plan: Plan, spec: DecisionSpec, index: int | None, parent: str | None) -> Decision:
        return Decision(
            decision_id=new_id(),
            plan_id=plan.plan_id,
            parent_decision_id=parent,
            sequence=self._store.next_sequence(Decision, plan.plan_id),
            step_index=index,
            attempt=plan.attempt,
            created_at=now(),
            **spec.model_dump(),
        )

    def _root(self, plan: Plan) -> str | None:
        root = self._store.root_decision(plan.plan_id)
        return root.decision_id if root else None

    def _environment(self, plan: Plan, index: int) -> dict[str, str]:
        passed = {
            name: value
            for name, value in self._settings.environment.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in self._settings.passed_variables)
        }
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
        plan, failed = self._validate(plan, lease)
        if failed is not None and failed.status is RunStatus.INTERRUPTED:
            return self._stopped(plan, lease, failed)
        if failed is not None:
            plan = self._errored(plan, lease, f"validation failed: {failed.step}: {failed.error}")
            return ExecutionResult(plan, failed, self._head(plan))
        plan = plan.changed(state=PlanState.COMPLETE)
        plan = self.group(plan, lease, Occasion((Moment.POST_EXECUTE,), reason="all steps are done"))
        return ExecutionResult(plan)

    def _validate(self, plan: Plan, lease: Lease) -> tuple[Plan, StepRun | None]:
        for command in plan.validation:
            self._tell(Validating(command))
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
            plan, run = self._call(plan, lease, step, run)
            verdict = DecisionSpec(
                type=DecisionType.VALIDATION_RESPONSE,
                question=f"Does `{command}` accept the result?",
                chosen="yes" if run.status is RunStatus.SUCCEEDED else "no",
                rationale=run.error or "",
            )
            decision = self.decision(plan, verdict, None, self._root(plan))
            run = run.model_copy(update={"decision_id": decision.decision_id})
            reason = f"validation: {command}"
            occasion = Occasion((), reason=reason, source="validate", decision_id=decision.decision_id)
            plan = plan.decided(decision.sequence, decision.sequence)
            plan = self.trigger(plan, lease, [Trigger.ON_DECISION], occasion, [decision, run])
            self._tell(StepFinished(run.step_index, len(plan.steps), run))
            if run.status is not RunStatus.SUCCEEDED:
                return plan, run
        return plan, None

    def _failed(self, plan: Plan, lease: Lease, run: StepRun) -> ExecutionResult:
        """Keep the failed state, then do what the plan's policy says."""
        before = plan.head_group_id
        occasion = occasion_of(plan.steps[run.step_index], run, str(run.error))
        plan = self.trigger(plan, lease, [Trigger.ON_ERROR], occasion)
        kept = self._head(plan) if plan.head_group_id != before else None
        target = self._target_after_failure(plan, run)
        returned = None
        if target is not None:
            plan = self._go_back(plan, lease, target, f"{run.step} failed")
            returned = self._store.get(CheckpointGroup, target)
        error = f"step {run.step_index + 1} ({run.step}) failed: {run.error}"
        if target is None and self._wants_to_go_back(plan):
            error += "; what it changed is still there, because no checkpoint was taken before it"
        plan = self._errored(plan, lease, error)
        return ExecutionResult(plan, run, kept, returned)

    def _wants_to_go_back(self, plan: Plan) -> bool:
        return plan.policy.rollback_enabled and plan.policy.on_failure is not OnFailure.KEEP

    def _target_after_failure(self, plan: Plan, run: StepRun) -> str | None:
        if not self._wants_to_go_back(plan):
            return None
        if plan.policy.on_failure is OnFailure.ROLLBACK_TO_START:
            return self._store.groups_of(plan.plan_id)[0].group_id
        return run.group_before_id

    def _stopped(self, plan: Plan, lease: Lease, run: StepRun | None) -> ExecutionResult:
        where = "between two steps" if run is None else f"during {run.step}"
        plan = plan.changed(state=PlanState.CANCELLED, error=f"stopped {where}")
        with self._store.transaction(lease):
            self._store.save(plan)
        return ExecutionResult(plan, run)

    def _errored(self, plan: Plan, lease: Lease, error: str) -> Plan:
        plan = plan.changed(state=PlanState.ERRORED, error=error)
        with self._store.transaction(lease):
            self._store.save(plan)
        return plan

    def _go_back(self, plan: Plan, lease: Lease, group_id: str, reason: str) -> Plan:
        checkpoint = self._store.checkpoints_of_group(group_id)[0]
        result = self._service.rollback_to_checkpoint(plan, lease, checkpoint, reason=reason)
        index = result.plan.next_step
        self._tell(WentBack(index, result.plan.steps[index].name, checkpoint.checkpoint_id))
        return result.plan

    # Telling

    def _head(self, plan: Plan) -> CheckpointGroup:
        return self._store.get(CheckpointGroup, plan.head_group_id or "")

    def _tell(self, event: Event) -> None:
        if self._listener is not None:
            self._listener(event)

    def _tell_checkpoint(self, plan: Plan) -> None:
        if self._listener is not None:
            self._listener(CheckpointTaken(self._head(plan), plan.last_checkpoint_id or ""))


class _Bridge:
    """What a running tool can ask of the executor; keeps the plan as it is after each request."""

    def __init__(self, executor: PlanExecutor, plan: Plan, lease: Lease, step: Step, run: StepRun) -> None:
        self._executor, self.plan, self._lease, self._step, self._run = executor, plan, lease, step, run

    def record_decision(self, spec: DecisionSpec) -> str:
        decision = self._executor.decision(self.plan, spec, self._run.step_index, self._run.decision_id)
        occasion = replace(
            occasion_of(self._step, self._run, f"decided: {spec.chosen}"), decision_id=decision.decision_id
        )
        self.plan = self._executor.trigger(self.plan, self._lease, [Trigger.ON_DECISION], occasion, [decision])
        return decision.decision_id

    def checkpoint(self, label: str | None) -> str:
        occasion = occasion_of(self._step, self._run, "asked for by the step")
        self.plan = self._executor.group(
            self.plan, self._lease, replace(occasion, triggers=(Moment.MANUAL.value,), label=label)
        )
        return self.plan.last_checkpoint_id or ""


def _plan_folder(plan: Plan) -> Path:
    return Path(plan.resources[0].sandbox_path).parent


def _temporary_folder(plan: Plan) -> Path:
    return _plan_folder(plan) / ".tmp"


def occasion_of(step: Step, run: StepRun, reason: str) -> Occasion:
    return Occasion(
        triggers=(),
        reason=reason,
        source=step.tool,
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
