"""Killing a process at a chosen moment: just before its n-th change of a file, a directory or a git repository.

The interpreter announces every such call as an audit event, so every moment can be tried, one after the other.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

CHANGES = frozenset(
    (
        "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.removexattr", "os.rename", "os.rmdir",
        "os.setxattr", "os.symlink", "os.truncate", "os.utime", "subprocess.Popen",
    )
)  # fmt: skip
"""Opening a file for writing is added to these."""


def killed_at(moment: int, action: Callable[[], Any], *, touching: str = "") -> bool:
    """Run the action in a process of its own, killed before its change number ``moment``; False if it made fewer.

    Only changes of paths with ``touching`` in them count. Nothing of Holdfast may be open in this process.
    """
    child = fork()
    if child == 0:
        _run(action, _Killer(moment, touching))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the action failed by itself; see its traceback"
    return False


def count_of_changes(action: Callable[[], Any]) -> int:
    """How many changes the action makes, which it does make, in a process of its own."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        killer = _Killer(-1)
        _run(action, killer, at_end=lambda: os.write(writing, str(-killer.left - 1).encode()))
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        count = int(answer.read() or b"0")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the action failed; see its traceback"
    return count


def stopped_at(moment: int, action: Callable[[], Any], *, touching: str = "") -> int:
    """A process that stops itself before its change number ``moment``; once continued it ends with 0, or with the
    exit code of the error that the action ended with."""
    child = fork()
    if child == 0:
        status = 1
        try:
            sys.addaudithook(_Killer(moment, touching, signal.SIGSTOP))
            action()
            status = 0
        except Exception as error:  # noqa: BLE001 - told by the exit code
            status = getattr(error, "exit_code", 1)
        finally:
            os._exit(status)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]), "it made fewer changes"
    return child


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the runner of the tests may have threads of its own
        process = os.fork()
    if process == 0:
        gc.freeze()  # looking for garbage among what the parent made would copy all of its memory
    return process


def _run(action: Callable[[], Any], killer: _Killer, at_end: Callable[[], Any] = lambda: None) -> None:
    def watched() -> None:
        sys.addaudithook(killer)
        action()
        at_end()

    end_after(watched)


def end_after(action: Callable[[], Any]) -> NoReturn:
    """Do something in a forked process, which ends then: with 1, and the traceback, if that failed."""
    status = 1
    try:
        action()
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)


class _Killer:
    def __init__(self, moment: int, touching: str = "", number: int = signal.SIGKILL) -> None:
        self.left = moment
        self._touching = touching
        self._number = number

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        is_change = event in CHANGES or (event == "open" and _is_for_writing(args[2]))
        if is_change and any(self._touching in path for path in _paths_in(args)):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), self._number)


def _paths_in(args: tuple[Any, ...]) -> list[str]:
    return [str(arg) if not isinstance(arg, bytes) else os.fsdecode(arg) for arg in args]


def _is_for_writing(flags: int) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
