"""`holdfast demo`: the real commands, in a folder that is gone afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.integration.cli.project import Project


def test_the_demo_runs_to_its_end_is_told_to_programs_and_leaves_nothing_behind(
    project: Project, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ended = project.run("demo", "--format", "json", variables={"TMPDIR": str(scratch)})
    assert (ended.exit_code, ended.stderr, ended.data["folder"]) == (0, "", None)
    assert list(scratch.iterdir()) == []
    assert not project.home.exists()
    said = "".join(f"$ {each['command']}\n{each['output']}" for each in ended.data["commands"])
    moments = [
        "$ holdfast plan execute",
        "Step 4 (check) failed",
        "$ holdfast plan diff latest cp_",
        "Rollback Summary",
        "$ holdfast plan correct",
        "Complete.",
        "$ holdfast plan apply",
        "Applied.",
        "$ git log",
    ]
    places = [said.index(moment) for moment in moments]
    assert places == sorted(places)


def test_the_demo_can_be_kept(project: Project, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ended = project.run("demo", "--keep", variables={"TMPDIR": str(scratch)})
    assert ended.exit_code == 0
    [folder] = scratch.iterdir()
    assert str(folder) in ended.stdout.splitlines()[-1]
    assert (folder / "shop" / "CHANGES.md").exists()
    assert "0.21" in (folder / "orders" / "orders.csv").read_text()


def test_a_demo_that_goes_wrong_says_so(project: Project, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "ls", "find", "rm", "python3"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    broken = tools / "git"
    broken.write_text("#!/bin/sh\necho git is out of order\nexit 9\n")
    broken.chmod(0o755)
    ended = project.run("demo", variables={"PATH": str(tools)})
    assert ended.exit_code == 6
    assert "The demo went wrong" in ended.stderr
    assert "git is out of order" in ended.stderr
