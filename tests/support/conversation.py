"""A command on a terminal of its own that is answered whenever it asks something."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PATIENCE_SECONDS = 60.0


class Said(NamedTuple):
    exit_code: int
    shown: str
    """All that the terminal was sent, without colours."""


def converse(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], answers: Sequence[tuple[str, str]] = ()
) -> Said:
    """Run ``holdfast``; each time the terminal shows the first of a pair, after the last answer, type the second."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(cwd)
        words = [sys.executable, "-m", "holdfast", *arguments]
        os.execvpe(words[0], words, dict(environment))
    shown, answered, waiting = b"", 0, list(answers)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                data = os.read(terminal, 4096)
            except OSError:  # how Linux says that the other end is closed
                break
            shown += data
            if not data:
                break
        if waiting and waiting[0][0].encode() in shown[answered:]:
            answered = len(shown)
            os.write(terminal, waiting.pop(0)[1].encode() + b"\r")
    os.close(terminal)  # a command that still waits is sent a signal
    _, status = os.waitpid(process, 0)
    assert not waiting, f"it never asked {waiting[0][0]!r}:\n{shown.decode()}"
    return Said(os.waitstatus_to_exitcode(status), _STYLES.sub("", shown.decode()))
