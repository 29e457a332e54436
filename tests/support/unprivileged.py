"""Running a function as a user who is not root, whoever runs the tests.

As root the child becomes ``nobody``. The interpreter and the packages may lie where ``nobody`` cannot read, so they are
imported before; Holdfast itself asks at import who it is, so it is imported after.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOBODY = 65534
_PROJECT = Path(__file__).parents[2]
_PR_SET_DUMPABLE = 4


@contextmanager
def folder_for_nobody() -> Iterator[Path]:
    """An empty folder of that user's own; pytest's are closed to everybody but the user who runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    try:
        yield folder
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder)


def run_unprivileged(function: Callable[..., Any], *arguments: str) -> Any:
    """Call a function of a test module in a process of that user; what it returns, through JSON."""
    name = f"{function.__module__}:{function.__qualname__}"
    completed = subprocess.run(
        [sys.executable, "-m", __name__, name, *arguments],
        cwd=_PROJECT,
        env={**os.environ, "PYTHONPATH": f"{_PROJECT / 'src'}{os.pathsep}{_PROJECT}", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout.splitlines()[-1])


def _main(name: str, *arguments: str) -> None:
    module, _, function = name.partition(":")
    importlib.import_module(module)
    for imported in [each for each in sys.modules if each.split(".")[0] in ("holdfast", "tests")]:
        del sys.modules[imported]
    is_root = os.geteuid() == 0
    if is_root:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, 0)
        os.setresuid(NOBODY, NOBODY, 0)
        # A process that changed its user is closed to itself in /proc, which one started by that user is not.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    try:
        answer = getattr(importlib.import_module(module), function)(*arguments)
    finally:
        if is_root:
            os.setresuid(0, 0, 0)
            os.setresgid(0, 0, 0)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
