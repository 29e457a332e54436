"""Apply and files that git ignores: it leaves them alone, unless a pattern names them, and what is absent stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import ApplyResult
from holdfast.errors import ConflictError, UsageError
from holdfast.model import Plan
from tests.integration.apply.conftest import Desk
from tests.support.repositories import git, status
from tests.support.trees import compare, describe, write


@pytest.fixture
def project(desk: Desk) -> Desk:
    write(desk.app / ".gitignore", "deps/\n.env\n*.log\n")
    git(desk.app, "add", ".gitignore")
    git(desk.app, "commit", "-q", "-m", "rules")
    write(desk.app / ".env", "old\n")
    write(desk.app / "deps" / "a" / "lib.js", "lib\n")
    write(desk.app / "deps" / "large.bin", bytes(3_000_000))
    return desk


def apply(desk: Desk, plan: Plan, *patterns: str) -> ApplyResult:
    with desk.open() as holdfast:
        result = holdfast.apply(plan.plan_id, include_ignored=patterns)
    assert isinstance(result, ApplyResult)
    return result


def test_changed_made_and_removed_ones_stay_in_the_sandbox(project: Desk):
    plan = project.run(app="echo new > .env; rm -rf deps; echo x > x.log; touch a.txt; echo more >> b.txt")
    before = describe(project.app, without=[b".git"])
    result = project.apply(plan)
    assert [each.file for each in result.changes] == ["b.txt"]
    assert result.left_out == (".env", "deps/a/lib.js", "deps/large.bin", "x.log")
    differences = compare(before, describe(project.app, without=[b".git", b"b.txt"]), ignoring=["mtime_ns"])
    assert differences == ["b'b.txt' is only in the first"]


def test_patterns_name_those_that_are_applied_and_unapply_undoes_all(project: Desk):
    """A folder of which only a part is wanted, a removal, and one that a later pattern takes back."""
    script = "echo new > .env; rm deps/large.bin; mkdir deps/b; echo b > deps/b/lib.js; echo x > x.log; echo y > y.log"
    plan = project.run(app=script)
    before = project.what_counts()
    result = apply(project, plan, "/deps/b/", "large.bin", "*.log", "!y.log")
    assert result.left_out == (".env", "y.log")
    assert (project.app / "deps" / "b" / "lib.js").read_text() == "b\n"
    assert (project.app / "x.log").exists()
    assert not (project.app / "deps" / "large.bin").exists()
    assert (project.app / ".env").read_text() == "old\n"
    assert status(project.app) == []
    project.unapply(plan)
    project.assert_put_back(before)


def test_a_setting_names_them_for_every_apply(project: Desk):
    plan = project.run(app="echo new > .env; echo x > x.log")
    project.overrides = {"apply.include-ignored": ".env"}
    assert project.apply(plan).left_out == ("x.log",)
    assert (project.app / ".env").read_text() == "new\n"


def test_a_conflict_in_one_of_them_refuses_everything(project: Desk):
    plan = project.run(app="echo new > .env; echo more >> b.txt")
    write(project.app / ".env", "mine\n")
    before = project.everything()
    with pytest.raises(ConflictError, match=r"\.env"):
        apply(project, plan, ".env")
    assert compare(before, project.everything()) == []
    assert project.apply(plan).left_out == (".env",)
    assert (project.app / ".env").read_text() == "mine\n"


@pytest.mark.parametrize("patterns", [("deps",), ()])
def test_what_the_sandbox_never_had_is_not_removed(project: Desk, patterns: tuple[str, ...]):
    """The plan makes and removes a folder of the same name, and even puts a file in its place."""
    write(project.app / "notes.txt", "untracked\n")
    write(project.app / "folder" / "mine.txt", "untracked\n")
    project.overrides = {"sandbox.copy-ignored-limit": "1MB", "sandbox.exclude": "notes.txt, mine.txt"}
    plan = project.run(
        app="test ! -e deps -a ! -e notes.txt && rm -rf folder && mkdir deps && echo x > deps/x && rm -r deps"
    )
    before = describe(project.app / "deps")
    apply(project, plan, *patterns)
    assert compare(before, describe(project.app / "deps")) == []
    assert (project.app / "notes.txt").read_text() == "untracked\n"
    assert [each.name for each in (project.app / "folder").iterdir()] == ["mine.txt"]


def test_what_was_made_where_something_was_left_out_is_a_conflict_if_it_is_asked_for(project: Desk):
    project.overrides = {"sandbox.exclude": "deps, notes.txt"}
    write(project.app / "notes.txt", "mine\n")
    plan = project.run(app="mkdir -p deps/a; echo other > deps/a/lib.js; echo more >> b.txt")
    before = project.everything()
    with pytest.raises(ConflictError, match=r"deps/a/lib\.js"):
        apply(project, plan, "deps")
    assert compare(before, project.everything()) == []
    other = project.run(app="echo mine too > notes.txt")
    with pytest.raises(ConflictError, match=r"notes\.txt"):
        project.apply(other)
    assert compare(before, project.everything()) == []


def test_a_branch_holds_none_of_them(project: Desk):
    plan = project.run(app="echo new > .env; echo more >> b.txt")
    with project.open() as holdfast:
        with pytest.raises(UsageError, match="exclude each other"):
            holdfast.apply(plan.plan_id, branch="topic", include_ignored=[".env"])
        with pytest.raises(UsageError, match="is a comment"):
            holdfast.apply_preview(plan.plan_id, include_ignored=["#x"])


def test_a_plan_keeps_the_patterns_it_was_created_with(project: Desk):
    """Other settings at its execution do not count, and a subplan has what its plan has."""
    file = write(project.folder / "plan.yaml", PLAN.format(app=project.app))
    project.overrides = {"sandbox.exclude": "large.bin"}
    with project.open() as holdfast:
        plan = holdfast.create_plan(file, include=["/deps/a"], exclude=["deps"])
    project.overrides = {}
    with project.open() as holdfast:
        done = holdfast.execute(plan.plan_id)
        assert done.succeeded, done.failed_run
        assert holdfast.diff(plan.plan_id)[-1].path == "seen.txt"
    sandbox = Path(plan.resources[0].sandbox_path)
    assert (sandbox / "seen.txt").read_text() == "deps\ndeps/a\ndeps/a/lib.js\n"
    assert [each.path for each in done.plan.resources[0].left_out] == ["deps/large.bin"]


PLAN = """
name: subplans see the same
resources: {{app: {{type: git, path: {app}}}}}
steps:
  - name: divided
    subplans:
      - name: one
        steps: [{{run: "find deps | sort > seen.txt"}}]
"""
