"""Says on standard error what is being done, and when."""

from __future__ import annotations

import sys
import time

_began = time.monotonic()


def say(what: str) -> None:
    sys.stderr.write(f"{time.monotonic() - _began:6.0f} s  {what}\n")
