"""The progress of a running plan: a line for each step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast.cli.data import duration_seconds
from holdfast.cli.output import NARROWEST, Screen, Span, cell_width, counted, output_lines, seconds_text, shortened
from holdfast.cli.screen.bar import SHOWN_AFTER_SECONDS, Bar, label_text, percent_text
from holdfast.cli.screen.listeners import effect_lines, own_path_lines, restored_text
from holdfast.cli.screen.plans import left_out_texts, step_word
from holdfast.events import (
    CheckpointTaken,
    Compensating,
    EffectsOutside,
    Event,
    InSubplan,
    RealFilesRestored,
    RolledBack,
    SandboxesMadeAnew,
    SandboxesRestored,
    SandboxMade,
    SeenAtOwnPath,
    SetAside,
    StepFinished,
    StepPrinted,
    StepStarted,
    SubplanEnded,
    SubplanMerged,
    SubplanStarted,
    Working,
)
from holdfast.model import Plan, PlanState, Resource, RunStatus, Step, StepRun
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import Holdfast

_VALIDATE = "validate"
_WIDEST_NAME = 72
_ROOM_BESIDE_NAME = 31
_OUTPUT_KEPT = 4096
_SUBPLAN_ENDINGS = {PlanState.COMPLETE: "ok", PlanState.CANCELLED: "stopped", PlanState.CONSTRAINED: "conflict"}


class Progress:
    """Listens to an execution and prints a line for each step."""

    def __init__(self, screen: Screen, holdfast: Holdfast, plan: Plan) -> None:
        self._screen, self._holdfast = screen, holdfast
        self._plan_id = plan.plan_id
        self._has_started = False
        self._resource_width = max(len(resource.name) for resource in plan.resources)
        self._checkpoint: str | None = None
        self._rolled_back: RolledBack | None = None
        self._printed = b""
        self._beginning: list[Span] = []
        self._subplans = SubplanProgress(screen)
        self._bar = Bar(screen)
        self._lay_out(plan)

    def _lay_out(self, plan: Plan) -> None:
        width = self._screen.width
        room = _WIDEST_NAME if width is None else max(NARROWEST, width - _ROOM_BESIDE_NAME)
        count = len(plan.steps)
        lines = [f"{_number(0, count)} {step.name}{_again(step.retries + 1)}" for step in plan.steps]
        lines += [f"{_VALIDATE} {command}" for command in plan.validation]
        self._name_end = min(max(map(cell_width, lines), default=0), _WIDEST_NAME, room)
        self._steps = plan.steps

    def __call__(self, event: Event) -> None:
        match event:
            case SandboxMade(resource):
                self._tell_sandbox(resource)
            case CheckpointTaken(_, checkpoint_id):
                self._checkpoint = checkpoint_id
            case StepStarted(index, count, run):
                self._start(index, count, run)
            case StepPrinted(_, text):
                self._echo(text)
            case StepFinished(_, _, run):
                self._finish(run)
            case Working():
                self._bar(event)
            case InSubplan(_, SetAside() as aside):
                self._tell_rare(aside)
            case SubplanStarted() | SubplanEnded() | SubplanMerged() | InSubplan():
                self._subplans(event)
            case _:
                self._tell_rare(event)

    def _tell_rare(self, event: Event) -> None:
        """Print an event that is not part of every execution."""
        match event:
            case RolledBack():
                self._rolled_back = event
            case SetAside(places):
                for place in places:
                    self._screen.line(("set aside  ", "warn"), name_text(place))
            case Compensating(_, name):
                self._screen.line(("outside  ", "warn"), name)
            case EffectsOutside():
                for line in effect_lines(event):
                    self._screen.line(("outside  ", "warn"), line)
            case _:
                self._tell_before_the_first_step(event)

    def _tell_before_the_first_step(self, event: Event) -> None:
        match event:
            case SandboxesMadeAnew(resources):
                self._screen.line(("re-created ", "warn"), f"{', '.join(resources)}: the sandbox was missing")
            case SandboxesRestored(resources, checkpoint_id):
                why = "the machine or the process went down"
                kept = f"the files found are kept as {self._display(checkpoint_id)}"
                self._screen.line(("restored ", "warn"), f"{', '.join(resources)}: {why}; {kept}")
            case RealFilesRestored():
                self._screen.line(("restored ", "warn"), restored_text(event))
            case SeenAtOwnPath():
                for line in own_path_lines(event):
                    self._screen.line(("warning  ", "warn"), line)

    def _tell_sandbox(self, resource: Resource) -> None:
        name = f"{resource.name:<{self._resource_width}}"
        origin = f"{resource.strategy} of {name_text(resource.path)}"
        self._screen.line(("sandbox  ", "dim"), f"{name}  ", (origin, "dim"))
        for text in left_out_texts(resource):
            self._screen.line(("left out ", "warn"), text)

    def _start(self, index: int, count: int, run: StepRun) -> None:
        if self._rolled_back is not None:
            # Printed only now: if no step follows, the result of the execution shows it.
            where = f"{self._rolled_back.index + 1} ({self._rolled_back.step})"
            checkpoint = self._display(self._rolled_back.checkpoint_id)
            self._screen.line((f"rolled back to before step {where}  {checkpoint}", "dim"))
            self._rolled_back = None
        if not self._has_started:
            self._has_started = True
            # A correction that was cut short may have been finished first, and have brought other steps.
            self._lay_out(self._holdfast.find_plan(self._plan_id))
        self._checkpoint, self._printed = None, b""
        number = f"{_number(index, count)} "
        width = self._name_end - len(number)
        if index < count and self._steps[index].subplans:
            division = f"  {_division(self._steps[index])}"
            self._screen.line((number, "dim"), shortened(run.step, width), (division, "dim"))
            self._beginning = [" " * len(number), f"{'all of them':<{width}}  "]
            self._subplans.begin(self._steps[index], len(number), width)
            return
        again = _again(run.try_number)
        name = shortened(run.step, width - len(again)) + again
        self._screen.part((number, "dim"), name + " " * (width - cell_width(name) + 2))
        self._screen.busy("")

    def _echo(self, text: bytes) -> None:
        self._printed = (self._printed + text)[-_OUTPUT_KEPT:]
        self._screen.busy(output_lines(self._printed.decode(errors="replace"), last=1)[0])

    def _finish(self, run: StepRun) -> None:
        word, style = step_word(run.status, run.exit_code)
        took = duration_seconds(run)
        spans: list[Span] = [
            *self._beginning, (f"{word:<8}", style), "" if took is None else f" {seconds_text(took):>5}"
        ]  # fmt: skip
        self._beginning = []
        if self._checkpoint is not None and run.status is RunStatus.SUCCEEDED:
            spans.append(("  " + self._display(self._checkpoint), "dim"))
        self._screen.line(*spans)

    def _display(self, checkpoint_id: str) -> str:
        return self._holdfast.lasting_id(self._plan_id, checkpoint_id)


class SubplanProgress:
    """A line for each subplan when it ends, and until then what it is doing."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._indent, self._width = 0, 0
        self._doing: dict[str, str] = {}
        self._working: dict[str, str] = {}
        self._started: dict[str, float] = {}

    def begin(self, step: Step, indent: int, width: int) -> None:
        self._indent = indent
        self._width = max(width, *(cell_width(subplan.name) for subplan in step.subplans))

    def __call__(self, event: SubplanStarted | SubplanEnded | SubplanMerged | InSubplan) -> None:
        match event:
            case SubplanStarted(subplan):
                self._doing[subplan.name] = "starting"
                self._started[subplan.plan_id] = time.monotonic()
            case InSubplan(subplan, StepStarted(index, count, run)):
                self._doing[subplan.name] = f"{index + 1}/{count} {run.step}"
            case InSubplan(subplan, Working(is_over=True)):
                self._working.pop(subplan.name, None)
            case InSubplan(subplan, Working() as working) if working.seconds >= SHOWN_AFTER_SECONDS:
                self._working[subplan.name] = f"{label_text(working)} {percent_text(working)}"
            case SubplanEnded(subplan):
                self._doing.pop(subplan.name, None)
                took = seconds_text(time.monotonic() - self._started[subplan.plan_id])
                why = f"  {subplan.error}" if subplan.error else ""
                self._line(subplan.name, _SUBPLAN_ENDINGS.get(subplan.state, "failed"), f"{took:>5}{why}")
            case SubplanMerged(subplan, conflicts):
                for each in conflicts:
                    self._line(subplan.name, "conflict", f"{name_text(each.path)}: {each.reason}")
        if self._doing:
            now = {name: self._working.get(name, doing) for name, doing in self._doing.items()}
            self._screen.busy("   ".join(f"{name}: {doing}" for name, doing in now.items()))

    def _line(self, name: str, word: str, rest: str) -> None:
        padding = " " * (self._width - cell_width(name))
        style = {"ok": "good", "stopped": "warn"}.get(word, "bad")
        self._screen.line(" " * self._indent, f"{name}{padding}  ", (f"{word:<8} ", style), rest)


def _number(index: int, count: int) -> str:
    return f"[{index + 1:>{len(str(count))}}/{count}]" if index < count else _VALIDATE


def _again(try_number: int) -> str:
    return f" (try {try_number})" if try_number > 1 else ""


def _division(step: Step) -> str:
    count = counted(len(step.subplans), "subplan")
    return f"{count}, {step.parallel} at a time" if step.parallel > 1 else f"{count}, one after another"
