"""A terminal of which every key is read and the whole screen is drawn; whatever happens, it is left as it was found."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from holdfast.cli.output import Row, Span, cell_width, shortened, write_text
from holdfast.cli.screen.picker.state import Key
from holdfast.names import valid_text

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_STYLES = {
    "strong": "1", "dim": "90", "plain": "", "good": "32", "bad": "1;31", "warn": "33", "id": "36", "chosen": "7",
}  # fmt: skip
_COLOURS = ("dim", "good", "bad", "warn", "id")
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_REST_OF_A_KEY_SECONDS = 0.05
_SEQUENCE = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|\x1b|.", re.DOTALL)
_KEYS = {
    "A": Key.UP, "B": Key.DOWN, "H": Key.HOME, "F": Key.END, "1~": Key.HOME, "7~": Key.HOME, "4~": Key.END,
    "8~": Key.END, "5~": Key.PAGE_UP, "6~": Key.PAGE_DOWN,
}  # fmt: skip
_CHARACTERS = {"\r": Key.ENTER, "\n": Key.ENTER, "\x1b": Key.ESCAPE}


class _Ended(BaseException):
    """A signal asks the process to end; it does so once the terminal is restored."""


def keys_in(text: str) -> list[str]:
    """The keys that a terminal sends as this text; unknown sequences are left out."""
    found: list[str] = []
    for each in _SEQUENCE.findall(text):
        if each[:1] == "\x1b" and len(each) > 1:
            if key := _KEYS.get(each[2:]):
                found.append(key)
        else:
            found.append(_CHARACTERS.get(each, each))
    return found


def can_pick() -> bool:
    """Whether keys can be read and the screen be drawn."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class RawTerminal:
    def __init__(self, *, with_colour: bool) -> None:
        self._with_colour = with_colour
        self._input = sys.stdin.fileno()
        self._woken, self._waker = os.pipe()
        self._attributes: list[Any] | None = None
        self._is_to_suspend = False

    @contextmanager
    def opened(self) -> Iterator[RawTerminal]:
        """Take over the terminal; at the end, also by an exception or a signal, all is as before."""
        before = {number: signal.getsignal(number) for number in (*_ENDING, signal.SIGWINCH, signal.SIGTSTP)}
        ended: list[int] = []

        def end(number: int, _: FrameType | None) -> None:
            if not ended:
                ended.append(number)
                raise _Ended

        waker_before = -1
        try:
            for descriptor in (self._woken, self._waker):
                os.set_blocking(descriptor, False)
            waker_before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
            for number in _ENDING:
                signal.signal(number, end)
            signal.signal(signal.SIGWINCH, lambda *_: None)  # it only wakes `keys`
            signal.signal(signal.SIGTSTP, self._note_suspension)
            self._enter()
            yield self
        except _Ended:
            pass
        finally:
            self._leave()
            signal.set_wakeup_fd(waker_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            for descriptor in (self._woken, self._waker):
                os.close(descriptor)
            if ended:
                os.kill(os.getpid(), ended[0])

    def _enter(self) -> None:
        if self._attributes is None:
            self._attributes = termios.tcgetattr(self._input)
        tty.setcbreak(self._input, termios.TCSADRAIN)  # what was typed already counts
        write_text(sys.stdout, _ENTER)

    def _leave(self) -> None:
        if self._attributes is not None:
            write_text(sys.stdout, _LEAVE)
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._input, termios.TCSANOW, self._attributes)

    def _note_suspension(self, _number: int, _frame: FrameType | None) -> None:
        self._is_to_suspend = True  # now, something may be half written

    def _suspend(self) -> None:
        """Ctrl-Z: give the terminal back until the process goes on."""
        self._is_to_suspend = False
        self._leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._note_suspension)
        self._enter()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        return tuple(os.get_terminal_size(sys.stdout.fileno()))  # type: ignore[return-value]  # it has two

    def has_input(self) -> bool:
        """Whether `keys` would return at once."""
        return self._is_to_suspend or bool(select.select([self._input, self._woken], [], [], 0)[0])

    def keys(self) -> list[str] | None:
        """The keys that were pressed, awaited; empty if only the size changed, None if the terminal is gone."""
        ready = select.select([self._input, self._woken], [], [])[0]
        if self._woken in ready:
            with suppress(BlockingIOError):
                os.read(self._woken, 1024)
        if self._is_to_suspend:
            self._suspend()
        if self._input not in ready:
            return []
        text = self._read()
        if text == "\x1b" and select.select([self._input], [], [], _REST_OF_A_KEY_SECONDS)[0]:
            text += self._read()
        return keys_in(text) if text else None

    def _read(self) -> str:
        try:
            return os.read(self._input, 1024).decode("utf-8", "replace")
        except OSError:
            return ""

    def show(self, rows: Sequence[Row]) -> None:
        """Draw these lines, which fit, from the top; all at once, so that nothing flickers."""
        columns, _ = self.size
        text = "\n".join(self._styled(row, columns) + "\x1b[K" for row in rows)
        write_text(sys.stdout, f"\x1b[?2026h\x1b[H{text}\x1b[J\x1b[?2026l")

    def _styled(self, row: Row, columns: int) -> str:
        return "".join(self._styled_span(text, style) for text, style in fitted(row, columns))

    def _styled_span(self, text: str, style: str) -> str:
        codes = [_STYLES[each] for each in style.split() if self._with_colour or each not in _COLOURS]
        return f"\x1b[{';'.join(filter(None, codes))}m{text}\x1b[0m" if any(codes) else text


def fitted(row: Row, columns: int) -> list[tuple[str, str]]:
    """The row cut to that width, with the style of each part."""
    found, left = [], columns
    for span in row:
        text, style = _parts(span)
        text = shortened(valid_text(text), left)
        found.append((text, style))
        left -= cell_width(text)
        if left <= 0:
            break
    return found


def _parts(span: Span) -> tuple[str, str]:
    return span if isinstance(span, tuple) else (span, "plain")
