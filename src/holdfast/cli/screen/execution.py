"""Running a plan in front of a person: each step as it goes, how it ended, and the commands that go on from there."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.references import DISPLAY_PREFIX, display_ids
from holdfast.cli.invocation import Invocation
from holdfast.cli.output import (
    NARROWEST,
    Next,
    Reply,
    Screen,
    Span,
    cell_width,
    counted,
    output_lines,
    seconds_text,
    shortened,
    show_next,
    show_plan,
    show_sentence,
    wrapped,
)
from holdfast.cli.records import (
    changes_data,
    conflicts_data,
    duration_seconds,
    effect_lines,
    plan_data,
    put_back_text,
    resources_data,
    steps_data,
    switched_off,
)
from holdfast.cli.screen.bar import SHOWN_AFTER_SECONDS, Bar, label_text, percent_text
from holdfast.errors import EXIT_INTERRUPTED, EXIT_STEP_FAILED, ConflictError
from holdfast.events import (
    CheckpointTaken,
    Compensating,
    EffectsOutside,
    Event,
    InSubplan,
    RealFilesPutBack,
    SandboxesMadeAnew,
    SandboxesPutBack,
    SandboxMade,
    SetAside,
    StepFinished,
    StepPrinted,
    StepStarted,
    SubplanEnded,
    SubplanMerged,
    SubplanStarted,
    WentBack,
    Working,
)
from holdfast.model import (
    CheckpointGroup,
    Conflict,
    Decision,
    FileChange,
    Plan,
    PlanState,
    Resource,
    RunStatus,
    SideEffect,
    Step,
    StepRun,
)
from holdfast.names import name_text
from holdfast.system.directories import shown

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.execution.executor import Choices, ExecutionResult

TAIL_LINES = 20
_TAIL_LINES_SHOWN = 10
_VALIDATE = "validate"
_WIDEST_NAME = 72
_ROOM_BESIDE_NAME = 31
_OUTPUT_KEPT = 4096
_MOST_LEFT_OUT = 5
_TIME_CHARACTERS = 10
"""How many of a ULID's characters are its time."""
_DONE = (PlanState.COMPLETE, PlanState.APPLIED)
_NOT_KEPT = "no checkpoint holds the files as they were when it failed; they are still in the sandboxes."


def run_plan(invocation: Invocation, holdfast: Holdfast, plan: Plan, choices: Choices | None = None) -> Reply:
    """Execute the plan, or go on with it, and say how that ended."""
    is_done = plan.state in _DONE and not holdfast.store.operations.unfinished(plan.plan_id)
    screen = invocation.screen
    progress = None
    if not invocation.is_for_programs and not is_done:
        show_plan(screen, plan.plan_id, plan.name)
        progress = Progress(screen, holdfast, plan)
    with interruptible() as cancelled:
        result = holdfast.execute(plan.plan_id, listener=progress, cancelled=cancelled, choices=choices)
    return _reply(holdfast, result)


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """The first Ctrl-C stops the step under way in good order; the second is a crash, which is safe as well."""
    cancelled = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if cancelled.is_set():
            raise KeyboardInterrupt
        cancelled.set()
        # Nobody may be there to read it, and an error here would be one of whatever the signal interrupted.
        with suppress(OSError, ValueError, AttributeError):
            # Not through the buffered stream: the signal may have come in the middle of a write to it.
            os.write(sys.stderr.fileno(), b"\nstopping the step; once more stops at once\n")

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield cancelled
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Progress:
    """Listens to an execution and prints a line for each step."""

    def __init__(self, screen: Screen, holdfast: Holdfast, plan: Plan) -> None:
        self._screen, self._store = screen, holdfast.store
        self._ids = {each.checkpoint_id for each in self._store.checkpoints.of(plan.plan_id)}
        self._resource_width = max(len(resource.name) for resource in plan.resources)
        self._checkpoint: str | None = None
        self._went_back: WentBack | None = None
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
        self._name_end = min(max(map(cell_width, lines)), _WIDEST_NAME, room)
        self._steps, self._revision = plan.steps, plan.revision

    def __call__(self, event: Event) -> None:
        match event:
            case SandboxMade(resource):
                self._tell_sandbox(resource)
            case CheckpointTaken(group, checkpoint_id):
                self._note_checkpoint(group, checkpoint_id)
            case StepStarted(index, count, run):
                self._start(index, count, run)
            case StepPrinted(_, text):
                self._echo(text)
            case StepFinished(_, _, run):
                self._finish(run)
            case Working():
                self._bar(event)
            case InSubplan(_, SetAside() as aside):
                self._tell_apart(aside)
            case SubplanStarted() | SubplanEnded() | SubplanMerged() | InSubplan():
                self._subplans(event)
            case _:
                self._tell_apart(event)

    def _tell_apart(self, event: Event) -> None:
        """What happens seldom."""
        match event:
            case WentBack():
                self._went_back = event
            case SetAside(places):
                for place in places:
                    self._screen.line(("set aside  ", "warn"), name_text(place))
            case Compensating(_, name):
                self._screen.line(("outside  ", "warn"), name)
            case EffectsOutside():
                for line in effect_lines(event):
                    self._screen.line(("outside  ", "warn"), line)
            case SandboxesMadeAnew(resources):
                self._screen.line(("made anew ", "warn"), f"{', '.join(resources)}: the sandbox was gone")
            case SandboxesPutBack(resources, checkpoint_id):
                why = "the machine or the process went down"
                found = f"what was found is kept as {self._display(checkpoint_id)}"
                self._screen.line(("put back ", "warn"), f"{', '.join(resources)}: {why}; {found}")
            case RealFilesPutBack():
                self._screen.line(("put back ", "warn"), put_back_text(event))

    def _tell_sandbox(self, resource: Resource) -> None:
        name = f"{resource.name:<{self._resource_width}}"
        origin = f"{resource.strategy} of {name_text(resource.path)}"
        self._screen.line(("sandbox  ", "dim"), f"{name}  ", (origin, "dim"))
        for each in resource.left_out[:_MOST_LEFT_OUT]:
            self._screen.line(("left out ", "warn"), f"{name_text(each.path)}: {each.reason}")
        if len(resource.left_out) > _MOST_LEFT_OUT:
            self._screen.line(("left out ", "warn"), f"{len(resource.left_out)} in all; see `plan status`")

    def _note_checkpoint(self, group: CheckpointGroup, checkpoint_id: str) -> None:
        self._ids.update(each.checkpoint_id for each in self._store.checkpoints.of_group(group.group_id))
        self._checkpoint = checkpoint_id

    def _start(self, index: int, count: int, run: StepRun) -> None:
        if self._went_back is not None:
            # Told only now: if nothing follows, the end of the execution tells it.
            where = f"{self._went_back.index + 1} ({self._went_back.step})"
            self._screen.line((f"back to before step {where}  {self._display(self._went_back.checkpoint_id)}", "dim"))
            self._went_back = None
        plan = self._store.get(Plan, run.plan_id)
        if plan.revision != self._revision:
            # A correction that was cut short was finished first.
            self._lay_out(plan)
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
        word, style = _ENDINGS[run.status]
        took = duration_seconds(run)
        spans: list[Span] = [
            *self._beginning, (f"{word:<8}", style), "" if took is None else f" {seconds_text(took):>5}"
        ]  # fmt: skip
        self._beginning = []
        if self._checkpoint is not None and run.status is RunStatus.SUCCEEDED:
            spans.append(("  " + self._display(self._checkpoint), "dim"))
        self._screen.line(*spans)

    def _display(self, checkpoint_id: str) -> str:
        return lasting_ids({*self._ids, checkpoint_id})[checkpoint_id]


class SubplanProgress:
    """A line for each subplan as it ends, and meanwhile what each of them is doing."""

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


_SUBPLAN_ENDINGS = {PlanState.COMPLETE: "ok", PlanState.CANCELLED: "stopped", PlanState.CONSTRAINED: "conflict"}


def lasting_ids(ids: Iterable[str]) -> dict[str, str]:
    """Display ids that checkpoints taken later do not make ambiguous: with all of the time they were taken at."""
    return {
        each: max(short, DISPLAY_PREFIX + each[:_TIME_CHARACTERS], key=len) for each, short in display_ids(ids).items()
    }


_ENDINGS = {
    RunStatus.SUCCEEDED: ("ok", "good"),
    RunStatus.FAILED: ("failed", "bad"),
    RunStatus.INTERRUPTED: ("stopped", "warn"),
    RunStatus.RUNNING: ("running", "warn"),
    RunStatus.CONSTRAINED: ("conflict", "bad"),
}


# How it ended


def _reply(holdfast: Holdfast, result: ExecutionResult) -> Reply:
    if result.plan.state in _DONE:
        return _succeeded(holdfast, result)
    if result.plan.state is PlanState.CANCELLED:
        return _stopped(holdfast, result)
    if result.plan.state is PlanState.CONSTRAINED:
        return _constrained(holdfast, result)
    return _failed(holdfast, result)


def _execution_data(holdfast: Holdfast, result: ExecutionResult, commands: list[Next]) -> dict[str, Any]:
    plan = result.plan
    return {
        **plan_data(plan),
        "resources": resources_data(plan),
        "steps": steps_data(plan, holdfast.store.runs.of(plan.plan_id)),
        "failed_step": None,
        "output_tail": None,
        "failure_checkpoint_id": None,
        "restored_checkpoint_id": None,
        "side_effects_not_undone": _dumped(each.side_effects_not_undone for each in result.effects),
        "compensated": _dumped(each.compensated for each in result.effects),
        "set_aside": result.set_aside,
        "made_anew": result.made_anew,
        "next_commands": [each.command for each in commands],
    }


def _dumped(effects: Iterable[Sequence[SideEffect]]) -> list[dict[str, Any]]:
    return [each.model_dump() for found in effects for each in found]


def _succeeded(holdfast: Holdfast, result: ExecutionResult) -> Reply:
    plan, was_done = result.plan, result.was_done
    changes = changes_of(holdfast, plan)
    commands = [Next("look", f"holdfast plan diff {plan.plan_id}")]
    if plan.state is PlanState.COMPLETE:
        commands.append(Next("apply", f"holdfast plan apply {plan.plan_id}"))
    data = {**_execution_data(holdfast, result, commands), "changes": changes_data(plan, changes)}

    def show(screen: Screen) -> None:
        if not was_done:
            screen.line()
            show_sentence(screen, ("Complete. ", "good"), changes_text(changes))
        show_next(screen, commands)

    return Reply(data, show, messages=_was_done(result) if was_done else switched_off(plan))


def _was_done(result: ExecutionResult) -> tuple[str, ...]:
    already = f"Plan {result.plan.plan_id} is {result.plan.state} already; nothing was run."
    gone = ", ".join(result.made_anew)
    return (already, f"The sandbox of {gone} was gone and is made anew.") if gone else (already,)


def changes_of(holdfast: Holdfast, plan: Plan) -> list[FileChange]:
    """What the plan changed in its sandboxes, from its first checkpoint to its last."""
    if plan.head_group_id is None:
        return []
    first, head = holdfast.store.groups.first(plan.plan_id), holdfast.store.get(CheckpointGroup, plan.head_group_id)
    found = holdfast.service.changes.between(plan, first.states, head.states)
    return [
        FileChange(
            resource=name,
            file=shown(each.path),
            action="added" if each.old is None else "removed" if each.new is None else "changed",
        )
        for name, differences in found.items()
        for each in differences
    ]


def changes_text(changes: list[FileChange]) -> str:
    if not changes:
        return "No file changed."
    counts = {action: sum(each.action == action for each in changes) for action in ("changed", "added", "removed")}
    parts = ", ".join(f"{count} {action}" for action, count in counts.items() if count)
    return f"{counted(len(changes), 'file')}: {parts}; your own files are untouched."


def _stopped(holdfast: Holdfast, result: ExecutionResult) -> Reply:
    plan = result.plan
    commands = [
        Next("go on", f"holdfast plan execute {plan.plan_id}"),
        Next("look", f"holdfast plan status {plan.plan_id}"),
    ]
    data = {**_execution_data(holdfast, result, commands), **_failed_step_data(result.failed_run, plan)}

    divided = not plan.is_finished and bool(plan.steps[plan.next_step].subplans)
    how = "runs the subplans that are not done" if divided else "runs that step again from its start"

    def show(screen: Screen) -> None:
        screen.line()
        show_sentence(screen, ("Stopped ", "warn"), f"at step {plan.next_step + 1}; going on {how}.")
        show_next(screen, commands)

    return Reply(data, show, EXIT_INTERRUPTED)


def _constrained(holdfast: Holdfast, result: ExecutionResult) -> Reply:
    plan = result.plan
    conflicts = holdfast.conflicts(plan)
    commands = [
        Next("go on", f"holdfast plan resume {plan.plan_id}"),
        Next("look", f"holdfast plan status {plan.plan_id}"),
        Next("go back", f"holdfast checkpoint list {plan.plan_id}"),
    ]
    data = {
        **_execution_data(holdfast, result, commands),
        **_failed_step_data(result.failed_run, plan),
        "conflicts": conflicts_data(conflicts),
    }

    def show(screen: Screen) -> None:
        screen.line()
        where = "Resolve these in the sandbox, then go on; nothing was lost:"
        show_sentence(screen, ("Constrained. ", "bad"), where)
        show_conflicts(screen, conflicts)
        screen.line()
        show_next(screen, commands)

    return Reply(data, show, ConflictError.exit_code)


def show_conflicts(screen: Screen, conflicts: Sequence[tuple[Plan, Conflict]]) -> None:
    for plan, each in conflicts:
        place = Path(plan.resource(each.resource).sandbox_path) / each.path
        marked = "; both versions are in it, between marks" if each.is_marked else ""
        screen.line(("  ", "dim"), name_text(str(place)))
        for line in wrapped(f"{each.subplan}: {each.reason}{marked}", screen.width and screen.width - 4):
            screen.line("    ", line)
        for kept in each.kept:
            screen.line(("    kept ", "dim"), (name_text(kept), "dim"))


def _failed(holdfast: Holdfast, result: ExecutionResult) -> Reply:
    plan, run = result.plan, result.failed_run
    places = _places(holdfast, result)
    listed = (each.checkpoint_id for each in holdfast.store.checkpoints.of(plan.plan_id))
    shown = lasting_ids({*listed, *filter(None, places.values())})
    named = {name: shown[found] for name, found in places.items() if found in shown}
    correctable = _correctable(holdfast, plan, run)
    commands = _after_failure(plan, correctable, named if _left_a_trace(holdfast, result) else {})
    kept, restored = places["kept"], places["restored"]
    if kept is None and restored is None:
        commands.insert(1, Next("keep them", f"holdfast checkpoint create {plan.plan_id}"))
    data = {
        **_execution_data(holdfast, result, commands),
        **_failed_step_data(run, plan),
        "failure_checkpoint_id": kept,
        "restored_checkpoint_id": restored,
    }

    def show(screen: Screen) -> None:
        screen.line()
        error = plan.error or "failed"
        for line in wrapped(error[:1].upper() + error[1:], screen.width):
            screen.line((line, "bad"))
        if run is not None:
            show_tail(screen, run.output, _TAIL_LINES_SHOWN)
        screen.line()
        if kept is not None:
            screen.line(("kept      ", "dim"), (shown[kept], "id"), "  the files when it failed")
        elif restored is None:
            show_sentence(screen, ("Not kept: ", "warn"), _NOT_KEPT)
        if restored is not None:
            where = f"before step {plan.next_step + 1} ({plan.steps[plan.next_step].name})"
            screen.line(("restored  ", "dim"), (shown[restored], "id"), f"  {where}")
        screen.line()
        show_next(screen, commands)

    return Reply(data, show, EXIT_STEP_FAILED)


def _places(holdfast: Holdfast, result: ExecutionResult) -> dict[str, str | None]:
    """Checkpoints of the moment before the failed step, of the failure, and of what was restored after it."""
    run = result.failed_run
    before = holdfast.store.find(CheckpointGroup, run.group_before_id) if run and run.group_before_id else None
    groups = {"before": before, "kept": result.failure_group, "restored": result.returned_to}
    rows = {name: holdfast.service.checkpoints_at(group) if group else [] for name, group in groups.items()}
    return {name: found[0].checkpoint_id if found else None for name, found in rows.items()}


def _left_a_trace(holdfast: Holdfast, result: ExecutionResult) -> bool:
    """Whether the failed step changed files; if not, whatever went wrong happened before it."""
    run, kept = result.failed_run, result.failure_group
    before = holdfast.store.find(CheckpointGroup, run.group_before_id) if run and run.group_before_id else None
    return before is not None and kept is not None and before.states != kept.states


def _failed_step_data(run: StepRun | None, plan: Plan) -> dict[str, Any]:
    if run is None:
        return {}
    is_step = run.step_index < len(plan.steps)
    return {
        "failed_step": {
            "index": run.step_index if is_step else None,
            "name": run.step,
            "exit_code": run.exit_code,
            "error": run.error,
            "decision_id": run.decision_id,
        },
        "output_tail": "\n".join(output_lines(run.output, last=TAIL_LINES)),
    }


def _correctable(holdfast: Holdfast, plan: Plan, run: StepRun | None) -> str | None:
    """The id of the failed step's decision, if it can be reverted."""
    from holdfast.decisions.correct import CorrectionService

    if run is None or run.decision_id is None or run.step_index >= len(plan.steps):
        return None
    decision = holdfast.store.get(Decision, run.decision_id)
    refusal = CorrectionService(holdfast.service, holdfast.tools).find_refusal(plan, decision)
    return run.decision_id if refusal is None else None


def _after_failure(plan: Plan, correctable: str | None, places: dict[str, str]) -> list[Next]:
    """``places`` are checkpoints around what the failed step changed; without any, the cause lies before it."""
    plan_id = plan.plan_id
    commands = [Next("status", f"holdfast plan status {plan_id}")]
    if places:
        commands.append(Next("what it did", f"holdfast plan diff {plan_id} {places['before']} {places['kept']}"))
        purpose, target = ("failed state", "kept") if "restored" in places else ("go back", "before")
        going_back = [Next(purpose, f"holdfast plan rollback {plan_id} {places[target]}")]
    else:
        going_back = [Next("go back", f"holdfast checkpoint list {plan_id}")]
    if correctable is not None:
        guidance = '"what to do instead"'
        correcting = f"holdfast plan correct --mode revert --guidance {guidance} {correctable}"
        going_back.append(Next("correct", correcting))
    if plan.policy.rollback_enabled:
        commands += going_back
    return [*commands, Next("try again", f"holdfast plan execute {plan_id}")]


def show_tail(screen: Screen, output: str, most_lines: int) -> None:
    if not output.strip():
        return
    lines = output_lines(output)
    if len(lines) > most_lines:
        screen.line((f"  … {len(lines) - most_lines} lines before", "dim"))
    for line in lines[-most_lines:]:
        screen.line(("  | ", "dim"), line)
