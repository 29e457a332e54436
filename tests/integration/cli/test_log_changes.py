"""`holdfast log --stat` and `--patch`: below each moment what it changed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.integration.cli.damage import module
from tests.integration.cli.project import Project

STEPS = """\
  - {name: bump, run: echo 2 > version.txt}
  - name: many
    run: mkdir docs; for n in $(seq 100 139); do echo $n > docs/$n; done; echo orders >> ../data/orders.csv
  - {name: trip, run: 'rm -r docs; printf "a \\nb" > "two words"; test -e ../../../go'}
"""


@pytest.fixture
def project(project: Project) -> Project:
    project.call("plan", "execute", str(project.plan(STEPS)))
    return project


def moments(project: Project, *options: str) -> dict[str, dict[str, Any]]:
    """By title; of several with the same the newest."""
    listed = project.json("log", *options)["moments"]
    return {each["title"]: each for each in reversed(listed)}


def below(shown: str, title: str) -> list[str]:
    """The lines below a moment, without the graph."""
    lines = shown.splitlines()
    start = next(number for number, line in enumerate(lines) if title in line) + 1
    found = []
    for line in lines[start:]:
        if not line or re.match(r"[│├ ]*([@○✗◆] |─)", line):
            break
        found.append(line.lstrip("│ "))
    return found


def test_counts_are_shown_as_in_plan_diff(project: Project) -> None:
    before, after = (moments(project)[f"{when} step 1: bump"]["checkpoint_ids"][0] for when in ("before", "after"))
    assert below(project.call("log", "--stat").stdout, "after step 1: bump") == (
        project.call("plan", "diff", "latest", before, after).stdout.splitlines()
    )


def test_moments_that_changed_nothing_have_no_lines(project: Project) -> None:
    shown = project.call("log", "--stat").stdout
    assert below(shown, "before step 2: many") == []
    assert below(shown, "before the first step") == []


def test_the_lines_are_shown_with_every_space(project: Project) -> None:
    shown = project.call("log", "--patch").stdout
    assert below(shown, "after step 1: bump") == [
        "--- a/app/version.txt", "+++ b/app/version.txt", "@@ -1 +1 @@", "-1", "+2",
    ]  # fmt: skip
    assert "│ │  +a \n" in shown
    assert "\\ No newline at end of file" in shown


def test_much_is_cut_and_the_command_shows_all(project: Project) -> None:
    cut = below(project.call("log", "--stat").stdout, "after step 2: many")
    assert len(cut) == 31
    assert cut[-1].startswith("… 11 more files: holdfast plan diff ")
    whole = project.call(*cut[-1].partition("holdfast ")[2].split()).stdout
    assert "41 files, 41 lines added, 0 removed" in whole


def test_a_long_patch_is_cut_too(project: Project) -> None:
    few = below(project.call("log", "--patch").stdout, "after step 2: many")
    assert "… the rest" not in few[-1]
    project.sandbox().joinpath("long").write_text("line\n" * 1000)
    project.json("checkpoint", "create", "latest", "--label", "long")
    cut = below(project.call("log", "--patch").stdout, '"long"')
    assert len(cut) == 301
    assert cut[-1].startswith("… the rest of this file: holdfast plan diff --patch ")
    whole = project.call(*cut[-1].partition("holdfast ")[2].split()).stdout
    assert whole.count("\n+line") == 1000


def test_the_data_has_all_files_of_each_moment(project: Project) -> None:
    found = moments(project, "--stat")["after step 2: many"]
    assert len(found["files"]) == 41
    assert found["files"][0]["file"] == "app/docs/100"
    assert "patch" not in found["files"][0]
    assert found["ignored_files"] == []
    assert found["problem"] is None
    assert "files" not in moments(project)["after step 2: many"]
    [file] = moments(project, "--patch")["after step 1: bump"]["files"]
    assert file["patch"] == "--- a/version.txt\n+++ b/version.txt\n@@ -1 +1 @@\n-1\n+2\n"


def test_after_a_rollback_each_moment_is_compared_with_the_one_it_follows_in_the_graph(project: Project) -> None:
    project.json("plan", "rollback", "--yes", "latest", "start")
    project.sandbox().joinpath("other").touch()
    project.json("checkpoint", "create", "latest", "--label", "other")
    found = moments(project, "--stat")
    assert [each["file"] for each in found['"other" asked for by a person']["files"]] == ["app/other"]
    assert found["back at the start"]["files"] == []
    assert found["failed: step 3: trip"]["files"][-1]["file"] == "app/two words"
    assert "│ │  D  app/docs/100" in project.call("log", "--stat").stdout


def test_a_limit_does_not_change_what_a_moment_is_compared_with(project: Project) -> None:
    every, few = (project.json("log", "--stat", *limit)["moments"] for limit in ((), ("--limit", "2")))
    assert few == every[:2]
    assert few[1]["files"]


def test_a_moment_whose_parent_was_pruned_is_compared_with_the_one_before_that(project: Project) -> None:
    project.json("checkpoint", "prune", "latest", "--keep", "3")
    listed = project.json("log", "--stat")["moments"]
    assert len(listed) < 5
    changed = {file["file"] for each in listed for file in each["files"]}
    assert "app/version.txt" in changed
    assert listed[-1]["files"] == []


def test_what_git_ignores_is_only_counted(project: Project) -> None:
    project.sandbox().joinpath(".gitignore").write_text("*.pyc\n")
    project.json("checkpoint", "create", "latest", "--label", "rules")
    for name in ("a.pyc", "b.pyc", "c.py"):
        project.sandbox().joinpath(name).write_text(name)
    project.json("checkpoint", "create", "latest", "--label", "caches")
    assert below(project.call("log", "--stat").stdout, '"caches"') == [
        "A  app/c.py  +1 -0", "1 file, 1 line added, 0 removed", "and 2 ignored files",
    ]  # fmt: skip
    found = moments(project, "--stat")['"caches" asked for by a person']
    assert [each["file"] for each in found["ignored_files"]] == ["app/a.pyc", "app/b.pyc"]


def test_damage_is_said_and_does_not_end_the_list(project: Project) -> None:
    listed = project.json("log")["moments"]
    group = next(each for each in listed if each["title"] == "before step 3: trip")["group_id"]
    with module.connect(project.home / "holdfast.db") as connection:
        connection.execute("UPDATE checkpoint_group SET reason = 'x' WHERE group_id = ?", (group,))
    connection.close()
    found = moments(project, "--stat")
    assert found["failed: step 3: trip"]["problem"] == "The record of the moment before it is damaged."
    assert found["failed: step 3: trip"]["files"] == []
    shown = project.call("log", "--stat").stdout
    assert "What changed cannot be shown: The record of the moment before it is damaged." in shown
    assert below(shown, "after step 1: bump")


def test_damaged_content_is_said_where_it_is_needed(project: Project) -> None:
    with module.connect(project.home / "objects.db") as connection:
        connection.execute("UPDATE object SET data = CAST(x'00' || 'rotten' AS BLOB) WHERE size_bytes = 2")
    connection.close()
    shown = project.call("log", "--stat").stdout
    assert any("its content is damaged" in line for line in below(shown, "after step 1: bump"))
    with module.connect(project.home / "objects.db") as connection:
        connection.execute("UPDATE object SET data = CAST(x'00' || 'rotten' AS BLOB)")
    connection.close()
    assert "What changed cannot be shown" in project.call("log", "--stat").stdout


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("style", ["--stat", "--patch"])
def test_it_fits_the_terminal(project: Project, columns: int, style: str) -> None:
    shown = project.on_terminal("log", style, columns=columns, variables={"NO_COLOR": "1"}).stdout
    drawing = shown.split("\r\n\r\n")[1].splitlines()
    assert any("version.txt" in line for line in drawing)
    assert [line for line in drawing if len(line) > columns and "holdfast plan diff" not in line] == []
