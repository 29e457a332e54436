"""A number that Holdfast tells counts the same things wherever it is told."""

from __future__ import annotations

import re

import pytest

from tests.integration.cli.project import Project

BOTH = 'echo 2 > version.txt; echo 4 >> "$HOLDFAST_RESOURCE_DATA/orders.csv"'
STEPS = f"""
  - {{name: both, run: '{BOTH}'}}
  - name: divide
    parallel: 2
    subplans:
      - name: left
        steps:
          - {{run: echo 1 > l1}}
          - name: deeper
            subplans:
              - {{name: deep, steps: [{{run: echo 1 > d1}}, {{run: echo 2 > d2}}]}}
      - {{name: right, steps: [{{run: echo 1 > r1}}, {{run: echo 2 > r2}}, {{run: echo 3 > r3}}]}}
  - {{name: last, run: echo 3 > version.txt}}
"""
CALLS = 1 + (1 + 2) + 3 + 1


@pytest.fixture
def ran(project: Project) -> Project:
    project.json("plan", "execute", str(project.plan(STEPS)))
    return project


def numbers_told(project: Project) -> set[int]:
    """How many checkpoints the plan has, as each place tells it."""
    status = project.call("plan", "status").stdout
    last = re.search(r"(cp_\w+) is the last of (\d+)", status)
    assert last is not None, status
    listed = [line.split()[0] for line in project.call("checkpoint", "list").stdout.splitlines() if line[:3] == "cp_"]
    ids = [each["display_id"] for each in project.checkpoints()]
    assert sorted(listed) == sorted(ids)
    assert listed[-1] == last[1]
    return {int(last[2]), len(listed), len(ids), project.json("plan", "status")["checkpoints"]}


def test_there_are_as_many_checkpoints_wherever_they_are_counted(ran: Project) -> None:
    assert len({each["group_id"] for each in ran.checkpoints()}) < len(ran.checkpoints())
    assert len(numbers_told(ran)) == 1
    first = ran.checkpoints()[0]["checkpoint_id"]
    expected = ran.json("plan", "rollback", "--dry-run", "latest", first)["post_rollback_state"]
    back = ran.json("plan", "rollback", "--yes", "latest", first)["post_rollback_state"]
    assert numbers_told(ran) == {back["checkpoints_remaining"]} == {expected["checkpoints_remaining"]}
    pruned = ran.json("checkpoint", "prune", "--keep", "4", "latest")
    assert numbers_told(ran) == {pruned["checkpoints_remaining"]}


def test_calls_of_tools_inside_of_subplans_are_undone_calls_too(ran: Project) -> None:
    first = ran.checkpoints()[0]["checkpoint_id"]
    assert f"tool calls undone     {CALLS}\n" in ran.call("plan", "rollback", "--dry-run", "latest", first).stdout
    expected = ran.json("plan", "rollback", "--dry-run", "latest", first)["impact"]
    done = ran.json("plan", "rollback", "--yes", "latest", first)
    assert expected["tool_calls_after_cp"] == done["impact"]["tool_calls_after_cp"] == CALLS
    undoing = ran.json("plan", "rollback", "--yes", "latest", done["left_checkpoint_id"])
    assert undoing["impact"]["tool_calls_after_cp"] == 0
    decision = next(each for each in ran.json("plan", "status")["decisions"] if each["step_index"] == 1)
    words = ("plan", "correct", "--dry-run", "--mode", "revert", "--guidance", "x", decision["decision_id"])
    assert ran.json(*words)["impact"]["tool_calls_after_cp"] == CALLS - 1
