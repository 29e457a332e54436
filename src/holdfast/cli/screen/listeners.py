"""What a command had to put right or undo on its way, told to a person while it happens."""

from __future__ import annotations

from holdfast.cli.invocation import Invocation
from holdfast.cli.output import first_line
from holdfast.cli.screen.bar import Bar
from holdfast.events import EffectsOutside, Event, RealFilesPutBack, SetAside, Working
from holdfast.model import RollbackImpact, SideEffect
from holdfast.names import name_text


class PutBackListener:
    """Listens for it, and shows how far long work has come."""

    def __init__(self, invocation: Invocation, *, is_said_later: bool = False) -> None:
        """``is_said_later``: not before ``say``, because the terminal is another program's until then."""
        self._screen, self._is_for_programs = invocation.screen, invocation.is_for_programs
        self._bar = Bar(self._screen) if self._screen.is_live else None
        self._is_said_later = is_said_later
        self._heard: list[RealFilesPutBack] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, RealFilesPutBack):
            self._heard.append(event)
            if not self._is_said_later:
                self.say()
        elif isinstance(event, Working) and self._bar is not None:
            self._bar(event)

    def say(self) -> None:
        """What was heard and not said yet; a program that reads our output is told nothing."""
        while self._heard:
            event = self._heard.pop(0)
            if not self._is_for_programs:
                self._screen.line(("put back ", "warn"), put_back_text(event))


class OutsideListener:
    """Listens for what became of effects outside of the sandboxes, and of what was set aside, and says it at once."""

    def __init__(self, invocation: Invocation) -> None:
        self._screen, self._is_for_programs = invocation.screen, invocation.is_for_programs
        self._bar = Bar(self._screen) if self._screen.is_live else None
        self._heard: list[EffectsOutside] = []
        self.set_aside: list[str] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, EffectsOutside):
            self._heard.append(event)
            for line in () if self._is_for_programs else effect_lines(event):
                self._screen.line((line, "warn"))
        elif isinstance(event, SetAside):
            self.set_aside += event.places
            for place in () if self._is_for_programs else event.places:
                self._screen.line(("set aside  ", "warn"), name_text(place))
        elif isinstance(event, Working) and self._bar is not None:
            self._bar(event)

    def in_place_of_expected(self, impact: RollbackImpact) -> RollbackImpact:
        return impact.model_copy(update=vars(self._heard[-1])) if self._heard else impact


def put_back_text(event: RealFilesPutBack) -> str:
    """What was undone in real files before the command itself began."""
    plan = event.plan
    places = ", ".join(name_text(resource.path) for resource in plan.resources)
    return f"{places}: the {event.kind} of plan {plan.plan_id} ({name_text(plan.name)}) was cut short; it is undone"


def effect_lines(impact: RollbackImpact | EffectsOutside) -> list[str]:
    """The steps whose effects outside of the sandboxes stay, and those that are undone by commands of their own."""
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
