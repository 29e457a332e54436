"""Where the client of hooks is, and what starts it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_FOLDER = Path(__file__).parent


def client_words() -> tuple[str, ...]:
    """The compiled client if there is one, or else the same in Python, as quick to start as Python can be."""
    compiled = _FOLDER / "hook-client"
    if os.access(compiled, os.X_OK):
        return (str(compiled),)
    return sys.executable, "-I", "-S", str(_FOLDER / "client.py")
