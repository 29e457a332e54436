"""Checkpoints while a program runs, where the operating system refuses something."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable

import pytest

from holdfast.errors import SandboxError
from holdfast.execution import pauses as module
from holdfast.execution.pauses import settling
from tests.support.workshop import Workshop, run


def _run_program(workshop: Workshop, take: Callable[[], None], stop: threading.Event, until: threading.Event) -> None:
    """Write something once, as a program would; then wait."""
    opened = workshop.open()
    plan = opened.execute(workshop.create(run("true")).plan_id).plan
    with (
        opened.service.sandboxes.watching(plan),
        settling(lambda: opened.service.sandboxes.heard(plan), 0.05, take, stop),
    ):
        time.sleep(0.1)
        (workshop.sandbox(plan) / "written").touch()
        assert until.wait(20)


def test_a_checkpoint_that_the_system_refuses_once_is_tried_again(workshop: Workshop) -> None:
    tried: list[str] = []
    taken, stop = threading.Event(), threading.Event()

    def take() -> None:
        tried.append("once")
        if len(tried) == 1:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "gone")
        taken.set()

    _run_program(workshop, take, stop, until=taken)
    assert not stop.is_set()


@pytest.mark.parametrize(
    ("refusal", "raised", "message"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), SandboxError, "No checkpoint could be taken: Too many"),
        (RuntimeError("a defect"), RuntimeError, "a defect"),
    ],
)
def test_a_program_of_which_no_checkpoint_can_be_taken_is_stopped(
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Exception,
    raised: type[Exception],
    message: str,
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.2)
    stop = threading.Event()

    def take() -> None:
        raise refusal

    with pytest.raises(raised, match=message):
        _run_program(workshop, take, stop, until=stop)
