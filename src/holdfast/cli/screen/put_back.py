"""What a command had to put right in real files before it began, as a person hears it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.records import put_back_text
from holdfast.cli.screen.bar import Bar
from holdfast.events import RealFilesPutBack, Working

if TYPE_CHECKING:
    from holdfast.cli.invocation import Invocation
    from holdfast.events import Event


class PutBackHeard:
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
