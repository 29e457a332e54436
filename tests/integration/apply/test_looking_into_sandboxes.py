"""Looking into a sandbox with git, which then writes its index anew, does not keep the result from being applied."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import StateError
from tests.integration.apply.conftest import Desk
from tests.support.repositories import git, log, make_repository, status
from tests.support.trees import write

CHANGES = "echo more >> a.txt; echo new > new.txt; rm b.txt; git add new.txt"


def look(place: Path) -> None:
    """As a person does it: git may write down what it finds."""
    environment = {name: value for name, value in os.environ.items() if name != "GIT_OPTIONAL_LOCKS"}
    for command in (["status"], ["diff", "--stat"], ["status", "--short", "--branch"]):
        subprocess.run(["git", *command], cwd=place, env=environment, check=True, stdout=subprocess.DEVNULL)


def noted_anew(place: Path) -> None:
    """Git's index in other bytes with the same meaning, for git finds a file with another inode."""
    file, folder = place / "folder" / "c.txt", (place / "folder").stat()
    os.replace(shutil.copy2(file, place.parent / "the same"), file)
    os.utime(place / "folder", ns=(folder.st_atime_ns, folder.st_mtime_ns))
    before = (place / ".git" / "index").read_bytes()
    look(place)
    assert (place / ".git" / "index").read_bytes() != before


@pytest.mark.parametrize("how", [look, noted_anew])
@pytest.mark.parametrize("branch", [None, "topic"])
@pytest.mark.unmeasured
def test_the_result_is_applied(desk: Desk, how, branch: str | None):
    plan = desk.run(app=CHANGES)
    how(desk.sandbox(plan))
    with desk.open() as holdfast:
        assert holdfast.apply_preview(plan.plan_id, branch=branch).commits().keys() == {"app"}
    desk.apply(plan, branch=branch)
    assert log(desk.app, branch or "HEAD") == ["the plan", "the first commit"]
    assert status(desk.app) == []


def test_it_is_applied_again_after_it_was_taken_back(desk: Desk):
    plan = desk.run(app=CHANGES)
    desk.apply(plan)
    desk.unapply(plan)
    noted_anew(desk.sandbox(plan))
    desk.apply(plan)
    assert log(desk.app) == ["the plan", "the first commit"]


def test_in_a_submodule_too(desk: Desk):
    make_repository(desk.folder / "library")
    git(desk.app, "submodule", "--quiet", "add", str(desk.folder / "library"), "library")
    git(desk.app, "commit", "-q", "-m", "with a library")
    plan = desk.run(app=CHANGES)
    look(desk.sandbox(plan) / "library")
    noted_anew(desk.sandbox(plan))
    desk.apply(plan)
    assert log(desk.app)[0] == "the plan"


@pytest.mark.parametrize(
    "command",
    ["git add a.txt", "git rm -q --cached a.txt", "git update-index --assume-unchanged folder/c.txt", "git tag mine"],
)
def test_a_change_by_hand_is_still_one(desk: Desk, command: str):
    plan = desk.run(app=CHANGES)
    noted_anew(desk.sandbox(plan))
    subprocess.run(command, shell=True, cwd=desk.sandbox(plan), check=True)
    with pytest.raises(StateError, match="not what the plan left"):
        desk.apply(plan)


def test_a_file_changed_by_hand_beside_the_look_is_still_one(desk: Desk):
    plan = desk.run(app=CHANGES)
    noted_anew(desk.sandbox(plan))
    write(desk.sandbox(plan) / "slipped in", "x")
    with pytest.raises(StateError, match="not what the plan left"):
        desk.apply(plan)


def test_a_folder_that_is_no_git_resource_holds_no_index_of_ours(desk: Desk):
    git(desk.data, "init", "-q")
    git(desk.data, "add", "--all")
    plan = desk.run(data="echo more >> one.csv")
    look(desk.sandbox(plan, "data"))
    with pytest.raises(StateError, match="not what the plan left"):
        desk.apply(plan)
