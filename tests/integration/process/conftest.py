from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.process.command import ProcessResult, run_supervised

PATIENCE_SECONDS = 20.0


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def wait_until() -> Callable[[Callable[[], Any]], None]:
    def wait(condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it never became so"
            time.sleep(0.01)

    return wait


class PidFile:
    """The process id that a process of the step wrote down about itself."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_written(self) -> bool:
        return self.path.exists() and self.path.read_text().endswith("\n")

    @property
    def pid(self) -> int:
        return int(self.path.read_text())

    @property
    def is_alive(self) -> bool:
        return is_alive(self.pid)


@pytest.fixture
def pid_file(tmp_path: Path) -> Callable[[str], PidFile]:
    return lambda name: PidFile(tmp_path / name)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., ProcessResult]:
    def run(command: str | list[str], **options: Any) -> ProcessResult:
        options = {"cwd": tmp_path, "environment": dict(os.environ), "timeout_seconds": PATIENCE_SECONDS, **options}
        return run_supervised(command, **options)

    return run
