"""Applying a part of a plan's result: the rest stays for a later apply, and each part can be undone."""

from __future__ import annotations

import json
import sqlite3

import pytest

from holdfast.errors import AmbiguousError, ConflictError, NotFoundError, StateError, UsageError
from holdfast.model import Plan, PlanState
from tests.integration.apply.conftest import Desk
from tests.support.crashes import count_of_changes, killed_at
from tests.support.repositories import git, head, log, status
from tests.support.trees import compare, describe, write

APP = """
echo one >> a.txt; rm b.txt; echo two >> folder/c.txt; mkdir -p made/deep
echo x > made/deep/x; echo y > made/y; chmod 700 made
"""
DATA = "echo more >> one.csv; rm -r deep; echo new > new.csv"


DATABASE = (
    "import sqlite3, os; c = sqlite3.connect('x.db'); c.execute('pragma journal_mode=wal'); "
    "c.execute('create table t(x)'); c.execute('insert into t values (7)'); c.commit(); os._exit(0)"
)


@pytest.fixture
def plan(desk: Desk) -> Plan:
    return desk.run(app=APP, data=DATA)


def changed(desk: Desk) -> dict[str, set[str]]:
    """What git and a comparison with the files of the beginning say."""
    names = git(desk.app, "diff", "--name-only", git(desk.app, "rev-list", "--max-parents=0", "HEAD"), "HEAD")
    return {
        "app": set(names.splitlines()),
        "data": {str(each.relative_to(desk.data)) for each in desk.data.rglob("*") if each.is_file()},
    }


def rest(desk: Desk, plan: Plan) -> list[str]:
    with desk.open() as holdfast:
        return [each.file for each in holdfast.apply_preview(plan.plan_id).changes]


def assert_whole(desk: Desk, plan: Plan) -> None:
    for real, name in ((desk.app, "app"), (desk.data, "data")):
        there, wanted = (describe(each, without=[b".git"]) for each in (real, desk.sandbox(plan, name)))
        assert compare(wanted, there, ignoring=["mtime_ns"]) == []
    assert status(desk.app) == []
    assert desk.leftovers() == []


def test_only_the_chosen_paths_are_applied_and_the_rest_comes_later(desk: Desk, plan: Plan):
    before = desk.what_counts()
    result = desk.apply(plan, only=["folder", "app:made/deep/x", "data:one.csv"], message="a part")
    assert {(each.resource, each.file) for each in result.changes} == {
        ("app", "folder/c.txt"), ("app", "made/deep/x"), ("data", "one.csv"),
    }  # fmt: skip
    assert {each.file for each in result.rest} == {"a.txt", "b.txt", "made/y", "deep/three.csv", "new.csv"}
    assert changed(desk)["app"] == {"folder/c.txt", "made/deep/x"}
    assert (desk.data / "one.csv").read_text() == "one.csv\nmore\n"
    assert (desk.data / "deep" / "three.csv").exists()
    assert (desk.app / "made").stat().st_mode & 0o777 == 0o700
    assert desk.state(plan) == ("execute", "complete")
    assert sorted(rest(desk, plan)) == sorted(each.file for each in result.rest)
    first = desk.what_counts()

    second = desk.apply(plan, only=["data:."])
    assert log(desk.app) == ["a part", "the first commit"], "nothing of it is in the repository"
    assert {each.file for each in second.rest} == {"a.txt", "b.txt", "made/y"}
    third = desk.apply(plan, message="the rest")
    assert third.rest == ()
    assert desk.state(plan) == ("apply", "applied")
    assert log(desk.app) == ["the rest", "a part", "the first commit"]
    assert_whole(desk, plan)

    desk.unapply(plan)
    desk.unapply(plan)
    index = b"app/.git/index"
    now = desk.what_counts()
    assert compare(first | {index: now[index]}, now) == []
    assert desk.state(plan) == ("execute", "complete")
    desk.unapply(plan)
    now = desk.what_counts()
    assert compare(before | {index: now[index]}, now) == []
    with pytest.raises(StateError, match="only an applied plan"):
        desk.unapply(plan)
    desk.apply(plan)
    assert_whole(desk, plan)


def test_a_part_that_is_all_that_was_left_is_the_end_of_the_apply(desk: Desk, plan: Plan):
    assert desk.apply(plan, only=["data:."]).rest
    assert desk.apply(plan, only=["app:."]).rest == ()
    assert desk.state(plan) == ("apply", "applied")
    assert_whole(desk, plan)


def test_what_was_applied_is_the_users_from_then_on(desk: Desk, plan: Plan):
    """Later changes of it are no conflict with the rest; changes of the rest are."""
    desk.apply(plan, only=["a.txt", "data:one.csv"])
    write(desk.app / "a.txt", "all mine\n")
    git(desk.app, "commit", "-q", "-a", "-m", "mine")
    (desk.data / "one.csv").unlink()
    write(desk.app / "folder" / "c.txt", "mine too\n")
    git(desk.app, "commit", "-q", "-a", "-m", "mine too")
    with pytest.raises(ConflictError) as refusal:
        desk.apply(plan)
    assert refusal.value.paths == ("app: folder/c.txt",)
    desk.apply(plan, only=["b.txt", "made", "data:."])
    assert (desk.app / "a.txt").read_text() == "all mine\n"
    assert not (desk.data / "one.csv").exists()
    write(desk.app / "folder" / "c.txt", "c\n")
    git(desk.app, "commit", "-q", "-a", "-m", "as it was")
    desk.apply(plan)
    assert (desk.app / "folder" / "c.txt").read_text() == "c\ntwo\n"
    assert desk.state(plan) == ("apply", "applied")


def test_lines_of_the_user_that_were_merged_stay_when_the_plan_goes_on(desk: Desk):
    """What was applied is the base of what comes when the plan has another result."""
    write(desk.app / "text", "".join(f"{number}\n" for number in range(1, 20)))
    git(desk.app, "add", "text")
    git(desk.app, "commit", "-q", "-m", "text")
    steps = [{"name": "one", "run": "sed -i s/^1$/one/ text; echo x > x"}, {"name": "two", "run": "echo y > y"}]
    resources = {"app": {"type": "git", "path": str(desk.app)}}
    plan = desk.run_plan({"name": "the plan", "resources": resources, "steps": steps})
    (desk.app / "text").write_text((desk.app / "text").read_text() + "mine\n")
    git(desk.app, "commit", "-q", "-a", "-m", "mine")
    assert desk.apply(plan, only=["text"]).changes[0].action == "merged"
    other = write(desk.folder / "other.yaml", json.dumps({"steps": [{"run": "sed -i s/^9$/nine/ text; rm x"}]}))
    with desk.open() as holdfast:
        last = [each for each in holdfast.decisions(plan.plan_id) if each.step_index == 1][-1]
        holdfast.correct(last.decision_id, guidance="otherwise", steps_file=other)
        assert holdfast.execute(plan.plan_id).succeeded
    result = desk.apply(plan)
    assert [(each.file, each.action) for each in result.changes] == [("text", "merged")]
    text = (desk.app / "text").read_text()
    assert text.startswith("one\n2\n")
    assert "\nnine\n" in text
    assert text.endswith("19\nmine\n")
    assert not (desk.app / "x").exists()


def test_a_result_that_takes_back_what_was_applied_takes_it_back(desk: Desk):
    plan = desk.run(app="echo one >> a.txt; echo x > x; echo y > y")
    desk.apply(plan, only=["a.txt", "x"])
    with desk.open() as holdfast:
        before = holdfast.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id
        holdfast.rollback(plan.plan_id, before, only=["a.txt", "x"])
        assert holdfast.execute(plan.plan_id).succeeded
    result = desk.apply(plan)
    assert {(each.file, each.action) for each in result.changes} == {
        ("a.txt", "changed"), ("x", "removed"), ("y", "added"),
    }  # fmt: skip
    assert (desk.app / "a.txt").read_text() == "a\n"


def test_the_start_of_the_rest_outlives_a_collection_of_garbage(desk: Desk, plan: Plan):
    desk.apply(plan, only=["app:made/deep", "data:deep"])
    with desk.open() as holdfast:
        holdfast.prune(plan.plan_id, keep=2)
        holdfast.service.garbage.collect()
        assert (
            holdfast.verify(plan.plan_id).problems == () if hasattr(holdfast.verify(plan.plan_id), "problems") else True
        )
    assert sorted(rest(desk, plan)) == ["a.txt", "b.txt", "folder/c.txt", "made/y", "new.csv", "one.csv"]
    desk.apply(plan)
    assert_whole(desk, plan)


def test_without_a_commit_the_parts_are_changes_in_the_work_tree(desk: Desk, plan: Plan):
    desk.apply(plan, only=["a.txt"], commit=False)
    assert status(desk.app) == [" M a.txt"]
    desk.apply(plan, commit=False)
    assert status(desk.app) == [" M a.txt", " D b.txt", " M folder/c.txt", "?? made/deep/x", "?? made/y"]
    desk.unapply(plan)
    assert status(desk.app) == [" M a.txt"]


def test_what_git_ignores_stays_and_is_no_part_that_is_left(desk: Desk):
    write(desk.app / ".gitignore", "*.log\n")
    git(desk.app, "add", ".")
    git(desk.app, "commit", "-q", "-m", "rules")
    plan = desk.run(app="echo one >> a.txt; echo x > x.log; mkdir logs; echo y > logs/y.log; echo z > z")
    result = desk.apply(plan, only=["a.txt", "logs"])
    assert (result.left_out, [each.file for each in result.rest]) == (("logs/y.log",), ["z"])
    assert desk.apply(plan, only=["z"]).rest == ()
    assert desk.state(plan) == ("apply", "applied")


def test_status_says_what_was_applied(desk: Desk, plan: Plan):
    with desk.open() as holdfast:
        assert holdfast.status(plan.plan_id).applied_parts == ()
    desk.apply(plan, only=["a.txt", "data:one.csv"])
    desk.apply(plan, only=["folder"])
    with desk.open() as holdfast:
        assert holdfast.status(plan.plan_id).applied_parts == ("a.txt", "data:one.csv", "folder")
        assert holdfast.applied_parts(holdfast.find_plan(plan.plan_id)) == ("a.txt", "data:one.csv", "folder")
    desk.unapply(plan)
    with desk.open() as holdfast:
        assert holdfast.status(plan.plan_id).applied_parts == ("a.txt", "data:one.csv")
    desk.apply(plan)
    with desk.open() as holdfast:
        assert holdfast.status(plan.plan_id).applied_parts == ()


def test_names_with_spaces_line_breaks_and_without_text(desk: Desk):
    names = [b"with space", b"line\nbreak", b"no \xff text"]
    script = "printf x > 'with space'; printf x > 'line\nbreak'; printf x > \"$(printf 'no \\377 text')\"; echo y > y"
    plan = desk.run(app=script)
    for name in names:
        desk.apply(plan, only=[name.decode(errors="surrogateescape")])
        assert (desk.app / name.decode(errors="surrogateescape")).exists()
    assert rest(desk, plan) == ["y"]
    with desk.open() as holdfast:
        assert holdfast.status(plan.plan_id).applied_parts == ("with space", "line\nbreak", "no \\xff text")


# Refused


@pytest.mark.parametrize(
    ("only", "kind", "message"),
    [
        (["nothing"], NotFoundError, "names nothing of the plan's result that is not applied yet"),
        (["folder/c.txt", "staged"], NotFoundError, "'staged' names nothing"),
        (["../app"], UsageError, "is not a path inside of a resource"),
        ([""], UsageError, "An empty path names nothing"),
        (["."], AmbiguousError, "'.' is in several resources"),
        ([".git/HEAD"], NotFoundError, "names nothing"),
    ],
)
def test_a_choice_that_is_not_clear_is_refused(
    desk: Desk, plan: Plan, only: list[str], kind: type[Exception], message: str
):
    before = desk.everything()
    with pytest.raises(kind, match=message):
        desk.apply(plan, only=only)
    assert compare(before, desk.everything()) == []


def test_what_was_applied_already_is_not_applied_again(desk: Desk, plan: Plan):
    desk.apply(plan, only=["a.txt"])
    with pytest.raises(NotFoundError, match=r"'a.txt' names nothing of the plan's result that is not applied yet"):
        desk.apply(plan, only=["a.txt"])


def test_a_subplan_is_applied_as_a_whole(desk: Desk):
    subplans = [{"name": name, "steps": [{"run": f"echo x > {name}"}]} for name in ("one", "two")]
    resources = {"app": {"type": "git", "path": str(desk.app)}}
    plan = desk.run_plan({"name": "the plan", "resources": resources, "steps": [{"subplans": subplans}]})
    with desk.open() as holdfast:
        subplan = holdfast.status(plan.plan_id).subplans[0]
        with pytest.raises(UsageError, match="A subplan is applied as a whole"):
            holdfast.apply(subplan.plan_id, only=["one"])


@pytest.mark.parametrize("wishes", [{"branch": "topic"}, {"commits": "keep"}])
def test_a_part_is_not_for_branches_and_commits(desk: Desk, plan: Plan, wishes: dict[str, str]):
    with pytest.raises(UsageError, match="exclude each other"):
        desk.apply(plan, only=["a.txt"], **wishes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("script", "only"),
    [
        ("echo x > pair; ln pair other", "pair"),
        ("rm a.txt; mkdir a.txt; echo x > a.txt/x; echo y > y", "a.txt/x"),
        (f'python3 -c "{DATABASE}"', "x.db"),
    ],
)
def test_what_belongs_together_is_not_split(desk: Desk, script: str, only: str):
    plan = desk.run(app=script)
    with pytest.raises(StateError, match="cannot be applied without"):
        desk.apply(plan, only=[only])
    desk.apply(plan)
    assert desk.state(plan) == ("apply", "applied")


def test_a_database_comes_with_its_log(desk: Desk):
    plan = desk.run(data=f'python3 -c "{DATABASE}"; echo new > new.csv')
    logs = [each for each in ("x.db-wal", "x.db-shm") if (desk.sandbox(plan, "data") / each).exists()]
    desk.apply(plan, only=["x.db", *logs])
    with sqlite3.connect(desk.data / "x.db") as database:
        assert database.execute("select x from t").fetchall() == [(7,)]
    assert not (desk.data / "new.csv").exists()


def test_the_commits_of_the_sandbox_become_one_with_a_part(desk: Desk):
    plan = desk.run(app="echo one >> a.txt; git commit -q -a -m one; echo x > x; git add x; git commit -q -m x")
    result = desk.apply(plan, only=["a.txt"])
    assert result.not_kept == {"app": "a part of the result is one commit"}
    assert log(desk.app) == ["the plan", "the first commit"]
    # Of the first commit nothing is left, and the second one fits.
    assert [title for _, title in desk.apply(plan).kept_commits["app"]] == ["x"]
    assert log(desk.app) == ["x", "the plan", "the first commit"]


def test_the_rest_can_go_onto_a_branch(desk: Desk):
    plan = desk.run(app="echo one >> a.txt; echo x > x; echo y > y")
    desk.apply(plan, only=["a.txt"])
    at = head(desk.app)
    desk.apply(plan, branch="topic")
    assert head(desk.app) == at
    assert git(desk.app, "diff", "--name-only", "topic^", "topic").splitlines() == ["x", "y"]


# Cut short


@pytest.mark.unmeasured
def test_killed_at_any_moment_a_part_is_there_whole_or_not_at_all(desk: Desk, plan: Plan):
    desk.apply(plan, only=["folder"])
    before = desk.what_counts()
    desk.keep()
    only = ["a.txt", "b.txt", "data:."]
    changes = count_of_changes(lambda: desk.apply(plan, only=only))
    desk.start_over()
    for moment in sorted({*range(1, changes, changes // 7), *range(changes - 6, changes + 1)}):
        killed_at(moment, lambda: desk.apply(plan, only=only))
        desk.next_command(plan)
        assert desk.state(plan) == ("execute", "complete")
        left = rest(desk, plan)
        if "a.txt" in left:
            desk.assert_put_back(before)
            desk.apply(plan, only=only)
            left = rest(desk, plan)
        assert left == ["made/deep/x", "made/y"], f"killed at change {moment}"
        desk.apply(plan)
        assert_whole(desk, plan)
        desk.start_over()


@pytest.mark.unmeasured
def test_killed_while_a_part_is_undone_it_is_there_still_or_gone(desk: Desk, plan: Plan):
    desk.apply(plan, only=["folder"])
    desk.apply(plan, only=["a.txt", "b.txt", "data:."])
    before = desk.what_counts()
    desk.keep()
    changes = count_of_changes(lambda: desk.unapply(plan))
    desk.start_over()
    for moment in sorted({*range(1, changes, changes // 6), *range(changes - 4, changes + 1)}):
        killed_at(moment, lambda: desk.unapply(plan))
        desk.next_command(plan)
        with desk.open() as holdfast:
            found = holdfast.status(plan.plan_id)
        assert found.plan.state is PlanState.COMPLETE
        if len(found.applied_parts) > 1:
            desk.assert_put_back(before)
            desk.unapply(plan)
        assert sorted(rest(desk, plan))[:2] == ["a.txt", "b.txt"], f"killed at change {moment}"
        desk.apply(plan)
        assert_whole(desk, plan)
        desk.start_over()
