"""Commands that look at a long plan read and show the part of it that is asked for."""

from __future__ import annotations

import re

import pytest

from tests.integration.cli.project import Project
from tests.integration.db.samples import saved_plan
from tests.support.statements import Counts, counted_statements


def _executed(project: Project, steps: int, *, stops_after: int | None = None) -> str:
    """The id of a plan of so many small steps that has run, or stopped at a step that fails."""
    step = "  - {{name: step {0}, tool: write_file, resource: data, args: {{path: f{1}, content: '{0}'}}}}\n"
    written = [step.format(number, number % 9) for number in range(steps)]
    if stops_after is not None:
        written[stops_after] = "  - {name: fail, run: 'exit 3', resource: data}\n"
    file = project.plan("".join(written), header="policy: {max_checkpoints: 10000}\n")
    with project.opened() as holdfast:
        return holdfast.execute(holdfast.create_plan(file).plan_id).plan.plan_id


def _counts(project: Project, *words: str) -> Counts:
    with counted_statements() as counts:
        assert project.call(*words).exit_code == 0
    return counts


@pytest.mark.unmeasured
def test_a_command_reads_no_more_records_of_a_plan_with_ten_times_the_steps(project: Project) -> None:
    short, long = _executed(project, 50), _executed(project, 500)
    for words in (
        ["plan", "status"],
        ["log", "-n", "20"],
        ["checkpoint", "list", "-n", "20"],
        ["checkpoint", "create"],
    ):
        few, many = _counts(project, *words, short), _counts(project, *words, long)
        assert (many.statements, many.rows) == (few.statements, few.rows), words
    with project.opened() as holdfast:
        for first in (
            lambda: next(holdfast.timeline(long).newest_first()),
            lambda: next(holdfast.timeline(long).oldest_first()),
        ):
            with counted_statements() as counts:
                first()
            assert counts.rows < 1000  # of more than 3000 groups, checkpoints and decisions
        root = next(iter(holdfast.decision_tree(long).roots))
        with counted_statements() as counts:
            assert next(iter(root.children)).step == "step 0"
            first_page = counts.rows
            assert len(root.children) == 500
        assert counts.rows - first_page > 2 * first_page
    shown = [project.json("plan", "status", plan)["last_checkpoint_id"] for plan in (short, long)]
    few, many = (_counts(project, "checkpoint", "show", each) for each in shown)
    assert (many.statements, many.rows) == (few.statements, few.rows)


def test_status_shows_the_steps_around_the_next_one_and_all_if_asked(project: Project) -> None:
    plan = _executed(project, 60, stops_after=45)
    shown = project.call("plan", "status", plan).stdout
    states = ["ok"] * 30 + ["failed"] + ["-"] * 9
    expected = [(str(number), state) for number, state in enumerate(states, 16)]
    assert re.findall(r"^ *(\d+)  (\S+) +", shown, re.MULTILINE) == expected
    assert "… 15 steps before\n" in shown
    assert "5 steps after\n" in shown
    assert "all steps  " in shown
    assert f"holdfast plan status --all {plan}\n" in shown
    whole = project.call("plan", "status", "--all", plan).stdout
    assert len(re.findall(r"^ *\d+  \S+ +", whole, re.MULTILINE)) == 60
    assert "--all" not in whole
    steps = project.json("plan", "status", plan)["steps"]
    assert [each["state"] for each in steps] == ["succeeded"] * 45 + ["failed"] + ["pending"] * 14


def test_status_shows_a_step_as_done_that_was_rolled_back_and_done_again(project: Project) -> None:
    plan = _executed(project, 60)
    project.call("plan", "rollback", "--yes", plan, project.checkpoint_before(30, plan))
    shown = project.call("plan", "status", plan).stdout
    assert "30 of 60 steps done" in shown
    assert re.findall(r"^ *(\d+)  ok  ", shown, re.MULTILINE) == [str(number) for number in range(1, 31)]
    assert project.call("plan", "execute", plan).exit_code == 0
    again = project.call("plan", "status", plan).stdout
    assert re.findall(r"^ *(\d+)  ok  ", again, re.MULTILINE) == [str(number) for number in range(21, 61)]


@pytest.mark.parametrize("words", [["log"], ["checkpoint", "list"]], ids=" ".join)
def test_a_terminal_shows_the_newest_moments_and_how_many_are_older(project: Project, words: list[str]) -> None:
    plan = _executed(project, 60)
    # Two moments for each step, one before all and one after all; the first has a checkpoint of each resource.
    all_lines = 122 if words == ["log"] else 123
    whole = project.call(*words, plan).stdout
    assert whole.count("cp_") == all_lines
    assert "older" not in whole
    on_terminal = project.on_terminal(*words, plan).stdout
    assert on_terminal.count("cp_") == 100
    assert "… 22 older moments; --limit all lists them." in on_terminal
    assert project.on_terminal(*words, "--limit", "all", plan).stdout.count("cp_") == all_lines
    some = project.on_terminal(*words, "-n", "7", plan).stdout
    assert some.count("cp_") == 7
    assert "older" not in some
    data = project.json(*words, plan)
    assert len(data["moments" if words == ["log"] else "checkpoints"]) == all_lines


def test_a_terminal_shows_the_newest_plans_and_how_many_are_older(project: Project) -> None:
    with project.opened() as holdfast:
        root = str(holdfast.project_root)
        plans = [saved_plan(holdfast.store, root, sequence=number).plan_id for number in range(102)]
    on_terminal = project.on_terminal("plan", "list").stdout
    assert [each in on_terminal for each in plans] == [False] * 2 + [True] * 100
    assert "… 2 older plans; --limit all lists them." in on_terminal
    for words in (["plan", "list", "--limit", "all"], ["plan", "list", "--limit", "all", "--all"]):
        shown = project.on_terminal(*words).stdout
        assert all(each in shown for each in plans)
    assert "… 2 older plans" in project.on_terminal("plan", "list", "--all").stdout
    elsewhere = project.call("plan", "list").stdout
    assert all(each in elsewhere for each in plans)


@pytest.mark.parametrize("limit", ["0", "-1", "none", "1.5"])
def test_a_limit_that_is_neither_a_number_nor_all_is_refused(project: Project, limit: str) -> None:
    assert project.call("log", f"--limit={limit}").exit_code == 2
