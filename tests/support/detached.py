"""Runs code that starts processes which outlive it, and waits until those have ended as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROJECT = Path(__file__).parents[2]
_ADOPTING = """\
import ctypes, os, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
{code}
ended = 0
try:
    while True:
        os.wait()
        ended += 1
except ChildProcessError:
    print(ended)
"""


def run_to_the_end(code: str, *arguments: str | Path) -> int:
    """Run Python code with these arguments in a process of its own; how many processes outlived it."""
    command = [sys.executable, "-c", _ADOPTING.format(code=code), *map(os.fspath, arguments)]
    return int(subprocess.run(command, cwd=_PROJECT, check=True, stdout=subprocess.PIPE).stdout)
