"""The environment for mini-swe-agent; the agent's own classes are those of a stand-in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.config.keys import KEYS
from holdfast.errors import QuotaError
from holdfast.sessions.wishes import OnlyCall

_STAND_IN = Path(__file__).parents[2] / "data" / "mini_swe_agent"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("notes\n")
    monkeypatch.syspath_prepend(str(_STAND_IN))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return folder


def environment_in(project: Path) -> Any:
    from holdfast.minisweagent import HoldfastEnvironment

    return HoldfastEnvironment(cwd=str(project))


def test_each_command_is_a_call_that_can_be_undone_by_itself(project: Path, tmp_path: Path) -> None:
    environment = environment_in(project)
    assert environment.execute({"command": "echo one > one.txt"})["returncode"] == 0
    assert environment.execute({"command": "rm notes.txt"})["returncode"] == 0
    assert environment.execute({"command": "echo two > two.txt; exit 3"})["returncode"] == 3
    with Holdfast.open(project, home=tmp_path / "home", environment={}) as holdfast:
        in_place = holdfast.in_place
        (session,) = in_place.sessions()
        assert session.session is not None
        assert (session.session.agent, session.session.version) == ("mini-swe-agent", "2.4.6")
        calls = in_place.calls(session)
        assert [(call.what, call.is_failed) for call in calls] == [
            ("echo one > one.txt", False), ("rm notes.txt", False), ("echo two > two.txt; exit 3", True),
        ]  # fmt: skip
        in_place.undo(OnlyCall(2))
    assert {each.name for each in project.iterdir()} == {"notes.txt", "one.txt", "two.txt"}


def test_the_last_command_of_a_task_is_recorded_as_well(project: Path, tmp_path: Path) -> None:
    from minisweagent.exceptions import Submitted

    environment = environment_in(project)
    with pytest.raises(Submitted):
        environment.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo end > end.txt"})
    with Holdfast.open(project, home=tmp_path / "home", environment={}) as holdfast:
        (call,) = holdfast.in_place.calls()
        assert call.changed_something
        assert not call.is_running


def test_a_command_does_not_run_if_the_files_before_it_cannot_be_kept(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS["sandbox.checkpoint.max-bytes"].variable, "1000")
    (project / "large.bin").write_bytes(os.urandom(100_000))
    environment = environment_in(project)
    with pytest.raises(QuotaError):
        environment.execute({"command": "echo one > one.txt"})
    assert not (project / "one.txt").exists()
