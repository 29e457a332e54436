"""Every checkpoint that is taken by itself says what moment it is, and of a repository where HEAD was."""

from __future__ import annotations

from holdfast import Checkpoint
from holdfast.app import Holdfast
from holdfast.model import Plan
from tests.support.repositories import head
from tests.support.workshop import Workshop, run

COMMITS = "git commit --quiet --all --message more && git checkout --quiet -b topic"


def titles(opened: Holdfast, plan: Plan) -> list[str]:
    """One for each group that is on the way to where the plan is."""
    return list(
        dict.fromkeys(
            view.checkpoint.metadata.title for view in opened.checkpoints(plan.plan_id) if not view.is_superseded
        )
    )


def recorded(opened: Holdfast, plan: Plan) -> list[Checkpoint]:
    return opened.service.list_checkpoints(plan.plan_id)


def test_every_moment_of_a_plan_has_a_title_of_its_own_and_a_source(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = opened.create_plan(
        workshop.plan_file(
            run("echo 2 > version.txt", name="bump"), run("true", name="nothing"), validate=["test -e version.txt"]
        )
    )
    opened.execute(plan.plan_id)
    opened.apply(plan.plan_id)

    assert titles(opened, plan) == [
        "before the first step",
        "before step 1: bump",
        "after step 1: bump",
        "before step 2: nothing",
        "after step 2: nothing",
        "after the validation `test -e version.txt`",
        "after the last step",
        "before apply",
    ]
    assert all(each.metadata.source for each in recorded(opened, plan))


def test_failures_tries_and_rollbacks_have_titles_too(workshop: Workshop) -> None:
    opened = workshop.open()
    step = run("echo x >> tries; exit 1", name="shaky", retries=1)
    plan = opened.create_plan(workshop.plan_file(step))
    opened.execute(plan.plan_id)

    found = [each.metadata.title for each in recorded(opened, plan)]
    assert "failed: step 1: shaky" in found
    assert "before step 1: shaky, try 2" in found
    assert "failed: step 1: shaky, try 2" in found
    assert "back at step 1: shaky" in found
    assert all(each.metadata.source for each in recorded(opened, plan))


def test_a_command_of_two_lines_makes_a_title_of_one(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = opened.create_plan(workshop.plan_file(run("true"), validate=["true\ntest -e version.txt"]))
    opened.execute(plan.plan_id)
    assert "after the validation `true\\ntest -e version.txt`" in titles(opened, plan)


def test_a_failed_validation_is_named(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = opened.create_plan(workshop.plan_file(run("echo 2 > version.txt"), validate=["false"]))
    opened.execute(plan.plan_id)

    assert titles(opened, plan)[-1] == "when the validation `false` failed"


def test_what_a_rollback_left_is_called_after_where_it_went(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = opened.create_plan(workshop.plan_file(run("echo 2 > version.txt", name="bump")))
    opened.execute(plan.plan_id)
    (workshop.sandbox(plan_of(opened, plan)) / "by hand").touch()
    opened.rollback(plan.plan_id, recorded(opened, plan)[0].checkpoint_id)

    found = [each.metadata.title for each in recorded(opened, plan)]
    assert "left by a rollback to before the first step" in found
    assert titles(opened, plan)[-1] == "back at the start"


def plan_of(opened: Holdfast, plan: Plan) -> Plan:
    return opened.find_plan(plan.plan_id)


def test_a_correction_makes_titles_of_another_attempt(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = opened.create_plan(workshop.plan_file(run("echo 2 > version.txt", name="bump")))
    opened.execute(plan.plan_id)
    decision = opened.decision_tree(plan.plan_id).roots[0].children[0].decision
    opened.correct(decision.decision_id, guidance="three")
    opened.execute(plan.plan_id)

    assert "before step 1: bump, attempt 2" in titles(opened, plan)
    assert "after step 1: bump, attempt 2" in titles(opened, plan)


def test_subplans_are_named(workshop: Workshop) -> None:
    opened = workshop.open()
    subplans = [{"name": name, "steps": [run(f"echo {name} > {name}")]} for name in ("left", "right")]
    plan = opened.create_plan(workshop.plan_file({"name": "both", "subplans": subplans}))
    opened.execute(plan.plan_id)

    found = titles(opened, plan)
    assert "step 1, subplans: after left" in found
    assert "step 1, subplans: after right" in found


def test_of_a_repository_commit_and_branch_are_recorded_as_they_were_then(workshop: Workshop) -> None:
    opened = workshop.open()
    first = head(workshop.app)
    plan = opened.create_plan(
        workshop.plan_file(run("echo 2 > version.txt", name="bump"), run(COMMITS, name="commit"), run("touch x"))
    )
    plan = opened.execute(plan.plan_id).plan

    heads = {each.metadata.title: each.metadata.git for each in recorded(opened, plan) if each.resource_id == "app"}
    begin, end = heads["before the first step"], heads["after the last step"]
    assert begin is not None
    assert (begin.commit, begin.branch) == (first, f"holdfast/{plan.plan_id}")
    assert heads["before step 2: commit"] == begin
    assert end is not None
    assert end.branch == "topic"
    assert end.commit not in (None, first)
    assert [each.metadata.git for each in recorded(opened, plan) if each.resource_id == "data"] == [None]


def test_a_rollback_records_the_head_it_restored(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = opened.create_plan(workshop.plan_file(run("echo 2 > version.txt; " + COMMITS, name="commit")))
    opened.execute(plan.plan_id)
    begin = recorded(opened, plan)[0]
    opened.rollback(plan.plan_id, begin.checkpoint_id)

    assert recorded(opened, plan)[-1].metadata.git == begin.metadata.git


def test_a_repository_that_a_step_removed_has_no_head(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = opened.create_plan(workshop.plan_file(run("rm -rf .git", name="wreck")))
    opened.execute(plan.plan_id)

    after = next(each for each in recorded(opened, plan) if each.metadata.title == "after step 1: wreck")
    assert after.metadata.git is None
