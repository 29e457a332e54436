"""Killing a process at a chosen moment: just before its n-th change of a file, a directory or a git repository.

The interpreter announces every such call as an audit event, so every moment can be tried, one after the other.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

CHANGES = frozenset(
    (
        "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.removexattr", "os.rename", "os.rmdir",
        "os.setxattr", "os.symlink", "os.truncate", "os.utime", "subprocess.Popen",
    )
)  # fmt: skip
"""Opening a file for writing is added to these."""


def killed_at(moment: int, action: Callable[[], Any]) -> bool:
    """Run the action in a process of its own, killed before its change number ``moment``; False if it made fewer.

    Nothing of Holdfast may be open in this process.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the runner of the tests may have threads of its own
        child = os.fork()
    if child == 0:
        _run(moment, action)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the action failed by itself; see its traceback"
    return False


def _run(moment: int, action: Callable[[], Any]) -> None:
    status = 1
    try:
        sys.addaudithook(_Killer(moment))
        action()
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)


class _Killer:
    def __init__(self, moment: int) -> None:
        self._left = moment

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and _is_for_writing(args[2])):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _is_for_writing(flags: int) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
