"""What a sparse checkout left out of the work tree is no work of the user's, and stays left out."""

from __future__ import annotations

import pytest

from holdfast.errors import ConflictError
from tests.integration.apply.conftest import Desk
from tests.support.repositories import git, status
from tests.support.trees import compare, write

ADD = "mkdir -p docs; echo of the plan > docs/x; echo more >> a.txt"


@pytest.fixture(params=["cone", "no cone", "sparse index"])
def sparse(desk: Desk, request: pytest.FixtureRequest) -> Desk:
    for name in ("docs/x", "docs/y", "src/z"):
        write(desk.app / name, f"{name}\n")
    git(desk.app, "add", "--all")
    git(desk.app, "commit", "-q", "-m", "docs")
    kind = {"cone": ["--cone", "src"], "sparse index": ["--cone", "--sparse-index", "src"]}
    git(desk.app, "sparse-checkout", "set", *kind.get(request.param, ["--no-cone", "/*", "!/docs/"]))
    assert not (desk.app / "docs").exists()
    return desk


def flags(desk: Desk) -> str:
    return git(desk.app, "ls-files", "-v")


def test_a_plan_may_write_what_was_left_out_and_all_is_as_before_when_it_is_taken_back(sparse: Desk):
    before, flagged = sparse.what_counts(), flags(sparse)
    plan = sparse.run(app=ADD)
    assert " M docs/x" in git(sparse.sandbox(plan), "status", "--short")
    sparse.apply(plan)
    assert (sparse.app / "docs" / "x").read_text() == "of the plan\n"
    assert status(sparse.app) == []
    assert git(sparse.app, "show", "--format=", "--name-only", "HEAD").split() == ["a.txt", "docs/x"]
    assert "S docs/y" in flags(sparse)
    sparse.unapply(plan)
    assert flags(sparse) == flagged
    assert status(sparse.app) == []
    differences = compare(before, sparse.what_counts())
    assert [each for each in differences if "app/.git/index" not in each] == []


def test_a_file_that_is_there_and_that_git_was_told_not_to_look_at_holds_work(desk: Desk):
    git(desk.app, "update-index", "--skip-worktree", "a.txt")
    write(desk.app / "a.txt", "settings of mine\n")
    plan = desk.run(app="echo more >> a.txt")
    with pytest.raises(ConflictError, match=r"not committed.*\n.*a\.txt"):
        desk.apply(plan)


def test_a_linked_work_tree_has_its_own_sparse_checkout_in_the_sandbox_too(sparse: Desk):
    other = sparse.folder / "other"
    git(sparse.app, "worktree", "add", "-q", str(other))
    git(other, "sparse-checkout", "set", "--cone", "docs")
    document = {
        "name": "the plan",
        "resources": {"app": {"type": "git", "path": str(other)}},
        "steps": [{"name": "look", "resource": "app", "run": "git sparse-checkout list > list"}],
    }
    plan = sparse.run_plan(document)
    assert (sparse.sandbox(plan) / "list").read_text() == "docs\n"
