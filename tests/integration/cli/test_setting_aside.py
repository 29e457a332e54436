"""Whatever goes back says where to it moved what no checkpoint can hold."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.integration.cli.project import Project

SOCKET = "import socket; socket.socket(socket.AF_UNIX).bind('a/b/sock')"
MAKE = f'mkdir -p a/b; env -u COVERAGE_PROCESS_CONFIG python3 -c "{SOCKET}"'
FAILING = f"""\
  - name: listen
    run: |
      {MAKE}
      exit 3
"""
LISTENING = f"""\
  - name: listen
    run: |
      {MAKE}
"""
DIVIDED = f"""\
  - name: divide
    subplans:
      - name: below
        steps:
          - name: listen
            run: |
              {MAKE}
              exit 3
"""


def _is_socket(place: str) -> bool:
    return stat.S_ISSOCK(Path(place).lstat().st_mode)


@pytest.mark.parametrize("steps", [FAILING, DIVIDED])
def test_a_failed_step_that_is_taken_back(project: Project, steps: str) -> None:
    data = project.json("plan", "execute", str(project.plan(steps)), exit_code=1)
    [place] = data["set_aside"]
    assert "/.set-aside/app-" in place
    assert _is_socket(place)
    told = project.call("plan", "execute", data["plan_id"]).stdout
    [line] = [line for line in told.splitlines() if line.startswith("set aside  ")]
    assert _is_socket(line.removeprefix("set aside  "))


def test_a_failed_step_that_is_tried_again(project: Project) -> None:
    retried = FAILING.replace("name: listen", "name: listen\n    retries: 1")
    data = project.json("plan", "execute", str(project.plan(retried)), exit_code=1)
    assert list(map(_is_socket, data["set_aside"])) == [True, True]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_correction(project: Project, form: str) -> None:
    project.json("plan", "execute", str(project.plan(LISTENING)))
    [decision] = [each for each in project.json("plan", "status")["decisions"] if each["step_index"] == 0]
    steps = project.folder / "new.yaml"
    steps.write_text("steps: [{name: nothing, run: 'true'}]")
    words = ["plan", "correct", "--yes", "--mode", "revert", "--guidance", "x", "--with", str(steps)]
    if form == "json":
        [place] = project.json(*words, decision["decision_id"])["set_aside"]
    else:
        told = project.call(*words, decision["decision_id"]).stdout
        [line] = [line for line in told.splitlines() if line.startswith("set aside  ")]
        place = line.removeprefix("set aside  ")
    assert _is_socket(place)
