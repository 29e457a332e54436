"""Ctrl-C while a plan runs: the first is graceful, the second is safe."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TextIO

import pytest

from holdfast.cli.execution import interruptible
from tests.integration.cli.project import Project, wait_until

SLOW = """\
  - {name: first, run: echo 1 > one}
  - {name: slow, run: 'echo half > half; echo begun; test -e ../go || sleep 60; echo whole > half'}
"""


def is_at_the_slow_step(project: Project) -> bool:
    ended = project.call("plan", "status", "--format", "json")
    return ended.exit_code == 0 and ended.data["steps"][1]["state"] == "running"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_plan_ends_with_130_and_says_how_to_go_on(project: Project, number: int) -> None:
    process = project.start("plan", "execute", str(project.plan(SLOW)))
    wait_until(lambda: is_at_the_slow_step(project))
    process.send_signal(number)
    shown, said = process.communicate(timeout=60)
    plan_id = project.json("plan", "status")["plan_id"]
    assert process.returncode == 130
    assert "stopping the step" in said
    assert f"holdfast plan execute {plan_id}" in shown
    status = project.json("plan", "status")
    assert (status["state"], status["last_completed_step"], status["holder"]) == ("cancelled", 0, None)
    assert [each["state"] for each in status["steps"]] == ["succeeded", "interrupted"]


def test_it_goes_on_at_the_step_that_was_stopped(project: Project) -> None:
    process = project.start("plan", "execute", str(project.plan(SLOW)), "--format", "json")
    wait_until(lambda: is_at_the_slow_step(project))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    (project.sandbox().parent / "go").touch()
    shown = project.run("plan", "execute", "latest")
    assert shown.exit_code == 0
    assert "[2/2] slow" in shown.stdout
    assert "[1/2]" not in shown.stdout
    assert (project.sandbox() / "half").read_text() == "whole\n"


def test_interrupting_twice_is_safe(project: Project) -> None:
    # The step takes no notice of what it is told, so there is time for the second signal.
    steps = """\
  - {run: 'true'}
  - {name: stubborn, run: 'trap "" TERM INT; echo x >> x; test -e ../go || while true; do sleep 1; done'}
"""
    process = project.start("plan", "execute", str(project.plan(steps)))
    wait_until(lambda: is_at_the_slow_step(project))
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() == "\n"
    assert process.stderr.readline() == "stopping the step; once more stops at once\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "error: Interrupted." in said
    (project.sandbox().parent / "go").touch()
    assert project.json("plan", "execute", "latest")["state"] == "complete"
    assert (project.sandbox() / "x").read_text() == "x\n"


def nobody_reads() -> TextIO:
    read_end, write_end = os.pipe()
    os.close(read_end)
    return os.fdopen(write_end, "w")


@pytest.mark.parametrize("stderr", [nobody_reads, io.StringIO, lambda: None])
def test_a_stop_that_cannot_be_told_to_anybody_is_one_all_the_same(
    stderr: Callable[[], TextIO | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with stderr() or nullcontext() as stream, monkeypatch.context() as patch, interruptible() as cancelled:
        patch.setattr(sys, "stderr", stream)
        signal.raise_signal(signal.SIGTERM)
    assert cancelled.is_set()
