"""Ctrl-C while a plan runs: the first is graceful, the second is safe."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TextIO

import pytest

from holdfast.cli.interrupts import interruptible, one_press_too_many
from holdfast.cli.main import run
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
    (project.app.parent / "go").touch()
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
    assert process.stderr.readline() == "stopping the step; press Ctrl-C again to stop at once\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "error: Interrupted." in said
    (project.app.parent / "go").touch()
    assert project.json("plan", "execute", "latest")["state"] == "complete"
    assert (project.sandbox() / "x").read_text() == "x\n"


def _stuck_git(project: Project) -> dict[str, str]:
    """An environment in which git never comes to an end when it is asked what to leave out of a sandbox."""
    folder = project.folder / "bin"
    folder.mkdir()
    (folder / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *--ignored*) touch {project.folder}/stuck; exec sleep 1000;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    (folder / "git").chmod(0o755)
    return {**project.environment, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def _by_ctrl_c(process: subprocess.Popen[str], _project: Project) -> None:
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all that it started hear it as well


def _by_sigterm(process: subprocess.Popen[str], _project: Project) -> None:
    process.send_signal(signal.SIGTERM)


def _by_plan_cancel(_process: subprocess.Popen[str], project: Project) -> None:
    assert project.run("plan", "cancel", "latest").exit_code == 0


def _is_stopped_before_it_began(project: Project, process: subprocess.Popen[str]) -> None:
    try:
        process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 130
    status = project.json("plan", "status")
    assert (status["state"], status["checkpoints"], status["holder"]) == ("cancelled", 0, None)
    assert status["error"] == "stopped while its sandboxes were made"


@pytest.mark.parametrize("stop", [_by_ctrl_c, _by_sigterm, _by_plan_cancel])
def test_a_plan_is_stopped_while_git_is_asked_for_its_sandbox(
    project: Project, stop: Callable[[subprocess.Popen[str], Project], None]
) -> None:
    file = project.plan("  - {name: one, run: echo 2 > version.txt}\n")
    process = project.start("plan", "execute", str(file), env=_stuck_git(project), start_new_session=True)
    wait_until((project.folder / "stuck").exists)
    stop(process, project)
    _is_stopped_before_it_began(project, process)
    assert project.json("plan", "execute", "latest")["state"] == "complete"


@pytest.mark.parametrize("verb", ["execute", "run"])
def test_the_first_checkpoint_of_much_content_is_stopped_in_the_middle(project: Project, verb: str) -> None:
    with (project.data / "endless").open("wb") as written:
        written.truncate(1 << 42)  # a hole, which is copied at once and takes an hour to read
    file = project.plan("  - {name: one, run: echo 2 > version.txt}\n")
    commands = {
        "execute": ["plan", "execute", str(file)],
        "run": ["run", "--resource", str(project.data), "--", "true"],
    }
    process = project.start(*commands[verb], start_new_session=True)
    wait_until(lambda: any(project.home.glob("sandboxes/*/data")))
    os.killpg(process.pid, signal.SIGINT)
    _is_stopped_before_it_began(project, process)
    (project.data / "endless").unlink()
    assert project.json("plan", "execute", "latest")["state"] == "complete"


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


class Pressing(io.TextIOWrapper):
    """Standard error on which Ctrl-C is pressed when the summary of a program begins."""

    def write(self, text: str) -> int:
        if "It ended." in text:
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


def test_a_ctrl_c_that_comes_after_the_program_has_ended_does_not_take_the_summary_away(project: Project) -> None:
    said = Pressing(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stderr(said):
        code = run(["--home", str(project.home), "--project", str(project.app), "run", "--", "sh", "-c", "echo 2 > f"])
    said.flush()
    said.seek(0)
    assert code == 0
    assert "holdfast plan apply" in said.read()


def test_a_second_one_ends_even_then() -> None:
    with one_press_too_many():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
