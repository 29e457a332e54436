"""Starts a module of ours in a process that outlives this one, for work that no command has to wait for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress


def start_detached(module: str, *arguments: str, more_environment: Mapping[str, str] | None = None) -> None:
    """If it cannot be started, or is killed, a later command must find what is left to do."""
    command = [sys.executable, "-P", "-m", module, *arguments]
    with suppress(OSError):
        # A shell starts it, so that it is no child of ours, which would have to be waited for.
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            cwd="/",
            env={**os.environ, **(more_environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
