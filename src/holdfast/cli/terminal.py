"""The screen of a terminal: colour, panels, and a status line while something runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from holdfast.cli.output import Row, Span, plain_text, shortened, silence, table_rows

if TYPE_CHECKING:
    from rich.status import Status

_STYLES = {
    "strong": "bold",
    "dim": "bright_black",
    "plain": "default",
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
    "id": "cyan",
}
_ROOM_FOR_SPINNER = 3
_ROOM_FOR_BORDER = 4


class TerminalScreen:
    def __init__(self, *, with_colour: bool) -> None:
        self._console = Console(
            color_system="auto" if with_colour else None, highlight=False, markup=False, emoji=False
        )
        self._status: Status | None = None
        self._begun: list[Span] = []

    @property
    def width(self) -> int | None:
        return self._console.width

    def line(self, *spans: Span) -> None:
        self.close()
        self._print(_styled([*self._begun, *spans]))
        self._begun = []

    def part(self, *spans: Span) -> None:
        self._begun += spans

    def panel(self, title: str, rows: Sequence[Row], *, flexible: int | None = None) -> None:
        from rich.panel import Panel

        lines = [_styled(row) for row in table_rows(rows, self._console.width - _ROOM_FOR_BORDER, flexible)]
        self._print(Panel(Text("\n").join(lines), title=title, title_align="left", border_style=_STYLES["dim"]))

    def busy(self, text: str) -> None:
        if self._console.is_dumb_terminal:
            return
        shown = shortened(plain_text(self._begun).rstrip() + "  " + text, self._console.width - _ROOM_FOR_SPINNER)
        if self._status is None:
            self._status = self._console.status(shown, spinner_style=_STYLES["id"])
            self._status.start()
        self._status.update(Text(shown, style=_STYLES["dim"]))

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _print(self, content: RenderableType) -> None:
        try:
            # A long line is left to the terminal to fold, so that a command can be copied from it.
            self._console.print(content, soft_wrap=isinstance(content, Text))
        except OSError:
            silence(sys.stdout)


def _styled(spans: Sequence[Span]) -> Text:
    text = Text()
    for span in spans:
        if isinstance(span, tuple):
            text.append(span[0], style=_STYLES[span[1]])
        else:
            text.append(span)
    text.rstrip()
    return text
