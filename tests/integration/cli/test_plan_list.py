"""The list of plans on terminals: the ids become shorter, the time of creation stays."""

from __future__ import annotations

import re

import pytest

from tests.integration.cli.project import Project
from tests.integration.cli.test_screens import screen, too_wide

LONG = "a plan with quite a long name that says everything about what it is going to do in this repository"


def created(project: Project, name: str) -> str:
    file = project.folder / "named.yaml"
    file.write_text(f"name: {name}\nresources: {{app: {{type: git, path: app}}}}\nsteps: [run: 'true']\n")
    return str(project.json("create", str(file))["plan_id"])


@pytest.mark.parametrize(("columns", "characters"), [(50, 10), (60, 10), (80, 10), (120, 26)])
def test_every_line_has_an_id_that_commands_understand_and_its_time_if_there_is_room(
    project: Project, columns: int, characters: int
) -> None:
    ids = [
        created(project, "short"),
        created(project, LONG),
        created(project, "二番目の手順はとても長い名前を持っています"),
    ]
    header, *lines = screen(project, columns, "plan", "list")

    assert ("created" in header) == (columns >= 60)
    assert too_wide([header, *lines], columns) == []
    assert [line[:characters] for line in lines] == [each[:characters] for each in reversed(ids)]
    assert all(re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d$", line) for line in lines) == (columns >= 60)
    for line, plan_id in zip(lines, reversed(ids), strict=True):
        assert project.json("status", line.split()[0])["plan_id"] == plan_id


def test_what_is_not_a_terminal_gets_whole_ids(project: Project) -> None:
    plan_id = created(project, LONG)
    line = project.call("plan", "list").stdout.splitlines()[1]
    assert line.startswith(f"{plan_id}  queued  ")
    assert LONG in line


def test_a_shortened_id_is_as_long_as_it_must_be_to_mean_one_plan_of_all_projects(project: Project) -> None:
    first = created(project, "first")
    with project.opened() as opened:
        plan = opened.find_plan(first)
        others = [first[:-1] + ("0" if first[-1] != "0" else "1"), first[:12] + "Z" * 14]
        with opened.store.transaction():
            elsewhere = opened.store.plans.project_for("/elsewhere").project_id
            for each in others:
                opened.store.insert(plan.model_copy(update={"plan_id": each, "project_id": elsewhere}))
        assert opened.short_plan_ids([first]) == {first: first}
        alone = created(project, "alone")
        assert opened.short_plan_ids([first, alone]) == {first: first, alone: alone[:10]}
        assert opened.short_plan_ids([]) == {}
