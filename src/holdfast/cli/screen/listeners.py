"""What a command repairs or undoes besides its own work, printed while it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.invocation import Invocation
from holdfast.cli.output import Row, first_line
from holdfast.cli.screen.bar import Bar
from holdfast.cli.screen.plans import left_out_texts
from holdfast.events import (
    EffectsOutside,
    Event,
    RealFilesRestored,
    SandboxMade,
    SeenAtOwnPath,
    SetAside,
    Working,
    WritesRefused,
)
from holdfast.model import RefusedWrite, RollbackImpact, SideEffect
from holdfast.names import name_text

if TYPE_CHECKING:
    from holdfast import ExecutionResult


class RepairListener:
    """Prints what a command repairs or undoes besides its own work, and shows the progress of long work."""

    def __init__(self, invocation: Invocation, *, waits: bool = False) -> None:
        """``waits``: once the sandboxes are made, print nothing before ``say``: the terminal belongs to a program."""
        self._screen, self._is_for_programs, self._waits = invocation.screen, invocation.is_for_programs, waits
        self._bar = Bar(self._screen) if self._screen.is_live else None
        self._lines: list[Row] = []
        self.set_aside: list[str] = []
        self.refused: tuple[RefusedWrite, ...] = ()

    def __call__(self, event: Event) -> None:
        match event:
            case Working() if self._bar is not None:
                self._bar(event)
            case SandboxMade(resource):
                self._lines += [[("left out ", "warn"), text] for text in left_out_texts(resource)]
                self.say()  # no program runs yet
            case RealFilesRestored():
                self._lines.append([("restored ", "warn"), restored_text(event)])
            case EffectsOutside():
                self._lines += [[(line, "warn")] for line in effect_lines(event)]
            case WritesRefused(_, refused):
                self.refused = refused
            case SetAside(places):
                self.set_aside += places
                self._lines += [[("set aside  ", "warn"), name_text(place)] for place in places]
        if not self._waits:
            self.say()

    def say(self) -> None:
        """Print what was heard since the last call, unless a program reads the output."""
        lines, self._lines = self._lines, []
        for line in () if self._is_for_programs else lines:
            self._screen.line(*line)


def restored_text(event: RealFilesRestored) -> str:
    """Which operation on real files was undone before the command itself began."""
    plan = event.plan
    places = ", ".join(name_text(resource.path) for resource in plan.resources)
    return f"{places}: the {event.kind} of plan {plan.plan_id} ({name_text(plan.name)}) was cut short; it is undone"


def own_path_lines(event: SeenAtOwnPath) -> list[str]:
    """Where steps see the sandboxes if not at the real folders' paths, why, and what is wrong because of it."""
    because = f", because {event.reason}" if event.reason else ""
    lines = [f"steps see {name_text(each.path)} at {name_text(each.sandbox_path)}{because}" for each in event.resources]
    return lines + [
        f"{name_text(path)} leads to the real folder: what runs from it uses the real files, not those of the sandbox"
        for path in event.leading_out
    ]


def own_path_messages(result: ExecutionResult) -> tuple[str, ...]:
    return () if result.own_path is None else tuple(own_path_lines(result.own_path))


def effect_lines(impact: RollbackImpact | EffectsOutside) -> list[str]:
    """The steps whose effects outside the sandboxes stay, and the steps whose own commands undo them."""
    stay = [
        f"not undone: step {each.step_index + 1} ({first_line(each.step)}){_note(each)}"
        for each in impact.side_effects_not_undone
    ]
    return stay + [
        f"undone by its own command: step {each.step_index + 1} ({first_line(each.step)})"
        for each in impact.compensated
    ]


def _note(effect: SideEffect) -> str:
    return f", undoing it {first_line(effect.note)}" if effect.note else ""


def effects_sentence(impact: RollbackImpact) -> str:
    lines = effect_lines(impact)
    said = "; ".join(lines)
    return f"{said[:1].upper()}{said[1:]}. " if lines else ""
