"""The screen of a terminal: colours, panels, and a status line while something runs."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal

from rich.console import Console, RenderableType
from rich.text import Text

from holdfast.cli.output import Row, Span, folded_row, plain_text, shortened, table_rows
from holdfast.cli.streams import ReaderGone
from holdfast.names import valid_text

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


class _PagedConsole(Console):
    def on_broken_pipe(self) -> None:
        """The user closed the pager; rich would end the process."""
        raise ReaderGone


class TerminalScreen:
    def __init__(self, *, with_colour: bool, is_for_errors: bool = False) -> None:
        self._colours: Literal["auto"] | None = "auto" if with_colour else None
        self._console = Console(
            stderr=is_for_errors, color_system=self._colours, highlight=False, markup=False, emoji=False
        )
        self._status: Status | None = None
        self._begun: list[Span] = []
        self._said: str | None = None

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

        width = self._console.width - _ROOM_FOR_BORDER
        lines = [_styled(line) for row in table_rows(rows, width, flexible) for line in folded_row(row, width)]
        self._print(Panel(Text("\n").join(lines), title=title, title_align="left", border_style=_STYLES["dim"]))

    @property
    def is_live(self) -> bool:
        return not self._console.is_dumb_terminal

    def busy(self, text: str) -> None:
        self._said = text
        shown = plain_text(self._begun).rstrip() + "  " + text
        self._show(lambda width: [(shortened(shown, width), "dim")])

    def live(self, draw: Callable[[int], Row] | None) -> None:
        if draw is not None:
            self._show(draw)
        elif self._said is None:
            self.close()
        else:
            self.busy(self._said)

    def _show(self, draw: Callable[[int], Row]) -> None:
        if not self.is_live:
            return
        shown = _styled(draw(self._console.width - _ROOM_FOR_SPINNER))
        if self._status is None:
            self._status = self._console.status(shown, spinner_style=_STYLES["id"])
            self._status.start()
        self._status.update(shown)

    @contextmanager
    def paged(self, *, with_pager: bool) -> Iterator[None]:
        """Use ``less``, which ends by itself if all fits on one screen, or what PAGER says, as git does."""
        pager = _start_pager() if with_pager else None
        if pager is None:
            yield
            return
        console = self._console
        assert pager.stdin is not None
        stream = io.TextIOWrapper(pager.stdin, encoding="utf-8", errors="backslashreplace")
        self._console = _PagedConsole(
            file=stream,
            force_terminal=True,
            color_system=self._colours,
            width=console.width,
            highlight=False,
            markup=False,
            emoji=False,
        )
        try:
            with suppress(ReaderGone):
                yield
        finally:
            self._console = console
            with suppress(OSError):  # the user closed the pager
                stream.close()
            pager.wait()

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._said = None

    def _print(self, content: RenderableType) -> None:
        # The terminal folds long lines, so that a command can be copied from them.
        self._console.print(content, soft_wrap=isinstance(content, Text))


def _start_pager() -> subprocess.Popen[bytes] | None:
    command = os.environ.get("HOLDFAST_PAGER", os.environ.get("PAGER", "less"))
    if command.strip() in ("", "cat"):
        return None
    environment = {"LESS": "FRX", **os.environ}
    try:
        return subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, env=environment)
    except (OSError, ValueError):
        return None  # without a pager it is printed directly


def _styled(spans: Sequence[Span]) -> Text:
    text = Text()
    for span in spans:
        if isinstance(span, tuple):
            text.append(valid_text(span[0]), style=_STYLES[span[1]])
        else:
            text.append(valid_text(span))
    text.rstrip()
    return text
