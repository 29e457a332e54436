"""Running a function as a user who is not root, whoever runs the tests.

As root the child becomes ``nobody``. The interpreter and the packages may lie where ``nobody`` cannot read, so they are
imported before; Holdfast itself asks at import who it is, so it is imported again. What starts processes of its own
needs an interpreter that this user may start, too.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.crashes import end_after, fork
from tests.support.measuring import measured_in

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
    """Call a function of a test module in a process of that user; what it returns, through JSON.

    The process is a fork of this one, which takes a fifth of the time of a new one.
    """
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        end_after(lambda: _answer(writing, function.__module__, function.__qualname__, *arguments))
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the function failed; see its traceback"
    return json.loads(said)


def _answer(answers: int, module: str, function: str, *arguments: str) -> None:
    os.write(answers, json.dumps(_called_by_nobody(module, function, *arguments)).encode())


def _called_by_nobody(module: str, function: str, *arguments: str) -> Any:
    for imported in [each for each in sys.modules if each.split(".")[0] in ("holdfast", "tests")]:
        del sys.modules[imported]
    os.chdir(_PROJECT)
    os.environ["HOME"] = "/nonexistent"
    is_root = os.geteuid() == 0
    if is_root:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, 0)
        os.setresuid(NOBODY, NOBODY, 0)
        # A process that changed its user is closed to itself in /proc, which one started by that user is not.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    try:
        return getattr(importlib.import_module(module), function)(*arguments)
    finally:
        if is_root:
            # What was measured is written where only root may write.
            os.setresuid(0, 0, 0)
            os.setresgid(0, 0, 0)


def run_as_a_user(function: Callable[..., Any], *arguments: str, groups: Sequence[int] = ()) -> Any:
    """The same in a process that never was root's, and that can start others; the user is in these groups as well."""
    if os.geteuid() != 0 and not {*groups} <= {*os.getgroups()}:
        pytest.skip("only root can put a user into other groups")
    packages = Path(pytest.__file__).parents[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    with folder_for_nobody() as folder, measured_in(folder) as measuring:
        completed = subprocess.run(
            [_interpreter(), "-c", _CALL, function.__module__, function.__qualname__, *arguments],
            cwd="/",
            env={
                **environment,
                **measuring,
                "HOME": "/nonexistent",
                "PYTHONPATH": os.pathsep.join(map(str, (_PROJECT / "src", _PROJECT, packages))),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
            **({"user": NOBODY, "group": NOBODY, "extra_groups": groups} if os.geteuid() == 0 else {}),
        )
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout.splitlines()[-1])


_CALL = """
import importlib, json, os, sys
if "COVERAGE_PROCESS_CONFIG" in os.environ:
    import coverage
    coverage.process_startup()
module, function, *arguments = sys.argv[1:]
print(json.dumps(getattr(importlib.import_module(module), function)(*arguments)))
"""


def _interpreter() -> str:
    """One of the same version that the user may start."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    candidates = (sys.executable, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}")
    for candidate in candidates:
        if os.geteuid() != 0 or (os.path.exists(candidate) and _may_be_started(candidate)):
            return candidate
    pytest.skip("no interpreter that this user may start")


def _may_be_started(program: str) -> bool:
    return all(os.stat(folder).st_mode & 0o001 for folder in Path(program).resolve().parents)
