"""`holdfast log`: the timeline as a graph."""

from __future__ import annotations

import pytest

from tests.integration.cli.project import Project

STEPS = """\
  - {name: one, run: echo 1 > one}
  - {name: two, run: echo 2 > two}
  - {name: three, run: 'echo 3 > three; test -e ../../../go'}
"""


@pytest.fixture
def branched(project: Project) -> Project:
    """A plan that failed, was rolled back, got a label, and failed again."""
    project.call("plan", "execute", str(project.plan(STEPS)))
    project.json("plan", "rollback", "--yes", "latest", project.checkpoint_before(1))
    project.json("checkpoint", "create", "latest", "--label", "lunch")
    project.call("plan", "execute", "latest")
    return project


def test_it_draws_branches_and_where_the_plan_is_now(branched: Project) -> None:
    shown = branched.call("log").stdout.splitlines()
    drawing = [line.partition("cp_")[0].rstrip() for line in shown[3:-3]]
    assert drawing == [
        "@", "│ ✗", "├─╯", "○", "○", "○", "◆", "○", "│ ○", "│ │ ✗", "│ ├─╯", "│ ○", "│ ○", "├─╯", "○", "○", "○", "○",
    ]  # fmt: skip
    assert '"lunch" asked for by a person' in "\n".join(shown)
    assert "back at step 3: three" in shown[3]


def test_plan_log_says_the_same(branched: Project) -> None:
    assert branched.call("plan", "log", "latest").stdout == branched.call("log").stdout


def test_the_data_has_every_moment_with_its_parent(branched: Project) -> None:
    moments = branched.json("log")["moments"]
    assert [each["is_now"] for each in moments] == [True] + [False] * (len(moments) - 1)
    known = {each["group_id"] for each in moments}
    assert all(each["parent_group_id"] in known for each in moments[:-1])
    assert moments[-1]["parent_group_id"] is None
    assert {each["label"] for each in moments} == {None, "lunch"}


def test_it_can_be_cut_short(branched: Project) -> None:
    assert len(branched.json("log", "--limit", "3")["moments"]) == 3


def test_a_plan_that_has_not_run_says_how_to_run_it(project: Project) -> None:
    project.json("plan", "create", str(project.plan(STEPS)))
    shown = project.call("log").stdout
    assert "no checkpoints yet" in shown
    assert "holdfast plan execute" in shown


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_it_fits_the_terminal(branched: Project, columns: int) -> None:
    shown = branched.on_terminal("log", columns=columns, variables={"NO_COLOR": "1"}).stdout
    drawing = shown.split("\r\n\r\n")[1].splitlines()
    assert all(len(line) <= columns for line in drawing)
