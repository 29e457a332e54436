"""The command, run in a process of its own that has everything imported: a fork of a process that did nothing else.

Starting Python and importing takes most of the time of most commands. Where a story has dozens of them, and none is
about how a process begins, they begin like this; what they do is the same to the last system call.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import coverage

import holdfast

_SCRIPTS = ("__main__", "supervisor", "python_tool", "migrations")


def _modules() -> list[str]:
    found = (module.name for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."))
    return [name for name in found if not any(part in _SCRIPTS for part in name.split("."))]


_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_modules())


class Output(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def run_warm(arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Output:
    """Like ``subprocess.run`` with the program's name before the arguments and nothing on its standard input."""
    with tempfile.TemporaryDirectory(prefix="holdfast-warm-") as name:
        outputs = Path(name) / "stdout", Path(name) / "stderr"
        process = _context.Process(target=_become, args=(list(arguments), cwd, dict(environment), outputs))
        process.start()
        process.join()
        assert process.exitcode is not None
        return Output(process.exitcode, *(output.read_text() for output in outputs))


def _become(arguments: list[str], cwd: Path, environment: dict[str, str], outputs: tuple[Path, Path]) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    if "COVERAGE_PROCESS_CONFIG" in environment:
        # A program would do so when it starts.
        coverage.process_startup()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, output in enumerate(outputs, 1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode) for number, mode in enumerate("rww"))  # noqa: SIM115
    sys.argv = ["holdfast", *arguments]

    from holdfast.cli.main import run

    code = 1
    try:
        code = run(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
