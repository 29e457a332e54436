"""A command that Holdfast prints works when it is pasted, in the state in which it is printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

import pytest

from holdfast.model import Plan
from tests.integration.cli.project import Ended, Project

STEPS = """
  - {name: one, run: echo 1 > one}
  - name: divide
    parallel: 2
    subplans:
      - {name: left, steps: [{name: inner, run: echo l > l}]}
      - name: right
        steps:
          - name: deeper
            subplans: [{name: deep, steps: [{name: deepest, run: echo d > d}]}]
  - {name: three, run: echo 3 > three}
"""
OWN_DECISION = STEPS.replace(
    "    parallel: 2\n",
    "    parallel: 2\n    decision: {type: strategy_choice, question: 'How?', chosen: in parts}\n",
    1,
)
FAILING = STEPS.replace("echo 3 > three", "exit 1")
FAILING_BELOW = STEPS.replace("echo d > d", "exit 1")
CLASH = STEPS.replace("echo l > l", "echo l > version.txt").replace("echo d > d", "echo d > version.txt")
RECORDED_LITTLE = "policy: {auto_create_on: [on_tool_write_complete]}\n"
WAITS_FOR_A_PERSON = 5


def complete(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(STEPS)))


def complete_with_a_decision_of_its_own(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(OWN_DECISION)))


def complete_with_few_checkpoints(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(STEPS, header=RECORDED_LITTLE)))


def not_to_be_rolled_back(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(STEPS, header="policy: {rollback_enabled: false}\n")))


def not_run_yet(project: Project) -> None:
    project.json("plan", "create", str(project.plan(STEPS)))


def failed(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(FAILING)), exit_code=1)


def failed_below(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(FAILING_BELOW)), exit_code=1)


def failed_below_and_kept(project: Project) -> None:
    project.json(
        "plan", "execute", str(project.plan(FAILING_BELOW, header="policy: {on_failure: keep}\n")), exit_code=1
    )


def constrained(project: Project) -> None:
    project.json("plan", "execute", str(project.plan(CLASH)), exit_code=WAITS_FOR_A_PERSON)


def cancelled(project: Project) -> None:
    failed(project)
    project.json("plan", "cancel", "latest")


def rolled_back(project: Project) -> None:
    complete(project)
    project.json("plan", "rollback", "--yes", "latest", project.checkpoint_before(2))


def applied(project: Project) -> None:
    complete(project)
    project.json("plan", "apply", "--yes", "latest")


SITUATIONS = (
    not_run_yet, complete, complete_with_a_decision_of_its_own, complete_with_few_checkpoints, not_to_be_rolled_back,
    failed, failed_below, failed_below_and_kept, constrained, cancelled, rolled_back, applied,
)  # fmt: skip


def family_of(project: Project) -> list[Plan]:
    with project.opened() as opened:
        plans = [opened.find_plan("latest")]
        for plan in plans:
            plans += opened.store.plans.below(plan.plan_id)
        return plans


def shown_of(project: Project, plan: Plan) -> Iterator[list[str]]:
    """Everything there is to look at in a plan."""
    yield from (["plan", word, plan.plan_id] for word in ("status", "log", "tree"))
    yield ["checkpoint", "list", plan.plan_id]
    for each in project.checkpoints(plan.plan_id):
        yield ["checkpoint", "show", "--plan", plan.plan_id, each["checkpoint_id"]]
    with project.opened() as opened:
        yield from (["plan", "explain", each.decision_id] for each in opened.decisions(plan.plan_id))


def commands_in(ended: Ended) -> list[list[str]]:
    lines = [line.partition("  holdfast ")[2] for line in ended.stdout.splitlines() if "  holdfast " in line]
    return [shlex.split(each) for each in (*lines, *re.findall(r"`holdfast ([^`]*)`", ended.stderr))]


def pasted(project: Project, words: list[str], plan: Plan) -> Ended:
    """The command, only asked what it would do; the words in capitals are for the reader to fill in."""
    if "CHECKPOINT" in words:
        listed = [each["checkpoint_id"] for each in project.checkpoints(plan.plan_id)]
        words = [listed[-1] if word == "CHECKPOINT" else word for word in words]
    with project.opened() as opened:
        decision = opened.decisions(plan.plan_id)[0].decision_id
    words = [decision if word == "DECISION_ID" else word for word in words]
    if words[1] in ("execute", "resume"):
        words = ["plan", "resume", "--dry-run", *(word for word in words[2:] if word != "--dry-run")]
    elif words[1] in ("rollback", "correct", "apply", "unapply") and "--dry-run" not in words:
        words = [*words, "--dry-run"]
    return project.call(*words)


@pytest.mark.unmeasured
@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_command_that_is_shown_works(project: Project, situation: Callable[[Project], None]) -> None:
    situation(project)
    tried: set[tuple[str, ...]] = set()
    for plan in family_of(project):
        for looking in shown_of(project, plan):
            ended = project.call(*looking)
            assert ended.exit_code == 0, (looking, ended)
            for words in commands_in(ended):
                if tuple(words) in tried:
                    continue
                tried.add(tuple(words))
                result = pasted(project, words, plan)
                fine = (0, WAITS_FOR_A_PERSON) if situation is constrained else (0,)
                assert result.exit_code in fine, (looking, words, result)
    assert tried


@pytest.mark.parametrize("steps", [FAILING, FAILING_BELOW, "  - {name: bad, run: echo bad > bad; exit 1}\n"])
@pytest.mark.parametrize("policy", ["{}", "{on_failure: keep}", "{auto_create_on: []}", "{rollback_enabled: false}"])
def test_every_command_that_a_failure_names_works(project: Project, steps: str, policy: str) -> None:
    ended = project.call("plan", "execute", str(project.plan(steps, header=f"policy: {policy}\n")))
    assert ended.exit_code == 1
    words = commands_in(ended)
    assert len(words) >= 2
    for each in words:
        assert pasted(project, each, family_of(project)[0]).exit_code == 0, (ended, each)


def test_a_refusal_inside_of_a_subplan_names_a_command_that_works(project: Project) -> None:
    complete(project)
    root, *subplans = family_of(project)
    refused = 0
    for plan in subplans:
        first = project.checkpoints(plan.plan_id)[0]["checkpoint_id"]
        with project.opened() as opened:
            decisions = [each.decision_id for each in opened.decisions(plan.plan_id)]
        for words in (
            ["plan", "rollback", "--yes", plan.plan_id, first],
            ["plan", "resume", plan.plan_id],
            ["plan", "resume", "--dry-run", plan.plan_id],
            *(["plan", "correct", "--yes", "--mode", "revert", "--guidance", "x", each] for each in decisions),
        ):
            ended = project.call(*words)
            assert ended.exit_code == 4, (words, ended)
            assert "is a subplan of" in ended.stderr
            for hint in commands_in(ended):
                refused += 1
                if hint[:2] == ["plan", "resume"]:
                    assert hint[2:] == [root.plan_id]
                else:
                    assert pasted(project, hint, root).exit_code == 0, (words, hint)
    assert refused


def test_explaining_a_decision_of_a_subplan_names_the_one_that_can_be_corrected(project: Project) -> None:
    complete(project)
    root, *subplans = family_of(project)
    for plan in subplans:
        with project.opened() as opened:
            decision = opened.decisions(plan.plan_id)[-1]
        told = project.json("plan", "explain", decision.decision_id)
        assert not told["can_be_reverted"]
        assert "is a subplan of" in told["refusal"]
        words = ("plan", "correct", "--yes", "--mode", "revert", "--guidance", "otherwise", "--dry-run")
        corrected = project.json(*words, told["correctable_decision_id"])
        assert corrected["plan_id"] == root.plan_id
        assert corrected["resumes_at_step"] == 1


def test_a_beginning_that_several_plans_have_names_them_all(project: Project) -> None:
    made = [project.json("plan", "create", str(project.plan("  - run: 'true'\n")))["plan_id"] for _ in range(2)]
    ended = project.call("plan", "status", made[0][:2])
    assert ended.exit_code == 3
    assert f"2 plans begin with '{made[0][:2]}'." in ended.stderr
    assert f"Say which one: {made[1]}, {made[0]}." in ended.stderr or f"{made[0]}, {made[1]}." in ended.stderr


def test_a_command_that_there_is_none_of_points_to_the_help(project: Project) -> None:
    ended = project.call("plam")
    assert (ended.exit_code, "No such command 'plam'" in ended.stderr) == (2, True)
    assert "See `holdfast --help`." in ended.stderr
