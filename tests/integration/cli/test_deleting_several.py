"""Several plans deleted by their ids, and plans that are no longer needed deleted by what they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Declined, DeletionPreview
from holdfast.db.lease import leased
from holdfast.model import Plan, PlanState
from holdfast.plans.finding import prunable
from holdfast.system.ids import new_id
from tests.integration.cli.project import Project, kill_in_apply
from tests.integration.cli.test_screens import screen, too_wide
from tests.support.crashes import count_of_changes, killed_at

STEPS = "  - {name: one, run: 'n=$(date +%N); echo $n > a$n; echo $n > b$n', resource: data}\n"
"""Two files of which no other plan has the names."""


def executed(project: Project) -> str:
    return str(project.json("execute", str(project.plan(STEPS)))["plan_id"])


def applied(project: Project) -> str:
    plan_id = executed(project)
    project.json("apply", "--yes", "--no-commit", plan_id)
    return plan_id


def there(project: Project) -> list[str]:
    return [each["plan_id"] for each in project.json("plan", "list", "--all")["plans"]]


# Several ids


def test_several_plans_are_deleted_at_once(project: Project) -> None:
    first, second, third = (executed(project) for _ in range(3))
    said = project.json("delete", "--yes", first, "latest", third)

    assert (said["deleted"], said["failed"]) == ([first, third], [])
    assert [each["plan_id"] for each in said["plans"]] == [first, third]
    assert there(project) == [second]
    assert not (project.home / "sandboxes" / first).exists()
    assert [each.name for each in (project.home / "sandboxes").iterdir() if each.name == second] == [second]


def test_if_one_of_them_does_not_exist_or_is_no_plan_of_its_own_none_is_deleted(project: Project) -> None:
    steps = "  - {name: parts, subplans: [{name: part, steps: [{run: 'true', resource: data}]}]}\n"
    parent = project.json("execute", str(project.plan(steps)))["plan_id"]
    (part,) = (each["plan_id"] for each in project.json("status", parent)["subplans"])
    single = executed(project)

    for wrong, code in (("nonsense", 3), (part, 4)):
        refused = project.call("delete", "--yes", single, wrong)
        assert refused.exit_code == code
        assert wrong in refused.stderr
    assert there(project) == [single, parent]


@pytest.mark.parametrize("columns", [80, 120])
def test_the_plans_that_would_be_deleted_fit_the_screen(project: Project, columns: int) -> None:
    file = project.folder / "named.yaml"
    file.write_text(
        f"name: {'a long name ' * 20}\nresources: {{app: {{type: git, path: app}}}}\nsteps: [run: 'true']\n"
    )
    project.json("create", str(file))
    header, line, last = screen(project, columns, "prune", "--state", "queued", "--dry-run")

    assert too_wide([header, line, last], columns) == []
    assert header.split() == ["plan", "state", "name", "checkpoints", "changed"]
    assert len(line) == columns


def test_the_question_names_all_of_them_once_and_no_deletes_none(project: Project) -> None:
    first, second = executed(project), executed(project)
    asked = project.on_terminal("delete", first, second, answer="n\n")

    assert asked.exit_code == 4
    assert [asked.stdout.count(each) for each in (first, second)] == [1, 1]
    assert asked.stdout.count("Delete 2 plans for good? [y/N]") == 1
    assert there(project) == [second, first]
    assert project.on_terminal("delete", first, second, answer="y\n").exit_code == 0
    assert there(project) == []


def test_one_that_cannot_be_deleted_is_named_and_the_others_are_deleted(project: Project) -> None:
    first, kept, last = (executed(project) for _ in range(3))
    kill_in_apply(project, kept)
    for name in ("objects.db", "objects.db-wal", "objects.db-shm"):
        (project.home / name).unlink(missing_ok=True)

    said = project.call("delete", "--yes", first, kept, last)
    assert said.exit_code == 7
    assert f"plan {kept} is still there:\n  The saved content of plan {kept} is gone" in said.stdout
    assert "Deleted 2 plans with " in said.stdout
    assert there(project) == [kept]
    again = project.json("delete", "--yes", kept, kept.lower(), "latest", exit_code=7)
    assert [each["error"]["type"] for each in again["failed"]] == ["ContentError"]
    assert again["deleted"] == []


def test_a_damaged_plan_is_deleted_with_the_others(project: Project) -> None:
    first, damaged = executed(project), executed(project)
    with project.opened() as opened, opened.store.transaction():
        opened.store.execute("UPDATE plan SET name = 'other' WHERE plan_id = ?", damaged)

    said = project.json("delete", "--yes", first, damaged)
    assert (said["deleted"], said["damaged_plans"]) == ([first, damaged], [damaged])
    assert there(project) == []


def test_from_python_a_plan_that_is_taken_meanwhile_stays(project: Project) -> None:
    first, second = executed(project), executed(project)
    with project.opened() as opened, project.opened() as other:
        assert isinstance(opened.delete_plans([first], confirm=lambda _: False), Declined)
        with leased(other.store, first, "a test"):

            def late(_: DeletionPreview) -> bool:
                return True

            with pytest.raises(Exception, match="in use"):
                opened.delete_plans([second, first], confirm=late)
        holding = leased(other.store, first, "a test")

        def takes_it(preview: DeletionPreview) -> bool:
            assert preview.checkpoints == {first: 5, second: 5}
            holding.__enter__()
            return True

        result = opened.delete_plans([second, first], confirm=takes_it)
        holding.__exit__(None, None, None)
    assert not isinstance(result, Declined)
    assert (result.deleted, list(result.failed)) == ((second,), [first])
    assert there(project) == [first]


# Plans that are no longer needed


def test_prune_deletes_what_was_applied_and_nothing_else(project: Project) -> None:
    complete, first, second = executed(project), applied(project), applied(project)
    failed = project.json("execute", str(project.plan("  - run: 'false'\n")), exit_code=1)["plan_id"]

    looked = project.json("plan", "prune", "--applied", "--dry-run")
    assert ([each["plan_id"] for each in looked["plans"]], looked["deleted"]) == ([second, first], [])
    assert len(there(project)) == 4
    text = project.call("prune", "--applied", "--dry-run").stdout
    assert "2 plans with 12 checkpoints would be deleted. Nothing was changed.\n" in text
    assert project.json("prune", "--applied", "--keep", "1", "--yes")["deleted"] == [first]
    said = project.call("prune", "--applied", "--yes")
    assert "Deleted 1 plan with 6 checkpoints and their sandboxes; " in said.stdout
    assert " of saved content freed." in said.stdout
    assert there(project) == [failed, complete]
    assert "There is no such plan." in project.call("prune", "--applied", "--yes").stdout
    assert project.json("prune", "--state", "complete", "--state", "errored", "--keep", "1", "--yes")["deleted"] == [
        complete
    ]


def test_prune_wants_to_be_told_which_plans_and_asks(project: Project) -> None:
    plan_id = applied(project)
    for words, said in ((["--yes"], "Say which plans"), (["--applied"], "Add --yes"), (["--older-than", "x"], "7d or")):
        refused = project.call("prune", *words)
        assert (refused.exit_code, said in refused.stderr) == (2, True)
    asked = project.on_terminal("prune", "--keep", "0", answer="n\n", columns=120)
    assert (asked.exit_code, "Delete 1 plan with 6 checkpoints for good?" in asked.stdout) == (4, True)
    assert plan_id in asked.stdout
    assert project.json("prune", "--older-than", "7d", "--dry-run")["plans"] == []
    assert there(project) == [plan_id]


def test_a_plan_that_is_in_use_or_in_which_something_was_cut_short_is_never_pruned(project: Project) -> None:
    in_use, cut_short, idle = applied(project), executed(project), applied(project)
    kill_in_apply(project, cut_short)
    with project.opened() as other, leased(other.store, in_use, "a test"), project.opened() as opened:
        found = opened.plans_to_prune(list(PlanState))
        assert [plan.plan_id for plan in found] == [idle]


@pytest.mark.unmeasured
def test_prune_that_is_killed_is_finished_by_the_next(project: Project) -> None:
    first = applied(project)

    def prune() -> None:
        with project.opened() as opened:
            opened.delete_plans([plan.plan_id for plan in opened.plans_to_prune()])

    changes = count_of_changes(prune)
    assert there(project) == []
    for moment in range(0, changes + 1, 3):
        plans = {applied(project), applied(project)}
        killed_at(moment, prune)
        left = set(there(project))
        assert left <= plans
        assert set(project.json("prune", "--applied", "--yes")["deleted"]) == left
        assert there(project) == []
        assert not {path.name for path in (project.home / "sandboxes").iterdir()} & {first, *plans}
    assert project.call("doctor").exit_code == 0


def plan(state: PlanState, project: str, changed: datetime) -> Plan:
    return Plan(
        plan_id=new_id(),
        project_id=project,
        name="a",
        state=state,
        resources=(),
        created_at=changed,
        updated_at=changed,
    )


def test_the_newest_of_each_project_are_kept_and_the_age_is_that_of_the_last_change() -> None:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    done, other = PlanState.APPLIED, PlanState.COMPLETE
    ages = [(done, "p", 1), (other, "p", 9), (done, "q", 8), (done, "p", 2), (done, "p", 9), (done, "q", 7)]
    plans = [plan(state, project, at - timedelta(days=days)) for state, project, days in ages]

    def chosen(days: int | None, keep: int) -> list[int]:
        before = None if days is None else at - timedelta(days=days)
        return [plans.index(each) for each in prunable(plans, {done}, before=before, keep=keep)]

    assert chosen(None, 0) == [0, 2, 3, 4, 5]
    assert chosen(None, 1) == [3, 4, 5]
    assert chosen(7, 0) == [2, 4]
    assert chosen(7, 1) == [4]
    assert chosen(1, 3) == []
