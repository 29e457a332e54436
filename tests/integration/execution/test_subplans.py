from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.checkpoints.service import CheckpointService
from holdfast.errors import ConflictError, ContentError, DatabaseError, HoldfastError, StateError
from holdfast.events import Event, InSubplan, StepFinished, StepStarted, SubplanEnded, SubplanMerged, SubplanStarted
from holdfast.execution.executor import Choices
from holdfast.model import Decision, DecisionType, Plan, PlanState, RollbackResult, RunStatus, Trigger
from holdfast.snapshot.scan.index import TreeIndex
from tests.support.detached import run_to_the_end
from tests.support.repositories import log
from tests.support.trees import write
from tests.support.workshop import Died, Workshop, dies_at, files, run


def sub(name: str, *commands: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "steps": [run(command, **more) for command in commands]}


def together(*subplans: dict[str, Any], parallel: int = 2, **more: Any) -> dict[str, Any]:
    return {"name": "divided", "parallel": parallel, "subplans": list(subplans), **more}


def one_by_one(*subplans: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "divided", "subplans": list(subplans), **more}


def subplans(opened: Holdfast, plan: Plan) -> dict[str, Plan]:
    return {each.name: each for each in opened.store.plans.below(plan.plan_id)}


def in_force(opened: Holdfast, plan: Plan) -> list[Decision]:
    return [each for each in opened.decisions(plan.plan_id) if not each.is_superseded]


def conflicting(workshop: Workshop, **more: Any) -> Plan:
    """Two subplans that change the same line, and a third with something else."""
    return workshop.create(
        together(
            sub("left", "echo left > version.txt; echo l > l"),
            sub("right", "echo right > version.txt; echo r > r"),
            sub("third", "echo 3 > three"),
            **more,
        ),
        run("cp version.txt seen"),
    )


def test_ten_subplans_that_touch_different_parts_of_one_file_merge(workshop: Workshop) -> None:
    lines = [str(number) for number in range(100)]
    (workshop.app / "lines.txt").write_text("\n".join(lines) + "\n")
    plan = workshop.create(
        together(*(sub(f"s{n}", f"sed -i 's/^{n * 10}$/changed {n}/' lines.txt") for n in range(10)), parallel=3)
    )
    assert workshop.open().execute(plan.plan_id).succeeded
    expected = [f"changed {int(line) // 10}" if int(line) % 10 == 0 else line for line in lines]
    assert files(workshop.sandbox(plan))["lines.txt"].splitlines() == expected


def test_parallel_subplans_all_start_from_the_state_before_the_step(workshop: Workshop) -> None:
    plan = workshop.create(
        run("echo before > before"),
        together(sub("left", "ls > left.seen"), sub("right", "ls > right.seen")),
    )
    assert workshop.open().execute(plan.plan_id).succeeded
    made = files(workshop.sandbox(plan))
    assert made["left.seen"].split() == ["before", "left.seen", "version.txt"]
    assert made["right.seen"].split() == ["before", "right.seen", "version.txt"]


def test_one_after_another_each_sees_what_those_before_it_made(workshop: Workshop) -> None:
    plan = workshop.create(one_by_one(sub("first", "echo 1 > one"), sub("second", "cat one > two")))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["two"] == "1\n"


def test_subplans_work_on_all_resources_and_nest(workshop: Workshop) -> None:
    inner = one_by_one(sub("deep", 'echo deep > deep; echo 3 >> "$HOLDFAST_RESOURCE_DATA/orders.csv"'))
    plan = workshop.create(together({"name": "outer", "steps": [inner]}, sub("beside", "echo b > b")))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"b": "b\n", "deep": "deep\n", "version.txt": "1\n"}
    assert files(workshop.sandbox(plan, "data")) == {"orders.csv": "1;2\n3\n"}


def test_the_commit_of_a_subplan_is_kept_if_the_plan_has_no_newer_one(workshop: Workshop) -> None:
    plan = workshop.create(one_by_one(sub("commits", "echo 2 > version.txt; git commit -qam 'from a subplan'")))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert log(workshop.sandbox(plan)) == ["from a subplan", "the first commit"]


def test_subplans_have_checkpoints_of_their_own_and_leave_no_sandboxes(workshop: Workshop) -> None:
    plan = workshop.create(together(sub("left", "echo 1 > l", "echo 2 > l"), sub("right", "echo 1 > r")))
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    left = subplans(opened, plan)["left"]
    assert left.state is PlanState.COMPLETE
    assert left.parent_plan_id == plan.plan_id
    assert [group.triggers[0] for group in opened.store.groups.of(left.plan_id)] == [
        "pre_execute", "on_tool_write", "on_tool_write_complete", "on_tool_write", "on_tool_write_complete",
        "post_execute",
    ]  # fmt: skip
    assert {path.name for path in (workshop.home / "sandboxes").iterdir()} == {plan.plan_id}
    assert [each.path for each in opened.diff(left.plan_id)] == ["l"]


def test_spawning_and_the_end_of_each_subplan_are_moments_to_go_back_to(workshop: Workshop) -> None:
    plan = workshop.create(one_by_one(sub("first", "echo 1 > one"), sub("second", "echo 2 > two")))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    assert workshop.moments(plan) == [
        ("pre_execute",),
        ("on_decision", "on_subplan_spawn"),
        ("after_subplan",),
        ("on_subplan_spawn",),
        ("after_subplan",),
        ("post_execute",),
    ]
    after_first = next(
        each.checkpoint.checkpoint_id
        for each in opened.checkpoints(plan.plan_id)
        if "after_subplan" in each.group.triggers
    )
    opened.rollback(plan.plan_id, after_first)
    assert files(workshop.sandbox(plan)) == {"one": "1\n", "version.txt": "1\n"}
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"one": "1\n", "two": "2\n", "version.txt": "1\n"}


@pytest.mark.parametrize(
    ("parallel", "decision"),
    [(1, DecisionType.SUBPLAN_SPAWN), (2, DecisionType.SUBPLAN_PARALLEL_SPAWN)],
)
def test_dividing_a_step_is_a_decision(workshop: Workshop, parallel: int, decision: DecisionType) -> None:
    plan = workshop.create(together(sub("left", "true"), sub("right", "true"), parallel=parallel))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    spawned = [each for each in in_force(opened, plan) if each.type is decision]
    assert len(spawned) == 1
    assert {each.spawn_decision_id for each in subplans(opened, plan).values()} == {spawned[0].decision_id}


def test_a_step_with_a_decision_of_its_own_has_the_division_below_it(workshop: Workshop) -> None:
    own = {"type": "strategy_choice", "question": "How?", "chosen": "in two parts"}
    plan = workshop.create(together(sub("left", "true"), sub("right", "true"), decision=own))
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    root, strategy, spawn = in_force(opened, plan)
    assert strategy.parent_decision_id == root.decision_id
    assert (spawn.type, spawn.parent_decision_id) == (DecisionType.SUBPLAN_PARALLEL_SPAWN, strategy.decision_id)


# Conflicts


def test_two_that_change_the_same_line_make_the_plan_constrained_and_say_so(workshop: Workshop) -> None:
    plan = conflicting(workshop)
    opened = workshop.open()
    result = opened.execute(plan.plan_id)
    assert result.plan.state is PlanState.CONSTRAINED
    assert "version.txt (both changed the same lines)" in (result.plan.error or "")
    [(where, conflict)] = opened.conflicts(result.plan)
    assert (where.plan_id, conflict.path, conflict.subplan) == (plan.plan_id, "version.txt", "right")
    assert [Path(each).read_text() for each in conflict.kept] == ["left\n", "right\n"]
    text = files(workshop.sandbox(plan))["version.txt"]
    assert text.splitlines() == [
        "<<<<<<< a plan", "left", "||||||| before", "1", "=======", "right", ">>>>>>> right",
    ]  # fmt: skip
    # What did not conflict is there already, but nothing after it.
    assert sorted(files(workshop.sandbox(plan))) == ["l", "r", "version.txt"]


def test_a_constrained_plan_does_not_go_on_until_the_conflict_is_resolved(workshop: Workshop) -> None:
    plan = conflicting(workshop)
    workshop.open().execute(plan.plan_id)
    before = files(workshop.sandbox(plan))
    with pytest.raises(ConflictError, match=r"version\.txt: both changed the same lines") as refusal:
        workshop.open().execute(plan.plan_id)
    assert refusal.value.paths == ("version.txt",)
    assert files(workshop.sandbox(plan)) == before
    assert workshop.open().find_plan(plan.plan_id).state is PlanState.CONSTRAINED


def test_a_plan_continues_with_the_conflict_as_it_was_resolved_in_the_sandbox(workshop: Workshop) -> None:
    plan = conflicting(workshop)
    workshop.open().execute(plan.plan_id)
    (workshop.sandbox(plan) / "version.txt").write_text("both\n")
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {
        "l": "l\n", "r": "r\n", "three": "3\n", "version.txt": "both\n", "seen": "both\n",
    }  # fmt: skip
    intervened = [each for each in in_force(opened, plan) if each.type is DecisionType.USER_INTERVENTION]
    assert [each.chosen for each in intervened] == ["as resolved in the sandbox: version.txt"]
    assert not (workshop.sandbox(plan).parent / ".conflicts").exists()


def test_correcting_a_resolution_divides_the_step_anew_from_before_it(workshop: Workshop) -> None:
    plan = conflicting(workshop)
    opened = workshop.open()
    opened.execute(plan.plan_id)
    (workshop.sandbox(plan) / "version.txt").write_text("wrong\n")
    opened.execute(plan.plan_id)
    [resolution] = [each for each in in_force(opened, plan) if each.type is DecisionType.USER_INTERVENTION]
    opened.correct(resolution.decision_id, guidance="resolve it otherwise")
    assert files(workshop.sandbox(plan)) == {"version.txt": "1\n"}
    assert [each.chosen for each in in_force(opened, plan)] == ["a plan", "resolve it otherwise"]
    assert all(each.is_superseded for each in subplans(opened, plan).values())
    assert opened.execute(plan.plan_id).plan.state is PlanState.CONSTRAINED


def test_a_conflict_between_binary_files_waits_for_a_choice(workshop: Workshop) -> None:
    plan = workshop.create(
        together(sub("left", "printf 'l\\000' > image"), sub("right", "printf 'r\\000' > image")),
    )
    workshop.open().execute(plan.plan_id)
    image = workshop.sandbox(plan) / "image"
    assert image.read_bytes() == b"l\0"
    with pytest.raises(ConflictError, match="both made it"):
        workshop.open().execute(plan.plan_id)
    image.write_bytes(b"r\0")
    assert workshop.open().execute(plan.plan_id).succeeded
    assert image.read_bytes() == b"r\0"


AS_FILE = sub("a", "rm -rf d; echo file > d")
AS_LINK = sub("a", "mv d d2; ln -s d2 d")
IN_FOLDER = sub("b", "echo y >> d/x; mkdir d/e; echo n > d/e/n")
FOLDER = {"d": "folder", "d/e": "folder", "d/e/n": "n\n", "d/same": "s\n", "d/x": "x\ny\n"}


def folder_against_something_else(workshop: Workshop, *divided: dict[str, Any]) -> tuple[Plan, Path]:
    """The plan, constrained, and where the versions are kept."""
    (workshop.app / "d").mkdir()
    (workshop.app / "d" / "x").write_text("x\n")
    (workshop.app / "d" / "same").write_text("s\n")
    plan = workshop.create(together(*divided))
    assert workshop.open().execute(plan.plan_id).plan.state is PlanState.CONSTRAINED
    [versions] = (workshop.sandbox(plan).parent / ".conflicts").iterdir()
    return plan, versions


def held(folder: Path) -> dict[str, str]:
    """Everything below, by path; no symlink is followed."""
    found = {}
    for place in folder.rglob("*"):
        kind = f"-> {place.readlink()}" if place.is_symlink() else "folder" if place.is_dir() else place.read_text()
        found[str(place.relative_to(folder))] = kind
    return found


@pytest.mark.parametrize(("other", "version"), [(AS_FILE, {"d": "file\n"}), (AS_LINK, {"d": "-> d2"})])
@pytest.mark.parametrize("folder_first", [True, False])
def test_a_folder_in_conflict_is_kept_whole_beside_what_the_other_made_of_it(
    workshop: Workshop, other: dict[str, Any], version: dict[str, str], *, folder_first: bool
) -> None:
    divided, sides = [other, IN_FOLDER], [version, FOLDER]
    if folder_first:
        divided, sides = divided[::-1], sides[::-1]
    plan, versions = folder_against_something_else(workshop, *divided)
    assert [held(versions / side / "app") for side in ("ours", "theirs")] == sides
    kept = {conflict.path: conflict.kept for _, conflict in workshop.open().conflicts(plan_now(workshop, plan))}
    assert kept["d"] == tuple(str(versions / side / "app" / "d") for side in ("ours", "theirs"))
    if not folder_first:  # of these the sandbox has nothing
        assert {path: kept[path] for path in kept if path != "d"} == {
            path: (str(versions / "theirs" / "app" / path),) for path in ("d/e/n", "d/x")
        }


def test_a_folder_in_conflict_is_resolved_by_taking_the_version_that_was_kept(workshop: Workshop) -> None:
    plan, versions = folder_against_something_else(workshop, AS_FILE, IN_FOLDER)
    with pytest.raises(ConflictError) as refusal:
        workshop.open().execute(plan.plan_id)
    assert refusal.value.paths == ("d", "d/e/n", "d/x")
    sandbox = workshop.sandbox(plan)
    (sandbox / "d").unlink()
    shutil.copytree(versions / "theirs" / "app" / "d", sandbox / "d")
    assert workshop.open().execute(plan.plan_id).succeeded
    assert held(sandbox / "d") == {path[2:]: content for path, content in FOLDER.items() if path != "d"}
    assert not versions.parent.exists()


def test_what_lay_in_a_folder_is_resolved_with_the_file_in_its_place(workshop: Workshop) -> None:
    plan, _ = folder_against_something_else(workshop, AS_FILE, IN_FOLDER)
    (workshop.sandbox(plan) / "d").write_text("file, with n and y\n")
    assert workshop.open().execute(plan.plan_id).succeeded


def test_a_conflict_of_the_resource_itself_is_resolved_by_its_mode(workshop: Workshop) -> None:
    plan, _ = folder_against_something_else(workshop, sub("a", "chmod 711 ."), sub("b", "chmod 750 ."))
    with pytest.raises(ConflictError) as refusal:
        workshop.open().execute(plan.plan_id)
    assert refusal.value.paths == (".",)
    workshop.sandbox(plan).chmod(0o750)
    assert workshop.open().execute(plan.plan_id).succeeded


def plan_now(workshop: Workshop, plan: Plan) -> Plan:
    return workshop.open().find_plan(plan.plan_id)


def test_a_person_can_say_that_a_conflict_is_resolved_as_it_is(workshop: Workshop) -> None:
    plan = workshop.create(
        together(sub("left", "printf 'l\\000' > image"), sub("right", "printf 'r\\000' > image")),
    )
    workshop.open().execute(plan.plan_id)
    result = workshop.open().execute(plan.plan_id, choices=Choices(conflicts_are_resolved=True))
    assert result.succeeded
    assert (workshop.sandbox(plan) / "image").read_bytes() == b"l\0"


def test_a_conflict_in_a_subplan_of_a_subplan_is_resolved_in_that_subplans_sandbox(workshop: Workshop) -> None:
    inner = together(sub("left", "echo left > version.txt"), sub("right", "echo right > version.txt"))
    plan = workshop.create(one_by_one({"name": "outer", "steps": [inner]}, sub("next", "echo n > n")))
    opened = workshop.open()
    result = opened.execute(plan.plan_id)
    assert result.plan.state is PlanState.CONSTRAINED
    [(where, conflict)] = opened.conflicts(result.plan)
    assert where.name == "outer"
    with pytest.raises(ConflictError):
        workshop.open().execute(plan.plan_id)
    (Path(where.resource("app").sandbox_path) / conflict.path).write_text("both\n")
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"n": "n\n", "version.txt": "both\n"}


def test_fail_on_conflict_fails_the_step_and_its_policy_acts(workshop: Workshop) -> None:
    plan = conflicting(workshop, merge="fail_on_conflict")
    result = workshop.open().execute(plan.plan_id)
    assert result.plan.state is PlanState.ERRORED
    assert "subplan right conflicts" in (result.plan.error or "")
    assert files(workshop.sandbox(plan)) == {"version.txt": "1\n"}


def test_last_wins_takes_the_file_of_the_later_one(workshop: Workshop) -> None:
    plan = conflicting(workshop, merge="last_wins")
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {
        "l": "l\n", "r": "r\n", "three": "3\n", "version.txt": "right\n", "seen": "right\n",
    }  # fmt: skip


# Failing and stopping


def test_a_failing_subplan_keeps_those_that_have_not_started_from_starting(workshop: Workshop) -> None:
    plan = workshop.create(one_by_one(sub("bad", "exit 3"), sub("later", "echo x > x")))
    opened = workshop.open()
    result = opened.execute(plan.plan_id)
    assert result.plan.state is PlanState.ERRORED
    assert "subplan bad failed" in (result.plan.error or "")
    states = {name: each.state for name, each in subplans(opened, plan).items()}
    assert states == {"bad": PlanState.ERRORED, "later": PlanState.CANCELLED}
    assert subplans(opened, plan)["later"].last_completed_step == -1
    assert files(workshop.sandbox(plan)) == {"version.txt": "1\n"}


def test_after_the_cause_is_gone_the_step_runs_again_with_new_subplans(workshop: Workshop) -> None:
    luck = workshop.outside / "luck"
    plan = workshop.create(together(sub("needs luck", f"cat {luck} > luck"), sub("other", "echo o > o")))
    opened = workshop.open()
    assert not opened.execute(plan.plan_id).succeeded
    luck.write_text("good\n")
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"luck": "good\n", "o": "o\n", "version.txt": "1\n"}
    old = [each for each in opened.store.plans.below(plan.plan_id) if each.is_superseded]
    assert {(each.name, each.state) for each in old} == {
        ("needs luck", PlanState.ERRORED),
        ("other", PlanState.CANCELLED),
    }


def test_a_rollback_invalidates_later_subplans_and_undoing_it_brings_them_back(workshop: Workshop) -> None:
    plan = workshop.create(run("echo 0 > zero"), together(sub("left", "echo l > l"), sub("right", "echo r > r")))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    before = files(workshop.sandbox(plan))
    result = opened.rollback(plan.plan_id, opened.checkpoints(plan.plan_id)[1].checkpoint.checkpoint_id)
    assert isinstance(result, RollbackResult)
    assert result.impact.child_plans_invalidated == 2
    assert {each.state for each in subplans(opened, plan).values()} == {PlanState.CANCELLED}
    assert all(each.is_superseded for each in subplans(opened, plan).values())
    assert result.left_group_id is not None
    opened.rollback(plan.plan_id, result.left_group_id)
    assert files(workshop.sandbox(plan)) == before
    assert {each.state for each in subplans(opened, plan).values()} == {PlanState.COMPLETE}
    assert not any(each.is_superseded for each in subplans(opened, plan).values())


def test_undoing_a_rollback_brings_a_conflict_in_a_subplan_of_a_subplan_back(workshop: Workshop) -> None:
    inner = together(sub("left", "echo left > version.txt"), sub("right", "echo right > version.txt"))
    plan = workshop.create(one_by_one({"name": "outer", "steps": [inner]}, sub("next", "echo n > n")))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    result = opened.rollback(plan.plan_id, opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id)
    assert isinstance(result, RollbackResult)
    undone = opened.rollback(plan.plan_id, result.left_group_id or "")
    assert isinstance(undone, RollbackResult)
    [(where, conflict)] = opened.conflicts(undone.plan)
    assert where.name == "outer"
    with pytest.raises(ConflictError):
        opened.execute(plan.plan_id)
    (Path(where.resource("app").sandbox_path) / conflict.path).write_text("both\n")
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"n": "n\n", "version.txt": "both\n"}


@pytest.mark.parametrize("is_run_anew", [False, True])
def test_undoing_a_rollback_brings_a_conflict_back_to_be_resolved(workshop: Workshop, is_run_anew: bool) -> None:
    plan = conflicting(workshop)
    opened = workshop.open()
    opened.execute(plan.plan_id)
    before, spawned = files(workshop.sandbox(plan)), subplans(opened, plan)
    result = opened.rollback(plan.plan_id, opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id)
    assert isinstance(result, RollbackResult)
    if is_run_anew:
        opened.execute(plan.plan_id)
        opened.execute(plan.plan_id, choices=Choices(conflicts_are_resolved=True))
    opened.rollback(plan.plan_id, result.left_group_id or "")
    back = opened.find_plan(plan.plan_id)
    assert (back.state, files(workshop.sandbox(plan))) == (PlanState.CONSTRAINED, before)
    assert [conflict.path for _, conflict in opened.conflicts(back)] == ["version.txt"]
    revived = [each for each in opened.store.plans.below(plan.plan_id) if not each.is_superseded]
    assert {(each.plan_id, each.state) for each in revived} == {
        (each.plan_id, PlanState.COMPLETE) for each in spawned.values()
    }
    with pytest.raises(ConflictError):
        opened.execute(plan.plan_id)
    (workshop.sandbox(plan) / "version.txt").write_text("both\n")
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["seen"] == "both\n"
    assert len(in_force(opened, plan)) == 4


def test_undoing_a_rollback_brings_subplans_back_as_far_as_they_were(workshop: Workshop) -> None:
    gate, started, count = (workshop.outside / name for name in ("gate", "started", "count"))
    waits = f"touch {started}; until test -e {gate}; do sleep 0.05; done"
    plan = workshop.create(
        one_by_one(sub("quick", f"echo q >> q; echo once >> {count}"), sub("slow", f"echo s >> s; {waits}"))
    )
    _kill_when(workshop, plan, started)
    gate.touch()
    opened = workshop.open()
    result = opened.rollback(plan.plan_id, opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id)
    assert isinstance(result, RollbackResult)
    opened.rollback(plan.plan_id, result.left_group_id or "")
    states = {name: each.state for name, each in subplans(opened, plan).items()}
    assert states == {"quick": PlanState.COMPLETE, "slow": PlanState.QUEUED}
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"q": "q\n", "s": "s\n", "version.txt": "1\n"}
    assert count.read_text() == "once\n"


def test_undoing_a_rollback_brings_a_stopped_subplan_back_as_stopped(workshop: Workshop) -> None:
    plan, stop = workshop.create(one_by_one(sub("stopped", "sleep 60"), sub("later", "echo x > x"))), threading.Event()

    def stop_in_subplan(event: Event) -> None:
        if isinstance(event, InSubplan) and isinstance(event.event, StepStarted):
            stop.set()

    opened = workshop.open()
    opened.execute(plan.plan_id, listener=stop_in_subplan, cancelled=stop)
    result = opened.rollback(plan.plan_id, opened.checkpoints(plan.plan_id)[0].checkpoint.checkpoint_id)
    assert isinstance(result, RollbackResult)
    opened.rollback(plan.plan_id, result.left_group_id or "")
    found = {name: (each.state, each.error) for name, each in subplans(opened, plan).items()}
    name = subplans(opened, plan)["stopped"].steps[0].name
    assert found == {"stopped": (PlanState.CANCELLED, f"stopped during {name}"), "later": (PlanState.QUEUED, None)}


def test_subplans_go_on_with_their_plan_and_not_by_themselves(workshop: Workshop) -> None:
    plan = workshop.create(together(sub("left", "echo l > l"), sub("right", "true")))
    opened = workshop.open()
    opened.execute(plan.plan_id)
    left = subplans(opened, plan)["left"]
    for verb in (opened.execute, opened.cancel, opened.delete):
        with pytest.raises(StateError, match=f"is a subplan of {plan.plan_id}"):
            verb(left.plan_id)
    with pytest.raises(StateError, match="is a subplan"):
        opened.rollback(left.plan_id, opened.checkpoints(left.plan_id)[0].checkpoint.checkpoint_id)


def test_deleting_a_plan_deletes_its_subplans_with_all_they_kept(workshop: Workshop) -> None:
    plan = conflicting(workshop)
    opened = workshop.open()
    opened.execute(plan.plan_id)
    assert len(list((workshop.home / "sandboxes").iterdir())) == 4
    opened.delete(plan.plan_id)
    assert list((workshop.home / "sandboxes").iterdir()) == []
    assert opened.store.plans.below(plan.plan_id) == []


def test_listeners_hear_what_happens_in_which_subplan(workshop: Workshop) -> None:
    told: list[Event] = []
    plan = workshop.create(together(sub("left", "echo l > l"), sub("right", "echo r > r")))
    workshop.open().execute(plan.plan_id, listener=told.append)
    inside = [(each.subplan.name, each.event.run.step) for each in told if _is_finished_step(each)]
    assert sorted(inside) == [("left", "echo l > l"), ("right", "echo r > r")]
    for kind in (SubplanStarted, SubplanEnded, SubplanMerged):
        assert sorted(each.subplan.name for each in told if isinstance(each, kind)) == ["left", "right"]


def _is_finished_step(event: Event) -> bool:
    return isinstance(event, InSubplan) and isinstance(event.event, StepFinished)


# Crashes


def _kill_when(workshop: Workshop, plan: Plan, started: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "--home", str(workshop.home), "plan", "execute", plan.plan_id]
    process = subprocess.Popen(command, cwd=workshop.app, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not started.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_killed_plan_continues_with_the_subplans_that_are_not_done(workshop: Workshop, parallel: int) -> None:
    gate, started, count, others = (workshop.outside / name for name in ("gate", "started", "count", "others"))
    if parallel == 1:
        others.touch()
    # Of two at a time, the last one begins when the quick one is surely done.
    waits = f"until test -e {others}; do sleep 0.05; done; touch {started}; until test -e {gate}; do sleep 0.05; done"
    plan = workshop.create(
        together(
            sub("quick", f"echo q > q; echo once >> {count}"),
            sub("slow", "echo first > s1", f"echo x >> s2; {waits}"),
            sub("last", f"echo z > z; touch {others}"),
            parallel=parallel,
        )
    )
    _kill_when(workshop, plan, started)
    gate.touch()
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {
        "q": "q\n", "s1": "first\n", "s2": "x\n", "z": "z\n", "version.txt": "1\n",
    }  # fmt: skip
    assert count.read_text() == "once\n"
    assert [each.status for each in opened.store.runs.of(plan.plan_id)] == [RunStatus.SUCCEEDED]


def test_a_merge_that_was_cut_short_is_done_again_from_what_was_before_it(workshop: Workshop) -> None:
    gate, started = workshop.outside / "gate", workshop.outside / "started"
    plan = workshop.create(
        one_by_one(
            sub("first", "echo 1 > one"),
            sub("second", f"cat one > two; touch {started}; until test -e {gate}; do sleep 0.05; done"),
        )
    )
    _kill_when(workshop, plan, started)
    gate.touch()
    # As if the merge of the second had been under way.
    (workshop.sandbox(plan) / "two").write_text("half of it")
    (workshop.sandbox(plan) / "one").unlink()
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"one": "1\n", "two": "1\n", "version.txt": "1\n"}


def test_a_merge_is_not_lost_if_the_process_dies_before_its_checkpoint(workshop: Workshop) -> None:
    """Died right after merging, and again when the step had ended: what is recorded then must hold the merge."""
    plan = workshop.create(together(sub("left", "echo l > l"), sub("right", "echo r > r")))
    for is_last in (_is_merge_of_right, _is_end_of_the_step):
        with pytest.raises(Died):
            workshop.open().execute(plan.plan_id, listener=dies_at(is_last))
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"l": "l\n", "r": "r\n", "version.txt": "1\n"}
    assert len(opened.store.plans.below(plan.plan_id)) == 2


def _is_merge_of_right(event: Event) -> bool:
    return isinstance(event, SubplanMerged) and event.subplan.name == "right"


def _is_end_of_the_step(event: Event) -> bool:
    return isinstance(event, StepFinished)


def test_a_plan_that_died_right_after_a_conflict_was_resolved_keeps_the_resolution(workshop: Workshop) -> None:
    plan = conflicting(workshop)
    opened = workshop.open()
    opened.execute(plan.plan_id)
    (workshop.sandbox(plan) / "version.txt").write_text("both\n")
    # Killed after it had said that it goes on, and before it did.
    found = opened.find_plan(plan.plan_id)
    with opened.store.transaction():
        opened.store.save(found.changed(state=PlanState.PROCESSING, error=None))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan))["version.txt"] == "both\n"


def test_how_a_conflict_was_resolved_is_recorded_with_the_resolution(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = conflicting(workshop)
    workshop.open().execute(plan.plan_id)
    (workshop.sandbox(plan) / "version.txt").write_text("both\n")

    def dies(*_: Any, **__: Any) -> Plan:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointService, "auto_create_if_configured", dies)
        with pytest.raises(Died):
            workshop.open().execute(plan.plan_id)
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    chosen = [each.chosen for each in in_force(opened, plan) if each.type is DecisionType.USER_INTERVENTION]
    assert chosen == ["as resolved in the sandbox: version.txt"]


def test_a_plan_that_an_error_breaks_off_after_a_conflict_waits_all_the_same(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = conflicting(workshop)
    take = CheckpointService.auto_create_if_configured

    def fails(
        service: CheckpointService, plan: Plan, lease: Any, triggers: list[Trigger], *rest: Any, **more: Any
    ) -> Plan:
        if plan.state is PlanState.CONSTRAINED:
            raise DatabaseError("The disk is full.")
        return take(service, plan, lease, triggers, *rest, **more)

    monkeypatch.setattr(CheckpointService, "auto_create_if_configured", fails)
    opened = workshop.open()
    with pytest.raises(DatabaseError):
        opened.execute(plan.plan_id)
    found = opened.find_plan(plan.plan_id)
    assert (found.state, found.error) == (
        PlanState.CONSTRAINED,
        "subplan right conflicts with what the plan has: version.txt (both changed the same lines)",
    )
    monkeypatch.undo()
    (workshop.sandbox(plan) / "version.txt").write_text("both\n")
    assert workshop.open().execute(plan.plan_id).succeeded


def test_what_a_power_cut_brings_back_of_subplans_that_are_done_is_removed_again(workshop: Workshop) -> None:
    plan = conflicting(workshop)
    with (
        workshop.open() as opened
    ):  # closed, it has removed its staging folders, which the copy below would stumble over
        opened.execute(plan.plan_id)
    conflicts = workshop.sandbox(plan).parent / ".conflicts"
    (workshop.sandbox(plan) / "version.txt").write_text("both\n")
    forks = [workshop.sandbox(each).parent for each in workshop.open().store.plans.below(plan.plan_id)]
    removed = [*forks, conflicts]
    shutil.copytree(workshop.home / "sandboxes", workshop.folder / "before", symlinks=True)
    opened = workshop.open()
    assert opened.execute(plan.plan_id).succeeded
    assert not any(folder.exists() for folder in removed)
    for folder in removed:
        shutil.copytree(workshop.folder / "before" / folder.relative_to(workshop.home / "sandboxes"), folder)
    with opened.store.transaction():
        opened.store.save(opened.find_plan(plan.plan_id).changed(boot_id="another start"))
    workshop.open().create_checkpoint(plan.plan_id)
    assert not any(folder.exists() for folder in removed)


def test_what_is_kept_of_a_conflict_stays_while_it_waits_although_an_earlier_one_is_over(workshop: Workshop) -> None:
    one = together(sub("left", "echo left > version.txt"), sub("right", "echo right > version.txt"))
    plan = workshop.create(one, {**one, "name": "once more"})
    workshop.open().execute(plan.plan_id)
    (workshop.sandbox(plan) / "version.txt").write_text("both\n")
    opened = workshop.open()
    opened.execute(plan.plan_id)
    (_, conflict), *_ = opened.conflicts(opened.find_plan(plan.plan_id))
    with opened.store.transaction():
        opened.store.save(opened.find_plan(plan.plan_id).changed(boot_id="another start"))
    workshop.open().create_checkpoint(plan.plan_id)
    assert [Path(each).read_text() for each in conflict.kept] == ["left\n", "right\n"]


def test_the_content_of_merges_survives_collecting(workshop: Workshop) -> None:
    plan = workshop.create(
        together(sub("left", "echo l > l"), sub("right", "echo r > r")),
        policy={"auto_create_on": []},
    )
    opened = workshop.open()
    opened.execute(plan.plan_id)
    opened.service.garbage.collect()
    merged = [each.merged_states for each in opened.store.plans.below(plan.plan_id)]
    for states in merged:
        assert states is not None
        opened.service.sandboxes.restore_states(plan, states)
    assert json.loads(json.dumps(merged[-1]))
    assert files(workshop.sandbox(plan)) == {"l": "l\n", "r": "r\n", "version.txt": "1\n"}


# What is known of the plan's sandboxes when they are forked


def _stored_bytes(workshop: Workshop) -> int:
    return workshop.open().service.manager.objects.content_bytes()


def _large_and_divided(workshop: Workshop) -> Plan:
    """The content of the large file is in no checkpoint when the sandboxes are forked."""
    large = run("head -c 6000000 /dev/urandom > large")
    return workshop.create(
        large, together(sub("left", "echo l > l"), sub("right", "true")), policy={"auto_create_on": []}
    )


def test_looking_at_a_sandbox_that_is_forked_keeps_to_the_quota(workshop: Workshop) -> None:
    plan = _large_and_divided(workshop)
    opened = workshop.open(sandbox__checkpoint__max_bytes="4000000")
    with suppress(HoldfastError):
        opened.execute(plan.plan_id)
    assert _stored_bytes(workshop) < 4_000_000


def test_a_stop_is_heard_before_a_sandbox_that_is_forked_is_looked_at(workshop: Workshop) -> None:
    plan, cancelled = _large_and_divided(workshop), threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, StepStarted) and event.index == 1:
            cancelled.set()

    workshop.open().execute(plan.plan_id, listener=listen, cancelled=cancelled)
    assert _stored_bytes(workshop) < 4_000_000
    assert workshop.open().execute(plan.plan_id).succeeded
    assert (workshop.sandbox(plan) / "l").read_text() == "l\n"


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ContentError("Content is damaged.")])
def test_a_step_succeeds_if_the_sandboxes_cannot_be_looked_at_when_they_are_forked(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(_: TreeIndex) -> None:
        raise error

    monkeypatch.setattr(TreeIndex, "lend", fails)
    plan = workshop.create(together(sub("left", "echo l > l"), sub("right", "echo r > r")))
    assert workshop.open().execute(plan.plan_id).succeeded
    assert files(workshop.sandbox(plan)) == {"l": "l\n", "r": "r\n", "version.txt": "1\n"}


_FEW_FILES = """\
import resource
from pathlib import Path
from holdfast.app import Holdfast
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
with Holdfast.open(Path(sys.argv[1]), home=Path(sys.argv[2])) as holdfast:
    result = holdfast.execute(sys.argv[3])
    assert result.succeeded, result.plan.error
"""


@pytest.mark.unmeasured
def test_sixteen_subplans_at_once_need_no_more_open_files_than_usual(workshop: Workshop) -> None:
    """A process may usually have 1,024, and each subplan walks two trees while its sandbox is made."""
    for number in range(2_400):
        write(workshop.app / f"above {number // 160}" / f"directory {number // 8}" / f"{number}", f"{number}")
        write(workshop.data / f"above {number // 160}" / f"directory {number // 8}" / f"{number}", f"{number}")
    plan = workshop.create(together(*(sub(f"s{n}", f"sleep 0.5; echo {n} > n{n}") for n in range(16)), parallel=16))
    run_to_the_end(_FEW_FILES, workshop.app, workshop.home, plan.plan_id)
    assert (workshop.sandbox(plan) / "n15").read_text() == "15\n"
