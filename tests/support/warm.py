"""The command, run in a process of its own that has everything imported: a fork of a process that did nothing else.

Starting Python and importing takes most of the time of most commands. Where a story has dozens of them, and none is
about how a process begins, they begin like this; what they do is the same to the last system call.
"""

from __future__ import annotations

import fcntl
import gc
import multiprocessing
import os
import struct
import sys
import tempfile
import termios
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import NamedTuple

import coverage

import holdfast

_NOT_IMPORTED = ("__main__", "supervisor", "python_child", "migrations", "langgraph", "minisweagent")
"""What runs as a script, and what no command needs: some import large packages, which may not be there."""
_MEASURING = "COVERAGE_PROCESS_CONFIG"


@cache
def _server() -> ForkServerContext:
    """Running, with everything imported; not measured itself, or all that it forks would be."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_modules(), *_imported_by_each_process()])
    measuring = os.environ.pop(_MEASURING, None)
    try:
        forkserver.ensure_running()
    finally:
        if measuring is not None:
            os.environ[_MEASURING] = measuring
    return context


def _modules() -> list[str]:
    root = Path(holdfast.__file__).parent
    found = [file.relative_to(root).with_suffix("").parts for file in sorted(root.rglob("*.py"))]
    names = [".".join(("holdfast", *parts)) for parts in found if not {*parts} & {*_NOT_IMPORTED}]
    return [name.removesuffix(".__init__") for name in names]


def _imported_by_each_process() -> list[str]:
    """What this module needs, and the program that runs the tests, as multiprocessing imports that again."""
    program = sys.modules["__main__"]
    imported = (getattr(value, "__module__", None) for value in vars(program).values())
    named = getattr(program.__spec__, "name", None)
    return [
        __name__,
        "alembic.config",
        "coverage.sqldata",
        *{each for each in (*imported, named) if each and each != "__main__"},
        "tests.support.imported",
    ]


class Output(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def run_warm(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], *, program: str = "holdfast"
) -> Output:
    """Like ``subprocess.run`` with the program's name before the arguments and nothing on its standard input."""
    with tempfile.TemporaryDirectory(prefix="holdfast-warm-") as name:
        streams = os.devnull, f"{name}/stdout", f"{name}/stderr"
        target = {"holdfast": _holdfast, "alembic": _alembic}[program]
        process = _server().Process(target=_become, args=(target, list(arguments), cwd, dict(environment), streams))
        process.start()
        process.join()
        assert process.exitcode is not None
        return Output(process.exitcode, *(Path(output).read_text() for output in streams[1:]))


def run_warm_on_terminal(
    arguments: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    *,
    columns: int = 80,
    answer: str = "",
    first: str = "",
) -> Output:
    """The same on a terminal of its own; ``stdout`` is all that it was sent. ``first`` is Python to run before."""
    ours, theirs = os.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.write(ours, answer.encode())
    streams = (os.ttyname(theirs),) * 3
    options = (_holdfast, list(arguments), cwd, dict(environment), streams, first)
    process = _server().Process(target=_become, args=options)
    process.start()
    shown = b""
    while ours in wait([ours, process.sentinel]):
        shown += os.read(ours, 65536)
    os.close(theirs)
    try:
        while block := os.read(ours, 65536):
            shown += block
    except OSError:
        # How Linux says that nobody has the other end open any more.
        pass
    os.close(ours)
    process.join()
    assert process.exitcode is not None
    return Output(process.exitcode, shown.decode(), "")


def _become(
    program: Callable[[list[str]], int],
    arguments: list[str],
    cwd: Path,
    environment: dict[str, str],
    streams: tuple[str, str, str],
    first: str = "",
) -> None:
    gc.freeze()  # looking for garbage among all the imported modules would copy all of their memory
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    if _MEASURING in environment:
        # A program would do so when it starts.
        coverage.process_startup()
    # The first terminal that the leader of a session opens is the one that its keys and signals come from.
    os.setsid()
    for number, stream in enumerate(streams):
        opened = os.open(stream, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    sys.argv = ["holdfast", *arguments]
    exec(first)
    code = 1
    try:
        code = program(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _holdfast(arguments: list[str]) -> int:
    from holdfast.cli.main import run

    return run(arguments)


def _alembic(arguments: list[str]) -> int:
    from alembic.config import main

    try:
        main(arguments, prog="alembic")
    except SystemExit as end:
        return int(end.code or 0) % 256
    return 0
