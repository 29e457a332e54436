"""A progress bar for long work on files: one line that is redrawn, and removed at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.output import Row, Screen, Span, cell_width, shortened
from holdfast.names import bytes_text, name_text

if TYPE_CHECKING:
    from holdfast.events import Working

SHOWN_AFTER_SECONDS = 0.5
"""A bar for shorter work would only flicker."""
_SHORTEST, _LONGEST = 6, 40
_WIDEST_LABEL = 30
_WIDEST_LEFT = len("12 min left")
_GAP = "  "
_DONE, _HALF, _TO_DO = "━", "╸", "─"


class Bar:
    """Watches long work and shows it on a screen."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._is_shown = False

    def __call__(self, working: Working) -> None:
        if working.is_over:
            if self._is_shown:
                self._screen.live(None)
            self._is_shown = False
        elif working.seconds >= SHOWN_AFTER_SECONDS:
            self._screen.live(lambda width: bar_line(working, width))
            self._is_shown = True


def bar_line(working: Working, width: int) -> Row:
    """The work and its object, the bar, files, bytes and the time left, as far as there is room."""
    if not working.files_total and not working.bytes_total:
        return [shortened(label_text(working), max(1, width))]
    label = shortened(label_text(working), min(_WIDEST_LABEL, max(1, width - len(_GAP) - _SHORTEST)))

    def room_beside(facts: list[str]) -> int:
        return width - sum(cell_width(each) + len(_GAP) for each in (label, *facts))

    facts = next((each for each in _facts(working) if room_beside(each) >= _SHORTEST), [])
    bar = _bar(working.fraction, min(_LONGEST, max(0, room_beside(facts))))
    return [f"{label}{_GAP}", *bar, *((f"{_GAP}{each}", "dim") for each in facts)]


def label_text(working: Working) -> str:
    return f"{working.work} {name_text(working.what)}"


def percent_text(working: Working) -> str:
    return f"{int(working.fraction * 100)} %"


def _facts(working: Working) -> list[list[str]]:
    """Choices of what to print beside the bar, the longest first; numbers keep their width, so that nothing jumps."""
    total = f"{working.files_total:,}"
    files = f"{working.files_done:>{len(total)},} / {total} files"
    size = [f"{bytes_text(working.bytes_done):>6} / {bytes_text(working.bytes_total)}"] if working.bytes_total else []
    left = f"{_left_text(working.seconds_left):>{_WIDEST_LEFT}}"
    percent = f"{percent_text(working):>5}"
    return [[files, *size, left], [files, left], [percent, left], [percent], []]


def _left_text(seconds: float | None) -> str:
    """The time left, no more exact than such an estimate is."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{max(1, round(seconds))} s left"
    minutes = round(seconds / 60)
    return f"{minutes} min left" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} left"


def _bar(fraction: float, length: int) -> list[Span]:
    halves = int(fraction * length * 2)
    done = _DONE * (halves // 2) + _HALF * (halves % 2)
    return [(done, "id"), (_TO_DO * (length - len(done)), "dim")]
