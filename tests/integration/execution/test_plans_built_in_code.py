"""Plans that are built in code, created and run as those of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import PlanFileError, UsageError
from holdfast.plans.finding import project_root
from tests.support.repositories import make_repository

RESOURCES = {"app": {"type": "git", "path": "."}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_repository(tmp_path / "my project", {"one": "1\n", "part/two": "2\n"})
    return tmp_path / "my project"


def opened(folder: Path, home: Path | None = None) -> Holdfast:
    return Holdfast.open(folder, home=home or folder.parent / "home", environment=os.environ)


def test_a_plan_of_values_runs_and_its_paths_are_those_of_the_project_wherever_the_program_is(project: Path) -> None:
    assert project_root(Path.cwd()) != project
    with opened(project / "part", project.parent / "home") as holdfast:
        plan = holdfast.create_plan(
            name="built", resources=RESOURCES, steps=[{"run": "echo 2 > one"}], validate=["test -e one"]
        )
        assert (plan.resources[0].path, plan.source_file) == (str(project), "")
        assert holdfast.execute(plan.plan_id).succeeded
        assert [file.path for file in holdfast.diff(plan.plan_id)] == ["one"]
        assert holdfast.find_plan("latest").validation == ("test -e one",)
    assert (project / "one").read_text() == "1\n"


def test_what_is_wrong_is_refused_before_anything_is_created(project: Path) -> None:
    with opened(project) as holdfast:
        with pytest.raises(PlanFileError, match=r"steps\[0\].tool: there is no tool named 'nonsense'"):
            holdfast.create_plan(name="wrong", resources=RESOURCES, steps=[{"tool": "nonsense"}])
        with pytest.raises(PlanFileError, match='the plan: the key "name" is missing'):
            holdfast.create_plan()
        with pytest.raises(PlanFileError, match='step: unknown key "step"'):
            holdfast.create_plan(name="x", resources=RESOURCES, steps=[{"run": "a"}], step=[])  # type: ignore[call-arg]
        with pytest.raises(UsageError, match="not from both") as caught:
            holdfast.create_plan(project / "plan.yaml", name="x")
        assert caught.value.hint == "Leave out either the file or name."
        assert holdfast.count_plans() == 0


def test_files_that_git_ignores_are_included_or_left_out_as_with_a_file(project: Path) -> None:
    (project / ".gitignore").write_text("*.tmp\n")
    (project / "a.tmp").write_text("a")
    (project / "b.tmp").write_text("b")
    with opened(project) as holdfast:
        plan = holdfast.create_plan(
            name="x", resources=RESOURCES, steps=[{"run": "ls > listed"}], exclude=["b.tmp"], include=["a.tmp"]
        )
        holdfast.execute(plan.plan_id)
        listed = Path(plan.resources[0].sandbox_path, "listed").read_text().split()
    assert {"a.tmp", "b.tmp"} & set(listed) == {"a.tmp"}
