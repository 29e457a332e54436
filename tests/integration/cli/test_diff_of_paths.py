"""`plan diff -- PATH...`: only what changed at some files and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.project import Project
from tests.support.trees import write

STEPS = """
  - run: echo 2 > version.txt; echo more >> src/main.py; echo new > '-new file'; mkdir src/deep; echo x > src/deep/x
  - {run: rm orders.csv; echo 9 > version.txt, resource: data}
"""


@pytest.fixture
def changed(project: Project) -> Project:
    project.json("plan", "execute", str(project.plan(STEPS)))
    return project


def as_data(project: Project, *arguments: str) -> Any:
    return project.call("plan", "diff", "--format", "json", *arguments).data


def named(project: Project, *arguments: str) -> list[str]:
    return [each["file"] for each in as_data(project, *arguments)["files"]]


@pytest.mark.parametrize(
    ("paths", "files"),
    [
        (["src"], ["app/src/deep/x", "app/src/main.py"]),
        (["./src//main.py"], ["app/src/main.py"]),
        (["app/src/deep"], ["app/src/deep/x"]),
        (["version.txt"], ["app/version.txt", "data/version.txt"]),
        (["data:version.txt", "-new file"], ["app/-new file", "data/version.txt"]),
        (["data:."], ["data/orders.csv", "data/version.txt"]),
    ],
)
def test_it_shows_the_files_and_what_is_in_the_folders(changed: Project, paths: list[str], files: list[str]) -> None:
    assert named(changed, "--", *paths) == files
    assert named(changed, "latest", "--", *paths) == files


def test_it_is_for_patches_counts_and_names_between_checkpoints_too(changed: Project) -> None:
    first = changed.json("checkpoint", "list", "latest")["checkpoints"][0]["checkpoint_id"]
    patch = changed.call("plan", "diff", "--patch", "latest", first, "--", "src/main.py").stdout
    assert "+more" in patch
    assert "version.txt" not in patch
    assert changed.call("plan", "diff", "--name-only", "--", "src").stdout == "app/src/deep/x\napp/src/main.py\n"
    shown = changed.call("plan", "diff", "latest", first, "--", "data:orders.csv").stdout.splitlines()
    assert shown[-1] == "1 file, 0 lines added, 1 removed"
    assert as_data(changed, "--", "src", "data:.")["paths"] == ["src", "data:."]


def test_a_path_at_which_nothing_changed_says_so_and_one_that_names_nothing_is_refused(changed: Project) -> None:
    write(changed.app / "later.txt", "of the user, after the sandbox was made")
    assert changed.call("plan", "diff", "latest", "--", "data:orders.csv", "src").exit_code == 0
    project = Project(changed.folder / "other")
    project.json("plan", "execute", str(project.plan("  - run: echo 2 > version.txt\n")))
    assert project.call("plan", "diff", "--", "src").stdout == "Nothing changed at src.\n"
    for wrong, exit_code, message in (
        ("later.txt", 3, "'later.txt' names nothing in the plan's sandboxes"),
        ("../app/src", 2, "'../app/src' is not a path inside of a resource."),
        ("", 2, "An empty path names nothing."),
        ("app:.git/HEAD", 2, ".git/HEAD of app belongs to the sandbox's repository"),
    ):
        refused = changed.call("plan", "diff", "--", wrong)
        assert refused.exit_code == exit_code
        assert message in refused.stderr
    assert "as in `app:" in changed.call("plan", "diff", "--", "later.txt").stderr


def test_words_before_the_paths_are_the_plan_and_its_checkpoints(changed: Project, tmp_path: Path) -> None:
    refused = changed.call("plan", "diff", "latest", "src", "--", "src")
    assert refused.exit_code == 3
    assert changed.call("plan", "diff", "latest", "a", "b", "c", "--", "src").exit_code == 2
