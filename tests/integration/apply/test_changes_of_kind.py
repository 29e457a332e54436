"""Applying to a repository what became something of another kind: a folder a symlink or a file, and the other way."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.integration.apply.conftest import Desk
from tests.support.repositories import git, head, status
from tests.support.trees import compare, describe, write

SCRIPTS = {
    "a folder a symlink to what it was": (
        "mv d d2; ln -s d2 d",
        ["A\td", "D\td/sub/y", "D\td/x", "A\td2/sub/y", "A\td2/x"],
    ),
    "a folder below a symlink beside it": (
        "mv d/sub d/other; ln -s other d/sub",
        ["A\td/other/y", "A\td/sub", "D\td/sub/y"],
    ),
    "a folder a symlink to nowhere": ("rm -r d; ln -s nowhere d", ["A\td", "D\td/sub/y", "D\td/x"]),
    "a folder a file": ("rm -r d; echo d > d", ["A\td", "D\td/sub/y", "D\td/x"]),
    "a folder a fifo": ("rm -r d; mkfifo d", ["D\td/sub/y", "D\td/x"]),
    "a file a folder": ("rm f; mkdir f; echo q > f/q", ["D\tf", "A\tf/q"]),
    "a symlink a folder": ("rm l; mkdir -p l/deep; echo q > l/q; echo r > l/deep/r", ["D\tl", "A\tl/deep/r", "A\tl/q"]),
    "a symlink a folder, and the folder it named a symlink": (
        "rm l; mv d l; ln -s l d",
        ["A\td", "D\td/sub/y", "D\td/x", "D\tl", "A\tl/sub/y", "A\tl/x"],
    ),
    "a symlink a file": ("rm l; echo l > l", ["T\tl"]),
    "a file a symlink to a folder": ("rm f; ln -s d f", ["T\tf"]),
}


@pytest.fixture
def kinds(desk: Desk) -> Desk:
    for path in ("d/x", "d/sub/y", "f"):
        write(desk.app / path, f"{path}\n")
    os.symlink("d", desk.app / "l")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "kinds")
    return desk


def changed(desk: Desk, revision: str = "HEAD") -> list[str]:
    return git(desk.app, "show", "--no-renames", "--name-status", "--format=", revision).splitlines()


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_arrives_as_one_commit_and_can_be_taken_back(kinds: Desk, name: str):
    script, expected = SCRIPTS[name]
    plan = kinds.run(app=script)
    before = describe(kinds.app, without=[b".git"])
    with kinds.open() as holdfast:
        assert holdfast.apply_preview(plan.plan_id).commits().keys() == {"app"}
    kinds.apply(plan)
    assert changed(kinds) == expected
    made = describe(kinds.sandbox(plan), without=[b".git"])
    assert compare(made, describe(kinds.app, without=[b".git"]), ignoring=["mtime_ns"]) == []
    assert status(kinds.app) == []
    kinds.unapply(plan)
    assert compare(before, describe(kinds.app, without=[b".git"]), ignoring=["mtime_ns"]) == []
    assert status(kinds.app) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_arrives_without_a_commit(kinds: Desk, name: str):
    plan = kinds.run(app=SCRIPTS[name][0])
    kinds.apply(plan, commit=False)
    made = describe(kinds.sandbox(plan), without=[b".git"])
    assert compare(made, describe(kinds.app, without=[b".git"]), ignoring=["mtime_ns"]) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_arrives_on_a_branch_of_its_own(kinds: Desk, name: str):
    script, expected = SCRIPTS[name]
    plan = kinds.run(app=script)
    before = kinds.everything()
    with kinds.open() as holdfast:
        assert holdfast.apply_preview(plan.plan_id, branch="topic").commits().keys() == {"app"}
    assert compare(before, kinds.everything()) == []
    kinds.apply(plan, branch="topic")
    assert changed(kinds, "topic") == expected
    assert git(kinds.app, "rev-parse", "topic^") == head(kinds.app)


def include_logs(desk: Desk) -> None:
    desk.overrides = {"sandbox.include-ignored": '["*.log"]'}


@pytest.mark.parametrize(("settings", "stays"), [(lambda _: None, True), (include_logs, False)], ids=["out", "in"])
def test_ignored_files_of_a_folder_that_became_a_symlink(kinds: Desk, settings: Callable[[Desk], None], stays: bool):
    """What is behind the symlink now is judged by the rules around it, as where the folder is still there."""
    write(kinds.app / ".gitignore", "*.log\n")
    git(kinds.app, "add", "--all")
    git(kinds.app, "commit", "-q", "-m", "rules")
    write(kinds.app / "d" / "sub" / "trace.log", "trace\n")
    include_logs(kinds)
    plan = kinds.run(app="mv d/sub d/other; ln -s other d/sub")
    kinds.overrides = {}
    settings(kinds)
    with kinds.open() as holdfast:
        preview = holdfast.apply_preview(plan.plan_id, branch="topic")
    assert "d/sub/trace.log" in preview.left_out
    if not stays:
        kinds.apply(plan)
        assert (kinds.app / "d" / "sub").is_symlink()
        assert (kinds.app / "d" / "other" / "trace.log").read_text() == "trace\n"
        assert changed(kinds) == ["A\td/other/y", "A\td/sub", "D\td/sub/y"]
