"""A program on a terminal of its own that draws whole screens: keys are pressed, and what it shows last is read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_FRAME = re.compile(rb"\x1b\[\?2026h\x1b\[H(.*?)\x1b\[J\x1b\[\?2026l", re.DOTALL)
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PATIENCE_SECONDS = 60.0
_NUMBER_OF_TERMINAL = 0x80045430
"""TIOCGPTN, which Python has no name for."""


class OnTerminal:
    def __init__(
        self, words: Sequence[str], cwd: Path, environment: Mapping[str, str], *, columns: int = 80, lines: int = 24
    ) -> None:
        self.process, self._terminal = pty.fork()
        if self.process == 0:
            os.chdir(cwd)
            # The size must be there before the program asks for it.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.execvpe(words[0], list(words), dict(environment))
        [number] = struct.unpack("I", fcntl.ioctl(self._terminal, _NUMBER_OF_TERMINAL, bytes(4)))
        self._kept = os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY)
        self.sent = b""
        self._has_ended = False

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def signal(self, number: int) -> None:
        os.kill(self.process, number)

    @property
    def attributes(self) -> list[Any]:
        return termios.tcgetattr(self._kept)

    @property
    def screen(self) -> list[str]:
        """The lines of the last whole screen, without styles."""
        frames = _FRAME.findall(self.sent)
        return [_STYLE.sub("", line) for line in frames[-1].decode().split("\r\n")] if frames else []

    def until(self, is_so: Callable[[OnTerminal], bool]) -> list[str]:
        """Wait until it shows that; the screen then."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not is_so(self):
            assert time.monotonic() < deadline, f"it never showed that; the last was {self.sent[-3000:]!r}"
            if not self._read(0.2):
                assert is_so(self), f"it ended before that; the last was {self.sent[-3000:]!r}"
        return self.screen

    def shows(self, *texts: str) -> list[str]:
        return self.until(lambda terminal: all(text in "\n".join(terminal.screen) for text in texts))

    def prints(self, text: str) -> str:
        """Wait for a text outside of drawn screens; all that was sent."""
        self.until(lambda terminal: text in terminal.plain)
        return self.plain

    @property
    def plain(self) -> str:
        return _STYLE.sub("", _FRAME.sub(b"", self.sent).decode("utf-8", "replace"))

    def end(self) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        while (
            select.select([self._terminal], [], [], 0.05)[0]
            or os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        ):
            self._read(0.05)
        _, status = os.waitpid(self.process, 0)
        self._has_ended = True
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        for descriptor in (self._terminal, self._kept):
            os.close(descriptor)

    def kill(self) -> None:
        """For the end of a test that failed."""
        if not self._has_ended:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)

    def _read(self, seconds: float) -> bool:
        """Whether the program is still there."""
        if select.select([self._terminal], [], [], seconds)[0]:
            self.sent += os.read(self._terminal, 65536)
            return True
        return os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
