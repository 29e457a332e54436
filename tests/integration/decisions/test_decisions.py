"""Looking at decisions: the tree they make, and each with what it did and what depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from holdfast.app import Holdfast
from holdfast.decisions.tree import DecisionNode, DecisionTree
from holdfast.errors import AmbiguousError, NotFoundError
from holdfast.model import Decision, DecisionType, Plan
from tests.support.workshop import Workshop, run

DECIDING = """
def main(context):
    (context.root / "first").write_text("1")
    context.record_decision(type="implementation_choice", question="How?", chosen="so", confidence=0.5)
    (context.root / "second").write_text("2\\n3\\n")
"""


@pytest.fixture
def plan(workshop: Workshop) -> Plan:
    chosen = {"type": "strategy_choice", "question": "Which?", "chosen": "two", "alternatives": ["three"]}
    made = workshop.create(
        run("echo 1 > one"),
        run("echo 2 > one; echo printed; echo t > two", decision={**chosen, "rationale": "it is more"}),
        run("echo 3 > three", resource="data"),
        validate=["true"],
    )
    return workshop.open().execute(made.plan_id).plan


def _decision(opened: Holdfast, plan: Plan, index: int) -> Decision:
    found = [d for d in opened.decisions(plan.plan_id) if d.step_index == index and not d.is_correction]
    return found[0]


def _nodes(tree: DecisionTree) -> Iterator[DecisionNode]:
    pending = list(tree.roots)
    while pending:
        node = pending.pop(0)
        yield node
        pending = [*node.children, *pending]


def _outline(nodes: Sequence[DecisionNode]) -> list[object]:
    return [
        (node.decision.chosen, _outline(node.children)) if node.children else node.decision.chosen for node in nodes
    ]


# The tree


def test_every_decision_hangs_below_the_one_that_defined_the_plan(workshop: Workshop, plan: Plan) -> None:
    tree = workshop.open().decision_tree(plan.plan_id)
    assert _outline(tree.roots) == [("a plan", ["echo 1 > one", "two", "echo 3 > three", "yes"])]
    assert [node.step for node in _nodes(tree)] == [None, "echo 1 > one", plan.steps[1].name, "echo 3 > three", "true"]
    assert tree.superseded == 0


def test_every_decision_names_the_checkpoints_of_its_step(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    node = next(node for node in _nodes(opened.decision_tree(plan.plan_id)) if node.decision.chosen == "two")
    triggers = [each.checkpoint.metadata.triggers for each in node.checkpoints]
    assert triggers == [("on_tool_write", "on_decision"), ("on_tool_write_complete",)]
    for each in node.checkpoints:
        assert opened.checkpoint(each.display_id, plan.plan_id).checkpoint == each.checkpoint


def test_a_plan_that_has_not_run_has_its_definition_only(workshop: Workshop) -> None:
    made = workshop.create(run("true"))
    assert _outline(workshop.open().decision_tree(made.plan_id).roots) == ["a plan"]


def test_superseded_decisions_are_shown_only_on_request(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    opened.correct(_decision(opened, plan, 1).decision_id, guidance="do four")
    opened.execute(plan.plan_id)
    tree = opened.decision_tree(plan.plan_id)
    assert _outline(tree.roots) == [("a plan", ["echo 1 > one", "do four", "two", "echo 3 > three", "yes"])]
    assert tree.superseded == 3
    with_all = opened.decision_tree(plan.plan_id, with_superseded=True)
    nodes = list(_nodes(with_all))
    assert [node.decision.is_superseded for node in nodes] == [False, False, True, True, True, *[False] * 4]
    assert all(
        node.checkpoints[0].is_superseded
        for node in nodes
        if node.decision.chosen == "yes" and node.decision.is_superseded
    )
    # What a rollback restored belongs to no decision, though it names the one of that moment.
    assert [len(node.checkpoints) for node in nodes if node.decision.chosen == "two"] == [2, 2]


def test_what_a_tool_decided_hangs_below_its_step_and_its_correction_does_not_get_lost(workshop: Workshop) -> None:
    (workshop.app / "deciding.py").write_text(DECIDING)
    made = workshop.create({"name": "decide", "tool": "python", "args": {"callable": "deciding:main"}})
    opened = workshop.open()
    assert opened.execute(made.plan_id).succeeded
    tree = opened.decision_tree(made.plan_id)
    assert _outline(tree.roots) == [("a plan", [("python deciding:main", ["so"])])]
    inner = next(node for node in _nodes(tree) if node.decision.chosen == "so")
    assert inner.step == "decide"
    opened.correct(inner.decision.decision_id, guidance="otherwise")
    # Its parent is superseded with the step it was a part of.
    assert _outline(opened.decision_tree(made.plan_id).roots) == [("a plan", ["otherwise"])]


def test_subplans_hang_below_the_decision_that_spawned_them(workshop: Workshop) -> None:
    inner = {"name": "inner", "subplans": [{"name": "deep", "steps": [run("echo d > deep")]}]}
    made = workshop.create(
        run("echo 1 > one"),
        {
            "name": "both",
            "parallel": 2,
            "subplans": [{"name": "left", "steps": [run("echo l > left")]}, {"name": "right", "steps": [inner]}],
        },
    )
    opened = workshop.open()
    assert opened.execute(made.plan_id).succeeded
    tree = opened.decision_tree(made.plan_id)
    spawn = next(node for node in _nodes(tree) if node.decision.type is DecisionType.SUBPLAN_PARALLEL_SPAWN)
    assert [each.plan.name for each in spawn.subplans] == ["left", "right"]
    assert not any(node.subplans for node in _nodes(tree) if node != spawn)
    deep = next(node for node in _nodes(spawn.subplans[1]) if node.subplans)
    assert [each.plan.name for each in deep.subplans] == ["deep"]
    explained = opened.explain(_decision(opened, made, 0).decision_id)
    assert [each.name for each in explained.subplans] == ["left", "right"]


# One decision


def test_a_decision_is_explained_with_its_reasons_and_what_came_of_it(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    decision = _decision(opened, plan, 1)
    found = opened.explain(decision.decision_id)
    assert (found.plan, found.decision, found.step) == (plan, decision, plan.steps[1].name)
    assert found.parent is not None
    assert found.parent.type is DecisionType.PROMPT_DEFINITION
    assert found.run is not None
    assert found.run.output == "printed\n"
    assert found.checkpoint is not None
    assert found.checkpoint.checkpoint.decision_id == decision.decision_id
    assert found.changes is not None
    assert [(each.path, each.status, each.added_lines, each.removed_lines) for each in found.changes] == [
        ("one", "changed", 1, 1),
        ("two", "added", 1, 0),
    ]
    assert [each.chosen for each in found.dependents] == ["echo 3 > three", "yes"]
    assert found.refusal is None


def test_what_is_said_to_depend_on_it_is_what_a_correction_supersedes(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    decision = _decision(opened, plan, 1)
    told = {decision.decision_id, *(each.decision_id for each in opened.explain(decision.decision_id).dependents)}
    opened.correct(decision.decision_id, guidance="x")
    assert {each.decision_id for each in opened.decisions(plan.plan_id) if each.is_superseded} == told


def test_a_unique_beginning_of_the_id_is_enough(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    decision = _decision(opened, plan, 1)
    assert opened.explain(decision.decision_id[:24].lower()).decision == decision
    with pytest.raises(AmbiguousError):
        opened.explain("0")
    with pytest.raises(NotFoundError, match="no decision"):
        opened.explain("nothing")


def test_the_definition_of_a_plan_changed_nothing_and_all_depends_on_it(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    root, *others = opened.decisions(plan.plan_id)
    found = opened.explain(root.decision_id)
    assert (found.parent, found.step, found.run, found.checkpoint, found.changes) == (None, None, None, None, None)
    assert list(found.dependents) == others
    assert "nothing comes before it" in (found.refusal or "")


def test_a_failed_step_is_explained_after_it_was_rolled_back(workshop: Workshop) -> None:
    made = workshop.create(run("echo 1 > one"), run("echo bad > bad; false"))
    opened = workshop.open()
    opened.execute(made.plan_id)
    found = opened.explain(_decision(opened, made, 1).decision_id)
    assert found.decision.is_superseded
    assert found.run is not None
    assert found.run.error is not None
    assert [(each.path, each.status) for each in found.changes or ()] == [("bad", "added")]
    assert [each.type for each in found.dependents] == [DecisionType.ERROR_RECOVERY]
    assert found.refusal is None


def test_what_a_failed_step_had_done_is_known_also_without_the_trigger_for_errors(workshop: Workshop) -> None:
    made = workshop.create(run("echo bad > bad; false"), policy={"auto_create_on": ["on_decision"]})
    opened = workshop.open()
    opened.execute(made.plan_id)
    found = opened.explain(_decision(opened, made, 0).decision_id)
    assert [each.path for each in found.changes or ()] == ["bad"]


def test_a_superseded_decision_says_why_it_cannot_be_reverted(workshop: Workshop, plan: Plan) -> None:
    opened = workshop.open()
    late = _decision(opened, plan, 2)
    opened.correct(_decision(opened, plan, 1).decision_id, guidance="x")
    found = opened.explain(late.decision_id)
    assert "already superseded" in (found.refusal or "")
    assert found.dependents == ()
    assert [each.path for each in found.changes or ()] == ["three"]


def test_what_a_tool_did_before_it_decided_is_not_the_decisions_doing(workshop: Workshop) -> None:
    (workshop.app / "deciding.py").write_text(DECIDING)
    made = workshop.create({"name": "decide", "tool": "python", "args": {"callable": "deciding:main"}})
    opened = workshop.open()
    opened.execute(made.plan_id)
    decision = next(d for d in opened.decisions(made.plan_id) if d.chosen == "so")
    found = opened.explain(decision.decision_id)
    assert [(each.path, each.added_lines) for each in found.changes or () if "pyc" not in each.path] == [("second", 2)]
    assert found.run is not None
    assert found.run.step == "decide"


@pytest.mark.parametrize("triggers", [[], ["on_tool_write_complete"]])
def test_without_a_checkpoint_of_its_moment_what_it_changed_is_not_known(
    workshop: Workshop, triggers: list[str]
) -> None:
    made = workshop.create(run("echo 1 > one"), run("echo 2 > two"), policy={"auto_create_on": triggers})
    opened = workshop.open()
    opened.execute(made.plan_id)
    found = opened.explain(_decision(opened, made, 0).decision_id)
    assert found.changes is None


def test_what_was_rolled_back_without_a_trace_is_not_known(workshop: Workshop) -> None:
    made = workshop.create(run("false"), policy={"auto_create_on": ["on_tool_write"]})
    opened = workshop.open()
    opened.execute(made.plan_id)
    assert opened.explain(_decision(opened, made, 0).decision_id).changes is None


def test_what_a_failed_step_left_is_not_known_without_a_checkpoint_after_it(workshop: Workshop) -> None:
    made = workshop.create(
        run("echo bad > bad; false"), policy={"auto_create_on": ["on_tool_write"], "on_failure": "keep"}
    )
    opened = workshop.open()
    opened.execute(made.plan_id)
    assert opened.explain(_decision(opened, made, 0).decision_id).changes is None


def test_when_the_end_of_its_step_was_pruned_nothing_is_told_that_others_did(workshop: Workshop) -> None:
    made = workshop.create(*(run(f"echo {n} > f{n}") for n in range(3)))
    opened = workshop.open()
    opened.execute(made.plan_id)
    for view in opened.checkpoints(made.plan_id):
        if view.group.last_completed_step == 0:
            opened.delete_checkpoint(made.plan_id, view.checkpoint.checkpoint_id)
    assert opened.explain(_decision(opened, made, 0).decision_id).changes is None
    assert [each.path for each in opened.explain(_decision(opened, made, 2).decision_id).changes or ()] == ["f2"]
