"""StepRunner: calls one tool in a plan's sandboxes, and confines it to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.errors import HoldfastError, described
from holdfast.execution.extras import Extras, extras_of, places_of
from holdfast.execution.folders import plan_folder, temporary_folder
from holdfast.execution.pauses import settling
from holdfast.execution.view import StepView, view_of
from holdfast.model import (
    DEFAULT_PASSED_VARIABLES,
    DecisionSpec,
    Grant,
    Plan,
    RefusedWrite,
    RunSettings,
    Step,
    StepRun,
    View,
)
from holdfast.process.command import DEFAULT_OUTPUT_LIMIT_BYTES
from holdfast.process.confinement import Confinement, Writable, confinement_of, real_path
from holdfast.process.environment import passed_variables, resource_variable
from holdfast.process.leftovers import mark_of
from holdfast.process.passthrough import Passthrough
from holdfast.process.refusals import Border, Complaints, explain, refused_writes
from holdfast.system.trees import remove_tree
from holdfast.tools import Toolbox, ToolContext, ToolResult

_EXIT_NOT_EXECUTABLE = 126
"""The exit code of a shell that may not execute a file; its message is the same as for a refused write."""


class StepSettings(msgspec.Struct, frozen=True):
    """The settings of every tool call."""

    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The environment of the command that runs the plan."""
    passed_variables: Collection[str] = DEFAULT_PASSED_VARIABLES
    output_limit_bytes: int = DEFAULT_OUTPUT_LIMIT_BYTES
    timeout_seconds: float | None = None
    """For steps that set no timeout."""
    confine: bool = True
    """Processes of a step may write only into the plan's sandboxes, if the kernel can enforce that."""
    allow_write: Sequence[Path] = ()
    """Other paths they may write to, from ``confinement.allowed_paths``."""
    allowed_paths: Callable[[Sequence[str]], Sequence[Path]] = lambda more: tuple(map(Path, more))
    """These paths and more, which a program was given."""
    view: View | None = None
    """Where steps find the sandboxes; None means at the places of the real folders if the kernel allows it."""
    passthrough: Passthrough | None = None
    """The terminal of the command that started the plan, if a program gets it."""
    settle_seconds: float | None = None
    """Take a checkpoint whenever a running tool has written something and then paused for this long."""

    def for_step(self, step: Step) -> StepSettings:
        """With what the program of the step was given, and what the profile of its agent allows it."""
        given, grant = step.run_settings or RunSettings(), step.grant or Grant(title="")
        allowed = self.allowed_paths(given.allow_write) if given.allow_write else self.allow_write
        return msgspec.structs.replace(
            self,
            passed_variables=(*self.passed_variables, *given.pass_env, *grant.pass_env),
            allow_write=(*allowed, *places_of(grant)),
            settle_seconds=given.settle_seconds if self.settle_seconds is None else self.settle_seconds,
        )

    @property
    def is_confined(self) -> bool:
        return confinement_of(self.confine) is Confinement.ON


class Requests(Protocol):
    """What a running tool can ask for, and what it reports."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Where programs of the step can ask for something."""
        ...

    def record_decision(self, spec: DecisionSpec) -> str: ...

    def checkpoint(self, label: str | None) -> str: ...

    def printed(self, text: bytes) -> None: ...

    def refused(self, writes: tuple[RefusedWrite, ...]) -> None: ...

    def settled(self) -> None: ...

    def heard(self) -> object: ...

    def made_directory(self, path: str) -> None: ...


class StepRunner:
    """Calls one tool; it does not know why the tool is called or how the result is used."""

    def __init__(self, tools: Toolbox, settings: StepSettings, home: Path) -> None:
        self.tools, self._settings, self._home = tools, settings, home

    def view_of(self, plan: Plan) -> StepView:
        return view_of(plan, self._settings.view, self._settings.allow_write)

    def run(self, plan: Plan, step: Step, run: StepRun, requests: Requests, cancelled: threading.Event) -> ToolResult:
        """Call the tool; every failure of the call is a result, not an exception."""
        try:
            settings = self._settings.for_step(step)
            view = view_of(plan, settings.view, settings.allow_write)
            extras = extras_of(plan, step, view, settings)
        except HoldfastError as error:
            return ToolResult.failed(error.message)
        except OSError as error:
            return ToolResult.failed(f"a folder that {step.name} needs cannot be made: {described(error)}")
        complaints = Complaints() if step.is_program else None
        context = ToolContext(
            root=Path(plan.resource(step.resource).sandbox_path),
            seen_at=view.paths[step.resource],
            mounts=(*extras.below, *view.mounts, *extras.mounts),
            environment={
                **extras.environment,
                **_environment(plan, view, settings, run.step_index),
                **requests.variables,
            },
            record_decision=requests.record_decision,
            checkpoint=requests.checkpoint,
            timeout_seconds=self.tools.declaration_for(step).timeout_seconds or settings.timeout_seconds,
            output_limit_bytes=settings.output_limit_bytes,
            on_output=requests.printed if complaints is None else _heard_by(complaints, requests.printed),
            cancelled=cancelled,
            mark=mark_of(run.run_id, self._home),
            writable=_writable(plan, settings, extras),
            on_directory=requests.made_directory,
            passthrough=settings.passthrough,
        )
        try:
            with _settling(settings, requests, cancelled):
                result = self.tools.run(step, context)
        except HoldfastError as error:
            result = ToolResult.failed(error.message)
        except Exception as error:  # noqa: BLE001 - tools come from any package; whatever one raises fails its step
            result = ToolResult.failed(f"the tool {step.tool} raised {type(error).__name__}: {error}")
        if complaints is not None:
            if refused := (*_refused(complaints, _border(plan, view, settings, context), context), *extras.finish()):
                requests.refused(refused)
        elif context.writable is not None and result.error is not None and result.exit_code != _EXIT_NOT_EXECUTABLE:
            result = _explained(_border(plan, view, settings, context), context, result)
        return result


def _settling(settings: StepSettings, requests: Requests, stop: threading.Event) -> AbstractContextManager[None]:
    if settings.settle_seconds is None:
        return nullcontext()
    return settling(requests.heard, settings.settle_seconds, requests.settled, stop)


def _writable(plan: Plan, settings: StepSettings, extras: Extras) -> Sequence[Path] | None:
    if not settings.is_confined:
        return None
    sandboxes = [Path(resource.sandbox_path) for resource in plan.resources]
    return Writable(sandboxes, (temporary_folder(plan), *extras.writable, *settings.allow_write))


def _border(plan: Plan, view: StepView, settings: StepSettings, context: ToolContext) -> Border:
    return Border(
        writable=(*view.paths.values(), *(context.writable or ())),
        allowed=settings.allow_write,
        copies={Path(resource.path): view.paths[resource.name] for resource in plan.resources},
        holdfast_home=plan_folder(plan).parents[1],
        mounts=context.mounts,
        user_home=real_path(Path(settings.environment["HOME"])) if "HOME" in settings.environment else None,
    )


def _explained(border: Border, context: ToolContext, result: ToolResult) -> ToolResult:
    """The failed result with an explanation, if a write outside of the permitted folders caused it."""
    refusal = explain(f"{result.output}\n{result.error}", context.folder, border)
    return replace(result, error=f"{result.error}; {refusal}") if refusal else result


def _refused(complaints: Complaints, border: Border, context: ToolContext) -> tuple[RefusedWrite, ...]:
    return () if context.writable is None else refused_writes(complaints.names(), context.folder, border)


def _environment(plan: Plan, view: StepView, settings: StepSettings, index: int) -> dict[str, str]:
    passed = passed_variables(settings.environment, settings.passed_variables)
    temporary = temporary_folder(plan)
    # It is empty for every step, because a rollback would not restore what an earlier step left there.
    remove_tree(temporary)
    temporary.mkdir(parents=True, mode=0o700)
    return {
        **passed,
        **{resource_variable(name): str(path) for name, path in view.paths.items()},
        "TMPDIR": str(temporary),
        "HOLDFAST_PLAN_ID": plan.plan_id,
        "HOLDFAST_STEP": str(index),
        "HOLDFAST_GUIDANCE": plan.guidance,
    }


def _heard_by(complaints: Complaints, printed: Callable[[bytes], None]) -> Callable[[bytes], None]:
    def hear(text: bytes) -> None:
        complaints.hear(text)
        printed(text)

    return hear
