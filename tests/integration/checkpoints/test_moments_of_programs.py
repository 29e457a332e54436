"""Moments of a program are named by what changed in them, so that each is found by reading the log."""

from __future__ import annotations

from holdfast import Checkpoint, checkpoint_title
from holdfast.app import Holdfast, Outfit
from holdfast.events import StepStarted
from holdfast.model import Plan, PlanState
from tests.integration.cli.damage import damage_objects
from tests.support.repositories import head
from tests.support.stages import run_in_stages
from tests.support.workshop import Workshop

COMMIT = "git -c user.name=a -c user.email=a@b.c commit --quiet --all"


def titles(opened: Holdfast, plan: Plan) -> list[str]:
    """One for each moment that led to where the plan is."""
    return [
        moment.checkpoints[0].checkpoint.metadata.title
        for moment in opened.timeline(plan.plan_id).oldest_first()
        if not moment.is_superseded
    ]


def recorded(opened: Holdfast, plan: Plan) -> list[Checkpoint]:
    return opened.service.list_checkpoints(plan.plan_id)


def of_program(opened: Holdfast, plan: Plan) -> list[str]:
    """The titles of the moments between the beginning and the end."""
    return titles(opened, plan)[2:-1]


def test_moments_of_a_program_are_named_by_what_changed(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = run_in_stages(
        workshop,
        opened,
        "mkdir docs src; for n in 1 2 3 4 5; do echo $n > docs/$n.md; done; echo 1 > src/a.py",
        "echo 2 >> src/a.py",
        "echo 3 > src/a.py; echo new > src/b.py; echo 2 > version.txt",
        "rm -r docs",
        "mkdir empty",
        "rm version.txt; echo last > src/a.py",
    )

    assert of_program(opened, plan) == [
        "+6 files: docs/1.md, docs/2.md, docs/3.md, docs/4.md, …",
        "1 file: src/a.py +1 -0",
        "3 files: src/a.py, version.txt, +src/b.py",
        "-5 files docs/",
        "+1 folder: empty/",
        "after step 1: -1 file: version.txt, 1 file: src/a.py",
    ]
    assert plan.state is PlanState.COMPLETE


def test_a_commit_of_a_program_is_a_change_and_is_named(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = run_in_stages(
        workshop,
        opened,
        "echo 2 > version.txt",
        f"{COMMIT} -m 'fix the parser' -m 'and say why'",
        f"echo 3 > version.txt; {COMMIT} -m three; echo 4 > version.txt; {COMMIT} -m four",
        "git reset --quiet --hard HEAD~1",
        "git checkout --quiet -b topic",
        "git checkout --quiet --detach HEAD~1",
        "git add --intent-to-add . ; touch version.txt",
        "rm -rf .git",
    )

    sandbox_heads = {
        each.metadata.title: each.metadata.git.commit
        for each in recorded(opened, plan)
        if each.metadata.git is not None and each.metadata.git.commit is not None
    }
    shorts = {name: commit[:7] for name, commit in sandbox_heads.items()}
    names = of_program(opened, plan)
    assert names[0] == "1 file: version.txt +1 -1"
    assert names[1] == f"commit {shorts[names[1]]} fix the parser"
    assert names[2] == f"2 commits to {shorts[names[2]]} four, 1 file: version.txt +1 -1"
    assert names[3] == f"HEAD at {shorts[names[3]]} three, 1 file: version.txt +1 -1"
    assert names[4] == "branch topic"
    assert names[5] == f"branch none, HEAD at {shorts[names[5]]} fix the parser, 1 file: version.txt +1 -1"
    assert names[6:] == ["during step 1, pause 7: no file changed", "after step 1: no repository"]


def test_commits_that_git_has_packed_are_named_too(workshop: Workshop) -> None:
    opened = workshop.open()
    script = f"echo 2 > version.txt; {COMMIT} -m two; git gc --quiet; rm -f .git/gc.log"
    plan = run_in_stages(
        workshop, opened, script, "git checkout --quiet --detach HEAD~1; git checkout --quiet -b again"
    )
    first, last = of_program(opened, plan)
    assert first.startswith("HEAD at ")
    assert first.endswith(" two, 1 file: version.txt +1 -1")
    assert last.startswith(f"after step 1: branch again, HEAD at {head(workshop.app)[:7]} ")


def test_what_git_ignores_is_named_last(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = run_in_stages(
        workshop,
        opened,
        "echo cache/ > .gitignore",
        "mkdir cache; touch cache/1 cache/2; echo 2 > version.txt",
        "touch cache/3 cache/4",
    )
    assert of_program(opened, plan) == [
        "+1 file: .gitignore",
        "1 file: version.txt +1 -1, 2 ignored files",
        "after step 1: 2 ignored files: cache/3, cache/4",
    ]


def test_names_of_files_are_one_line_and_long_ones_keep_their_end(workshop: Workshop) -> None:
    opened = workshop.open()
    deep = "/".join(["a rather long name of a folder"] * 3)
    plan = run_in_stages(
        workshop, opened, "touch 'two\nlines'", f"mkdir -p '{deep}'; echo 1 > '{deep}/end.py'", 'echo "a\'b" > "it\'s"'
    )
    names = of_program(opened, plan)
    assert names[0] == "+1 file: two\\nlines"
    assert names[1].startswith("+1 file: …")
    assert names[1].endswith("a rather long name of a folder/end.py")
    assert names[2] == "after step 1: +1 file: it's"


def test_a_rollback_of_a_program_says_to_which_moment(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = run_in_stages(workshop, opened, "echo 2 > version.txt", "rm version.txt", "touch x")
    wanted = {each.metadata.title: each.checkpoint_id for each in recorded(opened, plan)}
    (workshop.sandbox(plan) / "by hand").touch()
    opened.rollback(plan.plan_id, wanted["1 file: version.txt +1 -1"])
    back = recorded(opened, plan)[-1]
    opened.rollback(plan.plan_id, wanted["after step 1: +1 file: x"])
    opened.rollback(plan.plan_id, back.checkpoint_id)

    found = [each.metadata.title for each in recorded(opened, plan)]
    assert found[-4:] == [
        "left by a rollback to 1 file: version.txt +1 -1",
        "back at: 1 file: version.txt +1 -1",
        "back at: after step 1: +1 file: x",
        "back at: 1 file: version.txt +1 -1",
    ]


def test_log_list_show_and_their_data_have_the_same_title(workshop: Workshop) -> None:
    opened = workshop.open()
    plan = run_in_stages(workshop, opened, "echo 2 > version.txt", "touch x")
    views = {view.checkpoint.checkpoint_id: view for view in opened.checkpoints(plan.plan_id)}
    moments = [each for moment in opened.timeline(plan.plan_id).newest_first() for each in moment.checkpoints]
    assert {each.checkpoint.checkpoint_id: checkpoint_title(each.checkpoint, each.group) for each in moments} == {
        name: opened.checkpoint(name).checkpoint.metadata.title for name in views
    }


def test_damaged_content_does_not_prevent_the_next_moment(workshop: Workshop) -> None:
    """The moment is taken all the same, with a title that says only where it is."""
    opened = workshop.open()

    gate = workshop.outside / "go"
    script = f"echo 2 > version.txt; until test -e {gate}; do sleep 0.02; done"
    plan = opened.create_program_plan(("sh", "-c", script), folder=workshop.app)

    def listen(event: object) -> None:
        if isinstance(event, StepStarted):
            first = opened.store.groups.first(opened.find_plan("latest").plan_id)
            damage_objects(workshop.home / "objects.db", {bytes.fromhex(first.states["app"])})
        if "settled" in getattr(getattr(event, "group", None), "triggers", ()):
            gate.touch()

    opened.execute(plan.plan_id, listener=listen, outfit=Outfit(settle_seconds=0.1))
    assert "during step 1, pause 1" in titles(opened, plan)
